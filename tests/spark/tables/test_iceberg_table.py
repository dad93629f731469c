"""Iceberg tables: the properties and snapshots that a pipeline writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lake_tables import QUERY, SCHEMA, LakeKind, put, rows_of, write
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table as LoadedTable
from pyiceberg.transforms import BucketTransform
from sqlalchemy.exc import IntegrityError, OperationalError

from gnomon.spark.tables import iceberg_table
from gnomon.spark.tables.iceberg_table import IcebergTable
from gnomon.spark.tables.synced_file_io import SyncedFileIO
from gnomon.spark.tables.table import BadTable, CommitMode, CommitVerdict, TableBatch

DIGITS = QUERY.replace("-", "")[:15]
RECORD = "gnomon.p.last-batch"


@pytest.fixture
def kind(tmp_path: Path) -> LakeKind:
    return LakeKind("iceberg", tmp_path)


def loaded(kind: LakeKind) -> LoadedTable:
    return load_catalog(**kind.catalog).load_table("db.t")


def test_a_commit_records_the_batch_for_programs_and_for_people(kind: LakeKind) -> None:  # 1
    put(kind.open(), 3, rows_of(1))
    assert loaded(kind).properties[RECORD] == f"{DIGITS}/3"
    snapshot = loaded(kind).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["gnomon.query"] == QUERY
    assert snapshot.summary["gnomon.batch"] == "3"


def test_a_table_that_was_made_elsewhere_gets_no_retries(kind: LakeKind, monkeypatch: pytest.MonkeyPatch) -> None:  # 3
    catalog = load_catalog(**kind.catalog)
    catalog.create_namespace("db")
    catalog.create_table("db.t", SCHEMA, properties={"commit.retry.num-retries": "4"})
    assert put(kind.open(), 0, rows_of(0)) is CommitVerdict.COMMITTED
    assert loaded(kind).properties["commit.retry.num-retries"] == "0"


def test_a_property_that_another_writer_has_changed_is_set_again_before_a_commit(
    kind: LakeKind, monkeypatch: pytest.MonkeyPatch
) -> None:  # 3
    put(kind.open(), 0, rows_of(0))
    slow, fast = kind.open(), kind.open()
    files = write(slow, rows_of(1))
    original = iceberg_table.verdict
    calls = []

    def hooked(last: TableBatch | None, batch: TableBatch, replaces: str | None) -> CommitVerdict:
        monkeypatch.setattr(iceberg_table, "verdict", original)
        with loaded(kind).transaction() as transaction:
            transaction.set_properties({"commit.retry.num-retries": "4"})
        monkeypatch.setattr(iceberg_table, "verdict", overtaken)
        return original(last, batch, replaces)

    def overtaken(last: TableBatch | None, batch: TableBatch, replaces: str | None) -> CommitVerdict:
        monkeypatch.setattr(iceberg_table, "verdict", original)
        calls.append(put(fast, 1, rows_of(1)))
        return original(last, batch, replaces)

    monkeypatch.setattr(iceberg_table, "verdict", hooked)
    with loaded(kind).transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "4"})
    assert slow.commit(TableBatch(QUERY, 1), SCHEMA, files) in (CommitVerdict.COMMITTED, CommitVerdict.ALREADY)
    assert put(kind.open(), 1, rows_of(1)) is CommitVerdict.ALREADY
    assert kind.ids() == [0, 1]


def test_expired_snapshots_take_no_record_with_them(kind: LakeKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_table, "SNAPSHOT_DAYS", 0)
    for number in range(4):
        put(kind.open(), number, rows_of(number))
    assert kind.open().maintain().startswith("3 snapshots expired, 0 staged files removed; pyiceberg neither merges")
    assert len(loaded(kind).snapshots()) == 1
    assert kind.open().last() == TableBatch(DIGITS, 3)
    assert kind.ids() == [0, 1, 2, 3]


def test_snapshots_of_the_last_week_stay(kind: LakeKind) -> None:
    for number in range(3):
        put(kind.open(), number, rows_of(number))
    assert kind.open().maintain().startswith("0 snapshots expired")
    assert len(loaded(kind).snapshots()) == 3


def test_partitions_are_known_in_a_table_without_metrics(kind: LakeKind) -> None:
    """pyiceberg takes partitions from metrics."""
    schema = pa.schema([("id", pa.int64()), ("part", pa.int64())])
    kind.open(partition_by=["part"]).prepare(schema)
    with loaded(kind).transaction() as transaction:
        transaction.remove_properties("write.metadata.metrics.column.part")
        transaction.set_properties({"write.metadata.metrics.default": "none"})
    put(kind.open(partition_by=["part"]), 0, [{"id": number, "part": number} for number in (1, 2)], schema)
    partitions = loaded(kind).inspect.partitions()["partition"].to_pylist()
    assert sorted(each["part"] for each in partitions) == [1, 2]
    assert loaded(kind).scan(row_filter="part = 2").to_arrow()["id"].to_pylist() == [2]


def test_old_manifests_and_metadata_are_cleared_away(kind: LakeKind) -> None:
    kind.open().prepare(SCHEMA)
    assert loaded(kind).properties["write.metadata.previous-versions-max"] == "100"
    few = {"write.metadata.previous-versions-max": "3", "commit.manifest.min-count-to-merge": "3"}
    with loaded(kind).transaction() as transaction:
        transaction.set_properties(few)
    for number in range(10):
        put(kind.open(), number, rows_of(number))
    assert len(list((kind.place / "metadata").glob("*.metadata.json"))) <= 5
    snapshot = loaded(kind).current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(loaded(kind).io)) <= 5
    assert kind.ids() == list(range(10))


def test_two_drivers_create_a_namespace_at_once(kind: LakeKind, monkeypatch: pytest.MonkeyPatch) -> None:
    original = SqlCatalog.create_namespace

    def too_late(*args: Any) -> None:
        original(*args)
        raise IntegrityError("INSERT", {}, Exception("UNIQUE constraint failed"))

    monkeypatch.setattr(SqlCatalog, "create_namespace", too_late)
    assert put(kind.open(), 0, rows_of(0)) is CommitVerdict.COMMITTED

    def fails(*_: Any) -> None:
        raise IntegrityError("INSERT", {}, Exception("disk full"))

    monkeypatch.setattr(SqlCatalog, "create_namespace", fails)
    with pytest.raises(IntegrityError, match="disk full"):
        IcebergTable("other.t", "p", catalog=kind.catalog).prepare(SCHEMA)


def test_two_drivers_create_a_catalog_at_once(kind: LakeKind, monkeypatch: pytest.MonkeyPatch) -> None:
    original = SqlCatalog.create_tables
    calls = []

    def too_late(catalog: SqlCatalog) -> None:
        original(catalog)
        calls.append(1)
        if len(calls) == 1:
            raise OperationalError("CREATE TABLE", {}, Exception("table iceberg_tables already exists"))

    monkeypatch.setattr(SqlCatalog, "create_tables", too_late)
    assert put(kind.open(), 0, rows_of(0)) is CommitVerdict.COMMITTED


def test_all_files_of_a_table_are_synced(kind: LakeKind, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[str] = set()
    original = os.fsync

    def fsync(opened: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{opened}"))
        original(opened)

    monkeypatch.setattr(os, "fsync", fsync)
    schema = pa.schema([("id", pa.int64())])
    for number in range(2):
        table = kind.open(mode=CommitMode.UPSERT, keys=["id"])
        rows = [{"id": each, "_deleted": False} for each in (number, number + 1)]
        files = write(table, rows, schema, [pa.field("_deleted", pa.bool_())])
        table.commit(TableBatch(QUERY, number), schema, files)
    assert kind.ids() == [0, 1, 2]
    found = {str(path) for path in kind.place.rglob("*")}
    assert len(found) > 10
    assert found - synced == set()


def test_a_catalog_may_have_another_way_to_files(kind: LakeKind) -> None:
    kind.catalog["py-io-impl"] = "pyiceberg.io.pyarrow.PyArrowFileIO"
    put(kind.open(), 0, rows_of(0))
    assert kind.ids() == [0]


def test_a_file_is_created_once(tmp_path: Path) -> None:
    file = SyncedFileIO().new_output(f"file://{tmp_path}/folder/a b")
    with file.create() as stream:
        stream.write(b"content")
        assert stream.tell() == 7
    assert (tmp_path / "folder" / "a b").read_bytes() == b"content"
    with pytest.raises(FileExistsError):
        file.create()
    with file.create(overwrite=True) as stream:
        stream.write(b"x")
    assert (len(file.to_input_file()), file.exists()) == (1, True)


def test_a_record_that_cannot_be_read_is_refused(kind: LakeKind) -> None:
    put(kind.open(), 0, rows_of(0))
    with loaded(kind).transaction() as transaction:
        transaction.set_properties({RECORD: "7"})
    with pytest.raises(BadTable, match=r"has the property gnomon\.p\.last-batch='7', which is no batch: restore it"):
        put(kind.open(), 1, rows_of(1))


def test_a_table_that_is_partitioned_by_a_transform_is_refused(kind: LakeKind) -> None:
    put(kind.open(), 0, rows_of(0))
    with loaded(kind).update_spec() as update:
        update.add_field("id", BucketTransform(4))
    with pytest.raises(BadTable, match=r"is partitioned by bucket\[4\]: only columns are supported"):
        kind.open().prepare(SCHEMA)


@pytest.mark.parametrize("identifier", ["t", "db.", ".t"])
def test_a_name_without_a_namespace_is_refused(identifier: str) -> None:
    with pytest.raises(BadTable, match=r"write namespace\.table"):
        IcebergTable(identifier, "p", catalog={})


def test_a_large_upsert_with_two_keys_ends(kind: LakeKind) -> None:
    schema = pa.schema([("id", pa.int64()), ("second", pa.int64())])
    for number in range(2):
        rows = [{"id": at, "second": at % 7, "_deleted": False} for at in range(1_500)]
        table = kind.open(mode=CommitMode.UPSERT, keys=["id", "second"])
        files = write(table, rows, schema, [pa.field("_deleted", pa.bool_())])
        assert table.commit(TableBatch(QUERY, number), schema, files) is CommitVerdict.COMMITTED
    assert kind.ids() == list(range(1_500))
