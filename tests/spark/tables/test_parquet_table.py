"""Folders of Parquet files: the manifests, and the renames that follow them."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from lake_tables import OTHER_QUERY, QUERY, SCHEMA, Deaths, LakeKind, dying, put, rows_of, write

from gnomon.spark.tables.manifest import decoded, manifest_name
from gnomon.spark.tables.parquet_table import ParquetTable
from gnomon.spark.tables.table import BadTable, CommitVerdict, TableBatch

COMMITTED, ALREADY = CommitVerdict.COMMITTED, CommitVerdict.ALREADY


@pytest.fixture
def kind(tmp_path: Path) -> LakeKind:
    return LakeKind("parquet", tmp_path)


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def manifests(kind: LakeKind, pipeline: str = "p") -> Path:
    return kind.place / "_gnomon" / "commits" / pipeline


def decided_only(kind: LakeKind, number: int, *ids: int) -> None:
    """A driver dies once its manifest is there, before the first rename."""
    table = kind.open()
    files = write(table, rows_of(*ids))
    watched = Deaths()
    with dying(kind, watched), pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", Deaths(0).watched(os.rename))
        table.commit(TableBatch(QUERY, number), SCHEMA, files)


def test_a_manifest_names_the_files_that_it_moves_into_the_table(kind: LakeKind) -> None:  # 1, 2
    table = kind.open(partition_by=["day"])
    files = write(table, rows_of(1, day=date(2024, 12, 31)) + rows_of(2))
    staged = [file.path for file in files]
    assert names(kind.place) == sorted(f"_gnomon/staged/{each}" for each in staged)
    assert table.commit(TableBatch(QUERY, 3), SCHEMA, files) is COMMITTED
    place = manifests(kind) / manifest_name(0)
    found = decoded(place.read_bytes(), str(place), "p", 0)
    assert (found.batch, found.schema, found.partition_by) == (TableBatch(QUERY, 3), SCHEMA, ("day",))
    assert sorted(file.staged for file in found.files) == sorted(staged)
    moved = [file.path for file in found.files]
    assert sorted(path.split("/")[0] for path in moved) == ["day=2024-12-31", "day=__HIVE_DEFAULT_PARTITION__"]
    assert names(kind.place) == sorted(["_gnomon/commits/p/00000000000000000000.json", *moved])
    assert pq.ParquetFile(kind.place / moved[0]).schema_arrow.names == ["id", "name"]


@pytest.mark.parametrize("finisher", ["prepare", "the same batch", "the next batch", "the query that replaces it"])
def test_the_next_driver_finishes_the_renames(kind: LakeKind, finisher: str) -> None:  # 2
    put(kind.open(), 0, rows_of(0))
    decided_only(kind, 1, 1, 2)
    assert kind.ids() == [0]
    if finisher == "prepare":
        kind.open().prepare(SCHEMA)
    elif finisher == "the same batch":
        assert put(kind.open(), 1, rows_of(1, 2)) is ALREADY
    elif finisher == "the next batch":
        assert put(kind.open(), 2, []) is COMMITTED
    else:
        assert put(kind.open(replaces=QUERY), 0, [], query=OTHER_QUERY) is COMMITTED
    assert kind.ids() == [0, 1, 2]


def test_a_handle_that_was_made_earlier_finishes_the_renames_of_a_rival(
    kind: LakeKind, monkeypatch: pytest.MonkeyPatch
) -> None:  # 1, 2
    """The rival decides after this driver has read the table, and dies before its renames."""
    slow = kind.open()
    files = write(slow, rows_of(7))
    original = kind.module.verdict

    def hooked(*args: object) -> CommitVerdict:
        monkeypatch.setattr(kind.module, "verdict", original)
        found: CommitVerdict = original(*args)
        decided_only(kind, 0, 1)
        return found

    monkeypatch.setattr(kind.module, "verdict", hooked)
    assert slow.commit(TableBatch(QUERY, 1), SCHEMA, files) is COMMITTED
    assert kind.ids() == [1, 7]


def test_a_driver_that_was_stopped_creates_no_manifest_of_an_old_number(
    kind: LakeKind, monkeypatch: pytest.MonkeyPatch
) -> None:  # 3
    slow = kind.open()
    files = write(slow, rows_of(0))
    original = kind.module.verdict

    def hooked(*args: object) -> CommitVerdict:
        monkeypatch.setattr(kind.module, "verdict", original)
        found: CommitVerdict = original(*args)
        for number in range(3):
            put(kind.open(), number, rows_of(number))
        kind.open().maintain()
        return found

    monkeypatch.setattr(kind.module, "verdict", hooked)
    assert slow.commit(TableBatch(QUERY, 0), SCHEMA, files) is ALREADY
    assert kind.ids() == [0, 1, 2]


def test_files_that_a_user_has_merged_stay_merged(kind: LakeKind) -> None:  # 2
    put(kind.open(), 0, rows_of(0))
    for file in kind.place.glob("*.parquet"):
        file.rename(kind.place / "merged.parquet")
    assert put(kind.open(), 0, rows_of(0)) is ALREADY
    assert put(kind.open(), 1, rows_of(1)) is COMMITTED
    assert kind.ids() == [0, 1]


def test_a_batch_whose_staged_file_is_gone_is_refused(kind: LakeKind) -> None:
    table = kind.open()
    files = write(table, rows_of(1))
    (Path(table.prepare(SCHEMA).location) / files[0].path).unlink()
    with pytest.raises(BadTable, match="is gone, with 1 rows: run the batch again"):
        table.commit(TableBatch(QUERY, 0), SCHEMA, files)
    assert kind.open().last() is None


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b"null", b'{"format": 2}'])
def test_a_manifest_that_cannot_be_read_is_refused(kind: LakeKind, content: bytes) -> None:
    put(kind.open(), 0, rows_of(0))
    (manifests(kind) / manifest_name(1)).write_bytes(content)
    with pytest.raises(BadTable, match=r"is no manifest of a pipeline|of format 2 are unknown: upgrade gnomon"):
        put(kind.open(), 1, rows_of(1))
    assert kind.ids() == [0]


def test_a_manifest_of_another_pipeline_is_refused(kind: LakeKind) -> None:
    put(kind.open("q"), 0, rows_of(0))
    kind.open("p").prepare(SCHEMA)
    os.rename(manifests(kind, "q") / manifest_name(0), manifests(kind, "p") / manifest_name(0))
    with pytest.raises(BadTable, match="is manifest 0 of the pipeline 'q': the file was moved or copied"):
        kind.open("p").last()


def test_maintenance_removes_old_files_that_no_manifest_names(kind: LakeKind) -> None:
    decided_only(kind, 0, 1)
    other = kind.open("q")
    lost, new = write(other, rows_of(2))[0], write(other, rows_of(3))[0]
    half = manifests(kind) / ".half"
    half.touch()
    staged = kind.place / "_gnomon" / "staged"
    for path in [*staged.iterdir(), *manifests(kind).iterdir()]:
        if path.name != new.path:
            os.utime(path, (0, 0))
    assert kind.open().maintain().startswith("2 files removed that tasks left more than a day ago")
    assert not (staged / lost.path).exists()
    assert not half.exists()
    assert (staged / new.path).exists()
    assert put(kind.open(), 0, rows_of(1)) is ALREADY
    assert kind.ids() == [1]


def test_manifests_can_be_read_by_all(kind: LakeKind) -> None:
    put(kind.open(), 0, rows_of(0))
    assert (manifests(kind) / manifest_name(0)).stat().st_mode & 0o777 == 0o644
    assert [path.name for path in manifests(kind).iterdir()] == [manifest_name(0)]


def test_a_file_system_elsewhere_is_refused() -> None:
    with pytest.raises(BadTable, match="is no local folder"):
        ParquetTable("hdfs://host/table", "p")
