"""Pipelines from files to a topic in Spark: each file once, in an order, whatever runs again."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition
from numbered_topic import NumberedTopic

from gnomon.spark.pipelines.batch_commit import PipelineFenced
from gnomon.spark.pipelines.files import file_runner
from gnomon.spark.pipelines.files.file_pipeline import FilePipeline
from gnomon.spark.pipelines.progress import BatchProgress
from gnomon.spark.pipelines.run_failed import RunFailed
from gnomon.spark.pipelines.settings.section import BadPipeline
from gnomon.testing import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AVRO = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}
DATED = "a logical type"
FORMATS: Mapping[str, Mapping[str, Any]] = {
    "json": {"schema": "a BIGINT, b STRING"},
    "csv": {"schema": "a BIGINT, b STRING", "header": True},
    "parquet": {},
    "avro": {"schema_file": "schema.avsc"},
}


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """One broker: the sink's own tests write to a cluster, too."""
    with KafkaBroker() as running:
        yield running


@pytest.fixture
def topic(broker: KafkaBroker, request: pytest.FixtureRequest) -> NumberedTopic:
    """A topic of one partition, in which the order of all rows shows."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return NumberedTopic(broker.bootstrap_servers, f"files-{name}", 1)


def write(folder: Path, name: str, numbers: range, time: int = 0) -> None:
    """Writes a file of rows `{"a": number, "b": "x"}`; its suffix is its format."""
    path = folder / name
    rows = [{"a": number, "b": "x"} for number in numbers]
    match path.suffix:
        case ".json":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case ".csv":
            path.write_text("a,b\n" + "".join(f"{row['a']},{row['b']}\n" for row in rows))
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
        case _:
            with path.open("wb") as file:
                fastavro.writer(file, AVRO, rows)
    os.utime(path, (1_700_000_000 + time,) * 2)


def pipeline(topic: NumberedTopic, folder: Path, kind: str = "json", **sections: Mapping[str, Any]) -> FilePipeline:
    """A pipeline of the files of one format in a folder."""
    given: dict[str, Any] = {
        "name": topic.name,
        "checkpoint": "checkpoint",
        "source": {"files": f"*.{kind}"},
        "format": {"kind": kind, **FORMATS[kind]},
        "target": {"kind": "topic", "bootstrap": topic.servers, "topic": topic.name},
        "trigger": {"available_now": True},
    }
    for name, section in sections.items():
        given[name] = {**given.get(name, {}), **section}
    return FilePipeline.of(given, folder)


def run(spark: SparkSession, made: FilePipeline) -> list[BatchProgress]:
    found: list[BatchProgress] = []
    made.run(spark, found.append)
    return found


def numbers(topic: NumberedTopic, count: int) -> list[int]:
    """The numbers in the topic, in their order; there are so many."""
    assert size_of(topic) == count
    return [json.loads(value or b"")["a"] for _, _, value, _ in topic.read(count)]


def size_of(topic: NumberedTopic) -> int:
    """The records of a topic, by its end offsets."""
    consumer = Consumer({"bootstrap.servers": topic.servers, "group.id": "ends"})
    places = [TopicPartition(topic.name, partition) for partition in range(topic.partitions)]
    ends = [consumer.get_watermark_offsets(place, 10.0) for place in places]
    consumer.close()
    return sum(end[1] for end in ends)


@pytest.mark.parametrize("kind", FORMATS)
def test_each_file_is_in_the_topic_once_in_the_order_of_names(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "schema.avsc").write_text(json.dumps(AVRO))
    write(tmp_path, f"1 [odd] %20 name.{kind}", range(5))
    write(tmp_path, f"2.{kind}", range(5, 505))
    write(tmp_path, f"3.{kind}", range(505, 510))
    write(tmp_path, f".hidden.{kind}", range(900, 910))
    first = run(spark, pipeline(topic, tmp_path, kind, source={"files_per_batch": 2}))
    assert [(each.batch, each.verdict, each.rows, each.lag) for each in first] == [
        (0, "committed", 505, 1),
        (1, "committed", 5, 0),
    ]
    write(tmp_path, f"4.{kind}", range(510, 520))
    (tmp_path / f"2.{kind}").unlink()
    second = run(spark, pipeline(topic, tmp_path, kind))
    assert [(each.batch, each.rows) for each in second] == [(2, 10)]
    assert numbers(topic, 520) == list(range(520))
    assert run(spark, pipeline(topic, tmp_path, kind)) == []


def test_the_rows_of_a_file_that_several_tasks_read_are_in_their_order(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path
) -> None:
    write(tmp_path, "1.json", range(2_000))
    write(tmp_path, "2.json", range(2_000, 2_010))
    spark.conf.set("spark.sql.files.maxPartitionBytes", "4096")
    try:
        run(spark, pipeline(topic, tmp_path))
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert numbers(topic, 2_010) == list(range(2_010))


def test_a_field_of_csv_may_have_several_lines(spark: SparkSession, topic: NumberedTopic, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text('1;"x\ny;z"\n2;\n')
    run(spark, pipeline(topic, tmp_path, "csv", format={"header": False, "delimiter": ";"}))
    assert [json.loads(value or b"") for _, _, value, _ in topic.read(2)] == [{"a": 1, "b": "x\ny;z"}, {"a": 2}]


def test_files_are_read_in_the_order_of_their_times(spark: SparkSession, topic: NumberedTopic, tmp_path: Path) -> None:
    for number, name in enumerate("cab"):
        write(tmp_path, f"{name}.json", range(10 * number, 10 * number + 10), time=number)
    run(spark, pipeline(topic, tmp_path, source={"order": "time"}))
    assert numbers(topic, 30) == list(range(30))


def test_a_late_file_is_read_with_a_warning(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "b.json", range(10))
    run(spark, pipeline(topic, tmp_path))
    write(tmp_path, "a.json", range(10, 20))
    with caplog.at_level(logging.WARNING, file_runner.__name__):
        run(spark, pipeline(topic, tmp_path))
    assert "a.json came after files that follow it" in caplog.text
    assert numbers(topic, 20) == list(range(20))


def test_a_batch_whose_driver_died_after_the_decision_is_in_the_topic_once(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "1.json", range(10))
    dying(monkeypatch, file_runner.FileLog, "end")
    with pytest.raises(Died):
        run(spark, pipeline(topic, tmp_path))
    monkeypatch.undo()
    (tmp_path / "1.json").unlink()  # the topic has its rows, so they are not read again
    write(tmp_path, "2.json", range(10, 20))
    again = run(spark, pipeline(topic, tmp_path))
    assert [(each.batch, each.verdict, each.rows) for each in again] == [(0, "already", 0), (1, "committed", 10)]
    assert numbers(topic, 20) == list(range(20))


class Died(Exception):
    """The driver of a test dies."""


def dying(monkeypatch: pytest.MonkeyPatch, at: object, name: str) -> None:
    """Has a call raise, as if the driver died there."""

    def dies(*_: object) -> None:
        raise Died

    monkeypatch.setattr(at, name, dies)


def dying_before_the_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the driver die once a batch is recorded."""
    record = file_runner.FileLog.record

    def record_and_die(*arguments: Any) -> bool:
        assert record(*arguments)
        raise Died

    monkeypatch.setattr(file_runner.FileLog, "record", record_and_die)


