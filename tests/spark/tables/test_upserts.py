"""Upserts into Delta and Iceberg tables."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lake_tables import OTHER_QUERY, QUERY, SCHEMA, Deaths, LakeKind, Rows, dying, rows_of, write

from gnomon.spark.tables.data_files.data_file import DataFile
from gnomon.spark.tables.table import BadTable, CommitMode, CommitVerdict, LakeTable, TableBatch

COMMITTED, ALREADY, FENCED = CommitVerdict.COMMITTED, CommitVerdict.ALREADY, CommitVerdict.FENCED
DELETED = pa.field("_deleted", pa.bool_())


@pytest.fixture(params=["delta", "iceberg"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> LakeKind:
    return LakeKind(request.param, tmp_path)


def upserts(kind: LakeKind, *keys: str, **options: Any) -> LakeTable:
    return kind.open(mode=CommitMode.UPSERT, keys=keys or ["id"], **options)


def staged(table: LakeTable, rows: Rows, schema: pa.Schema = SCHEMA) -> list[DataFile]:
    return write(table, [{"_deleted": False, **row} for row in rows], schema, [DELETED])


def upsert(table: LakeTable, number: int, rows: Rows, schema: pa.Schema = SCHEMA, query: str = QUERY) -> CommitVerdict:
    return table.commit(TableBatch(query, number), schema, staged(table, rows, schema))


def test_rows_replace_those_with_their_keys_and_delete_them(kind: LakeKind) -> None:
    table = upserts(kind)
    assert upsert(table, 0, rows_of(1, 2, 3, 4)) is COMMITTED
    changes = [{"id": 2, "name": "new"}, {"id": 3, "_deleted": True}, {"id": 9, "_deleted": True}, *rows_of(5)]
    assert upsert(table, 1, changes) is COMMITTED
    expected = [("n1", 1), ("new", 2), ("n4", 4), ("n5", 5)]
    assert [(row["name"], row["id"]) for row in kind.rows()] == expected
    assert upsert(upserts(kind), 1, changes) is ALREADY
    assert upsert(upserts(kind), 0, rows_of(1, 2, 3, 4)) is ALREADY
    assert [(row["name"], row["id"]) for row in kind.rows()] == expected


def test_rows_move_between_partitions(kind: LakeKind) -> None:
    days = [datetime.date(2024, 1, day) for day in (1, 2)]
    upsert(upserts(kind, partition_by=["day"]), 0, rows_of(1, 2, day=days[0]))
    upsert(upserts(kind, partition_by=["day"]), 1, rows_of(2, 3, day=days[1]) + rows_of(4))
    assert [(row["id"], row["day"]) for row in kind.rows()] == [(1, days[0]), (2, days[1]), (3, days[1]), (4, None)]


def test_staged_files_are_removed_once_they_are_in_the_table(kind: LakeKind) -> None:
    table = upserts(kind)
    files = staged(table, rows_of(1))
    folder = Path(table.prepare(SCHEMA).location)
    assert [each.name for each in folder.iterdir()] == [file.path for file in files]
    table.commit(TableBatch(QUERY, 0), SCHEMA, files)
    assert list(folder.iterdir()) == []
    upsert(table, 0, rows_of(1))
    assert list(folder.iterdir()) == []


def test_a_batch_without_an_effect_is_recorded(kind: LakeKind) -> None:
    table = upserts(kind)
    upsert(table, 0, rows_of(1))
    assert upsert(table, 1, [{"id": 9, "_deleted": True}]) is COMMITTED
    last = kind.open().last()
    assert last is not None
    assert last.number == 1
    assert upsert(table, 1, rows_of(5)) is ALREADY
    assert upsert(table, 2, [{"id": 1, "_deleted": True}]) is COMMITTED
    assert kind.ids() == []
    assert upsert(table, 3, rows_of(1, 2)) is COMMITTED
    assert kind.ids() == [1, 2]


def test_a_batch_without_rows_is_recorded(kind: LakeKind) -> None:
    for number in (0, 1):
        assert upserts(kind).commit(TableBatch(QUERY, number), SCHEMA, []) is COMMITTED
        assert upserts(kind).commit(TableBatch(QUERY, number), SCHEMA, []) is ALREADY
    assert upsert(upserts(kind), 2, rows_of(2)) is COMMITTED
    assert kind.ids() == [2]


@pytest.mark.parametrize("rival", [rows_of(1, 2), [{"id": 9, "_deleted": True}], [{"id": 0, "_deleted": True}]])
def test_of_two_drivers_that_commit_a_batch_at_once_one_does(
    kind: LakeKind, rival: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rival's batch may add rows, change nothing or delete."""
    upsert(upserts(kind), 0, rows_of(0))
    slow = upserts(kind)
    files = staged(slow, rows_of(7))
    original = kind.module.verdict

    def hooked(*args: Any) -> CommitVerdict:
        monkeypatch.setattr(kind.module, "verdict", original)
        found: CommitVerdict = original(*args)
        assert upsert(upserts(kind), 1, rival) is COMMITTED
        return found

    monkeypatch.setattr(kind.module, "verdict", hooked)
    assert slow.commit(TableBatch(QUERY, 1), SCHEMA, files) is ALREADY
    assert 7 not in kind.ids()


def test_another_query_is_fenced(kind: LakeKind) -> None:
    upsert(upserts(kind), 0, rows_of(0))
    assert upsert(upserts(kind), 0, rows_of(1), query=OTHER_QUERY) is FENCED
    assert upsert(upserts(kind, replaces=QUERY), 0, rows_of(1), query=OTHER_QUERY) is COMMITTED
    assert kind.ids() == [0, 1]


