from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # for `one_by_one`: test folders are no packages

from one_by_one import decoded

from gnomon.spark.formats.ddl import ddl_of
from gnomon.spark.formats.decoder import BadFormat
from gnomon.spark.formats.json_inference import DEPTH_MAX, inferred_columns
from gnomon.spark.formats.json_values import JsonDecoder


def inferred(*values: Any) -> str:
    return ddl_of(inferred_columns(json.dumps(value).encode() for value in values))


def test_columns_have_the_order_in_which_they_appear() -> None:  # 1
    assert inferred({"b": 1}, {"a": True, "b": 2}, {"c": "x"}) == "b BIGINT, a BOOLEAN, c STRING"
    assert (
        inferred({"a": None, "z": {"y": 1}}, {"z": {"x": 1, "y": 2}, "a": 1})
        == "a BIGINT, z STRUCT<y: BIGINT, x: BIGINT>"
    )


def test_numbers_are_whole_until_one_is_not() -> None:  # 2
    assert inferred({"a": 1, "l": [1]}, {"a": 1.5, "l": [1.0]}, {"a": 2}) == "a DOUBLE, l ARRAY<DOUBLE>"
    assert inferred({"a": 1 << 63}) == "a DOUBLE"
    assert inferred({"a": (1 << 63) - 1}) == "a BIGINT"


def test_texts_that_look_like_times_are_texts() -> None:  # 2
    assert inferred({"a": "2020-01-01", "b": "2020-01-01T00:00:00Z"}, {"b": "x"}) == "a STRING, b STRING"
    assert inferred({"a": [{"t": "2020-01-01"}]}) == "a ARRAY<STRUCT<t: STRING>>"


def test_columns_without_values_are_texts_and_objects_without_members_are_left_out() -> None:  # 3
    assert inferred({"a": None, "b": [], "c": {}, "d": [{}], "e": {"f": {}, "g": [None]}}) == (
        "a STRING, b ARRAY<STRING>, e STRUCT<g: ARRAY<STRING>>"
    )
    assert inferred({"a": {}}, {"a": {"x": 1}}, {"a": None}) == "a STRUCT<x: BIGINT>"


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ([{"a": 1}, {"a": "x"}], "column 'a' has values of two types, int64 and string"),
        ([{"a": {"b": 1}}, {"a": {"b": True}}], "column 'a.b'"),
        ([{"a": [1]}, {"a": ["x"]}], r"column 'a\.\[\]'"),
        ([{"a": [1, "x"]}], r"column 'a\.\[\]' has values of two types, number and string"),
        ([{"a": [1]}, {"a": {"b": 1}}], "column 'a'"),
        ([{"a": 1}, {"a": True}], "column 'a'"),
    ],
)
def test_values_of_two_types_are_refused_by_the_name_of_the_column(values: list[Any], place: str) -> None:  # 4
    with pytest.raises(BadFormat, match=place):
        inferred(*values)


def test_other_values_are_left_out() -> None:  # 5
    values = [None, b"", b"[]", b"{", b"\xff", b'{"a": 1, "a": 2}', b"{}{}", b'{"a": 1}', b'{"b": 1e400}']
    assert ddl_of(inferred_columns(values)) == "a BIGINT"


def test_deep_values_are_left_out() -> None:  # 5
    def nested(depth: int, opening: bytes, closing: bytes) -> bytes:
        return b'{"l": ' + opening * (depth - 1) + closing * (depth - 1) + b"}"

    flat = json.dumps({"a": [[{}, "[[{"]] * 1_000}).encode()
    assert ddl_of(inferred_columns([b'{"a": 1}', nested(DEPTH_MAX + 1, b"[", b"]")])) == "a BIGINT"
    assert ddl_of(inferred_columns([b'{"a": 1}', nested(1_000_000, b"[", b"]")])) == "a BIGINT"
    assert (
        ddl_of(inferred_columns([b'{"a": 1}', nested(1_000_000, b'{"x":', b"}").replace(b":}", b":1}")])) == "a BIGINT"
    )
    assert ddl_of(inferred_columns([b'{"a": 1}', b'{"l": ' + b"[" * 1_000_000])) == "a BIGINT"
    assert "l ARRAY<ARRAY<" in ddl_of(inferred_columns([nested(DEPTH_MAX, b"[", b"]")]))
    with pytest.raises(BadFormat, match="two types"):
        inferred_columns([flat])  # it is read, since it is not deep


def test_a_number_of_values_is_looked_at() -> None:
    values = iter([b'{"a": 1}', b'{"b": 1}', b'{"c": 1}'])
    assert ddl_of(inferred_columns(values, 2)) == "a BIGINT, b BIGINT"
    assert next(values) == b'{"c": 1}'


@pytest.mark.parametrize("values", [[], [b"x"], [b"{}"], [b'{"a": {}}'], [None]])
def test_values_without_a_member_have_no_columns(values: list[bytes | None]) -> None:
    with pytest.raises(BadFormat, match="no columns"):
        inferred_columns(values)


def test_columns_of_one_value_each_cost_no_memory_for_the_other_values() -> None:
    values = [json.dumps({f"k{value}_{at}": at for at in range(10)}).encode() for value in range(300)]
    whole = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(whole)
    pa.set_memory_pool(counted)
    try:
        assert len(inferred_columns(values)) == 3_000
    finally:
        pa.set_memory_pool(whole)
    assert 0 < counted.max_memory() < 1 << 20  # 3,000 columns of 300 rows have 7 MB


MEMBERS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["x", "2020-01-01"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


@given(values=st.lists(st.dictionaries(st.sampled_from("abc"), MEMBERS, max_size=3), min_size=1, max_size=4))
def test_the_values_fit_the_columns(values: list[dict[str, Any]]) -> None:  # 6
    given_values = [json.dumps(value).encode() for value in values]
    try:
        columns = inferred_columns(given_values)
    except BadFormat:
        return
    assert decoded(JsonDecoder(columns), *given_values).misfits == []
