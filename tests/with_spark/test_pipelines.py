"""Pipelines in Spark: tables that follow topics, each record once, whatever runs again. DuckDB reads the tables."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place
from copying import WAIT_SECONDS
from followed_table import KINDS, NOT_JSON, RECORDS, Target, numbers, pipeline, run, write
from numbered_topic import NumberedTopic

from gnomon.spark.formats.decoder import BadFormat
from gnomon.spark.pipelines.batch_commit import PipelineFenced
from gnomon.spark.pipelines.pipeline import Pipeline
from gnomon.spark.pipelines.progress import BatchProgress
from gnomon.spark.pipelines.settings.section import BadPipeline
from gnomon.spark.pipelines.tasks.letters import RecordsRefused
from gnomon.spark.tables.table import BadTable
from gnomon.testing import KafkaBroker
from gnomon.testing.storms.processes.ledger_processes import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PAUSE_SECONDS = 3.0
"""Without an interval the next batch begins within this time."""


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """One broker: a pipeline reads by the format that other tests try on a cluster, too."""
    with KafkaBroker() as running:
        yield running


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return Target(request.param, tmp_path)


def run_again(made: Pipeline) -> None:
    """Has Spark forget that the last batch has ended."""
    commits = sorted(made.checkpoint.spark_folder.glob("commits/[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    commits[-1].with_name(f".{commits[-1].name}.crc").unlink()


def test_a_table_has_each_record_of_its_topic_once(spark: SparkSession, topic: NumberedTopic, target: Target) -> None:
    made = pipeline(topic, target, source={"options": {"maxOffsetsPerTrigger": 90}})
    write(topic, numbers(0, RECORDS))
    first = run(spark, made)
    write(topic, numbers(RECORDS, 2 * RECORDS))
    second = run(spark, pipeline(topic, target))
    expected = [(n, n % topic.partitions, n // topic.partitions) for n in range(2 * RECORDS)]
    assert target.rows() == expected
    assert [each.batch for each in first + second] == list(range(len(first) + len(second)))
    assert sum(each.rows for each in first + second) == 2 * RECORDS
    assert (first[-1].lag, second[-1].lag, second[-1].errors) == (0, 0, 0)
    assert first[0].lag == RECORDS - 90


@pytest.mark.parametrize(
    ("sql", "rows_of_the_jvm"), [(None, 2), ("SELECT a, _partition, _offset FROM records", RECORDS)]
)
def test_only_the_rows_of_a_query_pass_the_jvm(
    spark: SparkSession, topic: NumberedTopic, target: Target, sql: str | None, rows_of_the_jvm: int
) -> None:
    """Without a query the JVM has one row for each task."""
    write(topic, numbers(0, RECORDS))
    transform = {} if sql is None else {"transform": {"sql": sql}}
    queries: list[StreamingQuery] = []
    pipeline(topic, target, **transform).run(spark, lambda batch: queries.extend(spark.streams.active))
    (query,) = queries
    assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [rows_of_the_jvm]
    assert len(target.rows()) == RECORDS


@contextmanager
def running(spark: SparkSession, made: Pipeline) -> Iterator[tuple[StreamingQuery, list[BatchProgress]]]:
    """The query of a pipeline that follows its topic, and its finished batches: there is one at least."""
    found: list[BatchProgress] = []
    runner = made.runner(spark, found.append)
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(runner.run)
        try:
            wait_until(lambda: found or ended.done(), "a batch")
            (query,) = spark.streams.active
            yield query, found
        finally:
            runner.stop()
            ended.result(WAIT_SECONDS)


def test_the_next_batch_waits_for_the_interval_of_the_trigger(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path
) -> None:
    write(topic, numbers(0, RECORDS))
    settings = {
        "trigger": {"available_now": None, "every": "1 hour"},
        "source": {"options": {"maxOffsetsPerTrigger": 90}},
    }
    with running(spark, pipeline(topic, Target("parquet", tmp_path), **settings)) as (query, found):
        wait_until(lambda: not query.status["isTriggerActive"], "the end of the first batch")
        time.sleep(PAUSE_SECONDS)
        assert [each.lag for each in found] == [RECORDS - 90]


def test_the_files_of_a_table_have_the_largest_size_of_the_settings(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path
) -> None:
    """The rows of a query come to a task in several batches, and a file has whole batches."""
    write(topic, numbers(0, RECORDS))
    batch_rows = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(batch_rows)
    spark.conf.set(batch_rows, 20)
    try:
        for folder, more in (("one", {}), ("small", {"file_bytes": 1})):
            target = Target("parquet", tmp_path / folder)
            target.folder.mkdir()
            run(spark, pipeline(topic, target, target=more, transform={"sql": "SELECT * FROM records"}))
            assert len(target.rows()) == RECORDS
    finally:
        spark.conf.set(batch_rows, before)
    files = [len(list((tmp_path / folder / "table").glob("*.parquet"))) for folder in ("one", "small")]
    assert files == [topic.partitions, RECORDS // 20]


def test_a_batch_that_runs_again_is_in_its_table_once(
    spark: SparkSession, topic: NumberedTopic, target: Target
) -> None:
    write(topic, numbers(0, RECORDS))
    made = pipeline(topic, target)
    run(spark, made)
    run_again(made)
    assert [each.verdict for each in run(spark, pipeline(topic, target))] == ["already"]
    assert len(target.rows()) == RECORDS


def test_the_rows_of_a_driver_that_died_before_it_showed_them_appear_with_the_next_run(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path
) -> None:
    target = Target("parquet", tmp_path)
    write(topic, numbers(0, RECORDS))
    run(spark, pipeline(topic, target))
    (manifest,) = (tmp_path / "table" / "_gnomon" / "commits" / topic.name).iterdir()
    for file in json.loads(manifest.read_text())["files"]:
        (tmp_path / "table" / file["path"]).rename(tmp_path / "table" / "_gnomon" / "staged" / file["staged"])
    run(spark, pipeline(topic, target))
    assert len(target.rows()) == RECORDS


def test_a_pipeline_whose_first_batch_failed_starts_where_it_did_then(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path
) -> None:
    target = Target("parquet", tmp_path)
    write(topic, numbers(0, RECORDS))
    latest = {"source": {"start": "latest"}}
    trigger = {"available_now": False, "every": "100 milliseconds"}
    made = pipeline(topic, target, trigger=trigger, **latest)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(made.run, spark)
        while not made.checkpoint.first():
            assert not running.done(), running.result()
            time.sleep(0.1)
        write(topic, numbers(RECORDS, RECORDS + 10, bad=[RECORDS + 3]))
        with pytest.raises(RecordsRefused):
            running.result(120)
    write(topic, numbers(RECORDS + 10, RECORDS + 20))
    run(spark, pipeline(topic, target, errors={"on_error": "skip"}, **latest))
    assert [row[0] for row in target.rows()] == [n for n in range(RECORDS, RECORDS + 20) if n != RECORDS + 3]


def test_a_lost_checkpoint_is_fenced_and_a_reset_goes_on(
    spark: SparkSession, topic: NumberedTopic, target: Target
) -> None:
    write(topic, numbers(0, RECORDS))
    run(spark, pipeline(topic, target))
    shutil.rmtree(target.folder / "checkpoint")
    with pytest.raises(PipelineFenced, match="FENCED: the table was last written by query"):
        run(spark, pipeline(topic, target))
    assert len(target.rows()) == RECORDS
    made = pipeline(topic, target)
    made.reset({"startingOffsets": "latest"})
    run(spark, made)
    write(topic, numbers(RECORDS, RECORDS + 10))
    assert sum(each.rows for each in run(spark, pipeline(topic, target))) == 10
    assert [row[0] for row in target.rows()] == list(range(RECORDS + 10))


def test_a_pipeline_stops_at_a_record_that_does_not_fit_and_writes_nothing_of_the_batch(
    spark: SparkSession, topic: NumberedTopic, target: Target
) -> None:
    write(topic, numbers(0, RECORDS, bad=[7, 8]))
    with pytest.raises(RecordsRefused, match=r"partition 0, offset 4: not a JSON object \(2 records of the batch"):
        run(spark, pipeline(topic, target))
    run(spark, pipeline(topic, target, errors={"on_error": "skip", "max_errors": 2}))
    assert [row[0] for row in target.rows()] == [n for n in range(RECORDS) if n not in (7, 8)]


def test_more_errors_than_allowed_stop_a_pipeline(spark: SparkSession, topic: NumberedTopic, tmp_path: Path) -> None:
    write(topic, numbers(0, RECORDS, bad=[7, 8]))
    with pytest.raises(RecordsRefused, match=r"errors.max_errors = 1"):
        run(spark, pipeline(topic, Target("parquet", tmp_path), errors={"on_error": "skip", "max_errors": 1}))


@pytest.mark.parametrize("sql", [None, "SELECT a, _partition, _offset FROM records"])
def test_dead_letters_go_to_a_topic_once(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path, sql: str | None
) -> None:
    dead = NumberedTopic(topic.servers, f"{topic.name}.dead", 1)
    target = Target("delta", tmp_path)
    errors = {"on_error": "dead_letter", "dead_letter_topic": dead.name}
    transform = {} if sql is None else {"transform": {"sql": sql}}
    write(topic, numbers(0, RECORDS, bad=[7, 8]))
    made = pipeline(topic, target, errors=errors, **transform)
    assert sum(each.errors for each in run(spark, made)) == 2
    run_again(made)
    shutil.rmtree(tmp_path / "table")  # a driver that died after the dead letters, before the rows
    assert sum(each.rows for each in run(spark, pipeline(topic, target, errors=errors, **transform))) == RECORDS - 2
    letters = read_letters(dead, 3)
    assert [(letter["_partition"], letter["_offset"], letter["value"]) for letter in letters] == [
        (b"0", b"4", NOT_JSON),
        (b"1", b"3", NOT_JSON),
    ]
    assert {letter["_reason"] for letter in letters} == {b"not a JSON object"}
    assert len(target.rows()) == RECORDS - 2


def read_letters(dead: NumberedTopic, most: int) -> list[dict[str, bytes]]:
    """The letters of a topic by their places, with their headers and values; at most so many."""
    consumer = Consumer({"bootstrap.servers": dead.servers, "group.id": "letters"})
    consumer.assign([Place(dead.name, 0, 0)])
    found = [{**dict(each.headers() or []), "value": each.value()} for each in consumer.consume(most, 3.0)]
    consumer.close()
    return sorted(found, key=lambda letter: letter["_partition"])


def test_dead_letters_go_to_a_table_once(spark: SparkSession, topic: NumberedTopic, target: Target) -> None:
    errors = {"on_error": "dead_letter", "dead_letter_path": "dead"}
    write(topic, numbers(0, RECORDS, bad=[7]))
    made = pipeline(topic, target, errors=errors)
    run(spark, made)
    run_again(made)
    run(spark, pipeline(topic, target, errors=errors))
    found = duckdb.sql(
        f"SELECT partition, \"offset\", value, reason FROM read_parquet('{target.folder}/dead/*.parquet')"
    )
    assert found.fetchall() == [(1, 3, NOT_JSON, "not a JSON object")]
    assert len(target.rows()) == RECORDS - 1


def test_a_query_writes_its_result(spark: SparkSession, topic: NumberedTopic, target: Target) -> None:
    write(topic, numbers(0, RECORDS))
    sql = "SELECT a * 2 AS double, _partition FROM records WHERE a % 2 = 0"
    run(spark, pipeline(topic, target, transform={"sql": sql}))
    assert target.rows("double") == [(2 * n,) for n in range(0, RECORDS, 2)]


def test_a_query_stops_at_a_record_that_does_not_fit(spark: SparkSession, topic: NumberedTopic, tmp_path: Path) -> None:
    write(topic, numbers(0, 20, bad=[7]))
    with pytest.raises(RecordsRefused, match=r"partition 1, offset 3: not a JSON object \(errors.on_error decides\)"):
        run(spark, pipeline(topic, Target("parquet", tmp_path), transform={"sql": "SELECT a FROM records"}))


def test_a_query_that_spark_refuses_is_an_error_with_its_text(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path
) -> None:
    with pytest.raises(BadPipeline, match=r"transform.sql: .*UNRESOLVED_COLUMN.*`b`"):
        run(spark, pipeline(topic, Target("parquet", tmp_path), transform={"sql": "SELECT b FROM records"}))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("upserts", [False, True])
def test_required_columns_may_have_dead_letters_and_deletes(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path, kind: str, upserts: bool
) -> None:
    target = Target(kind, tmp_path)
    settings: dict[str, dict[str, Any]] = {
        "format": {"schema": "a BIGINT NOT NULL, s STRING NOT NULL", "key": "text"},
        "errors": {"on_error": "skip"},
    }
    if upserts:
        settings["target"] = {"mode": "upsert"}
    else:
        settings["transform"] = {"sql": "SELECT a, s, _partition, _offset FROM records"}
    values = [b'{"a": %d, "s": "t"}' % n for n in range(10)]
    write(topic, [*values, NOT_JSON, b'{"a": 1}'])
    made = pipeline(topic, target, **settings)
    assert sum(each.errors for each in run(spark, made)) == 2
    write(topic, [None])
    run(spark, pipeline(topic, target, **settings))
    assert target.rows("a, s") == [(n, "t") for n in range(int(upserts), 10)]


def tripled(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("a * 3 AS triple")


def test_a_function_transforms_the_rows(spark: SparkSession, topic: NumberedTopic, tmp_path: Path) -> None:
    target = Target("parquet", tmp_path)
    write(topic, numbers(0, 20))
    run(spark, pipeline(topic, target, transform={"function": f"{__name__}:tripled"}))
    assert target.rows("triple") == [(3 * n,) for n in range(20)]


@pytest.mark.parametrize("function", ["no_such_module:f", f"{__name__}:no_such_function", "json:dumps"])
def test_a_function_that_cannot_be_used_is_an_error_that_names_it(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path, function: str
) -> None:
    with pytest.raises(BadPipeline, match=r"transform.function"):
        run(spark, pipeline(topic, Target("parquet", tmp_path), transform={"function": function}))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_the_newest_record_of_a_key_is_its_row_and_a_null_value_deletes_it(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path, kind: str
) -> None:
    target = Target(kind, tmp_path)
    settings = {"target": {"mode": "upsert"}, "format": {"key": "text"}}

    def key(number: int) -> bytes:
        return b"k%d" % (number % 10)

    write(topic, numbers(0, 100), key)
    made = pipeline(topic, target, **settings)
    run(spark, made)
    assert target.rows("_key, a") == [(f"k{n}", 90 + n) for n in range(10)]
    write(topic, [*numbers(100, 104), None, None, b'{"a": 106}'], key)
    run(spark, pipeline(topic, target, **settings))
    expected = [(f"k{n}", 100 + n if n < 4 else 90 + n) for n in range(10) if n not in (4, 5)]
    assert target.rows("_key, a") == [(name, 106 if name == "k6" else value) for name, value in expected]
    run_again(made)
    run(spark, pipeline(topic, target, **settings))
    assert len(target.rows("_key, a")) == 8


def test_rows_are_partitioned_by_the_days_of_their_records(
    spark: SparkSession, topic: NumberedTopic, target: Target
) -> None:
    write(topic, numbers(0, 20))
    run(spark, pipeline(topic, target, target={"partition_by": ["_date"]}))
    assert target.rows("a, CAST(_date AS VARCHAR)") == [(n, "2023-11-14") for n in range(20)]


def test_a_table_of_other_columns_is_refused_unless_it_may_grow(
    spark: SparkSession, topic: NumberedTopic, target: Target
) -> None:
    write(topic, numbers(0, 20))
    run(spark, pipeline(topic, target))
    write(topic, [b'{"a": 20, "b": "x"}'])
    wider = {"format": {"schema": "a BIGINT, b STRING"}}
    with pytest.raises(BadTable, match="'b'"):
        run(spark, pipeline(topic, target, **wider))
    run(spark, pipeline(topic, target, **wider, target={"evolve": "add"}))
    if target.kind != "parquet":  # DuckDB reads the columns of the first file
        assert target.rows("a, b")[-1] == (20, "x")
    assert len(target.rows("a")) == 21


def test_the_status_has_the_last_batch_and_the_lag(spark: SparkSession, topic: NumberedTopic, target: Target) -> None:
    made = pipeline(topic, target)
    write(topic, numbers(0, 20))
    before = made.status()
    assert (before.query, before.batch, before.table_batch, before.lag) == (None, None, None, 20)
    run(spark, made)
    write(topic, numbers(20, 25))
    after = made.status()
    assert after.query is not None
    assert after.table_batch is not None
    assert after.query.replace("-", "").startswith(after.table_batch.query_digits)
    assert (after.batch, after.table_batch.number, after.lag) == (0, 0, 5)


def test_a_check_shows_the_first_records_and_changes_nothing(
    spark: SparkSession, topic: NumberedTopic, target: Target
) -> None:
    write(topic, numbers(0, 40, bad=[4]))
    before = sorted(target.folder.rglob("*"))
    found = pipeline(topic, target).check()
    assert sorted(path for path in target.folder.rglob("*") if path.name != "catalog.db") == before
    assert (found.status.lag, found.table, found.rows.names[0], len(found.records)) == (40, None, "a", 10)
    assert found.records[1].row is not None
    assert (found.records[1].row["a"], found.records[2].reason) == (2, "not a JSON object")
    assert found.problem == f"{topic.name}-0 offset 2: not a JSON object"
    assert pipeline(topic, target, errors={"on_error": "skip"}).check().problem is None


def test_a_check_says_that_the_table_has_other_columns(
    spark: SparkSession, topic: NumberedTopic, target: Target
) -> None:
    write(topic, numbers(0, 20))
    run(spark, pipeline(topic, target))
    found = pipeline(topic, target, format={"schema": "a STRING"}).check()
    assert found.problem is not None
    assert "'a'" in found.problem
    sql = pipeline(topic, target, transform={"sql": "SELECT count(*) AS n FROM records"})
    assert sql.check().rows.names == ["n"]


def test_a_check_infers_the_columns_of_json_records(spark: SparkSession, topic: NumberedTopic, tmp_path: Path) -> None:
    write(topic, [b'{"a": 1, "b": {"c": [1.5]}}', b'{"a": 2, "d": "x"}'] * 20)
    target, unknown = Target("parquet", tmp_path), {"format": {"schema": None}}
    found = pipeline(topic, target, **unknown).check()
    assert found.inferred == "a BIGINT, b STRUCT<c: ARRAY<DOUBLE>>, d STRING"
    assert found.rows.names[:3] == ["a", "b", "d"]
    with pytest.raises(BadFormat, match="--write-schema"):
        run(spark, pipeline(topic, target, **unknown))
    run(spark, pipeline(topic, target, format={"schema": found.inferred}))
    assert target.rows("a")[-1] == (2,)


def test_a_check_says_that_another_query_writes_the_table(
    spark: SparkSession, topic: NumberedTopic, target: Target
) -> None:
    write(topic, numbers(0, 20))
    run(spark, pipeline(topic, target))
    assert pipeline(topic, target).check().problem is None
    shutil.rmtree(target.folder / "checkpoint")
    found = pipeline(topic, target).check()
    assert found.problem is not None
    assert "FENCED: the table was last written by query" in found.problem


def test_a_check_says_that_there_is_no_topic_for_dead_letters(topic: NumberedTopic, tmp_path: Path) -> None:
    errors = {"on_error": "dead_letter", "dead_letter_topic": "nowhere"}
    found = pipeline(topic, Target("parquet", tmp_path), errors=errors).check()
    assert found.problem is not None
    assert "nowhere" in found.problem


@pytest.mark.parametrize(
    ("sql", "settings", "text"),
    [
        ("SELECT a, 1 AS _dead FROM records", {}, "no column of the result may have the name _dead"),
        (
            "SELECT a, _key FROM records",
            {"target": {"mode": "upsert"}, "format": {"key": "raw"}},
            "lacks _deleted, _partition, _offset, which an upsert needs",
        ),
        ("SELECT a, count(*) FROM records GROUP BY a", {}, "transform: .*watermark"),
    ],
)
def test_a_result_that_cannot_be_written_is_an_error(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path, sql: str, settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(BadPipeline, match=text):
        run(spark, pipeline(topic, Target("delta", tmp_path), transform={"sql": sql}, **settings))


def test_a_windowed_query_closes_its_windows_by_the_watermark(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path
) -> None:
    target = Target("delta", tmp_path)
    start_s = 1_700_000_100
    events = [json.dumps({"a": n % 3, "at": f"2023-11-14T22:{15 + n // 10:02d}:00Z"}).encode() for n in range(100)]
    write(topic, events)
    sql = "SELECT window.start AS began, a, count(*) AS events FROM records GROUP BY window(at, '1 minute'), a"
    settings = {
        "format": {"schema": "a BIGINT, at TIMESTAMP"},
        "transform": {"sql": sql, "watermark": {"at": "2 minutes"}},
    }
    run(spark, pipeline(topic, target, **settings))
    closed = 100 // 10 - 1 - 2
    expected = {}
    for n in range(closed * 10):
        expected[n // 10, n % 3] = expected.get((n // 10, n % 3), 0) + 1
    found = target.rows("CAST(epoch(began) AS BIGINT), a, events")
    assert found == sorted((start_s + 60 * minute, a, count) for (minute, a), count in expected.items())
