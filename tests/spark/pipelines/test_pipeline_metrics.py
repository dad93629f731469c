"""The metrics of a running pipeline (`spark.pipelines.pipeline_metrics`)."""

from __future__ import annotations

import math
import socket
import threading
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gnomon.spark.pipelines.pipeline_metrics import PipelineMetrics
from gnomon.spark.pipelines.progress import BatchProgress

FIRST = BatchProgress(4, "committed", 100, 5_000, 3, 2.5, 40.0, 70, 1.5, 1.0)


def read(text: str) -> dict[str, float]:
    """The samples by name, the verdict after it, all of which belong to the pipeline `orders`."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels.pop("pipeline") == "orders"
            found[" ".join([sample.name.removeprefix("gnomon_pipeline_"), *sample.labels.values()])] = sample.value
    return found


def written(metrics: PipelineMetrics, folder: Path) -> dict[str, float]:
    path = folder / "orders.prom"
    metrics.write(path)
    return read(path.read_text())


def test_counters_begin_at_0_and_gauges_with_the_first_batch(tmp_path: Path) -> None:
    """Invariant 1."""
    counters = {"rows_total", "file_bytes_total", "errors_total", "batches_total committed", "batches_total already"}
    assert written(PipelineMetrics("orders"), tmp_path) == dict.fromkeys(counters, 0.0)


def test_counters_add_up_and_gauges_are_those_of_the_last_batch(tmp_path: Path) -> None:
    """Invariant 1."""
    metrics = PipelineMetrics("orders")
    metrics.add(FIRST._replace(batch=3, verdict="already", rows=0, bytes=0, errors=0), 1_000.0)
    metrics.add(FIRST, 1_010.0)
    metrics.add(FIRST._replace(batch=5, lag=20), 1_020.5)
    assert written(metrics, tmp_path) == {
        "rows_total": 200,
        "file_bytes_total": 10_000,
        "errors_total": 6,
        "batches_total committed": 2,
        "batches_total already": 1,
        "last_batch": 5,
        "last_batch_timestamp_seconds": 1_020.5,
        "last_batch_seconds": 2.5,
        "lag_records": 20,
        "freshness_seconds": 1.5,
    }


def test_an_unknown_lag_and_freshness_do_not_keep_older_values(tmp_path: Path) -> None:
    """Invariant 2."""
    metrics = PipelineMetrics("orders")
    metrics.add(FIRST, 1_000.0)
    metrics.add(FIRST._replace(lag=None, freshness_seconds=None), 1_001.0)
    found = written(metrics, tmp_path)
    assert math.isnan(found["lag_records"])
    assert math.isnan(found["freshness_seconds"])


def test_a_file_is_replaced_at_once_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    metrics = PipelineMetrics("orders")
    path = tmp_path / "orders.prom"
    path.write_text("x" * 100_000)
    before = path.stat().st_ino
    metrics.write(path)
    assert path.stat().st_ino != before
    assert [each.name for each in tmp_path.iterdir()] == ["orders.prom"]


def test_a_port_answers_scrapes_while_batches_end(tmp_path: Path) -> None:
    """Invariant 3: rows are 100 times the batches in each answer."""
    metrics = PipelineMetrics("orders")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    metrics.serve(port)
    metrics.add(FIRST, 1_000.0)
    done = threading.Event()

    def batches() -> None:
        while not done.is_set():
            metrics.add(FIRST, 1_000.0)

    running = threading.Thread(target=batches)
    running.start()
    try:
        for _ in range(20):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                found = read(answer.read().decode())
            assert found["rows_total"] == 100 * found["batches_total committed"]
    finally:
        done.set()
        running.join()


def test_a_port_in_use_is_an_error() -> None:
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        with pytest.raises(OSError, match="in use"):
            PipelineMetrics("orders").serve(used.getsockname()[1])
