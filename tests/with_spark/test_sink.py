"""Batch jobs and streams write by gnomon's format: each row once, over killed brokers, bookies and drivers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cluster_broker import ClusterBroker
from confluent_kafka.admin import AdminClient
from copying import WAIT_SECONDS, batches_in, copy_to_topic, wait_for_batches
from numbered_topic import NumberedTopic, headers_of, key_of

from gnomon.testing import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROWS = 400
SINK_DRIVER = Path(__file__).with_name("copying.py")


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """ROWS records with all columns of a numbered topic of two partitions, except the topic."""
    return spark.range(0, ROWS, 1, 3).selectExpr(
        "case when id % 5 = 0 then null else binary(concat('key-', id)) end as key",
        "binary(string(id)) as value",
        "case when id % 2 = 1 then array(named_struct('key', 'number', 'value', binary(string(id))),"
        " named_struct('key', 'none', 'value', cast(null as binary))) end as headers",
        "int(id % 2) as partition",
        "timestamp_millis(1700000000000 + id) as timestamp",
    )


def write(rows: DataFrame, target: NumberedTopic, mode: str = "append", **options: str) -> None:
    writer = rows.write.format("gnomon").option("kafka.bootstrap.servers", target.servers)
    writer.options(**{"topic": target.name, **options}).mode(mode).save()


def read(spark: SparkSession, topic: NumberedTopic) -> DataFrame:
    reader = spark.read.format("gnomon").option("kafka.bootstrap.servers", topic.servers)
    return reader.option("subscribe", topic.name).load()


def sink_topics(topic: NumberedTopic) -> set[str]:
    found = AdminClient({"bootstrap.servers": topic.servers}).list_topics().topics
    return {name for name in found if name.startswith("__gnomon_sink_")}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_all_columns_are_written(rows: DataFrame, topic: NumberedTopic, codec: str) -> None:
    before = sink_topics(topic)
    write(rows, topic, compression=codec)
    found = sorted(topic.read(ROWS), key=lambda record: int(record[2] or b""))
    assert len(found) == ROWS
    for number, (partition, key, value, headers) in enumerate(found):
        assert (partition, value, key) == (number % 2, b"%d" % number, key_of(number))
        assert list(headers) == (headers_of(number) or [])
    assert sink_topics(topic) == before, "the writer of the job is gone"


def test_keys_choose_the_partition_as_producers_do(spark: SparkSession, topic: NumberedTopic) -> None:
    topic.produce(100)
    write(spark.range(ROWS).selectExpr("concat('k', id % 10) as key", "string(id) as value"), topic)
    places: dict[bytes, set[int]] = {}
    for partition, key, _, _ in topic.read(100 + ROWS):
        if key is not None and key.startswith(b"k") and b"-" not in key:
            places.setdefault(key, set()).add(partition)
    assert len(places) == 10
    assert all(len(found) == 1 for found in places.values())


def test_a_job_that_runs_again_writes_nothing_twice(spark: SparkSession, rows: DataFrame, topic: NumberedTopic) -> None:
    for version in (1, 1, 2, 1):
        write(rows, topic, txnAppId=f"{topic.name}-job", txnVersion=str(version))
    assert read(spark, topic).count() == 2 * ROWS


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        (["id as value"], {}, "column 'value' has the type bigint: expected binary or string"),
        (["string(id) as body"], {}, "column 'body': there are key, value"),
        (["string(id) as value"], {"topic": "missing"}, "topic 'missing'"),
        (["string(id) as value"], {"topics": "x"}, "topics: no such option; is it topic?"),
        (["string(id) as value", "5 as partition"], {}, "has the partitions 0 to 1: not 5"),
        (["repeat('x', 2000000) as value"], {}, r"max.message.bytes"),
        (["string(id) as value"], {"topic": "__consumer_offsets"}, "is internal"),
    ],
)
def test_rows_that_cannot_be_written_are_refused_in_words(
    spark: SparkSession, topic: NumberedTopic, columns: list[str], options: dict[str, str], text: str
) -> None:
    before = sink_topics(topic)
    with pytest.raises(Exception, match=text.replace("?", r"\?")):
        write(spark.range(10).selectExpr(*columns), topic, compression="none", **options)
    assert read(spark, topic).count() == 0
    assert sink_topics(topic) == before, "no task succeeded, and the writer of the job is gone"


def test_rows_do_not_replace_others(rows: DataFrame, topic: NumberedTopic) -> None:
    with pytest.raises(Exception, match="use mode append"):
        write(rows, topic, mode="overwrite")


def test_a_shadow_is_refused_and_its_source_named(rows: DataFrame, topic: NumberedTopic) -> None:
    with pytest.raises(Exception, match=f"is a shadow: write to its source '{topic.name}'"):
        write(rows, topic.shadow())


class CopyingStream:
    """A stream from one topic to another, whose driver may be a process of its own."""

    def __init__(self, spark: SparkSession, topic: NumberedTopic, folder: Path) -> None:
        self._spark, self._topic, self.folder = spark, topic, folder
        self.target = NumberedTopic(topic.servers, f"{topic.name}.copy")

    def start(self, limit: int = 10_000, **options: str) -> StreamingQuery:
        """The query, with at most `limit` records a batch; `options` are the sink's."""
        topics = self._topic.servers, self._topic.name, self.target.name
        return copy_to_topic(self._spark, *topics, self.folder, limit=limit, **options)

    def check(self) -> None:
        """Each record is in the target once, and each partition has them in their order."""
        self.target.sent = self._topic.sent
        found = read(self._spark, self.target)
        self.target.check(found)
        for partition in range(self.target.partitions):
            part = found.where(f"partition = {partition}").orderBy("offset").collect()
            numbers = [int(bytes(row.value)) for row in part]
            assert numbers == sorted(numbers)


