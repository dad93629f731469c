"""The numbers of a running pipeline for Prometheus: on a port of this machine, or in a file.

1. Counters begin at 0 with the run. Gauges are absent until the first batch; then they are those of the last batch.
2. A lag or a freshness that is unknown is NaN, so that no alert compares an older value.
3. All numbers of an answer are as of the same batch, although a scrape runs in a thread of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from gnomon.spark.pipelines.progress import ALREADY, COMMITTED, BatchProgress

if TYPE_CHECKING:
    from prometheus_client.core import Metric

ADDRESS: Final = "127.0.0.1"
LABEL: Final = "pipeline"


class _Numbers(NamedTuple):
    """The numbers of a run after a batch."""

    last: BatchProgress | None
    ended_seconds: float
    rows: int
    bytes: int
    errors: int
    committed: int
    already: int


class PipelineMetrics:
    """The numbers of one run.

    Args:
        pipeline: its name.
    """

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._numbers = _Numbers(None, 0.0, 0, 0, 0, 0, 0)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def add(self, progress: BatchProgress, ended_seconds: float) -> None:
        """Counts a batch.

        Args:
            ended_seconds: since 1970.
        """
        before, already = self._numbers, progress.verdict == ALREADY
        self._numbers = _Numbers(
            progress,
            ended_seconds,
            before.rows + progress.rows,
            before.bytes + progress.bytes,
            before.errors + progress.errors,
            before.committed + (not already),
            before.already + already,
        )

    def serve(self, port: int) -> None:
        """Answers scrapes of a port of this machine until the process ends; raises OSError if the port is in use."""
        start_http_server(port, ADDRESS, self._registry)

    def write(self, path: Path) -> None:
        """Replaces a file in the text format of Prometheus at once; raises OSError if it cannot be written."""
        write_to_textfile(str(path), self._registry)

    def describe(self) -> list[Metric]:
        """Names no metric in advance: the registry gets names and numbers from `collect`."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Gives the registry every number as of the last batch."""
        now = self._numbers
        yield self._counter("rows", "Rows that batches of this run added to the table", now.rows)
        yield self._counter("file_bytes", "Bytes of the files that batches of this run added to the table", now.bytes)
        yield self._counter("errors", "Records that the format does not fit", now.errors)
        batches: Any = CounterMetricFamily(
            "gnomon_pipeline_batches", "Batches that ended, by verdict", labels=(LABEL, "verdict")
        )
        for verdict, count in ((COMMITTED, now.committed), (ALREADY, now.already)):
            batches.add_metric([self._pipeline, verdict], count)
        yield batches
        if now.last is None:
            return
        yield self._gauge("last_batch", "Number of the last batch", now.last.batch)
        yield self._gauge("last_batch_timestamp_seconds", "End of the last batch, since 1970", now.ended_seconds)
        yield self._gauge("last_batch_seconds", "Duration of the last batch", now.last.seconds)
        yield self._gauge("lag_records", "Most records left to read after the last batch", now.last.lag)
        fresh = now.last.freshness_seconds
        yield self._gauge(
            "freshness_seconds", "Age of the newest record while others are left to read, otherwise 0", fresh
        )

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family: Any = CounterMetricFamily(f"gnomon_pipeline_{name}", text, labels=(LABEL,))
        family.add_metric([self._pipeline], value)
        found: Metric = family
        return found

    def _gauge(self, name: str, text: str, value: float | None) -> Metric:
        family: Any = GaugeMetricFamily(f"gnomon_pipeline_{name}", text, labels=(LABEL,))
        family.add_metric([self._pipeline], math.nan if value is None else value)
        found: Metric = family
        return found
