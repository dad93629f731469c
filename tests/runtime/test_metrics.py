from __future__ import annotations

import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gnomon.runtime.metrics import COUNTERS, GAUGES, SECONDS_BOUNDS, Histogram, Metrics
from gnomon.runtime.world import CommitCounts


def scrape(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    page, content_type = metrics.render()
    assert content_type.startswith("text/plain")
    families = text_string_to_metric_families(page.decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_every_counter_and_gauge_is_exported_under_its_name() -> None:
    metrics = Metrics()
    for number, attribute in enumerate([*COUNTERS, *GAUGES], start=1):
        setattr(metrics, attribute, number)
    samples = scrape(metrics)
    for number, (name, _) in enumerate(COUNTERS.values(), start=1):
        assert samples[f"gnomon_{name}_total", ()] == number
    for number, (name, _) in enumerate(GAUGES.values(), start=len(COUNTERS) + 1):
        assert samples[f"gnomon_{name}", ()] == number


def test_requests_are_counted_by_api() -> None:
    metrics = Metrics()
    for seconds in (0.0004, 0.0005, 0.3, 99.0):
        metrics.request_seconds["Produce"].observe(seconds)
    samples = scrape(metrics)
    assert samples["gnomon_requests_total", (("api", "Produce"),)] == 4
    assert samples["gnomon_request_seconds_count", (("api", "Produce"),)] == 4
    assert samples["gnomon_request_seconds_sum", (("api", "Produce"),)] == pytest.approx(99.3009)
    assert samples["gnomon_request_seconds_bucket", (("api", "Produce"), ("le", "0.0005"))] == 2
    assert samples["gnomon_request_seconds_bucket", (("api", "Produce"), ("le", "10.0"))] == 3


def test_commits_are_exported_by_environment_as_of_the_scrape() -> None:
    metrics, counts = Metrics(), CommitCounts()
    metrics.commits["bookie"] = counts
    counts.groups, counts.operations, counts.seconds = 2, 50, 0.25
    samples = scrape(metrics)
    assert samples["gnomon_commit_groups_total", (("environment", "bookie"),)] == 2
    assert samples["gnomon_commit_operations_total", (("environment", "bookie"),)] == 50
    assert samples["gnomon_commit_seconds_total", (("environment", "bookie"),)] == 0.25


def test_a_watched_number_is_read_when_scraped() -> None:
    metrics, size = Metrics(), [1]
    metrics.watch("entry_file_bytes", "Size of the entry store's file", lambda: size[0])
    size[0] = 4096
    assert scrape(metrics)["gnomon_entry_file_bytes", ()] == 4096


def test_two_nodes_of_one_process_count_separately() -> None:
    one, two = Metrics(), Metrics()
    one.produce_bytes += 5
    assert scrape(one)["gnomon_produce_bytes_total", ()] == 5
    assert scrape(two)["gnomon_produce_bytes_total", ()] == 0


def test_buckets_are_cumulative_and_the_last_one_counts_all() -> None:
    histogram = Histogram()
    for bound in SECONDS_BOUNDS:
        histogram.observe(bound)
        histogram.observe(bound * 1.0001)
    counts = [count for _, count in histogram.buckets()]
    assert counts[0] == 1
    assert counts[1:-1] == [2.0 * number + 1 for number in range(1, len(SECONDS_BOUNDS))]
    assert histogram.buckets()[-1] == ("+Inf", 2.0 * len(SECONDS_BOUNDS))


def test_prometheus_client_is_not_imported_before_a_scrape() -> None:
    program = (
        "import sys\nfrom gnomon.runtime.metrics import Metrics\nmetrics = Metrics()\n"
        "metrics.request_seconds['Produce'].observe(1)\nassert 'prometheus_client' not in sys.modules\nmetrics.render()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
