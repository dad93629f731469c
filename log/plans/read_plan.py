"""The plan of a read: in which entries of which ledgers the records of a range of offsets are stored. Pure.

1. A plan names confirmed entries only: none of them changes, moves to another entry id, or disappears, except by
   deletion. Copies may move to other bookies; the ledger's newer record names these.
2. The segments of a partition are in the order of their offsets, and cover each record of the range once.
3. A plan travels as plain data (lists, numbers, texts and bytes) with a version. `decode_plan` raises InvalidPlan for
   another version, and for data with a field that is missing, too many, of another type, or out of its bounds.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, NamedTuple
from uuid import UUID

from gnomon.bookie.errors import UnreadableRecord
from gnomon.bookie.ids import BookieId, EntryId, LedgerId
from gnomon.bookie.record import LedgerRecord, decode_record
from gnomon.log.entry import Offset

VERSION: Final = 1
"""The version of the plain data that this gnomon writes, and the only one that it reads."""
NUMBER_MAX: Final = 2**63 - 1
PORT_MAX: Final = 65_535
ID_BYTES: Final = 16


class InvalidPlan(ValueError):
    """The data is no plan that this gnomon reads; the text says why."""


class PlannedSegment(NamedTuple):
    """A run of entries of one ledger."""

    base_offset: Offset
    """The first offset of the segment, which is below the first offset of the run where the range begins within it."""
    ledger: LedgerId
    record: LedgerRecord
    first: EntryId
    last: EntryId
    """The last entry of the run; it is confirmed."""
    next_offset: Offset
    """The offset after the last record of the entry `last`."""
    size_bytes: int
    """The payload of the entries of the run; a lower bound if the first or the last of them cannot be read."""


class PlannedPartition(NamedTuple):
    """One partition as its leader sees it, and the part of the range that it has."""

    start_offset: Offset
    high_watermark: Offset
    segments: tuple[PlannedSegment, ...]


class PlannedBookie(NamedTuple):
    """A bookie that a record of the plan names."""

    name: BookieId
    host: str
    port: int
    disk: int
    """The create revision of its cookie: another disk under the same name has another one."""


class ReadPlan(NamedTuple):
    """The answer of one leader: some partitions of a topic, by number."""

    topic_id: UUID
    cluster: str
    """The id of the cluster, which bookies ask for."""
    partitions: dict[int, PlannedPartition]
    bookies: tuple[PlannedBookie, ...]
    """None of a standalone node, whose entries no other process can read."""


def encode_segment(segment: PlannedSegment) -> list[Any]:
    """One segment as plain data."""
    base_offset, ledger, record, *numbers = segment
    return [base_offset, ledger, record.encode(), *numbers]


def encode_plan(plan: ReadPlan) -> list[Any]:
    """A plan as plain data that msgpack can pack."""
    partitions = [
        [number, found.start_offset, found.high_watermark, [encode_segment(segment) for segment in found.segments]]
        for number, found in plan.partitions.items()
    ]
    return plain_plan(plan.topic_id, plan.cluster, partitions, plan.bookies)


def plain_plan(topic_id: UUID, cluster: str, partitions: list[Any], bookies: tuple[PlannedBookie, ...]) -> list[Any]:
    """`encode_plan` for partitions that are plain data already: `[number, start, high watermark, segments]`."""
    return [VERSION, topic_id.bytes, cluster, partitions, [list(bookie) for bookie in bookies]]


def decode_plan(data: Any) -> ReadPlan:
    """Undoes `encode_plan`.

    Raises:
        InvalidPlan: the data has another version, or is no plan.
    """
    if type(data) is not list or not data or type(data[0]) is not int:
        raise InvalidPlan("the data is no plan of a read: a plan is a list that begins with its version")
    if data[0] != VERSION:
        raise InvalidPlan(
            f"the plan of a read has version {data[0]}, this gnomon reads version {VERSION}: run the same version of"
            " gnomon on both sides"
        )
    _, topic_id, cluster, partitions, bookies = _fields("a plan", data, int, bytes, str, list, list)
    if len(topic_id) != ID_BYTES:
        raise InvalidPlan(f"a topic id has {ID_BYTES} bytes, not {len(topic_id)}")
    found = dict(_partition(each) for each in partitions)
    if len(found) != len(partitions):
        raise InvalidPlan("a plan names a partition twice")
    return ReadPlan(UUID(bytes=topic_id), cluster, found, tuple(_bookie(each) for each in bookies))


def _partition(data: Any) -> tuple[int, PlannedPartition]:
    number, start, end, segments = _fields("a partition", data, int, int, int, list)
    if start > end:
        raise InvalidPlan(f"partition {number} begins at offset {start}, after its high watermark {end}")
    planned = tuple(_segment(each) for each in segments)
    for before, after in pairwise(planned):
        if before.next_offset > after.next_offset or before.base_offset >= after.base_offset:
            raise InvalidPlan(f"the segments of partition {number} are not in the order of their offsets")
    return number, PlannedPartition(start, end, planned)


def _segment(data: Any) -> PlannedSegment:
    base, ledger, stored, first, last, end, size = _fields("a segment", data, int, int, bytes, int, int, int, int)
    if first > last or base > end:
        raise InvalidPlan(f"the run of a segment ends before it begins: entries {first} to {last}, up to offset {end}")
    return PlannedSegment(base, ledger, _record(stored), first, last, end, size)


def _record(stored: bytes) -> LedgerRecord:
    try:
        record = decode_record(stored)
        record.quorum.check()
    except (UnreadableRecord, ValueError, TypeError) as error:
        raise InvalidPlan(f"a plan has the record of a ledger that cannot be read: {error}") from error
    fragments = [_fields("a fragment", list(each), int, int, tuple) for each in record.fragments]
    names = [name for _, _, bookies in fragments for name in bookies]
    if len(names) != len(fragments) * record.quorum.ensemble_size or not fragments:
        raise InvalidPlan("a plan has the record of a ledger whose fragments name more or fewer bookies than it says")
    _fields("an ensemble", names, *[str] * len(names))
    return record


def _bookie(data: Any) -> PlannedBookie:
    name, host, port, disk = _fields("a bookie", data, str, str, int, int)
    if port > PORT_MAX:
        raise InvalidPlan(f"bookie {name!r} has port {port}, the highest is {PORT_MAX}")
    return PlannedBookie(name, host, port, disk)


def _fields(what: str, data: Any, *kinds: type) -> list[Any]:
    """The fields of a list, if they have these types in this order, and every number is in 0 to NUMBER_MAX."""
    if type(data) is not list or len(data) != len(kinds) or [type(each) for each in data] != list(kinds):
        raise InvalidPlan(f"{what} of a plan has the fields {', '.join(kind.__name__ for kind in kinds)}")
    for each in data:
        if type(each) is int and not 0 <= each <= NUMBER_MAX:
            raise InvalidPlan(f"{what} of a plan has the number {each}: numbers are from 0 to {NUMBER_MAX}")
    return data
