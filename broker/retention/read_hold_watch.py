"""Looks at all read holds regularly, for the metrics of one broker: their number, and the lowest offset of partitions.

1. A look is one read of the metadata every LOOK_SECONDS, and takes many short turns.
2. At most `label_sets_max` partitions have labels of their own: those in the order of the topic ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NoReturn

from gnomon.broker.retention.read_holds import ReadHolds
from gnomon.broker.topics.topics import Topics
from gnomon.metadata.client import MetadataError
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.world import Clock

LOOK_SECONDS: Final = 60.0


class ReadHoldWatch:
    """The numbers of the read holds of a cluster, as one broker shows them."""

    def __init__(self, holds: ReadHolds, topics: Topics, metrics: Metrics, clock: Clock) -> None:
        self._holds = holds
        self._topics = topics
        self._clock = clock
        self._label_sets_max = metrics.label_sets_max
        self._count = 0
        self._lowest: Sequence[tuple[tuple[str, str], float]] = ()
        metrics.watch("read_holds", "Partitions' read holds in the cluster, each by its name", lambda: self._count)
        if metrics.label_sets_max:
            metrics.watch_labelled(
                "read_holds_lowest_offset",
                "Lowest offset of the read holds of a partition",
                ("topic", "partition"),
                lambda: self._lowest,
            )

    async def run(self) -> NoReturn:
        """Looks until cancelled; while the metadata does not answer, the last numbers are shown."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            with suppress(MetadataError):
                await self.look()

    async def look(self) -> None:
        """Looks at all holds once.

        Raises:
            MetadataError: they cannot be read.
        """
        count, lowest = 0, list[tuple[tuple[str, str], float]]()
        for topic_id, partitions in (await self._holds.all()).items():
            topic = self._topics.image.get_by_id(topic_id)
            for index, held in partitions.items():
                count += held.holds
                if topic is not None and len(lowest) < self._label_sets_max:
                    lowest.append(((topic.name, str(index)), held.offset))
        self._count, self._lowest = count, lowest
