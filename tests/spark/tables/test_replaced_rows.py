"""Replays: rows of a Delta or Iceberg table that take the place of others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from lake_tables import QUERY, SCHEMA, Deaths, LakeKind, Rows, dying, put, rows_of, write

from gnomon.spark.columns import Range
from gnomon.spark.tables.data_files.data_file import FileLayout
from gnomon.spark.tables.data_files.file_writer import FileWriter
from gnomon.spark.tables.replaced_rows import Condition, Term, as_expression, as_sql, with_places, with_values
from gnomon.spark.tables.replacing_table import ReplacingTable
from gnomon.spark.tables.staged_files import values_of
from gnomon.spark.tables.table import BadTable, CommitMode, CommitVerdict, LakeTable, TableBatch

DAYS = [date(2024, 1, day) for day in (1, 2, 3)]


@pytest.fixture(params=["delta", "iceberg"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> LakeKind:
    return LakeKind(request.param, tmp_path)


def replacing(kind: LakeKind, **options: Any) -> ReplacingTable:
    return cast("ReplacingTable", kind.open(mode=CommitMode.REPLACE, **options))


def replace(table: ReplacingTable, rows: Rows, condition: Condition, schema: pa.Schema = SCHEMA) -> None:
    table.replace(schema, write(table, rows, schema), condition)


def ids(first: int, stop: int) -> Condition:
    return ((Term("id", ">=", first), Term("id", "<", stop)),)


def test_the_rows_of_a_condition_are_replaced_and_all_others_stay(kind: LakeKind) -> None:
    put(kind.open(), 0, rows_of(*range(10)))
    replace(replacing(kind), [{"id": 4, "name": "new"}, {"id": 6, "name": "new"}], ids(3, 7))
    assert [(row["id"], row["name"]) for row in kind.rows()] == [
        (0, "n0"), (1, "n1"), (2, "n2"), (4, "new"), (6, "new"), (7, "n7"), (8, "n8"), (9, "n9"),
    ]  # fmt: skip


def test_a_replacement_may_be_repeated(kind: LakeKind) -> None:
    put(kind.open(), 0, rows_of(*range(10)))
    for _ in range(2):
        replace(replacing(kind), [{"id": 4, "name": "new"}], ids(3, 7))
        assert kind.ids() == [0, 1, 2, 4, 7, 8, 9]


def test_a_replacement_leaves_the_record_of_the_pipeline(kind: LakeKind) -> None:
    put(kind.open(), 7, rows_of(1, 2))
    replace(replacing(kind), rows_of(2), ids(2, 3))
    last = kind.open().last()
    assert last is not None
    assert (last.query_digits, last.number) == (TableBatch(QUERY, 7).query_digits, 7)
    assert put(kind.open(), 8, rows_of(3)) is CommitVerdict.COMMITTED
    assert kind.ids() == [1, 2, 3]


def test_rows_that_are_replaced_by_none_are_gone(kind: LakeKind) -> None:
    put(kind.open(), 0, rows_of(*range(5)))
    table = replacing(kind)
    table.prepare(SCHEMA)
    table.replace(SCHEMA, [], ids(1, 3))
    assert kind.ids() == [0, 3, 4]


def test_rows_are_added_where_the_condition_means_none(kind: LakeKind) -> None:
    put(kind.open(), 0, rows_of(1))
    replace(replacing(kind), rows_of(5, 6), ids(5, 7))
    assert kind.ids() == [1, 5, 6]


def test_whole_partitions_are_replaced_null_is_one(kind: LakeKind) -> None:
    options = {"partition_by": ["day"]}
    for number, day in enumerate([*DAYS, None]):
        put(kind.open(**options), number, rows_of(number * 10, number * 10 + 1, day=day))
    table = replacing(kind, **options)
    rows = rows_of(15, day=DAYS[1]) + rows_of(35, day=None)
    files = write(table, rows)
    table.replace(SCHEMA, files, with_values(values_of(table.prepare(SCHEMA), files, ["day"])))
    assert [(row["id"], row["day"]) for row in kind.rows()] == [
        (0, DAYS[0]), (1, DAYS[0]), (15, DAYS[1]), (20, DAYS[2]), (21, DAYS[2]), (35, None),
    ]  # fmt: skip


def test_a_replay_may_add_columns(kind: LakeKind) -> None:
    put(kind.open(), 0, rows_of(1, 2))
    wider = SCHEMA.append(pa.field("more", pa.string()))
    with pytest.raises(BadTable, match="more"):
        replace(replacing(kind), rows_of(2, more="x"), ids(2, 3), wider)
    replace(replacing(kind, evolve="add"), rows_of(2, more="x"), ids(2, 3), wider)
    assert [(row["id"], row["more"]) for row in kind.rows()] == [(1, None), (2, "x")]


@pytest.mark.parametrize("before", [4, 6], ids=["without these rows", "with these rows"])
def test_a_table_that_changes_meanwhile_is_read_again(
    kind: LakeKind, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(kind.open(), 0, rows_of(*range(before)))
    table = replacing(kind)
    files = write(table, rows_of(4, 5))
    rival = replacing(kind)
    others = write(rival, rows_of(5))
    once_before_committing(table, monkeypatch, lambda: rival.replace(SCHEMA, others, ids(4, 7)))
    table.replace(SCHEMA, files, ids(4, 6))
    assert kind.ids() == [0, 1, 2, 3, 4, 5]


def once_before_committing(table: LakeTable, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Calls `act` once, after the table has read its state for a replacement."""
    original: Any = getattr(table, "_additions")  # noqa: B009
    waiting = [act]

    def additions(*args: Any) -> Any:
        found = original(*args)
        if waiting:
            waiting.pop()()
        return found

    monkeypatch.setattr(table, "_additions", additions)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_driver_that_dies_at_an_effect_leaves_the_old_rows_or_the_new_ones(kind: LakeKind, after: bool) -> None:
    put(kind.open(), 0, rows_of(*range(4)))
    old, new = kind.rows(), [*kind.rows()[:2], {"id": 2, "name": "new", "day": None}]
    for at in range(100):
        deaths = Deaths(at, after=after)
        with dying(kind, deaths):
            replace(replacing(kind), [{"id": 2, "name": "new"}], ids(2, 4))
        assert kind.rows() in (old, new)
        if not deaths.dead:
            break
    assert at > 0
    assert kind.rows() == new


