"""Streams by Spark, over restarts, growth and a killed broker, compared with the records of a Kafka producer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from gnomon.testing import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

PARTITIONS = 2
WAIT_SECONDS = 60


class Stream:
    """A topic, and a query that copies it to Parquet files."""

    def __init__(self, spark: SparkSession, broker: KafkaBroker, folder: Path, topic: str) -> None:
        self._spark, self._broker, self._folder, self._topic = spark, broker, folder, topic
        self._settings = {"bootstrap.servers": broker.bootstrap_servers}
        self._admin = AdminClient(self._settings)
        self._admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result()
        self._sent = 0

    def produce(self, count: int, partitions: int = PARTITIONS) -> None:
        producer = Producer(self._settings)
        for number in range(self._sent, self._sent + count):
            producer.produce(self._topic, b"%d" % number, partition=number % partitions)
        producer.flush()
        self._sent += count

    def grow(self, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(self._topic, partitions)])[self._topic].result()

    def start(self, kind: str = "gnomon", **trigger: Any) -> StreamingQuery:
        options = {
            "kafka.bootstrap.servers": self._broker.bootstrap_servers,
            "subscribe": self._topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "400",
        }
        rows = self._spark.readStream.format(kind).options(**options).load()
        writer = rows.selectExpr("string(value) as value", "partition", "offset").writeStream.format("parquet")
        checkpoint = str(self._folder / "checkpoint")
        return writer.option("checkpointLocation", checkpoint).trigger(**trigger).start(str(self._folder / "table"))

    def check(self) -> None:
        """Each record that was sent is in the table once."""
        rows = self._spark.read.parquet(str(self._folder / "table")).collect()
        assert sorted(int(row.value) for row in rows) == list(range(self._sent))
        assert len({(row.partition, row.offset) for row in rows}) == self._sent


@pytest.fixture
def stream(spark: SparkSession, broker: KafkaBroker, tmp_path: Path, request: pytest.FixtureRequest) -> Stream:
    return Stream(spark, broker, tmp_path, request.node.name)


def test_available_now_reads_what_there_is_in_limited_batches(stream: Stream) -> None:
    stream.produce(1_000)
    query = stream.start(availableNow=True)
    assert query.awaitTermination(WAIT_SECONDS)
    assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [400, 400, 200]
    stream.check()


def test_a_restarted_stream_goes_on_and_finds_partitions_that_were_added(stream: Stream) -> None:
    stream.produce(500)
    assert stream.start(availableNow=True).awaitTermination(WAIT_SECONDS)
    stream.grow(3)
    stream.produce(300, partitions=3)
    assert stream.start(availableNow=True).awaitTermination(WAIT_SECONDS)
    stream.check()


def test_a_running_stream_reports_its_lag_and_survives_a_killed_broker(stream: Stream, broker: KafkaBroker) -> None:
    stream.produce(300)
    query = stream.start(processingTime="100 milliseconds")
    try:
        query.processAllAvailable()
        broker.kill()
        broker.start()
        stream.produce(300)
        query.processAllAvailable()
        stream.check()
        progress = query.lastProgress
        assert progress is not None
        (source,) = progress.sources
        assert source.latestOffset == source.endOffset
    finally:
        query.stop()
