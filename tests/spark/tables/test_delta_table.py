"""Delta tables: the log that a pipeline writes."""

from __future__ import annotations

import json
import math
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from lake_tables import OTHER_QUERY, QUERY, SCHEMA, LakeKind, put, rows_of, write

from gnomon.spark.tables.delta_table import DeltaTable
from gnomon.spark.tables.table import BadTable, CommitMode, CommitVerdict, TableBatch

DIGITS = QUERY.replace("-", "")[:15]


@pytest.fixture
def kind(tmp_path: Path) -> LakeKind:
    return LakeKind("delta", tmp_path)


def log(kind: LakeKind, action: str) -> list[dict[str, Any]]:
    """All actions of a sort, in the order of the log."""
    lines = [line for file in sorted((kind.place / "_delta_log").glob("*.json")) for line in file.open()]
    return [json.loads(line)[action] for line in lines if action in json.loads(line)]


def test_a_commit_records_the_batch_for_programs_and_for_people(kind: LakeKind) -> None:  # 1
    put(kind.open("orders"), 3, rows_of(1))
    assert [(each["appId"], each["version"]) for each in log(kind, "txn")] == [
        ("gnomon/orders", int(DIGITS, 16)),
        (f"gnomon/orders/{DIGITS}", 3),
    ]
    info = log(kind, "commitInfo")[-1]
    assert (info["gnomon.pipeline"], info["gnomon.query"], info["gnomon.batch"]) == ("orders", QUERY, "3")


def test_a_query_with_a_lower_number_replaces_one_with_a_higher(kind: LakeKind) -> None:  # 3
    put(kind.open(), 0, rows_of(1), query=OTHER_QUERY)
    put(kind.open(replaces=OTHER_QUERY), 7, rows_of(2), query=QUERY)
    assert kind.open().last() == TableBatch(DIGITS, 7)


def test_compaction_changes_no_data_and_keeps_the_record(kind: LakeKind) -> None:
    for number in range(4):
        put(kind.open(), number, rows_of(number))
    assert kind.open().maintain().startswith("4 files merged into 1;")
    changes = [each["dataChange"] for each in log(kind, "remove")] + [log(kind, "add")[-1]["dataChange"]]
    assert changes == [False] * 5
    table = deltalake.DeltaTable(kind.place)
    table.create_checkpoint()
    assert kind.open().last() == TableBatch(DIGITS, 3)
    assert kind.ids() == [0, 1, 2, 3]


def test_a_record_outlives_the_entries_of_the_log(kind: LakeKind) -> None:
    for number in range(3):
        put(kind.open(), number, rows_of(number))
    deltalake.DeltaTable(kind.place).create_checkpoint()
    for each in sorted((kind.place / "_delta_log").glob("*.json"))[:-1]:
        each.unlink()
    assert put(kind.open(), 2, rows_of(2)) is CommitVerdict.ALREADY
    assert put(kind.open(), 3, rows_of(3)) is CommitVerdict.COMMITTED
    assert kind.ids() == [0, 1, 2, 3]


def test_maintenance_removes_files_that_no_commit_has_added(kind: LakeKind) -> None:
    put(kind.open(), 0, rows_of(0))
    lost = write(kind.open(), rows_of(1))[0]
    new = write(kind.open(), rows_of(1))[0]
    os.utime(kind.place / lost.path, (0, 0))
    staged = kind.open(mode=CommitMode.UPSERT, keys=["id"]).prepare(SCHEMA).location
    for name, seconds in (("old.staged", 0), ("new.staged", None)):
        Path(staged, name).touch()
        if seconds is not None:
            os.utime(Path(staged, name), (seconds, seconds))
    assert "2 files removed" in kind.open().maintain()
    assert not (kind.place / lost.path).exists()
    assert (kind.place / new.path).exists()
    assert os.listdir(staged) == ["new.staged"]
    assert kind.ids() == [0]


def test_files_are_found_by_their_bounds(kind: LakeKind) -> None:
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    schema = pa.schema(
        [("id", pa.int64()), ("time", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")), ("x", pa.float64())]
    )
    times = [begin + timedelta(microseconds=each) for each in (0, 1, 999, 1_001, 86_400_000_001)]
    for number, time in enumerate(times):
        row = {
            "id": number,
            "time": time,
            "local": time.replace(tzinfo=None),
            "x": [1.5, -0.0, math.nan, 1e300, 2][number],
        }
        put(kind.open(), number, [row], schema)
    table = deltalake.DeltaTable(kind.place).to_pyarrow_dataset()
    for number, time in enumerate(times):
        for name, value in (("time", time), ("local", time.replace(tzinfo=None)), ("id", number)):
            scalar = pa.scalar(value, schema.field(name).type)
            assert table.to_table(filter=ds.field(name) == scalar)["id"].to_pylist() == [number], (name, value)
            found = table.to_table(filter=ds.field(name) >= scalar)["id"].to_pylist()
            assert sorted(found) == list(range(number, 5))
    actions = pa.table(deltalake.DeltaTable(kind.place).get_add_actions(flatten=True))
    assert actions["num_records"].to_pylist() == [1] * 5
    assert sorted(each for each in actions["max.id"].to_pylist()) == list(range(5))


def test_a_table_with_rules_for_its_rows_is_refused(kind: LakeKind) -> None:
    put(kind.open(), 0, rows_of(1))
    deltalake.DeltaTable(kind.place).alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(BadTable, match=r"has .*delta.constraints.positive, which the files of tasks would evade"):
        kind.open().prepare(SCHEMA)


def test_a_table_that_requires_a_column_refuses_rows_that_may_lack_it(kind: LakeKind) -> None:
    required = pa.schema([pa.field("id", pa.int64(), nullable=False), SCHEMA.field("name"), SCHEMA.field("day")])
    deltalake.DeltaTable.create(kind.place, deltalake.Schema.from_arrow(required))
    with pytest.raises(BadTable, match="the column 'id' is required in the table, and may be null in the rows"):
        kind.open().prepare(SCHEMA)
    assert put(kind.open(), 0, rows_of(1), required) is CommitVerdict.COMMITTED


def test_a_record_without_a_batch_is_refused(kind: LakeKind) -> None:
    table = kind.open()
    table.prepare(SCHEMA)
    handle = deltalake.DeltaTable(kind.place)
    properties = deltalake.CommitProperties(app_transactions=[deltalake.Transaction("gnomon/p", 5)])
    handle.create_write_transaction([], "append", handle.schema(), commit_properties=properties)
    with pytest.raises(BadTable, match="names the query 000000000000005 as the one of 'p', but none of its batches"):
        table.last()


def test_a_record_does_not_expire(kind: LakeKind) -> None:
    put(kind.open(), 4, rows_of(4))
    handle = deltalake.DeltaTable(kind.place)
    handle.alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 0 seconds"})
    deltalake.DeltaTable(kind.place).create_checkpoint()
    assert kind.open().last() == TableBatch(DIGITS, 4)


def test_a_place_that_is_no_local_folder_is_refused() -> None:
    with pytest.raises(BadTable, match=r"s3://bucket/table is no local folder"):
        DeltaTable("s3://bucket/table", "p")


def test_a_file_uri_is_a_local_folder(tmp_path: Path) -> None:
    table = DeltaTable(f"file://{tmp_path}/a%20b", "p")
    put(table, 0, rows_of(1))
    assert deltalake.DeltaTable(tmp_path / "a b").to_pyarrow_table().num_rows == 1
