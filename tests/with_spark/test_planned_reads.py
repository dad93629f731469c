"""Batch reads whose plan is made: brokers and a bookie die before their tasks run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cluster_broker import ClusterBroker
from numbered_topic import NumberedTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 3_000
Kill = Callable[[ClusterBroker], None]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterBroker]:
    """A cluster of this test, some of whose processes stay dead."""
    with ClusterBroker(tmp_path, {}) as running:
        yield running


@pytest.mark.parametrize(
    "kill",
    [
        pytest.param(ClusterBroker.kill_brokers, id="both brokers"),
        pytest.param(ClusterBroker.kill_bookie, id="one bookie"),
    ],
)
def test_a_planned_read_has_each_row_though_processes_die_and_stay_dead(
    spark: SparkSession, cluster: ClusterBroker, kill: Kill
) -> None:
    topic = NumberedTopic(cluster.bootstrap_servers, "orders", 3)
    topic.produce(ROWS)
    reader = spark.read.format("gnomon").options(subscribe="orders", maxRecordsPerPartition="200")
    rows = reader.option("kafka.bootstrap.servers", cluster.bootstrap_servers).load().select("partition", "value").rdd
    assert rows.getNumPartitions() >= ROWS // 200  # makes the plan
    kill(cluster)
    found = sorted(int(bytes(row.value)) for row in rows.collect())
    assert found == list(range(ROWS))