def test_a_row_replaces_all_columns_and_new_columns_are_added(kind: LakeKind) -> None:
    upsert(upserts(kind), 0, rows_of(1, 2))
    schema = pa.schema([("id", pa.int64()), ("more", pa.int32())])
    assert upsert(upserts(kind, evolve="add"), 1, [{"id": 2, "more": 5}], schema) is COMMITTED
    assert kind.rows() == [
        {"id": 1, "name": "n1", "day": None, "more": None},
        {"id": 2, "name": None, "day": None, "more": 5},
    ]


KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["", "it's", 'a"b`c', "ü"]),
    (pa.date32(), [datetime.date(1, 1, 1), datetime.date(2024, 2, 29)]),
    (pa.timestamp("us", "UTC"), [datetime.datetime(2024, 1, 1, 2, 3, 4, 567891, datetime.UTC)]),
    (pa.timestamp("us"), [datetime.datetime(2024, 1, 1, 2, 3, 4, 567891)]),
    (pa.decimal128(20, 3), [Decimal("12345678901234.567"), Decimal("-0.001")]),
    (pa.binary(), [b"", b"\x00\xff'"]),
    (pa.bool_(), [True, False]),
    (pa.int16(), [-32768, 0, 32767]),
]


@pytest.mark.parametrize(("key", "values"), KEYS, ids=[str(key) for key, _ in KEYS])
def test_keys_of_every_type_find_their_rows(kind: LakeKind, key: pa.DataType, values: list[Any]) -> None:
    schema = pa.schema([("id", pa.int64()), ("the key", key), ("second", pa.int32())])
    for number in (0, 1):
        rows = [{"id": 100 * number + at, "the key": value, "second": 1} for at, value in enumerate(values)]
        for keys in (["the key"], ["the key", "second"]):
            place = LakeKind(kind.name, kind.folder / str(len(keys)))
            place.folder.mkdir(exist_ok=True)
            assert upsert(upserts(place, *keys), number, rows, schema) is COMMITTED
            assert place.ids() == [row["id"] for row in rows]


def test_rows_with_several_keys_are_told_apart(kind: LakeKind) -> None:
    schema = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.int32())])
    rows = [{"id": at, "a": a, "b": b} for at, (a, b) in enumerate([("x", 1), ("x", 2), ("y", 1), ("y", 2)])]
    upsert(upserts(kind, "a", "b"), 0, rows, schema)
    changes = [
        {"id": 10, "a": "x", "b": 2},
        {"id": 11, "a": "y", "b": 1, "_deleted": True},
        {"id": 12, "a": "z", "b": 1},
    ]
    upsert(upserts(kind, "a", "b"), 1, changes, schema)
    assert kind.ids() == [0, 3, 10, 12]


def test_rows_that_cannot_be_keyed_are_refused(kind: LakeKind) -> None:
    table = upserts(kind)
    with pytest.raises(BadTable, match="the key 'id' of a row is null"):
        upsert(table, 0, [{"id": None, "name": "x"}])
    with pytest.raises(BadTable, match="two rows of a batch have the same id"):
        upsert(table, 0, rows_of(1, 1))
    with pytest.raises(BadTable, match="the rows of an upsert have a boolean column '_deleted'"):
        table.commit(TableBatch(QUERY, 0), SCHEMA, write(table, rows_of(1)))
    with pytest.raises(BadTable, match="'none' is no column of the rows"):
        upserts(kind, "none").prepare(SCHEMA)
    with pytest.raises(BadTable, match="an upsert needs the columns that are the keys"):
        kind.open(mode=CommitMode.UPSERT).prepare(SCHEMA)
    with pytest.raises(BadTable, match="the key 'x' is a double"):
        upserts(kind, "x").prepare(pa.schema([("x", pa.float64()), ("y", pa.int32())]))
    with pytest.raises(BadTable, match="'_deleted' says which rows an upsert deletes"):
        upserts(kind).prepare(SCHEMA.append(DELETED))
    assert kind.ids() == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_driver_may_die_at_every_step(kind: LakeKind, after: bool) -> None:
    changes = [{"id": 1, "name": "new"}, {"id": 2, "_deleted": True}, *rows_of(3)]

    def prepared(name: str) -> tuple[LakeKind, list[DataFile]]:
        place = LakeKind(kind.name, kind.folder / name)
        place.folder.mkdir()
        upsert(upserts(place), 0, rows_of(1, 2))
        return place, staged(upserts(place), changes)

    place, files = prepared("alive")
    alive = Deaths()
    with dying(place, alive):
        upserts(place).commit(TableBatch(QUERY, 1), SCHEMA, files)
    assert alive.seen > 1
    for at in range(alive.seen):
        place, files = prepared(str(at))
        deaths = Deaths(at, after=after)
        with dying(place, deaths):
            upserts(place).commit(TableBatch(QUERY, 1), SCHEMA, files)
        assert deaths.dead
        assert place.ids() in ([1, 2], [1, 3])
        upsert(upserts(place), 1, changes)
        assert upsert(upserts(place), 2, rows_of(4)) is COMMITTED
        assert [(row["id"], row["name"]) for row in place.rows()] == [(1, "new"), (3, "n3"), (4, "n4")], at


def test_a_folder_of_parquet_files_refuses_upserts(tmp_path: Path) -> None:
    with pytest.raises(BadTable, match="which only grows: use Delta or Iceberg for upserts"):
        LakeKind("parquet", tmp_path).open(mode=CommitMode.UPSERT, keys=["id"])
