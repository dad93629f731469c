"""The changes that a record batch makes to a table, one for each record. Pure.

1. A record with a value puts it, one with a null value deletes the key. Nothing else changes a table.
2. A produced batch is refused as a whole if a record has no key, a key of more than KEY_BYTES_MAX bytes, a key that
   belongs in another partition, or a time to live that is no number.
3. The partition of a key is that of Kafka's default partitioner, so every client finds the key in the same one.
4. A time to live counts from the record's time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gnomon.log.tables.key_entry import KEY_BYTES_MAX
from gnomon.log.tables.operation_id import EXPIRED, OPERATION, OWN_SEQUENCE, OperationId, is_own
from gnomon.wire.kafka.batch import BatchHeader, BatchRejected, MalformedBatch
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.partitioner import partition_of
from gnomon.wire.kafka.records import Header, Record, iterate_unpacked, unpacked_records

TTL: Final = "gnomon.ttl.ms"
"""The header of a record's time to live, as decimal text."""
TTL_MS_MAX: Final = 1 << 50
"""Some 35,000 years: the expiry of any record fits into 64 bits."""
NO_TTL: Final = 0
RECORDS_MAX: Final = 10_000
"""The most records of a batch, as librdkafka's `batch.num.messages` has by default."""
_DIGITS: Final = re.compile(rb"[0-9]{1,16}")


class KeyChange(NamedTuple):
    """The effect of one record."""

    key: bytes
    value: bytes | None
    """None for a deletion."""
    ttl_ms: int
    """NO_TTL for a value that does not expire."""
    timestamp_ms: int
    """The record's time as its producer gave it."""
    is_expiry: bool


class TableChanges(NamedTuple):
    """The effects of one batch."""

    changes: Sequence[KeyChange]
    """One for each record, in order."""
    operation: OperationId | None = None
    """The numbered operation that wrote the batch."""
    answers: list[Any] | None = None
    """The answers of the operation; None for a batch that is read from the log."""


CHANGE_BYTES: Final = 200
"""The memory of a change besides its key and its value."""


def memory_bytes(changes: Sequence[KeyChange]) -> int:
    """About the memory that changes take."""
    return sum(CHANGE_BYTES + len(change.key) + len(change.value or b"") for change in changes)


@dataclass(frozen=True, slots=True)
class KeyPlacement:
    """The partition that the keys of a batch must belong to."""

    index: int
    partitions: int

    def check(self, number: int, key: bytes) -> None:
        """Checks the key of record `number`.

        Raises:
            BatchRejected: it belongs in another partition.
        """
        found = partition_of(key, self.partitions)
        if found != self.index:
            raise _refused(
                f"the key of record {number} belongs in partition {found}, not in {self.index}: a table places keys as"
                " Kafka's default partitioner does (with librdkafka: partitioner=murmur2_random)"
            )


def changes_of(view: memoryview, batch: BatchHeader, bytes_max: int) -> TableChanges:
    """The changes of a batch in the log.

    Args:
        view: the whole batch.
        batch: its header.
        bytes_max: the most bytes that its records may decompress to.

    Raises:
        UnpackedTooLarge: they decompress to more.
        BatchRejected: it is no batch for a table.
    """
    return _changes(view, batch, bytes_max, None)


def produced_changes(
    view: memoryview, batch: BatchHeader, bytes_max: int, placement: KeyPlacement | None
) -> TableChanges:
    """`changes_of` for a batch of a producer, with the checks of invariant 2; no `placement` where any key fits."""
    if batch.base_sequence == OWN_SEQUENCE:
        raise _refused(f"base sequence {OWN_SEQUENCE} is the leader's own: producers without sequences send -1")
    return _changes(view, batch, bytes_max, placement)


def _changes(view: memoryview, batch: BatchHeader, bytes_max: int, placement: KeyPlacement | None) -> TableChanges:
    if batch.records_count > RECORDS_MAX:
        raise _refused(
            f"the batch has {batch.records_count} records: a table takes {RECORDS_MAX}, send smaller batches"
        )
    own, operation = is_own(batch), None
    changes = []
    base_ms = batch.base_timestamp
    if placement is not None and placement.partitions == 1:
        placement = None
    try:
        for number, record in enumerate(
            iterate_unpacked(unpacked_records(view, batch, bytes_max), batch.records_count)
        ):
            _, timestamp_delta, key, value, headers = record
            if key is None:
                raise _refused(f"record {number} has no key: each record of a table has one")
            if len(key) > KEY_BYTES_MAX:
                raise _refused(f"the key of record {number} has {len(key)} bytes: {KEY_BYTES_MAX} are allowed")
            if placement is not None:
                placement.check(number, key)
            ttl_ms, is_expiry = NO_TTL, False
            if headers:
                ttl_ms = _ttl_ms(number, record, batch)
                if own:
                    is_expiry = any(name == EXPIRED for name, _ in headers)
                    operation = _operation(headers) or operation
            changes.append(KeyChange(key, value, ttl_ms, base_ms + timestamp_delta, is_expiry))
    except (MalformedBatch, ValueError) as error:
        raise _refused(f"the records cannot be read: {error}") from None
    return TableChanges(changes, operation)


def _ttl_ms(number: int, record: Record, batch: BatchHeader) -> int:
    given = [value for name, value in record.headers if name == TTL]
    if not given:
        return NO_TTL
    value = given[0]
    if len(given) > 1 or value is None or _DIGITS.fullmatch(value) is None or not 0 < int(value) <= TTL_MS_MAX:
        raise _refused(
            f"the header {TTL} of record {number} is {value!r:.60}, given {len(given)} times: once a decimal number"
            f" from 1 to {TTL_MS_MAX} is expected"
        )
    if batch.max_timestamp < 0:
        raise _refused(f"record {number} has a time to live and no time to count it from: send a timestamp")
    return int(value)


def _operation(headers: Sequence[Header]) -> OperationId | None:
    for name, value in headers:
        if name == OPERATION:
            return OperationId.decode(value)
    return None


def _refused(text: str) -> BatchRejected:
    return BatchRejected(ErrorCode.INVALID_RECORD, text)
