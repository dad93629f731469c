"""The promise of every kind of table: each batch of a pipeline is in it once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lake_tables import (
    KINDS,
    OTHER_QUERY,
    QUERY,
    SCHEMA,
    Deaths,
    LakeKind,
    dying,
    put,
    rows_of,
    write,
)

from gnomon.spark.tables import table as tables
from gnomon.spark.tables.data_files.data_file import DataFile
from gnomon.spark.tables.table import BadTable, CommitVerdict, LakeTable, TableBatch, TableBusy

COMMITTED, ALREADY, FENCED = CommitVerdict.COMMITTED, CommitVerdict.ALREADY, CommitVerdict.FENCED


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> LakeKind:
    return LakeKind(request.param, tmp_path)


def test_a_table_begins_without_a_schema_and_without_a_batch(kind: LakeKind) -> None:
    assert kind.open().schema() is None
    assert kind.open().last() is None
    assert "not exist" in kind.open().maintain()


def test_a_batch_that_is_committed_twice_is_in_the_table_once(kind: LakeKind) -> None:  # 1
    table = kind.open(partition_by=["day"])
    rows = rows_of(1, 2, day=date(2024, 12, 31)) + rows_of(3, day=date(2025, 1, 1)) + rows_of(4, day=None)
    files = write(table, rows)
    assert len(files) == 3
    assert table.commit(TableBatch(QUERY, 0), SCHEMA, files) is COMMITTED
    assert table.commit(TableBatch(QUERY, 0), SCHEMA, files) is ALREADY
    assert put(kind.open(partition_by=["day"]), 0, rows) is ALREADY
    assert kind.rows() == rows
    schema = kind.open().schema()
    assert schema is not None
    assert schema.names == SCHEMA.names


def test_an_older_batch_is_already_in_the_table(kind: LakeKind) -> None:  # 2
    assert put(kind.open(), 0, rows_of(0)) is COMMITTED
    assert put(kind.open(), 5, rows_of(5)) is COMMITTED
    assert put(kind.open(), 4, rows_of(4)) is ALREADY
    assert put(kind.open(), 0, rows_of(0)) is ALREADY
    assert kind.ids() == [0, 5]
    last = kind.open().last()
    assert last is not None
    assert (last.query_digits, last.number) == (TableBatch(QUERY, 0).query_digits, 5)  # 3


def test_another_query_is_fenced_and_the_one_that_replaces_it_goes_on(kind: LakeKind) -> None:  # 2
    assert put(kind.open(), 7, rows_of(7), query=OTHER_QUERY) is COMMITTED
    assert put(kind.open(), 8, rows_of(8), query=QUERY) is FENCED
    assert put(kind.open(replaces=QUERY), 8, rows_of(8), query=QUERY) is FENCED
    assert put(kind.open(replaces=OTHER_QUERY), 0, rows_of(0), query=QUERY) is COMMITTED
    assert put(kind.open(replaces=OTHER_QUERY), 1, rows_of(1), query=QUERY) is COMMITTED
    assert put(kind.open(), 8, rows_of(8), query=OTHER_QUERY) is FENCED
    assert kind.ids() == [0, 1, 7]


def test_two_pipelines_write_one_table(kind: LakeKind) -> None:
    assert put(kind.open("p"), 3, rows_of(3)) is COMMITTED
    assert put(kind.open("q"), 0, rows_of(0), query=OTHER_QUERY) is COMMITTED
    assert put(kind.open("p"), 4, rows_of(4)) is COMMITTED
    assert put(kind.open("q"), 0, rows_of(0), query=OTHER_QUERY) is ALREADY
    assert kind.ids() == [0, 3, 4]


def test_many_batches_follow_each_other(kind: LakeKind) -> None:
    table = kind.open()
    for number in range(15):
        assert put(table, number, rows_of(number)) is COMMITTED
        assert put(kind.open(), number, rows_of(number)) is ALREADY
    assert kind.ids() == list(range(15))


def before_committing(kind: LakeKind, monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Calls `act` once, after the next driver has read the table and before that driver commits."""
    original = kind.module.verdict
    waiting = [act]

    def hooked(*args: Any) -> CommitVerdict:
        found: CommitVerdict = original(*args)
        if waiting:
            waiting.pop()()
        return found

    monkeypatch.setattr(kind.module, "verdict", hooked)