def test_a_batch_whose_driver_died_before_the_decision_runs_again_with_the_same_files(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "2.json", range(10))
    dying_before_the_decision(monkeypatch)
    with pytest.raises(Died):
        run(spark, pipeline(topic, tmp_path))
    monkeypatch.undo()
    write(tmp_path, "1.json", range(10, 20))
    made = pipeline(topic, tmp_path)
    status = made.status()
    assert (status.batch, status.topic_batch) == (None, None)
    assert [each.name for each in status.waiting] == ["1.json", "2.json"]
    assert [each.rows for each in run(spark, made)] == [10, 10]
    assert numbers(topic, 20) == list(range(20))


def test_a_file_that_has_changed_since_its_batch_was_recorded_is_an_error_that_names_it(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "1.json", range(10))
    dying_before_the_decision(monkeypatch)
    with pytest.raises(Died):
        run(spark, pipeline(topic, tmp_path))
    monkeypatch.undo()
    write(tmp_path, "1.json", range(11))
    with pytest.raises(RunFailed, match=r"1\.json has changed .* batch 0 was recorded"):
        run(spark, pipeline(topic, tmp_path))
    write(tmp_path, "1.json", range(10))
    run(spark, pipeline(topic, tmp_path))
    assert numbers(topic, 10) == list(range(10))


