"""The counters of a node: one object per node, plain numbers on the hot path.

`metrics.produce_bytes += n` costs about 0.1 µs, a prometheus_client counter 0.5–1 µs, and importing prometheus_client
85 ms. So prometheus_client is imported at the first scrape, and gets the numbers at each scrape. Count per batch or
request, never per record.
"""

from __future__ import annotations

import math
import platform
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any

from gnomon import __version__
from gnomon.runtime.world import CommitCounts, Disk, Environment, WorldError
from gnomon.wire.kafka.batch import HEADER_BYTES

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

SECONDS_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

# attribute → (metric name without prefix and suffix, help)
COUNTERS = {
    "produce_bytes": ("produce_bytes", "Bytes of record batches received, including refused and repeated ones"),
    "produce_batches": ("produce_batches", "Record batches received, including refused and repeated ones"),
    "fetch_bytes": ("fetch_bytes", "Bytes of record batches sent to consumers"),
    "fetch_batches": ("fetch_batches", "Record batches sent to consumers"),
    "backlog_records_dropped": (
        "backlog_records_dropped",
        "Records deleted by backlog quotas before a durable subscription had read them",
    ),
    "connections_accepted": ("connections_accepted", "Kafka connections accepted since the start"),
    "connections_refused": (
        "connections_refused",
        "Kafka connections that the broker ended; its log has the reason",
    ),
}
GAUGES = {
    "connections": ("connections", "Kafka connections open"),
    "durability_synced": ("durability_synced", "1 if an acknowledgement means on disk, 0 with durability none"),
}

KAFKA_GAUGES = {"connections"}
BUILD_LABELS = ("version", "python")
_COUNT = Struct(">i")
"""The number of records of a batch, at the end of its header."""


