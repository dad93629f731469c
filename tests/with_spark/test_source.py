"""The format beyond the connector: a schema chooses columns, tasks have a size, bookies are read, errors are clear."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cluster_broker import ClusterBroker
from numbered_topic import NumberedTopic
from test_batch_reads import as_text

from gnomon.testing import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, topic: NumberedTopic, schema: str | None = None, **options: object) -> DataFrame:
    reader = spark.read.format("gnomon").option("kafka.bootstrap.servers", topic.servers)
    texts = {name: as_text(value) for name, value in {"subscribe": topic.name, **options}.items()}
    return (reader.schema(schema) if schema else reader).options(**texts).load()


def test_a_schema_chooses_columns_in_its_order(spark: SparkSession, orders: NumberedTopic) -> None:
    frame = read(spark, orders, "value binary, offset long")
    assert frame.columns == ["value", "offset"]
    found = sorted((int(bytes(row.value)), row.offset) for row in frame.collect())
    assert found == [(number, number // 3) for number in range(3_000)]


def test_the_records_of_a_task_are_bounded(spark: SparkSession, orders: NumberedTopic) -> None:
    frame = read(spark, orders, maxRecordsPerPartition=250)
    assert frame.rdd.getNumPartitions() == 12
    orders.check(frame)


@pytest.mark.parametrize(
    ("schema", "options", "text"),
    [
        (None, {"subscribed": "orders"}, "subscribed: no such option; is it subscribe?"),
        (None, {"subscribe": "missing"}, "topic 'missing': this broker knows no such topic or partition"),
        ("value string", {}, "column 'value' has the type binary, not string"),
        ("body binary", {}, "column 'body': there are key, value, topic"),
    ],
)
def test_a_read_that_cannot_be_made_says_why(
    spark: SparkSession, orders: NumberedTopic, schema: str | None, options: dict[str, str], text: str
) -> None:
    with pytest.raises(Exception, match=text.replace("?", r"\?")):
        read(spark, orders, schema, **options).count()


def test_bookies_are_read_where_there_are_any(
    spark: SparkSession, orders: NumberedTopic, broker: KafkaBroker | ClusterBroker
) -> None:
    if isinstance(broker, ClusterBroker):
        orders.check(read(spark, orders, via="bookies"))
    else:
        with pytest.raises(Exception, match="via=bookies: the brokers name no bookies, as a standalone node does"):
            read(spark, orders, via="bookies").count()
    orders.check(read(spark, orders, via="brokers"))


def test_a_function_reads_the_tasks_that_it_is_given(spark: SparkSession, orders: NumberedTopic) -> None:
    from gnomon.spark.columns import SCHEMA
    from gnomon.spark.source import TASK_COLUMNS, GnomonTasks, rows_of_tasks

    spark.dataSource.register(GnomonTasks)
    reader = spark.read.format(GnomonTasks.name()).option(TASK_COLUMNS, ",".join(SCHEMA.names[:-1]))
    options = {"kafka.bootstrap.servers": orders.servers, "subscribe": orders.name, "maxRecordsPerPartition": "250"}
    tasks = reader.options(**options).load()
    assert tasks.count() == 12
    orders.check(tasks.mapInArrow(rows_of_tasks, read(spark, orders).schema))