def test_delta_refuses_rows_that_do_not_fulfil_the_condition(tmp_path: Path) -> None:
    kind = LakeKind("delta", tmp_path)
    put(kind.open(), 0, rows_of(1, 2))
    with pytest.raises(BadTable, match="refuses the rows"):
        replace(replacing(kind), rows_of(1), ids(2, 3))
    assert kind.ids() == [1, 2]


def test_the_rows_of_ranges_are_those_of_their_places() -> None:  # 2
    condition = with_places(("_topic", "_partition", "_offset"), [Range("it's", 3, 10, 20), Range("it's", 4, 7, 7)])
    assert condition == (
        (Term("_topic", "=", "it's"), Term("_partition", "=", 3), Term("_offset", ">=", 10), Term("_offset", "<", 20)),
    )
    assert as_sql(condition) == "(`_topic` = 'it''s' AND `_partition` = 3 AND `_offset` >= 10 AND `_offset` < 20)"


def test_a_condition_without_alternatives_means_no_row() -> None:  # 1
    assert as_sql(()) == "false"
    assert repr(as_expression(())) == "AlwaysFalse()"
    assert with_values(pa.table({})) == ()


def test_only_texts_whole_numbers_truth_values_and_dates_are_compared() -> None:  # 3
    kept = pa.table({"a": ["x"], "b": [1], "c": [True], "d": [DAYS[0]]})
    ((*terms,),) = with_values(kept)
    assert [term.value for term in terms] == ["x", 1, True, DAYS[0]]
    assert as_sql((tuple(terms),)) == "(`a` = 'x' AND `b` = 1 AND `c` = true AND `d` = '2024-01-01')"
    for refused in (1.5, datetime(2024, 1, 1), b"x"):
        with pytest.raises(BadTable, match="column 'e'"):
            with_values(pa.table({"e": [refused]}))


def test_the_values_of_files_are_read_from_them(tmp_path: Path) -> None:
    layout = FileLayout(str(tmp_path))
    writer = FileWriter(layout, SCHEMA)
    writer.write(pa.RecordBatch.from_pylist(rows_of(1, 2, day=DAYS[0]), SCHEMA))
    assert values_of(layout, writer.close(), ["day", "id"]).to_pydict() == {"day": [DAYS[0]] * 2, "id": [1, 2]}
