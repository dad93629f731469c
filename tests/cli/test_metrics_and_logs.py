"""Metrics and logs of the processes of a cluster, as Prometheus and operators read them."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

import gnomon
from gnomon.testing import KafkaCluster

NAME = re.compile(r"(gnomon|process)_[a-z][a-z0-9_]*")
COUNTER = re.compile(r"^# TYPE (\w+) counter$", re.MULTILINE)
"""The parser adds the ending to counters that lack it, so the page itself is looked at."""
RESERVED = ("_total", "_count", "_sum", "_bucket", "_created", "_info")
UNITS = {"ms", "millis", "milliseconds", "us", "minutes", "hours", "kb", "mb", "kib", "mib", "gib", "percent"}
"""Words in names that are no base units: seconds and bytes are."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=1, bookies=1, settings={"log.level": "info"}) as cluster:
        yield cluster


def faults(metric: Metric) -> Iterator[str]:
    """The conventions of Prometheus that a metric does not keep, as `promtool check metrics` has them."""
    if not NAME.fullmatch(metric.name):
        yield "its name is not lower-case words"
    if not metric.documentation:
        yield "it has no help"
    if metric.type not in ("counter", "gauge", "histogram"):
        yield f"its type is {metric.type}"
    if metric.type != "counter" and metric.name.endswith(RESERVED) and metric.name != "gnomon_build_info":
        yield "its name ends like that of another type"
    if UNITS & set(metric.name.split("_")):
        yield "its unit is no base unit"
    if {"gauge", "counter", "histogram"} & set(metric.name.split("_")):
        yield "its name has its type"
    for sample in metric.samples:
        if any(not re.fullmatch(r"[a-z][a-z0-9_]*", label) for label in sample.labels):
            yield "a label is not in lower case"


def test_the_metrics_of_every_process_keep_the_conventions_of_prometheus(cluster: KafkaCluster) -> None:
    for member in cluster.members:
        with urllib.request.urlopen(f"http://{member.addresses['admin']}/metrics") as answer:
            page = answer.read().decode()
        assert [name for name in COUNTER.findall(page) if not name.endswith("_total")] == []
        families = list(text_string_to_metric_families(page))
        assert {f"{each.name}: {fault}" for each in families for fault in faults(each)} == set()
        names = {sample.name for each in families for sample in each.samples}
        assert {"gnomon_build_info", "process_cpu_seconds_total", "process_open_fds"} <= names
        (build,) = [sample for each in families for sample in each.samples if sample.name == "gnomon_build_info"]
        assert (build.labels["version"], build.value) == (gnomon.__version__, 1)
    room = {"gnomon_bookie_map_free_bytes", "gnomon_disk_free_bytes"}
    with urllib.request.urlopen(f"http://{cluster.bookies[0].addresses['admin']}/metrics") as answer:
        samples = [each for family in text_string_to_metric_families(answer.read().decode()) for each in family.samples]
    assert {each.name for each in samples if each.name in room and each.value > 1 << 20} == room


def test_a_name_that_breaks_a_convention_is_found() -> None:
    page = (
        "# HELP gnomon_wait_ms time\n# TYPE gnomon_wait_ms gauge\ngnomon_wait_ms 1\n"
        "# HELP gnomon_open_total open\n# TYPE gnomon_open_total gauge\ngnomon_open_total 1\n"
    )
    found = [fault for each in text_string_to_metric_families(page) for fault in faults(each)]
    assert found == ["its unit is no base unit", "its name ends like that of another type"]
    assert COUNTER.findall("# HELP gnomon_dropped lines\n# TYPE gnomon_dropped counter\n") == ["gnomon_dropped"]


def test_each_line_of_a_cluster_process_names_its_node_and_its_start_and_end_are_logged(cluster: KafkaCluster) -> None:
    cluster.stop()
    nodes = dict(zip(("metadata", "bookie-1", "broker-1"), cluster.members, strict=True))
    for node, member in nodes.items():
        lines = [json.loads(line) for line in member.log().splitlines()]
        assert {line["node"] for line in lines} == {node}
        assert "error" not in {line["level"] for line in lines}
        for event in ("started", "stopped"):
            (line,) = [each for each in lines if each["event"] == event]
            assert line["version"] == gnomon.__version__
            assert {line[name] for name in member.addresses} == set(member.addresses.values())
            assert ("data" in line) == (node != "broker-1")
    cluster.start()
