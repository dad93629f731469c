"""Metrics of single topics and consumer groups, for as many as the setting `metrics.label_sets_max` allows.

1. The numbers are collected every COLLECT_SECONDS, in turns of bounded length; a scrape only shows them.
2. At most `label_sets_max` topics have labels of their own, and as many pairs of group and topic: those that were seen
   first, until they end. All others are summed under OTHERS, and a metric has their number.
3. The lag of a group in a topic is that of the partitions whose ends are known: those that their leaders have used
   since they started. Other leaders are asked for the topics of groups with labels of their own, in the next collection
   (`LogEnds`). The number of all other partitions with a committed offset is a metric as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from uuid import UUID

from gnomon.broker.groups.coordinator import GroupCoordinator
from gnomon.broker.in_use.partitions_in_use import PartitionsInUse
from gnomon.broker.native.log_ends import LogEnds
from gnomon.broker.topics.topics import Topics
from gnomon.runtime.loop.paced import paced
from gnomon.runtime.metrics import Metrics, TopicTraffic
from gnomon.runtime.world import Clock

if TYPE_CHECKING:
    from prometheus_client.core import Metric

Key = TypeVar("Key", str, tuple[str, str])

COLLECT_SECONDS = 5.0
PER_TURN = 2_000
"""Partitions or committed offsets that are looked at in a turn of the event loop, some 2 ms."""
OTHERS = "(others)"
"""The label of the sum of those without labels of their own; no topic can have this name."""


@dataclass(slots=True)
class CollectedTopics:
    """The numbers of the last collection, by topic, or by group and topic."""

    bytes_in: Mapping[str, int] = field(default_factory=dict)
    records_in: Mapping[str, int] = field(default_factory=dict)
    bytes_out: Mapping[str, int] = field(default_factory=dict)
    size_bytes: Mapping[str, int] = field(default_factory=dict)
    topics_left_out: int = 0
    lag: Mapping[tuple[str, str], int] = field(default_factory=dict)
    unknown_ends: Mapping[tuple[str, str], int] = field(default_factory=dict)
    groups_left_out: int = 0

    def families(self) -> Iterator[Metric]:
        """The metrics with these numbers."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        of_topic, of_group = ["topic"], ["group", "topic"]
        for kind, name, help, labels, numbers in (
            (CounterMetricFamily, "topic_bytes_in", "Bytes of record batches received", of_topic, self.bytes_in),
            (CounterMetricFamily, "topic_records_in", "Records received", of_topic, self.records_in),
            (CounterMetricFamily, "topic_bytes_out", "Bytes of batches sent to consumers", of_topic, self.bytes_out),
            (GaugeMetricFamily, "topic_size_bytes", "Bytes of stored batches", of_topic, self.size_bytes),
            (GaugeMetricFamily, "group_lag_records", "Records after the committed offsets", of_group, self.lag),
            (
                GaugeMetricFamily,
                "group_lag_unknown_partitions",
                "Partitions with a committed offset whose end is not known here",
                of_group,
                self.unknown_ends,
            ),
        ):
            family: Any = kind(f"gnomon_{name}", help, labels=labels)
            for key, number in numbers.items():
                family.add_metric([key] if isinstance(key, str) else list(key), number)
            yield family
        left_out = "without labels of their own in the metrics of"
        yield GaugeMetricFamily("gnomon_topics_left_out", f"Topics {left_out} topics", value=self.topics_left_out)
        yield GaugeMetricFamily(
            "gnomon_group_topics_left_out", f"Pairs of group and topic {left_out} groups", value=self.groups_left_out
        )


