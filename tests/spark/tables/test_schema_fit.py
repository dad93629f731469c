"""The columns of rows compared with those of tables."""

from __future__ import annotations

import pyarrow as pa
import pytest

from gnomon.spark.tables.schema_fit import additions, check_partitioning, check_rows
from gnomon.spark.tables.table import BadTable

TABLE = pa.schema([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string()))])


def test_the_order_of_columns_and_the_size_of_offsets_do_not_count() -> None:  # 1, 4
    struct = pa.struct([("a", pa.large_string()), ("b", pa.map_(pa.string(), pa.large_binary()))])
    same = pa.struct([("a", pa.string()), ("b", pa.map_(pa.string_view(), pa.binary()))])
    rows = pa.schema([("tags", pa.large_list(pa.large_string())), ("s", struct), *TABLE.remove(2)])
    assert additions("t", rows, TABLE.append(pa.field("s", same)), "fail") == []


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (TABLE.remove(1), "t: the rows lack the column 'name': evolve='add' adds"),
        (TABLE.append(pa.field("z", pa.int8())), "t lacks the column 'z' of the rows: evolve='add' adds"),
        (
            TABLE.set(0, pa.field("id", pa.int32())),
            "t: the column 'id' is a int64 in the table and a int32 in the rows",
        ),
        (TABLE.set(2, pa.field("tags", pa.list_(pa.int8()))), "t: the column 'tags' is a list"),
    ],
)
def test_the_first_column_that_differs_is_named(rows: pa.Schema, text: str) -> None:  # 1
    with pytest.raises(BadTable) as found:
        additions("t", rows, TABLE, "fail")
    assert str(found.value).startswith(text)


def test_a_table_that_evolves_takes_more_and_fewer_columns() -> None:  # 2
    more = pa.field("z", pa.int8(), nullable=False)
    assert additions("t", pa.schema([more, TABLE.field("id")]), TABLE, "add") == [pa.field("z", pa.int8())]
    with pytest.raises(BadTable, match="a int64 in the table and a double in the rows"):
        additions("t", pa.schema([("id", pa.float64())]), TABLE, "add")
    with pytest.raises(BadTable, match="t has the column 'ID' of the rows in letters of another case"):
        additions("t", pa.schema([("ID", pa.int64())]), TABLE, "add")


def test_a_required_column_is_neither_lacking_nor_null() -> None:  # 3
    table = TABLE.set(1, pa.field("name", pa.string(), nullable=False))
    with pytest.raises(BadTable, match="the column 'name' is required in the table, and may be null in the rows"):
        additions("t", TABLE, table, "add")
    with pytest.raises(BadTable, match=r"the rows lack the column 'name'$"):
        additions("t", TABLE.remove(1), table, "add")
    assert additions("t", table, table, "fail") == []


@pytest.mark.parametrize(
    "kind",
    [
        pa.uint8(),
        pa.float16(),
        pa.time64("us"),
        pa.timestamp("ms"),
        pa.timestamp("us", "Europe/Berlin"),
        pa.duration("us"),
        pa.null(),
        pa.date64(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.uint8()),
        pa.list_(pa.int8(), 3),
        pa.struct([("a", pa.map_(pa.string(), pa.null()))]),
    ],
    ids=str,
)
def test_a_type_that_not_all_tables_have_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(BadTable, match=r"t: the column 'x' is a .*, and tables have booleans"):
        check_rows("t", pa.schema([("id", pa.int64()), ("x", kind)]), [])


@pytest.mark.parametrize("kind", [pa.float64(), pa.timestamp("us", "UTC"), pa.binary(), pa.list_(pa.int8())], ids=str)
def test_a_type_that_makes_no_partitions_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(BadTable, match="and partitions are by texts, whole numbers, booleans or dates"):
        check_rows("t", pa.schema([("id", pa.int64()), ("x", kind)]), ["x"])


def test_columns_that_no_table_can_have_are_refused() -> None:
    with pytest.raises(BadTable, match="the column 'id' occurs twice"):
        check_rows("t", pa.schema([("id", pa.int64()), ("ID", pa.int64())]), [])
    with pytest.raises(BadTable, match="t: 'day' is no column of the rows, which have id, name, tags"):
        check_rows("t", TABLE, ["day"])
    with pytest.raises(BadTable, match="t is partitioned by all columns: leave one for the files"):
        check_rows("t", pa.schema([("id", pa.int64())]), ["id"])


def test_the_partitioning_of_a_table_is_the_given_one() -> None:
    check_partitioning("t", ["a", "b"], ("a", "b"))
    with pytest.raises(BadTable, match="t is partitioned by a, b, and the pipeline says by b, a: they must agree"):
        check_partitioning("t", ["a", "b"], ["b", "a"])