def test_a_file_that_grows_while_it_is_read_is_an_error_and_nothing_is_written(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "1.json", range(10))
    reading = file_runner.sink_rows

    def read_and_grow(*arguments: Any) -> Any:
        found = reading(*arguments)
        with (tmp_path / "1.json").open("a") as file:
            file.write('{"a": 10}\n')
        return found

    monkeypatch.setattr(file_runner, "sink_rows", read_and_grow)
    with pytest.raises(RunFailed, match=r"1\.json has changed"):
        run(spark, pipeline(topic, tmp_path))
    assert size_of(topic) == 0
    monkeypatch.undo()
    run(spark, pipeline(topic, tmp_path))
    assert numbers(topic, 11) == list(range(11))


def test_a_lost_checkpoint_is_fenced_and_a_reset_writes_all_rows_again(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path
) -> None:
    write(tmp_path, "1.json", range(10))
    run(spark, pipeline(topic, tmp_path))
    shutil.move(tmp_path / "checkpoint", tmp_path / "old")
    write(tmp_path, "2.json", range(10, 20))
    with pytest.raises(PipelineFenced, match=r"FENCED: .* belongs to query"):
        run(spark, pipeline(topic, tmp_path))
    made = pipeline(topic, tmp_path)
    made.reset()
    run(spark, pipeline(topic, tmp_path))
    assert numbers(topic, 30) == [*range(10), *range(20)]
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.move(tmp_path / "old", tmp_path / "checkpoint")
    with pytest.raises(PipelineFenced, match="FENCED"):
        run(spark, pipeline(topic, tmp_path))
    assert numbers(topic, 30) == [*range(10), *range(20)]


def test_an_older_copy_of_the_checkpoint_is_refused(spark: SparkSession, topic: NumberedTopic, tmp_path: Path) -> None:
    write(tmp_path, "1.json", range(10))
    run(spark, pipeline(topic, tmp_path))
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    write(tmp_path, "2.json", range(10, 20))
    run(spark, pipeline(topic, tmp_path))
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.move(tmp_path / "copy", tmp_path / "checkpoint")
    with pytest.raises(PipelineFenced, match="the topic has batch 1, and the checkpoint does not know it"):
        run(spark, pipeline(topic, tmp_path))
    assert numbers(topic, 20) == list(range(20))


def test_expressions_give_keys_values_and_partitions(spark: SparkSession, topic: NumberedTopic, tmp_path: Path) -> None:
    topic.grow(3)
    write(tmp_path, "1.json", range(30))
    expressions = {"key": "concat('k', a)", "value": "_metadata.file_name", "partition": "a % 3"}
    run(spark, pipeline(topic, tmp_path, target=expressions))
    found = sorted((partition, int((key or b"k")[1:]), value) for partition, key, value, _ in topic.read(30))
    assert found == sorted((number % 3, number, b"1.json") for number in range(30))


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ({"key": "c"}, r"target.key = 'c': .*UNRESOLVED_COLUMN.*`c`"),
        ({"key": "a +"}, r"target.key = 'a \+': .*PARSE_SYNTAX_ERROR"),
        ({"key": "a"}, "target: column 'key' has the type bigint: expected binary or string"),
    ],
)
def test_an_expression_that_cannot_be_used_is_an_error_with_its_text(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path, target: dict[str, str], text: str
) -> None:
    write(tmp_path, "1.json", range(3))
    with pytest.raises(BadPipeline, match=text):
        run(spark, pipeline(topic, tmp_path, target=target))


