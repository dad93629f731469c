"""Batch reads by Spark, compared with the records that a Kafka producer wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from gnomon.testing import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START_MS = 1_700_000_000_000
PARTITIONS, RECORDS = 3, 3_000


@pytest.fixture(scope="module")
def orders(broker: KafkaBroker) -> str:
    """A topic with RECORDS records: record n is in partition n % PARTITIONS and has the timestamp START_MS + n."""
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("orders", PARTITIONS)])["orders"].result()
    producer = Producer({**settings, "compression.type": "zstd"})
    for number in range(RECORDS):
        headers = [("number", b"%d" % number), ("none", None)] if number % 2 else None
        key = None if number % 5 == 0 else b"key-%d" % number
        producer.produce(
            "orders", b"%d" % number, key, number % PARTITIONS, timestamp=START_MS + number, headers=headers
        )
        producer.poll(0)
    producer.flush()
    return "orders"


def read(spark: SparkSession, broker: KafkaBroker, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("gnomon").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return (reader.schema(schema) if schema else reader).options(**{"subscribe": "orders", **options}).load()


def test_all_columns_of_all_records_are_read(spark: SparkSession, broker: KafkaBroker, orders: str) -> None:
    frame = read(spark, broker, includeHeaders=True)
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    rows = {int(bytes(row.value)): row for row in frame.collect()}
    assert sorted(rows) == list(range(RECORDS))
    for number, row in rows.items():
        assert (row.topic, row.partition, row.offset) == (orders, number % PARTITIONS, number // PARTITIONS)
        assert (row.key, row.timestampType) == (None if number % 5 == 0 else b"key-%d" % number, 0)
        found = row.headers and [(each.key, each.value) for each in row.headers]
        assert found == ([("number", b"%d" % number), ("none", None)] if number % 2 else None)
    times = frame.selectExpr("unix_millis(timestamp) - bigint(string(value)) as base").distinct().collect()
    assert [row.base for row in times] == [START_MS]


def test_a_schema_chooses_columns_in_its_order(spark: SparkSession, broker: KafkaBroker, orders: str) -> None:
    frame = read(spark, broker, "value binary, offset long", minPartitions=7)
    assert frame.columns == ["value", "offset"]
    assert frame.rdd.getNumPartitions() >= 7
    found = sorted((int(bytes(row.value)), row.offset) for row in frame.collect())
    assert found == [(number, number // PARTITIONS) for number in range(RECORDS)]


def test_the_headers_are_no_column_unless_they_are_asked_for(
    spark: SparkSession, broker: KafkaBroker, orders: str
) -> None:
    assert "headers" not in read(spark, broker).columns


def test_a_range_of_offsets_is_read(spark: SparkSession, broker: KafkaBroker, orders: str) -> None:
    starts, stops = '{"orders":{"0":10,"1":-2,"2":-2}}', '{"orders":{"0":20,"1":0,"2":5}}'
    frame = read(spark, broker, startingOffsets=starts, endingOffsets=stops)
    found = sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())
    assert found == [(0, offset) for offset in range(10, 20)] + [(2, offset) for offset in range(5)]


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
    spark: SparkSession, broker: KafkaBroker, orders: str, schema: str | None, options: dict[str, str], text: str
) -> None:
    with pytest.raises(Exception, match=text.replace("?", r"\?")):
        read(spark, broker, schema, **options).count()
