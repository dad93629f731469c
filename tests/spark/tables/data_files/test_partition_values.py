"""Rows split by their values, and these values as texts and names of folders."""

from __future__ import annotations

import datetime
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from gnomon.spark.tables.data_files.partition_values import folder_of, nulls_for_empty, parts, text_of, without

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("flag", pa.bool_()), ("count", pa.int8())])
row = st.tuples(
    st.none() | st.sampled_from(["", "a", "b", "ü"]), st.none() | st.booleans(), st.none() | st.integers(-2, 2)
)


@given(st.lists(row, max_size=40), st.lists(st.sampled_from(["text", "flag", "count"]), unique=True))
def test_each_row_is_in_the_one_part_with_its_values(rows: list[tuple[Any, ...]], columns: list[str]) -> None:  # 1
    named = [{"id": at, "text": text, "flag": flag, "count": count} for at, (text, flag, count) in enumerate(rows)]
    found: dict[tuple[str | None, ...], list[dict[str, Any]]] = {}
    for values, batch in parts(pa.RecordBatch.from_pylist(named, SCHEMA), columns):
        assert values not in found
        found[values] = batch.to_pylist()
    expected: dict[tuple[str | None, ...], list[dict[str, Any]]] = {}
    for each in named:
        expected.setdefault(tuple(text_of(each[name]) for name in columns), []).append(each)
    assert found == expected


def test_many_columns_of_many_values_are_split() -> None:  # 1
    rows = [{f"c{column}": number for column in range(12)} for number in range(300)]
    batch = pa.RecordBatch.from_pylist(rows)
    assert len(list(parts(batch, batch.schema.names))) == 300


def test_values_are_texts() -> None:  # 2
    values = [None, True, False, -5, "x y", datetime.date(1, 2, 3), datetime.date(2024, 12, 31)]
    assert [text_of(value) for value in values] == [None, "true", "false", "-5", "x y", "0001-02-03", "2024-12-31"]


def test_a_folder_is_named_as_hive_does_it() -> None:  # 3
    names = ["a", "b c", "d"]
    assert folder_of(names, ["x/y=z", None, "ü%"]) == "a=x%2Fy%3Dz/b c=__HIVE_DEFAULT_PARTITION__/d=%C3%BC%25"
    assert folder_of([], []) == ""


@given(st.text())
def test_the_name_of_a_folder_gives_the_value_back(value: str) -> None:  # 3
    name = folder_of(["a"], [value])
    assert "/" not in name
    assert unquote(name.removeprefix("a=")) == value


def test_an_empty_text_becomes_null_in_the_given_columns_only() -> None:
    batch = pa.RecordBatch.from_pydict({"a": ["", "x", None], "b": ["", "y", None], "c": [0, 1, 2]})
    assert nulls_for_empty(batch, ["a", "c"]).to_pydict() == {
        "a": [None, "x", None],
        "b": ["", "y", None],
        "c": [0, 1, 2],
    }
    assert without(batch, ["a", "c"]).schema.names == ["b"]