class TopicMetrics:
    """Collects the numbers of one broker; `run` must run."""

    def __init__(
        self,
        metrics: Metrics,
        traffic: TopicTraffic,
        topics: Topics,
        partitions: PartitionsInUse,
        coordinator: GroupCoordinator,
        ends: LogEnds,
        clock: Clock,
    ) -> None:
        self._label_sets_max = metrics.label_sets_max
        self._traffic = traffic
        self._topics = topics
        self._partitions = partitions
        self._coordinator = coordinator
        self._ends = ends
        self._clock = clock
        self._labelled_topics: dict[str, None] = {}
        self._labelled_groups: dict[tuple[str, str], None] = {}
        self._asked: Iterable[str] = ()
        """The topics of labelled groups with partitions whose ends are not known here."""
        self.collected = CollectedTopics()
        metrics.also(lambda: self.collected.families())

    async def run(self) -> NoReturn:
        """Collects the numbers regularly."""
        while True:
            await self.collect()
            await self._clock.sleep(COLLECT_SECONDS)

    async def collect(self) -> None:
        """Collects the numbers as of now, after the other leaders have been asked."""
        image = self._topics.image
        ends = await self._ends.elsewhere([topic for topic in map(image.get, self._asked) if topic is not None])
        sizes: Counter[str] = Counter()
        async for topic_id, _, partition in paced(self._partitions.with_own_log(), PER_TURN, self._clock):
            topic = image.get_by_id(topic_id)
            if topic is not None and partition.log is not None:
                sizes[topic.name] += partition.size_bytes() or 0
        bytes_in, records_in, bytes_out = self._traffic.named(self._name)
        seen = dict.fromkeys([*sizes, *bytes_in, *bytes_out])
        own = self._labelled_topics = self._labelled(self._labelled_topics, seen)
        lag, unknown, elsewhere = await self._lags(ends)
        pairs = self._labelled_groups = self._labelled(self._labelled_groups, lag)
        self._asked = dict.fromkeys(topic for _, topic in pairs if topic in elsewhere)
        self.collected = CollectedTopics(
            _summed(bytes_in, own, OTHERS),
            _summed(records_in, own, OTHERS),
            _summed(bytes_out, own, OTHERS),
            _summed(sizes, own, OTHERS),
            len(seen) - len(own),
            _summed(lag, pairs, (OTHERS, OTHERS)),
            _summed(unknown, pairs, (OTHERS, OTHERS)),
            len(lag) - len(pairs),
        )

    async def _lags(
        self, ends: Mapping[tuple[str, int], int]
    ) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]], set[str]]:
        """The lags, the numbers of partitions whose ends are unknown, and the topics whose ends others may know."""
        image = self._topics.image
        lag: Counter[tuple[str, str]] = Counter()
        unknown: Counter[tuple[str, str]] = Counter()
        elsewhere: set[str] = set()
        async for group, name, partition, offset in paced(self._coordinator.committed(), PER_TURN, self._clock):
            topic = image.get(name)
            log = None if topic is None else self._partitions.log(topic, partition)
            if log is None:
                elsewhere.add(name)
            end = ends.get((name, partition)) if log is None else log.high_watermark
            lag[group, name] += 0 if end is None else max(0, end - offset)
            unknown[group, name] += end is None
        return lag, unknown, elsewhere

    def _name(self, ref: str | bytes) -> str | None:
        """The name of a topic that exists."""
        topic = self._topics.image.get(ref) if isinstance(ref, str) else self._topics.image.get_by_id(UUID(bytes=ref))
        return None if topic is None else topic.name

    def _labelled(self, before: Iterable[Key], seen: Mapping[Key, object]) -> dict[Key, None]:
        """The keys with labels of their own: those that had them and still exist, then new ones."""
        kept = dict.fromkeys(key for key in before if key in seen)
        for key in seen:
            if len(kept) >= self._label_sets_max:
                break
            kept[key] = None
        return kept


def _summed(numbers: Mapping[Key, int], own: Mapping[Key, None], others: Key) -> dict[Key, int]:
    """The numbers of `own`, and the sum of the others if there are any."""
    found = {key: number for key, number in numbers.items() if key in own}
    if len(found) < len(numbers):
        found[others] = sum(number for key, number in numbers.items() if key not in own)
    return found