@pytest.fixture
def copying(spark: SparkSession, topic: NumberedTopic, tmp_path: Path) -> CopyingStream:
    return CopyingStream(spark, topic, tmp_path)


def test_a_stream_writes_each_row_once_over_a_killed_broker(
    copying: CopyingStream, topic: NumberedTopic, broker: KafkaBroker | ClusterBroker
) -> None:
    topic.produce(500)
    query = copying.start()
    try:
        query.processAllAvailable()
        broker.kill()
        broker.start()
        topic.produce(500)
        query.processAllAvailable()
    finally:
        query.stop()
    copying.check()


def test_a_stream_without_its_checkpoint_is_fenced(copying: CopyingStream, topic: NumberedTopic) -> None:
    topic.produce(100)
    writer = f"{topic.name}-writer"
    query = copying.start(writer=writer)
    query.processAllAvailable()
    query.stop()
    copying.folder = copying.folder / "another"
    query = copying.start(writer=writer)
    with pytest.raises(Exception, match="belongs to query"):
        query.processAllAvailable()
    query.stop()
    copying.check()


def test_a_stream_without_its_checkpoint_and_without_a_name_writes_its_rows_again(
    copying: CopyingStream, topic: NumberedTopic
) -> None:
    """Each row is there twice: the new query has a writer of its own."""
    topic.produce(100)
    before = sink_topics(topic)
    for folder in ("first", "second"):
        copying.folder = copying.folder / folder
        query = copying.start()
        query.processAllAvailable()
        query.stop()
    found = copying.target.read(2 * 100)
    assert sorted(int(value or b"") for _, _, value, _ in found) == sorted([*range(100), *range(100)])
    assert len(sink_topics(topic) - before) == 2


def test_a_stream_that_fails_without_brokers_goes_on_later_with_each_row_once(
    copying: CopyingStream, topic: NumberedTopic, broker: KafkaBroker | ClusterBroker
) -> None:
    topic.produce(3_000)
    query = copying.start(limit=100)
    wait_for_batches(copying.folder, 3)
    (broker.kill if isinstance(broker, KafkaBroker) else broker.kill_brokers)()
    try:
        with pytest.raises(Exception, match="no broker answers"):
            query.awaitTermination(WAIT_SECONDS)
    finally:
        broker.start()
    assert 3 <= batches_in(copying.folder) < 30
    query = copying.start()
    query.processAllAvailable()
    query.stop()
    copying.check()


def test_a_stream_whose_driver_is_killed_writes_each_row_once(
    copying: CopyingStream, topic: NumberedTopic, broker: KafkaBroker | ClusterBroker
) -> None:
    topic.produce(2_000)
    names = [topic.servers, topic.name, copying.target.name, str(copying.folder)]
    for _ in range(2):
        driver = subprocess.Popen([sys.executable, str(SINK_DRIVER), "topic", *names], start_new_session=True)
        try:
            wait_for_batches(copying.folder, 3)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        broker.kill()
        broker.start()
    query = copying.start()
    query.processAllAvailable()
    query.stop()
    copying.check()


def test_two_drivers_of_one_checkpoint_write_each_row_once(copying: CopyingStream, topic: NumberedTopic) -> None:
    """Spark may end one of them, or both, once it notices the other one."""
    topic.produce(2_000)
    command = [sys.executable, str(SINK_DRIVER), "topic", topic.servers, topic.name, copying.target.name]
    command.append(str(copying.folder))
    drivers = [subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL) for _ in range(2)]
    deadline = time.monotonic() + 2 * WAIT_SECONDS
    try:
        while batches_in(copying.folder) < 6 and any(driver.poll() is None for driver in drivers):
            assert time.monotonic() < deadline, "the drivers do not get on"
            time.sleep(0.1)
    finally:
        for driver in drivers:
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    assert batches_in(copying.folder), "neither driver has finished a batch"
    query = copying.start()
    query.processAllAvailable()
    query.stop()
    copying.check()
