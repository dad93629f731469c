"""The work of one task of a pipeline (`spark.pipelines.tasks.task_writer`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.spark.pipelines.settings.settings import FormatSettings, PipelineSettings, parse_settings
from gnomon.spark.pipelines.tasks.decoding import READ_COLUMNS
from gnomon.spark.pipelines.tasks.task_result import TaskResult, decode_result
from gnomon.spark.pipelines.tasks.task_writer import DecodingPlan, RecordDecoder, TaskWriter, decoding_of
from gnomon.spark.tables.data_files.data_file import FileLayout

FORMAT = FormatSettings("json", "a BIGINT", None, None, ",", "none")
PLAN = DecodingPlan(
    FORMAT, ("_topic", "_partition", "_offset", "_timestamp"), upserts=False, dated=False, of_letters=False
)


def records(*values: bytes, zone: str = "UTC") -> pa.RecordBatch:
    count = len(values)
    columns = [
        pa.nulls(count, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(["orders"] * count),
        pa.array([0] * count, pa.int32()),
        pa.array(range(count), pa.int64()),
        pa.array([1_000_000 * (count - at) for at in range(count)], pa.timestamp("us", zone)),
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(READ_COLUMNS))


def writer(folder: Path, *, decoding: DecodingPlan | None = PLAN, file_bytes_max: int = 1 << 20) -> TaskWriter:
    schema = (decoding or PLAN).made().schema
    return TaskWriter(
        decoding, FileLayout(str(folder)), schema, file_bytes_max, "_timestamp", FileLayout(f"{folder}/dead")
    )


def settings(**sections: dict[str, Any]) -> PipelineSettings:
    least: dict[str, dict[str, Any]] = {
        "source": {"bootstrap": "127.0.0.1:9092", "topic": "orders"},
        "target": {"kind": "parquet", "path": "table"},
    }
    return parse_settings(
        {"name": "orders", **{name: least.get(name, {}) | sections.get(name, {}) for name in [*least, *sections]}}
    )


def result_of(made: TaskWriter, *batches: pa.RecordBatch) -> TaskResult:
    (found,) = made(iter(batches))
    return decode_result(found.column("result")[0].as_py())


def test_records_become_files_of_rows_and_of_dead_records(tmp_path: Path) -> None:
    found = result_of(writer(tmp_path), records(b'{"a":1}', b"x", b'{"a":2}'), records(b'{"a":3}'))
    (file,), (dead,) = found.files, found.dead_files
    assert pq.read_table(tmp_path / file.path)["a"].to_pylist() == [1, 2, 3]
    assert pq.read_table(tmp_path / "dead" / dead.path)["value"].to_pylist() == [b"x"]
    assert (found.rows, found.dead, found.newest_ms) == (3, 1, 3_000)
    assert found.first_dead == "topic 'orders', partition 0, offset 1: not a JSON object"


def test_the_columns_of_a_place_may_have_other_names(tmp_path: Path) -> None:
    given = {"format": {"kind": "text"}, "target": {"place_columns": {"offset": "at", "topic": "_from"}}}
    plan = decoding_of(settings(**given))
    made = writer(tmp_path, decoding=plan)
    (file,) = result_of(made, records(b"x", b"y")).files
    (first, second) = pq.read_table(tmp_path / file.path).to_pylist()
    assert list(first) == ["value", "_from", "_partition", "at", "_timestamp"]
    assert (first["_from"], first["at"], second["at"]) == ("orders", 0, 1)


def test_the_files_of_a_task_have_a_largest_size(tmp_path: Path) -> None:
    batches = [records(b'{"a":%d}' % number) for number in range(3)]
    assert len(result_of(writer(tmp_path), *batches).files) == 1
    assert len(result_of(writer(tmp_path, file_bytes_max=1), *batches).files) == 3


def test_a_task_without_records_writes_no_file(tmp_path: Path) -> None:
    found = result_of(writer(tmp_path))
    assert (found.files, found.rows, found.dead, found.newest_ms, found.first_dead) == ((), 0, 0, None, None)
    assert list(tmp_path.iterdir()) == []


def test_combined_rows_are_written_like_records(tmp_path: Path) -> None:
    combined = list(RecordDecoder(PLAN, stops=False)(iter([records(b'{"a":1}', b"x")])))
    found = result_of(writer(tmp_path, decoding=None), *combined)
    assert (found.rows, found.dead) == (1, 1)


def test_times_in_the_zone_of_a_session_are_the_same_times(tmp_path: Path) -> None:
    (file,) = result_of(writer(tmp_path), records(b'{"a":1}', zone="Asia/Tokyo")).files
    times = pq.read_table(tmp_path / file.path)["_timestamp"]
    assert (times.type, times[0].value) == (pa.timestamp("us", "UTC"), 1_000_000)


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield records(b'{"a":1}', b"x")
        raise ConnectionError

    with pytest.raises(ConnectionError):
        list(writer(tmp_path)(broken()))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_files_of_a_result_stay_if_nothing_is_read_after_it(tmp_path: Path) -> None:
    work = writer(tmp_path)(iter([records(b'{"a":1}')]))
    (file,) = decode_result(next(work).column("result")[0].as_py()).files
    work.close()  # type: ignore[attr-defined]
    assert (tmp_path / file.path).exists()
