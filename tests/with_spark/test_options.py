"""The options that no other test here gives to Spark: each has its effect there, and is no unknown name."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cluster_broker import ClusterBroker
from copying import copy, copy_to_topic
from numbered_topic import NumberedTopic

from gnomon.testing import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DELAY_SECONDS = 3.0


def read(spark: SparkSession, source: str, topic: NumberedTopic, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": topic.servers, "subscribe": topic.name, **options}
    return spark.read.format(source).options(**given).load()


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_both_isolation_levels_read_all_records(
    spark: SparkSession, source: str, orders: NumberedTopic, level: str
) -> None:
    orders.check(read(spark, source, orders, **{"kafka.isolation.level": level}))


def test_records_that_are_gone_are_an_error_or_are_left_out(
    spark: SparkSession, source: str, topic: NumberedTopic
) -> None:
    topic.produce(20)
    late = {"startingOffsets": f'{{"{topic.name}": {{"0": 5, "1": 5}}}}', "endingOffsets": "latest"}
    frame = read(spark, source, topic, **late, failOnDataLoss="false")
    assert frame.count() == 10
    topic.delete_before(8)
    assert read(spark, source, topic, **late, failOnDataLoss="false").count() == 4
    if source == "gnomon":  # the connector asks at the time of the read, and its error differs by version
        with pytest.raises(Exception, match="the read is of offsets 5 to 10, the log has 8 to 10"):
            read(spark, source, topic, **late).count()


def test_tasks_are_bounded_by_bytes(
    spark: SparkSession, orders: NumberedTopic, broker: KafkaBroker | ClusterBroker
) -> None:
    frame = read(spark, "gnomon", orders, maxBytesPerTask="2000")
    orders.check(frame)
    cut = frame.rdd.getNumPartitions() > orders.partitions
    assert cut == isinstance(broker, ClusterBroker), "plans of a standalone node have no bytes"


def test_a_batch_that_is_too_large_is_named(spark: SparkSession, topic: NumberedTopic) -> None:
    topic.produce(2_000)
    with pytest.raises(Exception, match="maxBatchBytes"):
        read(spark, "gnomon", topic, maxBatchBytes="100").count()
    topic.check(read(spark, "gnomon", topic, maxBatchBytes="1000000"))


def test_options_that_only_a_consumer_needs_have_no_effect(
    spark: SparkSession, source: str, orders: NumberedTopic
) -> None:
    given = {"fetchOffset.numRetries": "5", "fetchOffset.retryIntervalMs": "20", "groupIdPrefix": "mine"}
    orders.check(read(spark, source, orders, **given, **{"kafkaConsumer.pollTimeoutMs": "60000"}))


def test_native_servers_and_the_time_of_a_hold_are_taken(
    spark: SparkSession, orders: NumberedTopic, broker: KafkaBroker | ClusterBroker
) -> None:
    given = {"gnomon.native.servers": broker.native_address, "holdSeconds": "5"}
    orders.check(read(spark, "gnomon", orders, **given))
    with pytest.raises(Exception, match="holdSeconds"):
        read(spark, "gnomon", orders, holdSeconds="4000").count()


def test_a_stream_waits_for_enough_offsets_or_for_the_delay(
    spark: SparkSession, source: str, topic: NumberedTopic, tmp_path: Path
) -> None:
    topic.produce(100)
    options = {"kafka.bootstrap.servers": topic.servers, "subscribe": topic.name}
    waits = {"minOffsetsPerTrigger": "50", "maxTriggerDelay": f"{DELAY_SECONDS:.0f}s"}
    query = copy(spark, source, tmp_path, {**options, **waits}, {"processingTime": "100 milliseconds"})
    try:
        query.processAllAvailable()
        began = time.monotonic()
        topic.produce(10)
        while spark.read.parquet(str(tmp_path / "table")).count() < 110:
            assert time.monotonic() < began + 60, "the delay has no effect"
            time.sleep(0.1)
        assert time.monotonic() - began > DELAY_SECONDS / 2
    finally:
        query.stop()
    topic.check(spark.read.parquet(str(tmp_path / "table")))


def test_a_query_without_its_checkpoint_takes_its_writer_over(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path
) -> None:
    target = NumberedTopic(topic.servers, f"{topic.name}.copy")
    topic.produce(100)
    options = {"writer": f"{topic.name}-writer", "stagingPartitions": "2", "batchBytes": "1000"}
    for folder, given in (("first", options), ("second", {**options, "writerTakeOver": "true"})):
        query = copy_to_topic(spark, topic.servers, topic.name, target.name, tmp_path / folder, **given)
        query.processAllAvailable()
        query.stop()
    numbers = read(spark, "gnomon", target).selectExpr("int(string(value)) as number").collect()
    assert sorted(row.number for row in numbers) == sorted([*range(100), *range(100)]), "the rows were read again"


def test_complete_mode_is_refused(spark: SparkSession, topic: NumberedTopic, tmp_path: Path) -> None:
    topic.produce(10)
    rows = spark.readStream.format("gnomon").options(
        **{"kafka.bootstrap.servers": topic.servers}, subscribe=topic.name, startingOffsets="earliest"
    )
    counts = rows.load().groupBy("partition").count().selectExpr("string(count) as value")
    writer = counts.writeStream.format("gnomon").outputMode("complete")
    options = {"kafka.bootstrap.servers": topic.servers, "topic": topic.name}
    with pytest.raises(Exception, match=r"(?i)complete"):
        writer.options(**options).option("checkpointLocation", str(tmp_path)).start().processAllAvailable()
