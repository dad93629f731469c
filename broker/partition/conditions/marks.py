"""The terms that a writer gives in the headers of records: expected offset, transaction id and fencing token. Pure.

1. A batch is searched for the names before anything of it is parsed. A name in a key or a value is no header.
2. Any record of a batch may have any of the headers, each once. An invalid one refuses the batch, and the text names
   the record.
3. A batch is searched within the turn only if it takes less than 10 ms: all others are searched in a thread
   (`batch_thread`).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from gnomon.broker.partition.unpacking.recoding import AT_ONCE_BYTES_MAX, RECODED_BYTES_MAX, TakesLong
from gnomon.log.sn import SN_MAX
from gnomon.log.term_headers import EXPECTED_OFFSET, FENCING_TOKEN, TOKEN_BYTES_MAX, TRANSACTION_ID
from gnomon.wire.kafka.batch import BatchHeader, BatchRejected, MalformedBatch
from gnomon.wire.kafka.compression import Codec, UnpackedTooLarge
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, iterate_unpacked, unpacked_records

RECORDS_MAX: Final = 20_000
"""The most records of a batch on a topic whose records may have terms."""
SEARCHED_BYTES_MAX: Final = 4 << 20
"""Looking for the names in as many bytes takes some 2 ms."""
RECORDS_AT_ONCE_MAX: Final = 500
"""Reading as many takes some 1 ms."""
_NAMES: Final = frozenset((EXPECTED_OFFSET, TRANSACTION_ID, FENCING_TOKEN))
_COMMON: Final = b"gnomon."
"""The beginning of all names. CPython's `rfind` looks for it in a third of the time of `find`."""
_ENCODED: Final = tuple(name.encode() for name in (EXPECTED_OFFSET, TRANSACTION_ID, FENCING_TOKEN))
_DIGITS = re.compile(rb"[0-9]{1,19}")


class ExpectedOffset(NamedTuple):
    """The offset that one record of a batch must get."""

    delta: int
    """The record's place in the batch, from 0."""
    offset: int


class BatchMarks(NamedTuple):
    """The terms in the headers of a batch's records."""

    offsets: tuple[ExpectedOffset, ...] = ()
    first_transaction_id: int | None = None
    last_transaction_id: int | None = None
    token: bytes | None = None


NO_MARKS: Final = BatchMarks()


def marks_at_once(view: memoryview, batch: BatchHeader) -> BatchMarks:
    """The marks of a batch, if that takes less than a turn of the event loop.

    Args:
        view: the batch, which was checked.
        batch: its header.

    Raises:
        TakesLong: it takes longer.
        BatchRejected: as `marks_of`.
    """
    if len(view) > (SEARCHED_BYTES_MAX if batch.compression == Codec.NONE else AT_ONCE_BYTES_MAX):
        raise TakesLong
    try:
        records = unpacked_records(view, batch, AT_ONCE_BYTES_MAX)
    except UnpackedTooLarge:
        raise TakesLong from None
    if records.rfind(_COMMON) >= 0:
        if batch.records_count > RECORDS_AT_ONCE_MAX or len(records) > AT_ONCE_BYTES_MAX:
            raise TakesLong
        if _may_have_marks(records):
            return _found(records, batch)
    _check_count(batch)
    return NO_MARKS


def marks_of(view: memoryview, batch: BatchHeader, bytes_max: int = RECODED_BYTES_MAX) -> BatchMarks:
    """The marks of a batch.

    Args:
        view: the batch, which was checked.
        batch: its header.
        bytes_max: the most bytes that its records may decompress to.

    Raises:
        UnpackedTooLarge: they decompress to more.
        BatchRejected: a header is invalid, or the records cannot be read.
    """
    _check_count(batch)
    records = unpacked_records(view, batch, bytes_max)
    return _found(records, batch) if _may_have_marks(records) else NO_MARKS


def _found(records: bytes, batch: BatchHeader) -> BatchMarks:
    found = _FoundMarks()
    try:
        for number, record in enumerate(iterate_unpacked(records, batch.records_count)):
            if record.headers:
                found.take(number, record)
    except MalformedBatch as error:
        raise BatchRejected(ErrorCode.INVALID_RECORD, f"the records cannot be searched for terms: {error}") from None
    return found.marks()


def _may_have_marks(records: bytes) -> bool:
    return any(records.rfind(name) >= 0 for name in _ENCODED)


def _check_count(batch: BatchHeader) -> None:
    if batch.records_count > RECORDS_MAX:
        raise BatchRejected(
            ErrorCode.INVALID_RECORD,
            f"the batch has {batch.records_count} records: a topic with conditional writes takes {RECORDS_MAX}, send"
            " smaller batches",
        )


class _FoundMarks:
    """The marks of the records that were read so far."""

    def __init__(self) -> None:
        self._offsets: list[ExpectedOffset] = []
        self._transaction_ids: list[int] = []
        self._token: bytes | None = None

    def take(self, number: int, record: Record) -> None:
        """Takes the headers of a record."""
        seen: set[str] = set()
        for name, value in record.headers:
            if name not in _NAMES:
                continue
            if name in seen:
                raise _invalid(number, name, "is given twice")
            seen.add(name)
            if value is None:
                raise _invalid(number, name, "is null")
            if name == EXPECTED_OFFSET:
                self._offsets.append(ExpectedOffset(record.offset_delta, _number(number, name, value)))
            elif name == TRANSACTION_ID:
                self._take_transaction_id(number, _number(number, name, value))
            else:
                self._take_token(number, value)

    def _take_transaction_id(self, number: int, transaction_id: int) -> None:
        if self._transaction_ids and transaction_id < self._transaction_ids[-1]:
            before = self._transaction_ids[-1]
            raise _invalid(number, TRANSACTION_ID, f"is {transaction_id} after {before} in the batch: ids never fall")
        self._transaction_ids.append(transaction_id)

    def _take_token(self, number: int, token: bytes) -> None:
        if not 0 < len(token) <= TOKEN_BYTES_MAX:
            raise _invalid(number, FENCING_TOKEN, f"has {len(token)} bytes: 1 to {TOKEN_BYTES_MAX} are allowed")
        if self._token not in (None, token):
            raise _invalid(number, FENCING_TOKEN, "is not that of an earlier record: a batch has one token")
        self._token = token

    def marks(self) -> BatchMarks:
        """The marks of all records."""
        ids = self._transaction_ids
        return BatchMarks(tuple(self._offsets), ids[0] if ids else None, ids[-1] if ids else None, self._token)


def _number(number: int, name: str, value: bytes) -> int:
    if _DIGITS.fullmatch(value) is None or int(value) > SN_MAX:
        raise _invalid(number, name, f"is {value!r:.60}: a decimal number from 0 to {SN_MAX} is expected")
    return int(value)


def _invalid(number: int, name: str, problem: str) -> BatchRejected:
    return BatchRejected(ErrorCode.INVALID_RECORD, f"the header {name} of record {number} of the batch {problem}")
