"""Moves the start of an open log up: whole segments by retention, or up to an offset for DeleteRecords.

1. Records are dropped only once the entry from which a restart replays the producers is durable (`Chain.replay_start`).
2. The log's start moves after the metadata is changed. During a trim, no other code changes the list of segments.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from gnomon.broker.partition.chain import Chain
from gnomon.broker.partition.log import PartitionLog
from gnomon.log.entry import Offset
from gnomon.log.segment import Segment
from gnomon.metadata.client import Compare

SEGMENTS_AT_ONCE = 100
"""Maximum segments in one transaction: an etcd takes 128 comparisons and as many operations."""


class RetentionBound(NamedTuple):
    """The end of the records that retention may drop: subscriptions hold the later ones."""

    offset: Offset
    """Records at this offset and after it are kept."""
    compares: Sequence[Compare]
    """Comparisons that hold in the metadata as long as the bound is valid."""


FindRetentionBound = Callable[[Offset], Awaitable[RetentionBound | None]]
"""Finds the bound among the records before an offset; None where retention does not wait for subscriptions."""


async def no_bound(end: Offset) -> None:
    """Retention by time and size alone."""


class Trim:
    """Trims one log."""

    def __init__(self, chain: Chain, log: PartitionLog, segments: list[Segment]) -> None:
        self._chain = chain
        self._log = log
        self._segments = segments

    def segments_due(self, now_ms: int) -> int:
        """The number of first segments that are due to be dropped by time and size."""
        sealed = [(segment.size_bytes, segment.youngest_ms) for segment in self._segments[:-1]]
        return self._log.segments_to_drop(sealed, now_ms)

    async def drop(self, count: int, read_by_all: Sequence[Compare] | None = None) -> bool:
        """Drops the first segments, unless the topic is deleted or the segments are changed meanwhile.

        Args:
            read_by_all: comparisons that hold if every subscription has read the segments; None if that is not known.

        Returns:
            Whether all of them are dropped.

        Raises:
            LedgerError, MetadataError, WorldError: they could not be dropped, or the outcome is unknown.
        """
        if not count:
            return True
        await self._chain.replay_start(self._log, self._segments[-1])
        while count:
            some = min(count, SEGMENTS_AT_ONCE)
            if not await self._chain.delete(self._segments[:some], self._segments[-1], read_by_all):
                return False
            del self._segments[:some]
            self._log.trim(self._segments[0].base_offset)
            count -= some
        return True

    async def cut(self, offset: Offset) -> None:
        """Drops the records before an offset of the first segment.

        Raises:
            LedgerError, MetadataError, WorldError: as for `drop`.
        """
        replay_from = await self._chain.replay_start(self._log, self._segments[-1])
        await self._chain.cut_first(self._log, self._segments, offset, replay_from)
