"""Batch reads by both formats: the same options give the same rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from numbered_topic import START_MS, NumberedTopic, headers_of, key_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALL = range(3_000)
PLACES_BY_TIME = {"0": START_MS + 300, "1": START_MS, "2": START_MS + 2_000}


def read(spark: SparkSession, source: str, topic: NumberedTopic, **options: Any) -> DataFrame:
    reader = spark.read.format(source).option("kafka.bootstrap.servers", topic.servers)
    if not {"assign", "subscribePattern"} & set(options):
        reader = reader.option("subscribe", topic.name)
    return reader.options(**{name: as_text(value) for name, value in options.items()}).load()


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def test_all_columns_of_all_records_are_read(spark: SparkSession, source: str, orders: NumberedTopic) -> None:
    frame = read(spark, source, orders, includeHeaders=True)
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
    assert sorted(rows) == list(ALL)
    for number, row in rows.items():
        assert (row.topic, row.partition, row.offset) == ("orders", number % 3, number // 3)
        assert (row.key, row.timestampType) == (key_of(number), 0)
        assert (row.headers and [(each.key, each.value) for each in row.headers]) == headers_of(number)
    times = frame.selectExpr("unix_millis(timestamp) - bigint(string(value)) as base").distinct().collect()
    assert [row.base for row in times] == [START_MS]


def test_the_headers_are_no_column_unless_they_are_asked_for(
    spark: SparkSession, source: str, orders: NumberedTopic
) -> None:
    assert "headers" not in read(spark, source, orders).columns


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (
            {
                "startingOffsets": {"orders": {"0": 10, "1": -2, "2": -2}},
                "endingOffsets": {"orders": {"0": 20, "1": 0, "2": 5}},
            },
            [*range(30, 60, 3), *range(2, 15, 3)],
        ),
        ({"assign": {"orders": [0, 2]}}, [number for number in ALL if number % 3 != 1]),
        (
            {
                "assign": {"orders": [1]},
                "startingOffsets": {"orders": {"1": 998}},
                "endingOffsets": {"orders": {"1": -1}},
            },
            [2_995, 2_998],
        ),
        ({"subscribePattern": "ord.*s"}, list(ALL)),
        ({"startingTimestamp": START_MS + 2_990}, list(range(2_990, 3_000))),
        ({"startingTimestamp": START_MS + 3_000, "startingOffsetsByTimestampStrategy": "latest"}, []),
        (
            {"startingOffsetsByTimestamp": {"orders": PLACES_BY_TIME}},
            [number for number in ALL if START_MS + number >= PLACES_BY_TIME[str(number % 3)]],
        ),
        (
            {"endingOffsetsByTimestamp": {"orders": PLACES_BY_TIME}},
            [number for number in ALL if START_MS + number < PLACES_BY_TIME[str(number % 3)]],
        ),
        ({"startingTimestamp": START_MS + 5, "endingTimestamp": START_MS + 10}, list(range(5, 10))),
    ],
    ids=["offsets", "assign", "assign-offsets", "pattern", "time", "late", "times", "ending-times", "window"],
)
def test_options_choose_the_records(
    spark: SparkSession, source: str, orders: NumberedTopic, options: dict[str, Any], numbers: list[int]
) -> None:
    found = read(spark, source, orders, **options).selectExpr("int(string(value)) as number").collect()
    assert sorted(row.number for row in found) == sorted(numbers)


def test_a_start_behind_all_records_is_refused(spark: SparkSession, source: str, orders: NumberedTopic) -> None:
    with pytest.raises(Exception, match="orders"):
        read(spark, source, orders, startingTimestamp=START_MS + 3_000).count()


def test_a_read_has_at_least_as_many_tasks_as_it_asks_for(
    spark: SparkSession, source: str, orders: NumberedTopic
) -> None:
    frame = read(spark, source, orders, minPartitions=6)
    assert frame.rdd.getNumPartitions() >= 6
    orders.check(frame)


def test_a_shadow_is_read_like_its_source(spark: SparkSession, source: str, topic: NumberedTopic) -> None:
    topic.produce(200)
    shadow = topic.shadow()
    topic.produce(200)
    assert len(shadow.read(400)) == 400
    topic.check(read(spark, source, shadow))