class Histogram:
    """Counts by upper bound in seconds; observing costs about 0.3 µs."""

    __slots__ = ("counts", "sum_seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS_BOUNDS) + 1)
        self.sum_seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Counts one event that took `seconds`."""
        self.counts[bisect_left(SECONDS_BOUNDS, seconds)] += 1
        self.sum_seconds += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts by bound, in Prometheus' form."""
        total, buckets = 0, []
        for bound, count in zip([*map(str, SECONDS_BOUNDS), "+Inf"], self.counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        return buckets


class TopicTraffic:
    """Bytes and records of single topics since the start, by a topic's name, or its id until it is named."""

    def __init__(self) -> None:
        self.bytes_in: dict[str | bytes, int] = {}
        self.records_in: dict[str | bytes, int] = {}
        self.bytes_out: dict[str | bytes, int] = {}

    def received(self, topic: str | bytes, records: memoryview) -> None:
        """Counts a batch that a producer sent."""
        self.bytes_in[topic] = self.bytes_in.get(topic, 0) + len(records)
        if len(records) >= HEADER_BYTES:
            (count,) = _COUNT.unpack_from(records, HEADER_BYTES - _COUNT.size)
            self.records_in[topic] = self.records_in.get(topic, 0) + max(count, 0)

    def sent(self, topic: str | bytes, count: int) -> None:
        """Counts `count` bytes that a consumer was sent."""
        self.bytes_out[topic] = self.bytes_out.get(topic, 0) + count

    def named(self, name: Callable[[str | bytes], str | None]) -> list[dict[str, int]]:
        """Bytes in, records in and bytes out by name; topics that `name` does not find are forgotten."""
        named: list[dict[str, int]] = []
        for numbers in (self.bytes_in, self.records_in, self.bytes_out):
            by_name: dict[str, int] = {}
            for ref, number in numbers.items():
                found = name(ref)
                if found is not None:
                    by_name[found] = by_name.get(found, 0) + number
            numbers.clear()
            numbers.update(by_name)
            named.append(by_name)
        return named


class Metrics:
    """One node's numbers: add to the attributes, name further ones with `watch`, export with `render`."""

    def __init__(self, *, kafka: bool = True, label_sets_max: int = 0) -> None:
        """Numbers that are all 0.

        Args:
            kafka: whether the node serves Kafka clients, and so has metrics about them.
            label_sets_max: the most topics with metrics of their own; 0 for none.
        """
        self._kafka = kafka
        self.label_sets_max = label_sets_max
        self.traffic = TopicTraffic() if label_sets_max else None
        """Of single topics; None if they are not counted."""
        self.produce_bytes = 0
        self.produce_batches = 0
        self.fetch_bytes = 0
        self.fetch_batches = 0
        self.backlog_records_dropped = 0
        self.connections_accepted = 0
        self.connections_refused = 0
        self.connections = 0
        self.durability_synced = 1
        self.request_seconds: dict[str, Histogram] = defaultdict(Histogram)
        """By API; a request's count is its histogram's, so keep the Histogram where the API is dispatched."""
        self.turn_seconds = Histogram()
        """Of the turns of the event loop (`turn_watch`)."""
        self.commits: dict[str, CommitCounts] = {}
        """By environment: `metrics.commits["bookie"] = environment.counts`."""
        self.process = False
        """Whether the metrics of the whole process are exported: in a daemon, which has one node."""
        self._watched: list[tuple[str, str, Callable[[], float]]] = []
        self._watched_labelled: list[
            tuple[str, str, Sequence[str], Callable[[], Iterable[tuple[Sequence[str], float]]]]
        ] = []
        self._counted: list[tuple[str, str, Callable[[], float]]] = []
        self._others: list[Callable[[], Iterator[Metric]]] = []
        self._registry: CollectorRegistry | None = None

    def watch(self, name: str, help: str, read: Callable[[], float]) -> None:
        """Exports `gnomon_<name>` as a gauge that is read when scraped, such as the size of a file."""
        self._watched.append((name, help, read))

    def watch_labelled(
        self,
        name: str,
        help: str,
        labels: Sequence[str],
        read: Callable[[], Iterable[tuple[Sequence[str], float]]],
    ) -> None:
        """`watch` for a gauge with a value for each of some label sets, whose number `read` bounds."""
        self._watched_labelled.append((name, help, labels, read))

    def watch_count(self, name: str, help: str, read: Callable[[], float]) -> None:
        """Exports `gnomon_<name>_total` as a counter that is read when scraped: it only grows while the node runs."""
        self._counted.append((name, help, read))

    def also(self, collect: Callable[[], Iterator[Metric]]) -> None:
        """Exports the metrics that `collect` makes at each scrape."""
        self._others.append(collect)

    def watch_store(self, name: str, environment: Environment) -> None:
        """Exports the commits of an environment, its size, and the room that it has left.

        Args:
            name: `bookie` or `metadata`.
        """
        self.commits[name] = environment.counts
        self.watch(f"{name}_file_bytes", f"Size of the used part of the {name} store's file", environment.file_bytes)
        self.watch(f"{name}_map_free_bytes", f"Bytes that the {name} store's map has left", environment.room_bytes)

    def watch_disk(self, disk: Disk, directory: Path) -> None:
        """Exports the room that the file system of a data directory has left."""

        def free_bytes() -> float:
            try:
                return disk.space(directory).usable_bytes
            except WorldError:
                return math.nan

        self.watch("disk_free_bytes", "Bytes that the file system of the data directory has left", free_bytes)

    @property
    def registry(self) -> CollectorRegistry:
        """This node's own prometheus_client registry; the first use imports prometheus_client (85 ms)."""
        if self._registry is None:
            from prometheus_client import CollectorRegistry, ProcessCollector

            self._registry = CollectorRegistry(auto_describe=False)
            self._registry.register(self)
            if self.process:
                ProcessCollector(registry=self._registry)
        return self._registry

    def render(self) -> tuple[bytes, str]:
        """The page for `/metrics` and its content type."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    def describe(self) -> list[Metric]:
        """Names no metric in advance: the registry gets names and numbers from `collect`."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Gives the registry every number as of now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for attribute, (name, help) in COUNTERS.items() if self._kafka else ():
            yield CounterMetricFamily(f"gnomon_{name}", help, value=getattr(self, attribute))
        for attribute, (name, help) in GAUGES.items():
            if self._kafka or attribute not in KAFKA_GAUGES:
                yield GaugeMetricFamily(f"gnomon_{name}", help, value=getattr(self, attribute))
        for name, help, read in self._watched:
            yield GaugeMetricFamily(f"gnomon_{name}", help, value=read())
        for name, help, labels, read_labelled in self._watched_labelled:
            family: Any = GaugeMetricFamily(f"gnomon_{name}", help, labels=labels)
            for values, value in read_labelled():
                family.add_metric(values, value)
            yield family
        for name, help, read in self._counted:
            yield CounterMetricFamily(f"gnomon_{name}", help, value=read())
        build: Any = GaugeMetricFamily("gnomon_build_info", "1, with the versions of the program", labels=BUILD_LABELS)
        build.add_metric([__version__, platform.python_version()], 1)
        yield build
        for collect in self._others:
            yield from collect()
        if self._kafka:
            yield from self._collect_requests()
        yield from self._collect_turns()
        yield from self._collect_commits()

    def _collect_requests(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        requests: Any = CounterMetricFamily("gnomon_requests", "Kafka requests answered", labels=["api"])
        seconds: Any = HistogramMetricFamily(
            "gnomon_request_seconds", "From the whole request received to its answer written", labels=["api"]
        )
        for api, histogram in sorted(self.request_seconds.items()):
            buckets = histogram.buckets()
            requests.add_metric([api], buckets[-1][1])
            seconds.add_metric([api], buckets=buckets, sum_value=histogram.sum_seconds)
        yield from (requests, seconds)

    def _collect_turns(self) -> Iterator[Metric]:
        from prometheus_client.core import HistogramMetricFamily

        seconds: Any = HistogramMetricFamily("gnomon_turn_seconds", "Between two waits of the event loop for input")
        turns = self.turn_seconds
        seconds.add_metric([], buckets=turns.buckets(), sum_value=turns.sum_seconds)
        yield seconds

    def _collect_commits(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        groups: Any = CounterMetricFamily("gnomon_commit_groups", "Transactions committed", labels=["environment"])
        operations: Any = CounterMetricFamily(
            "gnomon_commit_operations", "Operations in those transactions", labels=["environment"]
        )
        seconds: Any = CounterMetricFamily(
            "gnomon_commit_seconds", "Time spent in those transactions", labels=["environment"]
        )
        for environment, counts in sorted(self.commits.items()):
            groups.add_metric([environment], counts.groups)
            operations.add_metric([environment], counts.operations)
            seconds.add_metric([environment], counts.seconds)
        yield from (groups, operations, seconds)
