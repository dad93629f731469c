"""Moving the start of an open log up: whole segments by retention, up to an offset where a client asks for that.

1. Nothing is given up before what a restart finds the producers by is durable (`Chain.replay_start`).
2. The log's start moves once the metadata says so; nothing else changes the segments meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from gnomon.broker.partition.chain import Chain
from gnomon.broker.partition.entry import Offset
from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.partition.segment import Segment
from gnomon.metadata.client import Compare

SEGMENTS_AT_ONCE = 100
"""More would not fit into one transaction of an etcd, which takes 128 comparisons, and as many operations."""


class Held(NamedTuple):
    """What readers hold of a log."""

    offset: Offset
    """Nothing at or behind it goes."""
    compares: Sequence[Compare]
    """What is so in the metadata as long as that holds."""


AskHeld = Callable[[], Awaitable[Held | None]]
"""Finds out what is held; None where retention waits for nobody."""


async def waits_for_nobody() -> None:
    """Retention by time and size alone."""


class Trim:
    """How much of one log may go, and giving that up."""

    def __init__(self, chain: Chain, log: PartitionLog, segments: list[Segment]) -> None:
        self._chain = chain
        self._log = log
        self._segments = segments

    def segments_due(self, now_ms: int) -> int:
        """How many of the first segments are to go by time and size."""
        sealed = [(segment.size_bytes, segment.youngest_ms) for segment in self._segments[:-1]]
        return self._log.segments_to_drop(sealed, now_ms)

    async def drop(self, count: int, read_by_all: Sequence[Compare] | None = None) -> bool:
        """Gives up the first segments, unless the topic goes meanwhile, or somebody else gave them up.

        Returns:
            Whether all of them are given up.

        Raises:
            LedgerError, MetadataError, WorldError: they could not be given up, or whether they were is not known.
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
        """Gives up what lies before an offset of the first segment.

        Raises:
            LedgerError, MetadataError, WorldError: as for `drop`.
        """
        replay_from = await self._chain.replay_start(self._log, self._segments[-1])
        await self._chain.cut_first(self._log, self._segments, offset, replay_from)
