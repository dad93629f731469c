"""Spark's Kafka connector writes to gnomon, as batches and as streams, over a killed broker."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cluster_broker import ClusterBroker
from numbered_topic import NumberedTopic

from gnomon.testing import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("connector")
ROWS = 400


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """ROWS records with all columns that the connector takes."""
    return spark.range(ROWS).selectExpr(
        "case when id % 5 = 0 then null else binary(concat('key-', id)) end as key",
        "binary(string(id)) as value",
        "array(named_struct('key', 'number', 'value', binary(string(id))),"
        " named_struct('key', 'none', 'value', cast(null as binary))) as headers",
        "int(id % 2) as partition",
    )


def write(rows: DataFrame, topic: NumberedTopic, **options: str) -> None:
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", topic.servers)
    writer.options(**{"topic": topic.name, **options}).mode("append").save()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_all_columns_are_written(rows: DataFrame, topic: NumberedTopic, codec: str) -> None:
    write(rows, topic, includeHeaders="true", **{"kafka.compression.type": codec})
    found = sorted(topic.read(ROWS), key=lambda record: int(record[2] or b""))
    for number, (partition, key, value, headers) in enumerate(found):
        assert (partition, value) == (number % 2, b"%d" % number)
        assert key == (None if number % 5 == 0 else b"key-%d" % number)
        assert list(headers) == [("number", b"%d" % number), ("none", None)]
    assert len(found) == ROWS


def test_the_rows_name_their_topic(rows: DataFrame, topic: NumberedTopic) -> None:
    named = rows.selectExpr(f"'{topic.name}' as topic", "value")
    named.write.format("kafka").option("kafka.bootstrap.servers", topic.servers).mode("append").save()
    assert sorted(int(value or b"") for _, _, value, _ in topic.read(ROWS)) == list(range(ROWS))


def test_a_write_to_a_shadow_is_refused_and_names_its_source(rows: DataFrame, topic: NumberedTopic) -> None:
    with pytest.raises(Exception, match=f"(?s)Polic.*{topic.name}"):
        write(rows, topic.shadow())


def test_a_batch_write_survives_a_killed_broker(
    spark: SparkSession, topic: NumberedTopic, broker: KafkaBroker | ClusterBroker
) -> None:
    many = spark.range(0, 200_000, 1, 4).selectExpr("binary(string(id)) as value")
    restart = threading.Timer(1.0, lambda: (broker.kill(), broker.start()))
    restart.start()
    write(many, topic)
    restart.join()
    rows = spark.read.format("kafka").option("kafka.bootstrap.servers", topic.servers).option("subscribe", topic.name)
    assert rows.load().selectExpr("bigint(string(value)) as number").distinct().count() == 200_000


def test_a_stream_writes_over_a_killed_broker(
    spark: SparkSession, topic: NumberedTopic, broker: KafkaBroker | ClusterBroker, tmp_path: Path
) -> None:
    topic.produce(500)
    target = NumberedTopic(topic.servers, f"{topic.name}.copy")
    options = {"kafka.bootstrap.servers": topic.servers, "subscribe": topic.name, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafka").options(**options).load().select("value", "partition")
    writer = rows.writeStream.format("kafka").options(**{**options, "topic": target.name})
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(processingTime="100 milliseconds").start()
    try:
        query.processAllAvailable()
        broker.kill()
        broker.start()
        topic.produce(500)
        query.processAllAvailable()
    finally:
        query.stop()
    target.sent = topic.sent
    target.check(spark.read.format("kafka").options(**{**options, "subscribe": target.name}).load())
