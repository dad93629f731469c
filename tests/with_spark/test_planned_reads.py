"""Batch reads whose plan is made: brokers and bookies die, or copies are damaged, before their tasks run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb
import pytest
import trio
from cluster_broker import ClusterBroker
from numbered_topic import NumberedTopic
from planned_topic import plan_of

from gnomon import connect_ledgers
from gnomon.bookie.ids import LedgerId
from gnomon.bookie.node import FOLDER
from gnomon.bookie.storage.entry_store import DATABASES, ENTRIES
from gnomon.bookie.storage.removal import ENTRY_KEY
from gnomon.testing.kafka_cluster import KafkaCluster

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


@pytest.mark.parametrize(
    "kill",
    [
        pytest.param(ClusterBroker.kill_broker, id="one broker"),
        pytest.param(ClusterBroker.kill_bookie, id="one bookie"),
    ],
)
def test_the_connector_reads_each_row_though_a_process_dies_during_the_read(
    spark: SparkSession, connector: str, cluster: ClusterBroker, kill: Kill
) -> None:
    """The brokers start again before the read, so that they have no entry in memory."""
    topic = NumberedTopic(cluster.bootstrap_servers, "orders", 6)
    topic.produce(ROWS)
    cluster.kill_brokers()
    cluster.start()
    reader = spark.read.format("kafka").options(subscribe="orders", minPartitions="30")
    rows = reader.option("kafka.bootstrap.servers", cluster.bootstrap_servers).load().select("value")
    found = []
    for row in rows.toLocalIterator():  # one task after the other
        found.append(int(bytes(row.value)))
        if len(found) == ROWS // 10:
            kill(cluster)
    assert sorted(found) == list(range(ROWS))


def test_an_entry_without_a_sound_copy_fails_the_job_with_its_ledger_and_its_offsets(
    spark: SparkSession, tmp_path: Path
) -> None:
    with KafkaCluster(brokers=1, data_dir=tmp_path) as cluster:
        topic = NumberedTopic(cluster.bootstrap_servers, "orders", 1)
        for _ in range(3):  # an entry each
            topic.produce(10)
        ledger = trio.run(ledger_of, cluster.metadata_address)
        cluster.stop()
        for bookie in ("bookie-1", "bookie-2", "bookie-3"):
            damage(tmp_path / bookie / FOLDER, ENTRY_KEY.pack(ledger, 1))
        cluster.start()
        reader = spark.read.format("gnomon").options(subscribe="orders", via="bookies")
        rows = reader.option("kafka.bootstrap.servers", cluster.bootstrap_servers).load()
        place = f"partition 0 of topic 'orders': entry 1 of ledger {ledger}, with offsets from 10 on and below 30"
        with pytest.raises(Exception, match=f"{place}, cannot be read"):
            rows.count()


async def ledger_of(metadata_address: str) -> LedgerId:
    """The ledger of the topic `orders`."""
    async with connect_ledgers(metadata_address) as ledgers:
        (segment,) = (await plan_of(ledgers, "orders")).partitions[0].segments
        return segment.ledger


def damage(folder: Path, key: bytes) -> None:
    """Changes a byte of an entry at a stopped bookie."""
    with lmdb.open(str(folder), map_size=1 << 30, max_dbs=len(DATABASES)) as store:
        database = store.open_db(ENTRIES.encode(), create=False)
        with store.begin(write=True, db=database) as transaction:
            value = bytearray(transaction.get(key))
            value[-5] ^= 1
            assert transaction.put(key, bytes(value))
