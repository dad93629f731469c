"""Streams by both formats, over restarts, growth, killed processes, and a change of the format."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cluster_broker import ClusterBroker
from confluent_kafka import Consumer, TopicPartition
from copying import WAIT_SECONDS, copy, wait_for_batches
from numbered_topic import NumberedTopic

from gnomon.testing import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

COPYING = Path(__file__).with_name("copying.py")


class Stream:
    """A query that copies a topic to Parquet files; its checkpoint serves both formats."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self.folder = spark, folder

    def start(self, source: str, topic: NumberedTopic, trigger: dict[str, Any], **options: str) -> StreamingQuery:
        options = {"kafka.bootstrap.servers": topic.servers, "subscribe": topic.name, **options}
        return copy(self._spark, source, self.folder, options, trigger)

    def catch_up(self, source: str, topic: NumberedTopic, **options: str) -> StreamingQuery:
        """Reads what there is."""
        query = self.start(source, topic, {"availableNow": True}, **options)
        assert query.awaitTermination(WAIT_SECONDS), "the stream did not end"
        return query

    def check(self, topic: NumberedTopic) -> None:
        topic.check(self._spark.read.parquet(str(self.folder / "table")))


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


@pytest.fixture
def running(stream: Stream, source: str, topic: NumberedTopic) -> Iterator[StreamingQuery]:
    """A query that has copied the first 300 records and goes on."""
    topic.produce(300)
    query = stream.start(source, topic, {"processingTime": "100 milliseconds"})
    query.processAllAvailable()
    yield query
    query.stop()


def test_available_now_reads_what_there_is_in_limited_batches(
    stream: Stream, source: str, topic: NumberedTopic
) -> None:
    topic.produce(1_000)
    query = stream.catch_up(source, topic, maxOffsetsPerTrigger="400")
    assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [400, 400, 200]
    stream.check(topic)


def test_a_restarted_stream_goes_on_and_finds_partitions_that_were_added(
    stream: Stream, source: str, topic: NumberedTopic
) -> None:
    topic.produce(500)
    stream.catch_up(source, topic)
    topic.grow(3)
    topic.produce(300)
    stream.catch_up(source, topic)
    stream.check(topic)


def test_a_running_stream_finds_partitions_that_are_added(
    stream: Stream, running: StreamingQuery, topic: NumberedTopic
) -> None:
    topic.grow(5)
    topic.produce(500)
    running.processAllAvailable()
    stream.check(topic)


def test_a_running_stream_survives_a_killed_broker(
    stream: Stream, running: StreamingQuery, topic: NumberedTopic, broker: KafkaBroker | ClusterBroker
) -> None:
    broker.kill()
    broker.start()
    topic.produce(300)
    running.processAllAvailable()
    stream.check(topic)


def test_a_shadow_is_a_stream_like_its_source(stream: Stream, source: str, topic: NumberedTopic) -> None:
    topic.produce(200)
    shadow = topic.shadow()
    query = stream.start(source, shadow, {"processingTime": "100 milliseconds"})
    topic.produce(200)
    assert len(shadow.read(400)) == 400
    query.processAllAvailable()
    query.stop()
    stream.check(topic)


@pytest.mark.parametrize(("first", "second"), [("kafka", "gnomon"), ("gnomon", "kafka")])
def test_a_query_goes_on_where_the_other_format_ended(
    connector: str, stream: Stream, topic: NumberedTopic, first: str, second: str
) -> None:
    topic.produce(500)
    stream.catch_up(first, topic)
    topic.produce(300)
    stream.catch_up(second, topic)
    stream.check(topic)


def test_the_progress_of_a_stream_shows_the_ends_of_its_topic(stream: Stream, topic: NumberedTopic) -> None:
    topic.produce(300)
    query = stream.catch_up("gnomon", topic)
    assert query.lastProgress is not None
    (found,) = query.lastProgress.sources
    assert found.latestOffset == found.endOffset


def test_a_group_shows_how_far_a_stream_has_come(stream: Stream, topic: NumberedTopic) -> None:
    topic.produce(500)
    stream.catch_up("gnomon", topic, group="lag-tools", maxOffsetsPerTrigger="100")
    consumer = Consumer({"bootstrap.servers": topic.servers, "group.id": "lag-tools"})
    found = consumer.committed([TopicPartition(topic.name, partition) for partition in range(2)], WAIT_SECONDS)
    consumer.close()
    assert sum(each.offset for each in found) in (400, 500), "Spark does not always report its last batch"


def test_a_checkpoint_outlives_its_driver_a_broker_and_a_bookie(
    connector: str, stream: Stream, source: str, topic: NumberedTopic, broker: KafkaBroker | ClusterBroker
) -> None:
    topic.produce(2_000)
    for _ in range(2):
        command = [
            sys.executable,
            str(COPYING),
            "files",
            source,
            topic.servers,
            topic.name,
            str(stream.folder),
            connector,
        ]
        driver = subprocess.Popen(command, start_new_session=True)
        try:
            wait_for_batches(stream.folder, 3)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        broker.kill()
        broker.start()
    assert len(list((stream.folder / "checkpoint" / "commits").glob("[0-9]*"))) < 20, (
        "the drivers had ended by themselves"
    )
    stream.catch_up(source, topic)
    stream.check(topic)