@pytest.mark.parametrize("number", [0, 1], ids=["empty", "not empty"])
def test_of_two_drivers_that_commit_a_batch_at_once_one_does(
    kind: LakeKind, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # 1, 4
    for earlier in range(number):
        put(kind.open(), earlier, rows_of(earlier))
    slow = kind.open()
    files = write(slow, rows_of(number))
    found: list[CommitVerdict] = []
    before_committing(kind, monkeypatch, lambda: found.append(put(kind.open(), number, rows_of(number))))
    assert slow.commit(TableBatch(QUERY, number), SCHEMA, files) is ALREADY
    assert found == [COMMITTED]
    assert kind.ids() == list(range(number + 1))


def test_a_driver_that_is_overtaken_by_a_later_batch_finds_its_own_there(
    kind: LakeKind, monkeypatch: pytest.MonkeyPatch
) -> None:  # 2, 4
    slow, fast = kind.open(), kind.open()
    files = write(slow, rows_of(0))

    def overtake() -> None:
        assert [put(fast, number, rows_of(number)) for number in (0, 1, 2)] == [COMMITTED] * 3

    before_committing(kind, monkeypatch, overtake)
    assert slow.commit(TableBatch(QUERY, 0), SCHEMA, files) is ALREADY
    assert kind.ids() == [0, 1, 2]


def test_a_driver_that_is_overtaken_by_another_query_is_fenced(
    kind: LakeKind, monkeypatch: pytest.MonkeyPatch
) -> None:  # 2, 4
    put(kind.open(), 0, rows_of(0))
    slow = kind.open()
    files = write(slow, rows_of(1))
    fast = kind.open(replaces=QUERY)
    before_committing(kind, monkeypatch, lambda: put(fast, 0, rows_of(5), query=OTHER_QUERY))
    assert slow.commit(TableBatch(QUERY, 1), SCHEMA, files) is FENCED
    assert kind.ids() == [0, 5]


def test_a_driver_decides_again_after_another_pipeline_has_committed(
    kind: LakeKind, monkeypatch: pytest.MonkeyPatch
) -> None:  # 4
    put(kind.open(), 0, rows_of(0))
    slow = kind.open()
    files = write(slow, rows_of(1))
    before_committing(kind, monkeypatch, lambda: put(kind.open("q"), 0, rows_of(9)))
    assert slow.commit(TableBatch(QUERY, 1), SCHEMA, files) is COMMITTED
    assert kind.ids() == [0, 1, 9]


def test_a_driver_that_always_loses_says_so(kind: LakeKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ATTEMPTS_MAX", 2)
    slow, fast = kind.open(), kind.open("p", replaces=OTHER_QUERY)
    files = write(slow, rows_of(99))
    original = kind.module.verdict
    numbers = iter(range(10))

    def overtaken(*args: Any) -> CommitVerdict:
        monkeypatch.setattr(kind.module, "verdict", original)
        put(fast, next(numbers), rows_of(1), query=OTHER_QUERY)
        monkeypatch.setattr(kind.module, "verdict", overtaken)
        return CommitVerdict.OPEN

    monkeypatch.setattr(kind.module, "verdict", overtaken)
    with pytest.raises(TableBusy, match="2 commits of a batch lost"):
        slow.commit(TableBatch(QUERY, 0), SCHEMA, files)
    assert 99 not in kind.ids()


def test_two_drivers_create_a_table_at_once(kind: LakeKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one creates it after the first one has found none."""
    first, second = kind.open(partition_by=["day"]), kind.open(partition_by=["day"])
    schema = pa.schema(SCHEMA)
    original = kind.module.check_rows

    def hooked(*args: Any) -> None:
        original(*args)
        monkeypatch.setattr(kind.module, "check_rows", original)
        loads = "load" if kind.name == "iceberg" else "_load"
        if kind.name == "parquet":
            return
        owner: Any = first._entry if kind.name == "iceberg" else first
        load = getattr(owner, loads)

        def too_early() -> None:
            monkeypatch.setattr(owner, loads, load)
            second.prepare(schema)

        monkeypatch.setattr(owner, loads, too_early)

    monkeypatch.setattr(kind.module, "check_rows", hooked)
    assert put(first, 0, rows_of(0)) is COMMITTED
    assert put(second, 1, rows_of(1)) is COMMITTED
    assert kind.ids() == [0, 1]


def opened(kind: LakeKind) -> LakeTable:
    return kind.open(partition_by=["day"], evolve="add")


def whole_round(kind: LakeKind, number: int) -> CommitVerdict:
    """A batch in two partitions; that of number 1 has another column."""
    rows = rows_of(10 * number, day=date(2024, 1, 1)) + rows_of(10 * number + 1, day=None)
    schema = SCHEMA.append(pa.field("more", pa.int32())) if number else SCHEMA
    return put(opened(kind), number, [{**row, "more": 1} for row in rows] if number else rows, schema)


def steps_of(kind: LakeKind, prepared: Callable[[LakeKind], Any], act: Callable[[LakeKind, Any], Any]) -> int:
    """The effects of an act that does not die."""
    place = LakeKind(kind.name, kind.folder / "alive")
    place.folder.mkdir()
    given, deaths = prepared(place), Deaths()
    with dying(place, deaths):
        act(place, given)
    assert deaths.seen > 1, "the effects are watched"
    return deaths.seen


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_driver_may_die_at_every_step(kind: LakeKind, number: int, after: bool) -> None:  # 1
    def earlier(place: LakeKind) -> None:
        for each in range(number):
            whole_round(place, each)

    def dies(place: LakeKind, _: None) -> None:
        whole_round(place, number)

    for at in range(steps_of(kind, earlier, dies)):
        place = LakeKind(kind.name, kind.folder / str(at))
        place.folder.mkdir()
        earlier(place)
        deaths = Deaths(at, after=after)
        with dying(place, deaths):
            dies(place, None)
        assert deaths.dead
        known, added = [0, 1][: 2 * number], [10 * number, 10 * number + 1]
        assert place.ids() in (known, known + added) or kind.name == "parquet", at
        whole_round(place, number)
        assert whole_round(place, number + 1) is COMMITTED
        assert place.ids() == known + added + [10 * number + 10, 10 * number + 11], at


def test_a_commit_that_is_repeated_with_the_same_files_after_a_death_is_in_the_table_once(kind: LakeKind) -> None:  # 1
    rows = rows_of(1, 2, day=date(2024, 1, 1))

    def written(place: LakeKind) -> list[DataFile]:
        return write(opened(place), rows)

    def committed(place: LakeKind, files: list[DataFile]) -> CommitVerdict:
        return opened(place).commit(TableBatch(QUERY, 0), SCHEMA, files)

    for at in range(steps_of(kind, written, committed)):
        place = LakeKind(kind.name, kind.folder / str(at))
        place.folder.mkdir()
        files = written(place)
        with dying(place, Deaths(at, after=True)):
            committed(place, files)
        assert committed(place, files) in (COMMITTED, ALREADY)
        assert place.ids() == [1, 2], at


def test_rows_with_other_columns_are_refused_and_name_the_first(kind: LakeKind) -> None:
    put(kind.open(), 0, rows_of(0))
    lacking = pa.schema([SCHEMA.field("id"), SCHEMA.field("day")])
    with pytest.raises(BadTable, match="the rows lack the column 'name'"):
        put(kind.open(), 1, [{"id": 1}], lacking)
    with pytest.raises(BadTable, match="lacks the column 'more' of the rows: evolve='add' adds columns"):
        put(kind.open(), 1, rows_of(1), SCHEMA.append(pa.field("more", pa.int32())))
    other = pa.schema([("id", pa.int32()), SCHEMA.field("name"), SCHEMA.field("day")])
    for evolve in ("fail", "add"):
        with pytest.raises(BadTable, match="the column 'id' is a int64 in the table and a int32 in the rows"):
            put(kind.open(evolve=evolve), 1, rows_of(1), other)
    assert kind.ids() == [0]


def test_a_table_that_evolves_gets_new_columns_and_leaves_lacking_ones_null(kind: LakeKind) -> None:
    put(kind.open(), 0, rows_of(0))
    schema = pa.schema([SCHEMA.field("id"), ("more", pa.list_(pa.string())), ("count", pa.int16())])
    assert put(kind.open(evolve="add"), 1, [{"id": 1, "more": ["x"], "count": 3}], schema) is COMMITTED
    assert put(kind.open(evolve="add"), 2, rows_of(2)) is COMMITTED
    assert kind.rows() == [
        {"id": 0, "name": "n0", "day": None, "more": None, "count": None},
        {"id": 1, "name": None, "day": None, "more": ["x"], "count": 3},
        {"id": 2, "name": "n2", "day": None, "more": None, "count": None},
    ]


@pytest.mark.parametrize("rival_adds", [False, True])
@pytest.mark.parametrize("rival_number", [0, 1])
def test_a_driver_that_adds_columns_decides_by_the_state_after_that(
    kind: LakeKind, rival_adds: bool, rival_number: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # 4
    put(kind.open(), 0, rows_of(0))
    more = SCHEMA.append(pa.field("more", pa.int32()))
    slow = kind.open(evolve="add")
    files = write(slow, rows_of(1), more)
    rival = kind.open("p" if rival_number else "q", evolve="add")
    schema = more if rival_adds else SCHEMA
    before_committing(kind, monkeypatch, lambda: put(rival, rival_number, rows_of(5), schema))
    expected = ALREADY if rival_number else COMMITTED
    assert slow.commit(TableBatch(QUERY, 1), more, files) is expected
    assert kind.ids() == ([0, 5] if rival_number else [0, 1, 5])


def test_a_batch_without_rows_is_recorded(kind: LakeKind) -> None:
    for number in (0, 1):
        assert kind.open().commit(TableBatch(QUERY, number), SCHEMA, []) is COMMITTED
        assert kind.open().commit(TableBatch(QUERY, number), SCHEMA, []) is ALREADY
    assert put(kind.open(), 2, rows_of(2)) is COMMITTED
    assert kind.ids() == [2]


def test_a_fenced_query_does_not_change_the_columns(kind: LakeKind) -> None:
    put(kind.open(), 0, rows_of(0))
    more = SCHEMA.append(pa.field("more", pa.int32()))
    assert put(kind.open(evolve="add"), 0, rows_of(1), more, query=OTHER_QUERY) is FENCED
    schema = kind.open().schema()
    assert schema is not None
    assert schema.names == SCHEMA.names


def test_a_table_that_is_partitioned_otherwise_is_refused(kind: LakeKind) -> None:
    put(kind.open(partition_by=["day"]), 0, rows_of(0))
    with pytest.raises(BadTable, match="is partitioned by day, and the pipeline says by nothing"):
        kind.open().prepare(SCHEMA)


@pytest.mark.parametrize("name", ["", "a/b", ".", "../x", "ü", "a b"])
def test_a_pipeline_whose_name_cannot_name_a_folder_is_refused(kind: LakeKind, name: str) -> None:
    with pytest.raises(BadTable, match="is no name of a pipeline"):
        kind.open(name)


def test_maintenance_keeps_the_record_of_the_last_batch(kind: LakeKind) -> None:
    for number in range(5):
        put(kind.open(), number, rows_of(number))
    last = kind.open().last()
    assert kind.open().maintain()
    assert kind.open().last() == last
    assert put(kind.open(), 4, rows_of(4)) is ALREADY
    assert put(kind.open(), 5, rows_of(5)) is COMMITTED
    assert kind.ids() == [0, 1, 2, 3, 4, 5]


ODD = ["a b", "c%2Fd", "é/=:?#", "x'\"\\", "", None, "a+b", "__HIVE_DEFAULT", "tab\there"]


def test_partition_values_of_all_sorts_come_back(kind: LakeKind) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("flag", pa.bool_()), ("count", pa.int32())])
    rows = [
        {"id": at, "text": text, "flag": (True, False, None)[at % 3], "count": (None, -5)[at % 2]}
        for at, text in enumerate(ODD)
    ]
    put(kind.open(partition_by=["text", "flag", "count"]), 0, rows, schema)
    expected = [{**row, "text": row["text"] or (row["text"] if kind.name == "iceberg" else None)} for row in rows]
    found = kind.rows()
    if kind.name == "parquet":  # DuckDB tells the types of folders' names by their looks
        found = [{**row, "flag": row["flag"] and str(row["flag"]).lower() == "true"} for row in found]
        expected = [{**row, "flag": row["flag"]} for row in expected]
    assert [[row[name] for name in schema.names] for row in found] == [
        [row[name] for name in schema.names] for row in expected
    ]
