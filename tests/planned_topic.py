"""Plans of reads, made from a cluster's own records and entries."""

from __future__ import annotations

from gnomon.bookie.bookie import Bookies
from gnomon.bookie.entry import StoredEntry
from gnomon.bookie.ids import BookieId, EntryId
from gnomon.bookie.ledgers.catalog import adopt_ledger
from gnomon.bookie.ledgers.copies import read_run
from gnomon.bookie.ledgers.ledgers import Ledgers
from gnomon.bookie.record import ledger_key
from gnomon.bookie.registration import BOOKIES, BookieRegistration
from gnomon.log.chain_image import ChainImage, ChainSegment
from gnomon.log.chains import ledgers_prefix
from gnomon.log.entry import EntryHeader, Offset, unpack_header
from gnomon.log.plans.read_plan import PlannedBookie, PlannedPartition, PlannedSegment, ReadPlan
from gnomon.log.topic import Topic, topic_key
from gnomon.metadata.client import Metadata
from gnomon.metadata.cluster_id import CLUSTER_KEY
from gnomon.runtime.world import Clock


async def plan_of(
    ledgers: Ledgers, topic: str, start: int = 0, stop: int | None = None, partitions: int = 1
) -> ReadPlan:
    """The plan of the same range of each partition, as the leaders would make it.

    Args:
        stop: None for the end of the log.
    """
    stored = await ledgers.metadata.get(topic_key(topic))
    cluster = await ledgers.metadata.get(CLUSTER_KEY)
    assert stored is not None
    assert cluster is not None
    topic_id = Topic.decode(stored).id
    planned = {}
    for number in range(partitions):
        image = ChainImage()
        image.replace((await ledgers.metadata.range(ledger_key(ledgers_prefix(topic_id, number)))).items)
        runs = [await _entries(ledgers.metadata, ledgers.bookies, segment) for segment in image.segments]
        end = max([Offset(0), *(headers[-1][1].next_offset for headers in runs if headers)])
        segments = [
            planned_run(segment, headers, start, end if stop is None else stop)
            for segment, headers in zip(image.segments, runs, strict=True)
        ]
        planned[number] = PlannedPartition(image.start_offset, end, tuple(filter(None, segments)))
    return ReadPlan(topic_id, cluster.value.decode(), planned, await planned_bookies_of(ledgers.metadata))


def planned_run(
    segment: ChainSegment, entries: list[tuple[EntryId, EntryHeader, int]], start: int, stop: int
) -> PlannedSegment | None:
    """The run of the entries that cover a range; None if there are none."""
    wanted = [each for each in entries if each[1].next_offset > start and each[1].base_offset < stop]
    if not wanted:
        return None
    first, last, end = wanted[0][0], wanted[-1][0], wanted[-1][1].next_offset
    size_bytes = sum(size for _, _, size in wanted)
    return PlannedSegment(segment.base_offset, segment.ledger, segment.record, first, last, end, size_bytes)


async def planned_bookies_of(metadata: Metadata) -> tuple[PlannedBookie, ...]:
    """The bookies that have registered."""
    found = await metadata.range(BOOKIES)
    at = {BookieId(item.key.removeprefix(BOOKIES)): BookieRegistration.decode(item.value) for item in found.items}
    return tuple(PlannedBookie(name, each.host, each.port, each.disk) for name, each in at.items())


async def _entries(
    metadata: Metadata, bookies: Bookies, segment: ChainSegment
) -> list[tuple[EntryId, EntryHeader, int]]:
    """Each entry of a segment with its header and the size of its payload."""
    ledger = adopt_ledger(metadata, bookies, segment.stored)
    last = ledger.last_add_confirmed if segment.record.sealed else await ledger.ask_bookies()
    found: list[StoredEntry] = []
    while (entry := EntryId(segment.record.start_entry + len(found))) <= last:
        found += await read_run(bookies, segment.ledger, segment.record, entry, last, 1 << 20)
    return [
        (EntryId(entry), unpack_header(stored.payload), len(stored.payload))
        for entry, stored in enumerate(found, segment.record.start_entry)
    ]


async def confirmed_everywhere(clock: Clock) -> None:
    """Waits until bookies know that all entries are confirmed: brokers send that a little after the last one."""
    await clock.sleep(0.1)
