"""Entries, segments and records of a partition, made for the tests of the audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.record import Fragment, LedgerRecord, LedgerState, Quorum, ledger_key
from gnomon.log.chain_image import ChainSegment
from gnomon.log.entry import NO_ABORT, EntryKind, LeaderEpoch, Offset, pack_header
from gnomon.log.segment_record import (
    BATCHES_BYTES,
    CREATED_MS,
    EPOCH,
    MAX_TIMESTAMP,
    NEXT_OFFSET,
    YOUNGEST_MS,
    segment_name,
)
from gnomon.metadata.client import KeyValue, Revision
from gnomon.wire.kafka.records import Record, build_batch

BOOKIES = (BookieId("b1"), BookieId("b2"), BookieId("b3"))
TOPIC = "orders"
PREFIX = "topics/0123456789abcdef0123456789abcdef/0/"


class MadeEntry(NamedTuple):
    """An entry as the comparison of its copies gives it."""

    entry: EntryId
    payload: memoryview | None
    asked: Sequence[BookieId] = BOOKIES
    faults: Mapping[BookieId, tuple[str, str]] = {}


def batch(base: int, count: int = 2, epoch: int = 1, compression: int = 0) -> bytes:
    records = [Record(number, 0, None, b"value %d" % number) for number in range(count)]
    return build_batch(records, base_timestamp=1000, base_offset=base, leader_epoch=epoch, compression=compression)


def entry(
    number: int, base: int, count: int = 2, *, epoch: int = 1, body: bytes | None = None, **fields: Any
) -> MadeEntry:
    """An entry with a batch of `count` records; `fields` replace those of its header."""
    header: dict[str, Any] = {
        "kind": EntryKind.BATCH,
        "leader_epoch": LeaderEpoch(epoch),
        "base_offset": Offset(base),
        "next_offset": Offset(base + count),
        "last_stable_offset": Offset(base + count),
        "max_timestamp": 1000,
        "replay_from": 0,
        "last_abort": NO_ABORT,
        **fields,
    }
    payload = pack_header(*header.values()) + (batch(base, count, epoch) if body is None else body)
    return MadeEntry(EntryId(number), memoryview(payload))


def snapshot(number: int, at: int, epoch: int = 1) -> MadeEntry:
    return entry(number, at, 0, epoch=epoch, body=b"producers", kind=EntryKind.PRODUCERS)


def segment(
    base: int = 0, *, end: int | None = None, last: int = -1, start: int = 0, **properties: Any
) -> ChainSegment:
    """A segment of a chain; `end` seals it there, after entry `last`."""
    named: dict[str, Any] = {EPOCH: 1, CREATED_MS: 0}
    if end is not None:
        named |= {NEXT_OFFSET: end, MAX_TIMESTAMP: 1000, YOUNGEST_MS: 1000, BATCHES_BYTES: 100}
    named |= properties
    record = LedgerRecord(
        Quorum(3, 3, 2),
        (Fragment(EntryId(0), SessionId(1), BOOKIES),),
        state=LedgerState.OPEN if end is None else LedgerState.SEALED,
        start_entry=EntryId(start),
        last_entry=EntryId(last),
        properties=named,
    )
    return ChainSegment(Offset(base), 0, LedgerId(base + 1), record, item(base, record.encode()))


def item(base: int, value: bytes) -> KeyValue:
    """The metadata key of the segment at a base offset."""
    return KeyValue(ledger_key(segment_name(PREFIX, Offset(base))), value, Revision(base + 1), Revision(base + 1), 1)