CASES: Mapping[str, tuple[str, Callable[[Path], object], str]] = {
    "a text": ("json", lambda path: path.write_text('{"a": "x"}'), r"1\.json: .*CANNOT_PARSE_JSON_FIELD.*BIGINT"),
    "no object": ("json", lambda path: path.write_text("nonsense"), r"1\.json: Unrecognized token 'nonsense'"),
    "other header": ("csv", lambda path: path.write_text("b,a\n1,x\n"), r"1\.csv: CSV header does not conform"),
    "more fields": ("csv", lambda path: path.write_text("a,b\n1,x,3\n"), r"1\.csv: .*MALFORMED_CSV_RECORD"),
    "no Parquet": ("parquet", lambda path: path.write_text("x"), r"1\.parquet: .*not a Parquet file"),
    "no Avro": ("avro", lambda path: path.write_text("x"), r"1\.avro: cannot be read as Avro"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_file_that_does_not_fit_is_an_error_that_names_it_and_is_read_once_it_is_mended(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path, case: str
) -> None:
    kind, spoil, text = CASES[case]
    (tmp_path / "schema.avsc").write_text(json.dumps(AVRO))
    write(tmp_path, f"0.{kind}", range(3))
    spoil(tmp_path / f"1.{kind}")
    with pytest.raises(RunFailed, match=text):
        run(spark, pipeline(topic, tmp_path, kind))
    assert size_of(topic) == 0
    write(tmp_path, f"1.{kind}", range(3, 6))
    run(spark, pipeline(topic, tmp_path, kind))
    assert numbers(topic, 6) == list(range(6))


def test_avro_files_of_another_logical_type_are_refused(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path
) -> None:
    dated = {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "long", "logicalType": DATED}}]}
    (tmp_path / "schema.avsc").write_text(json.dumps(dated).replace(DATED, "timestamp-micros"))
    with (tmp_path / "1.avro").open("wb") as file:
        fastavro.writer(file, json.loads(json.dumps(dated).replace(DATED, "timestamp-millis")), [{"a": 1}])
    with pytest.raises(RunFailed, match=r"1\.avro: .*field 'a' is written as timestamp-millis"):
        run(spark, pipeline(topic, tmp_path, "avro"))


def test_a_column_may_have_the_name_of_sparks_metadata(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path
) -> None:
    (tmp_path / "1.json").write_text('{"_metadata": 7, "_file": 8}')
    run(spark, pipeline(topic, tmp_path, format={"schema": "_metadata BIGINT, _file BIGINT"}))
    assert [value for _, _, value, _ in topic.read(1)] == [b'{"_metadata":7,"_file":8}']


def test_a_missing_topic_is_an_error_that_names_it(spark: SparkSession, topic: NumberedTopic, tmp_path: Path) -> None:
    write(tmp_path, "1.json", range(3))
    made = pipeline(topic, tmp_path, target={"topic": "missing"})
    with pytest.raises(RunFailed, match="topic 'missing'"):
        run(spark, made)
    assert "missing" in (made.check().problem or "")


def test_a_check_shows_the_first_rows_and_changes_nothing(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path
) -> None:
    write(tmp_path, "1.json", range(30))
    (tmp_path / "2.json").write_text("nonsense")
    before = sorted(tmp_path.rglob("*"))
    found = pipeline(topic, tmp_path, target={"key": "string(a)"}).check()
    assert sorted(tmp_path.rglob("*")) == before
    assert ([each.name for each in found.status.waiting], found.problem) == (["1.json", "2.json"], None)
    assert [(row.key, row.value, row.partition) for row in found.rows][:1] == [("0", '{"a":0,"b":"x"}', None)]
    assert (len(found.rows), size_of(topic)) == (10, 0)
    (tmp_path / "1.json").unlink()
    assert "nonsense" in (pipeline(topic, tmp_path).check().problem or "")
