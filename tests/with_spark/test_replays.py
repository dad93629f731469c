"""Replays of pipelines in Spark: ranges into new tables or in the place of rows, and dead letters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from followed_table import Target, numbers, pipeline, run, write
from numbered_topic import NumberedTopic

from gnomon.spark.pipelines.replays.range_replay import ReplayRefused
from gnomon.spark.pipelines.tasks.letters import RecordsRefused
from gnomon.spark.tables.table import BadTable
from gnomon.testing import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 100
TENFOLD = {"sql": "SELECT a * 10 AS a, _topic, _partition, _offset, _timestamp FROM records"}


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


@pytest.fixture(params=["delta", "iceberg"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return Target(request.param, tmp_path)


def expected(topic: NumberedTopic, *, tenfold: range = range(0)) -> list[tuple[int, int, int]]:
    """The rows of RECORDS records; those of the offsets `tenfold` of partition 0 have ten times the number."""
    rows = [(n, n % topic.partitions, n // topic.partitions) for n in range(RECORDS)]
    return sorted(
        (n * 10 if partition == 0 and offset in tenfold else n, partition, offset) for n, partition, offset in rows
    )


def offsets(topic: NumberedTopic, start: int, stop: int) -> dict[str, str]:
    """A range of partition 0, and none of the others."""
    bounds = {"startingOffsets": start, "endingOffsets": stop}
    return {
        name: json.dumps({topic.name: {number: 0 if number else offset for number in range(topic.partitions)}})
        for name, offset in bounds.items()
    }


def test_the_rows_of_a_range_are_replaced_twice_with_the_same_result(
    spark: SparkSession, topic: NumberedTopic, target: Target
) -> None:
    write(topic, numbers(0, RECORDS))
    run(spark, pipeline(topic, target))
    corrected = pipeline(topic, target, transform=TENFOLD)
    for _ in range(2):
        done = corrected.replay(offsets(topic, 5, 12), session=spark)
        assert (done.rows, done.errors) == (7, 0)
        assert target.rows() == expected(topic, tenfold=range(5, 12))
    write(topic, numbers(RECORDS, RECORDS + 10))
    assert sum(each.rows for each in run(spark, pipeline(topic, target))) == 10


def test_a_range_becomes_a_new_table(spark: SparkSession, topic: NumberedTopic, target: Target) -> None:
    write(topic, numbers(0, RECORDS))
    new = "default.other" if target.kind == "iceberg" else "other"
    made = pipeline(topic, target, transform=TENFOLD)
    done = made.replay(offsets(topic, 5, 12), new, spark)
    assert done.rows == 7
    with pytest.raises(ReplayRefused, match="exists already"):
        made.replay(offsets(topic, 5, 12), new, spark)
    assert target.rows(table="other") == [(n * 10, 0, n // 2) for n in range(10, 24, 2)]


def test_partitions_of_a_table_of_a_query_are_replaced(
    spark: SparkSession, topic: NumberedTopic, target: Target
) -> None:
    write(topic, numbers(0, RECORDS))
    into = target.settings(partition_by=["tens"])
    first = {"sql": "SELECT a DIV 10 AS tens, a FROM records"}
    run(spark, pipeline(topic, target, transform=first, target=into))
    corrected = {"sql": "SELECT a DIV 10 AS tens, -a AS a FROM records WHERE a DIV 10 IN (3, 4) AND a % 2 = 0"}
    pipeline(topic, target, transform=corrected, target=into).replay({}, session=spark)
    kept = [(a // 10, a) for a in range(RECORDS) if a // 10 not in (3, 4)]
    assert target.rows("tens, a") == sorted(kept + [(a // 10, -a) for a in range(30, 50, 2)])


def test_records_that_were_not_read_yet_are_not_replaced(
    spark: SparkSession, topic: NumberedTopic, target: Target
) -> None:
    write(topic, numbers(0, RECORDS))
    made = pipeline(topic, target)
    with pytest.raises(ReplayRefused, match="has not run"):
        made.replay({}, session=spark)
    run(spark, made)
    write(topic, numbers(RECORDS, 2 * RECORDS))
    with pytest.raises(ReplayRefused, match="run the pipeline first"):
        made.replay({}, session=spark)
    assert target.rows() == expected(topic)


def test_records_that_do_not_fit_stop_a_replay_or_are_counted(
    spark: SparkSession, topic: NumberedTopic, target: Target
) -> None:
    write(topic, numbers(0, RECORDS, bad=[20]))
    run(spark, pipeline(topic, target, errors={"on_error": "skip"}))
    rows = target.rows()
    with pytest.raises(RecordsRefused):
        pipeline(topic, target, transform=TENFOLD).replay({}, session=spark)
    assert target.rows() == rows
    done = pipeline(topic, target, errors={"on_error": "skip"}).replay({}, session=spark)
    assert (done.rows, done.errors) == (RECORDS - 1, 1)
    assert target.rows() == rows


@pytest.mark.parametrize(("kind", "mode"), [("parquet", "append"), ("delta", "upsert")])
def test_tables_whose_rows_cannot_be_replaced_say_so(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path, kind: str, mode: str
) -> None:
    into = Target(kind, tmp_path)
    write(topic, numbers(0, 4))
    made = pipeline(topic, into, format={"key": "text"}, target=into.settings(mode=mode))
    run(spark, made)
    with pytest.raises(BadTable, match="replay into a new table"):
        made.replay({}, session=spark)


def test_each_dead_letter_becomes_a_row_once_the_pipeline_is_corrected(
    spark: SparkSession, topic: NumberedTopic, target: Target
) -> None:
    values = [b"%d%s%d" % (n, b";" if n % 10 == 3 else b",", n) for n in range(RECORDS)]
    write(topic, values)
    sections: dict[str, Any] = {"errors": {"on_error": "dead_letter", "dead_letter_topic": f"{topic.name}-dead"}}
    NumberedTopic(topic.servers, f"{topic.name}-dead")
    form = {"kind": "csv", "schema": "a BIGINT, b BIGINT"}
    before = pipeline(topic, target, format=form, **sections)
    assert sum(each.errors for each in run(spark, before)) == RECORDS // 10
    still = pipeline(topic, target, format={"kind": "csv", "schema": "a BIGINT, b BIGINT"}, **sections).letters()
    assert [(each.rows, each.errors) for each in run(spark, still)] == [
        (0, RECORDS // 10)
    ]  # they are behind the others
    after = {"kind": "csv", "schema": "a BIGINT, b BIGINT", "delimiter": ";"}
    corrected = pipeline(topic, target, format=after, **sections)
    assert sum(each.rows for each in run(spark, corrected.letters())) == RECORDS // 10
    assert sum(each.rows for each in run(spark, corrected.letters())) == 0
    assert target.rows() == expected(topic)


def test_a_pipeline_without_a_topic_of_dead_letters_has_none_to_replay(topic: NumberedTopic, target: Target) -> None:
    with pytest.raises(ReplayRefused, match="dead_letter_topic"):
        pipeline(topic, target).letters()
    letters = {"on_error": "dead_letter", "dead_letter_topic": "dead"}
    with pytest.raises(ReplayRefused, match="newer row"):
        pipeline(topic, target, format={"key": "text"}, target=target.settings(mode="upsert"), errors=letters).letters()
