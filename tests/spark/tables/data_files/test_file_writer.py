"""The files that tasks write."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.spark.tables.data_files import file_writer
from gnomon.spark.tables.data_files.data_file import FileLayout
from gnomon.spark.tables.data_files.file_writer import FileWriter
from gnomon.spark.tables.table import BadTable

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])


def batch(*rows: tuple[int, str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": number, "part": part} for number, part in rows], SCHEMA)


def stored(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_rows_are_split_by_their_partition(tmp_path: Path) -> None:  # 2
    writer = FileWriter(FileLayout(str(tmp_path), ("part",), keep_partition_columns=False), SCHEMA)
    writer.write(batch((1, "a b"), (2, None), (3, "a b")))
    writer.write(batch((4, "a b")))
    files = writer.close()
    assert {file.partition: file.rows for file in files} == {("a b",): 3, (None,): 1}
    for file in files:
        place = tmp_path / file.path
        assert place.stat().st_size == file.bytes
        found = pq.ParquetFile(place)
        assert found.schema_arrow.names == ["id"]
        assert found.metadata.row_group(0).column(0).compression == "ZSTD"
        assert json.loads(file.statistics)["numRecords"] == file.rows == found.metadata.num_rows
    assert stored(tmp_path) == sorted(file.path for file in files)
    assert {Path(file.path).parent.name for file in files} == {"part=a b", "part=__HIVE_DEFAULT_PARTITION__"}


def test_staged_files_are_beside_each_other_and_keep_their_columns(tmp_path: Path) -> None:
    writer = FileWriter(FileLayout(str(tmp_path), ("part",), folders=False, suffix=".staged"), SCHEMA)
    writer.write(batch((1, "a"), (2, "")))
    files = sorted(writer.close(), key=lambda file: file.partition)
    assert [file.partition for file in files] == [("",), ("a",)]
    assert all("/" not in file.path and file.path.endswith(".staged") for file in files)
    assert pq.ParquetFile(tmp_path / files[0].path).read().to_pydict() == {"id": [2], "part": [""]}


def test_an_empty_text_is_null_where_the_column_is_not_in_the_files(tmp_path: Path) -> None:  # 5
    writer = FileWriter(FileLayout(str(tmp_path), ("part",), keep_partition_columns=False), SCHEMA)
    writer.write(batch((1, ""), (2, None)))
    assert [(file.partition, file.rows) for file in writer.close()] == [((None,), 2)]


def test_no_file_is_larger_than_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # 4
    """The values do not compress: a row group is as large in the file as in memory."""
    monkeypatch.setattr(file_writer, "GROUP_BYTES", 100_000)
    bound, random = 1_000_000, Random(5)
    schema = pa.schema([("value", pa.binary())])
    writer = FileWriter(FileLayout(str(tmp_path)), schema, bytes_max=bound)
    for _ in range(100):
        writer.write(pa.RecordBatch.from_pydict({"value": [random.randbytes(100) for _ in range(500)]}, schema))
    files = writer.close()
    assert sum(file.rows for file in files) == 50_000
    assert all(bound // 2 < file.bytes <= bound for file in files[:-1])
    assert len(files) < 9


def test_small_batches_share_a_row_group(tmp_path: Path) -> None:
    writer = FileWriter(FileLayout(str(tmp_path)), SCHEMA)
    for number in range(50):
        writer.write(batch((number, "x")))
    (file,) = writer.close()
    assert pq.ParquetFile(tmp_path / file.path).metadata.num_row_groups == 1


def test_few_files_are_open_and_few_rows_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # 3
    monkeypatch.setattr(file_writer, "OPEN_FILES_MAX", 3)
    monkeypatch.setattr(file_writer, "BUFFERED_BYTES_MAX", 5_000)
    writer = FileWriter(FileLayout(str(tmp_path), ("part",)), SCHEMA)
    before, opened = len(os.listdir("/proc/self/fd")), set()
    for number in range(200):
        writer.write(batch(*((number, f"p{part}") for part in (0, number % 7))))
        opened.add(len(os.listdir("/proc/self/fd")) - before)
    assert opened == {0, 1, 2, 3}
    files = writer.close()
    assert sum(file.rows for file in files) == 400
    assert sum(file.partition == ("p0",) for file in files) == 1, "a file that is used again and again stays open"
    assert len(os.listdir("/proc/self/fd")) == before


def test_rows_of_many_values_make_one_file_each(tmp_path: Path) -> None:
    writer = FileWriter(FileLayout(str(tmp_path), ("part",)), SCHEMA)
    for number in range(5):
        writer.write(batch(*((number, f"p{part}") for part in range(150))))
    files = writer.close()
    assert [file.rows for file in files] == [5] * 150


def test_a_returned_file_is_synced_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # 1
    synced: list[str] = []
    original = os.fsync

    def fsync(opened: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{opened}"))
        original(opened)

    monkeypatch.setattr(os, "fsync", fsync)
    folder = tmp_path / "new" / "table"
    writer = FileWriter(FileLayout(str(folder), ("part",)), SCHEMA)
    writer.write(batch((1, "a")))
    (file,) = writer.close()
    place = folder / file.path
    written = synced.index(str(place))
    assert {str(place.parent), str(folder)} <= set(synced[written:])
    assert {str(tmp_path), str(tmp_path / "new")} <= set(synced[:written])


def test_an_abandoned_task_leaves_no_file(tmp_path: Path) -> None:
    writer = FileWriter(FileLayout(str(tmp_path), ("part",)), SCHEMA, bytes_max=1)
    writer.write(batch((1, "a"), (2, "b")))
    writer.write(batch((1, "a")))
    assert stored(tmp_path)
    writer.abandon()
    assert stored(tmp_path) == []
    assert writer.close() == []


def test_a_task_without_rows_writes_no_file(tmp_path: Path) -> None:
    writer = FileWriter(FileLayout(str(tmp_path), ("part",)), SCHEMA)
    writer.write(batch())
    assert writer.close() == []


def test_a_value_that_cannot_name_a_folder_is_refused(tmp_path: Path) -> None:
    writer = FileWriter(FileLayout(str(tmp_path), ("part",)), SCHEMA)
    with pytest.raises(BadTable, match=r"no folder can be named part=x+\.\.\.: partition by short values"):
        writer.write(batch((1, "x" * 300)))


def test_other_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a batch has the columns"):
        FileWriter(FileLayout(str(tmp_path)), SCHEMA).write(pa.RecordBatch.from_pydict({"id": [1]}))


def test_a_location_elsewhere_is_refused() -> None:
    with pytest.raises(BadTable, match=r"s3://b/t is no local folder: pipelines write to paths and file:// URIs"):
        FileWriter(FileLayout("s3://b/t"), SCHEMA)
    with pytest.raises(BadTable, match=r"is on the host 'server': write file:///folder with three slashes"):
        FileWriter(FileLayout("file://server/t"), SCHEMA)
