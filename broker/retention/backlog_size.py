"""The size of a backlog: the bytes and the age of the records of an open partition from an offset on, and the part of
them that retention would delete.

1. The bytes of a part of a log segment are estimated by its records: half of the records count as half of the bytes.
2. Retention deletes whole segments. So a reader holds back every segment that is due and not read to its end.
"""

from __future__ import annotations

from typing import NamedTuple

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ledgers.catalog import EntryCache, LocalViews, read_from_memory
from gnomon.broker.partition.log import PartitionLog, PartitionSettings, segments_to_drop
from gnomon.broker.partition.readable import Readable
from gnomon.broker.partition.stretches import Stretch, last_stretch
from gnomon.log.chains import written_bytes
from gnomon.log.entry import NO_TIMESTAMP, Offset
from gnomon.log.log_positions import LogPositions
from gnomon.log.log_reader import LogBounds
from gnomon.runtime.world import Clock
from gnomon.wire.kafka.batch import parse_batch


class HeldBack(NamedTuple):
    """Records that time and size would delete, and that a reader has not read."""

    records: int
    size_bytes: int


async def shown_stretch(partition: Readable, log: LogBounds, entries: EntryCache) -> Stretch:
    """`last_stretch` for any open partition: the bookies are asked for the size of the last segment of a shadow."""
    if isinstance(log, PartitionLog):
        return last_stretch(partition, log)
    if not partition.segments:  # its source was never written
        return Stretch(log.high_watermark, log.high_watermark, 0)
    last = partition.segments[-1]
    return Stretch(last.base_offset, log.high_watermark, await written_bytes(last.ledger, entries))


async def age_ms(partition: Readable, log: LogBounds, offset: Offset, clock: Clock) -> int:
    """The age of the record at an offset; 0 if there is none, or it has no timestamp.

    Raises:
        LedgerError: the record cannot be read.
    """
    if offset >= log.high_watermark:
        return 0
    positions = LogPositions(log, partition)

    def timestamp() -> int:
        with LocalViews() as views:
            return parse_batch(positions.batch(offset, views).records).max_timestamp

    written_ms = await read_from_memory(timestamp)
    return 0 if written_ms == NO_TIMESTAMP else clock.wall_ms() - written_ms


async def age_seconds(partition: Readable, log: LogBounds, offset: Offset, clock: Clock) -> float | None:
    """`age_ms` in seconds, and never negative; None if the record cannot be read."""
    try:
        return max(0, await age_ms(partition, log, offset, clock)) / 1000
    except LedgerError:
        return None


def held_back(
    partition: Readable, log: LogBounds, settings: PartitionSettings, offset: Offset, last_bytes: int, now_ms: int
) -> HeldBack:
    """The records that retention would delete now without a reader at `offset`.

    Args:
        settings: those of the source, if the partition is a shadow's.
        last_bytes: the size of the segment being written.
    """
    if not settings.held_by_subscriptions:
        return HeldBack(0, 0)
    sealed = partition.segments[:-1]
    sizes = [(segment.size_bytes, segment.youngest_ms) for segment in sealed]
    due = segments_to_drop(settings, sizes, last_bytes, now_ms)
    records = size_bytes = 0
    for segment in sealed[:due]:
        end = segment.next_offset
        assert end is not None, "all segments but the last are sealed"
        if end > offset:
            records += end - max(segment.base_offset, log.start_offset)
            size_bytes += segment.size_bytes
    return HeldBack(records, size_bytes)
