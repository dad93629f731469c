from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.spark.formats.ddl import SHOWN_CHARACTERS_MAX, BadDdl, ddl_of, schema_of_ddl
from gnomon.spark.formats.decoder import BadFormat

ALL = (
    "a BIGINT, s STRING, st STRUCT<x: INT, y: ARRAY<DATE> NOT NULL> NOT NULL, l ARRAY<STRING>, t TIMESTAMP, d DATE, "
    "dec DECIMAL(10,2), b BINARY, f DOUBLE, m MAP<STRING, INT>, o BOOLEAN, i TINYINT, j SMALLINT, g FLOAT"
)
COLUMNS = pa.schema(
    [
        ("a", pa.int64()),
        ("s", pa.string()),
        pa.field(
            "st",
            pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.list_(pa.date32()), nullable=False)]),
            nullable=False,
        ),
        ("l", pa.list_(pa.string())),
        ("t", pa.timestamp("us", tz="UTC")),
        ("d", pa.date32()),
        ("dec", pa.decimal128(10, 2)),
        ("b", pa.binary()),
        ("f", pa.float64()),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("o", pa.bool_()),
        ("i", pa.int8()),
        ("j", pa.int16()),
        ("g", pa.float32()),
    ]
)
PLAIN = st.sampled_from([field.type for field in COLUMNS if field.name not in ("st", "l", "m")])
NAMES = st.text(min_size=1, max_size=6)
FIELDS = st.builds(pa.field, NAMES, PLAIN, nullable=st.booleans())


def schemas(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    fields = st.builds(pa.field, NAMES, types, nullable=st.booleans())
    return st.lists(fields, min_size=1, max_size=4, unique_by=lambda field: field.name)


TYPES: st.SearchStrategy[pa.DataType] = st.recursive(
    PLAIN,
    lambda inner: st.builds(pa.list_, inner) | st.builds(pa.map_, inner, inner) | schemas(inner).map(pa.struct),
    max_leaves=8,
)


def test_columns_are_written_and_read() -> None:  # 1
    assert ddl_of(COLUMNS) == ALL
    assert schema_of_ddl(ALL) == COLUMNS


@given(fields=schemas(TYPES))
def test_columns_are_read_as_they_were_written(fields: list[pa.Field]) -> None:  # 1
    schema = pa.schema(fields)
    assert schema_of_ddl(ddl_of(schema)) == schema


def test_types_and_words_are_read_in_any_case_and_have_other_names() -> None:  # 2
    text = "(A: long, b Integer not null, c struct<D real>, d dec, e NUMERIC(4), f byte, g Short, h decimal)"
    assert ddl_of(schema_of_ddl(text)) == (
        "A BIGINT, b INT NOT NULL, c STRUCT<D: FLOAT>, d DECIMAL(10,0), e DECIMAL(4,0), f TINYINT, g SMALLINT, "
        "h DECIMAL(10,0)"
    )


def test_comments_are_read_over() -> None:  # 2
    text = r"""a INT COMMENT 'it''s, <x>', b INT NOT NULL COMMENT "say \"a\"", c STRUCT<x: INT COMMENT ''>"""
    assert ddl_of(schema_of_ddl(text)) == "a INT, b INT NOT NULL, c STRUCT<x: INT>"


def test_names_have_back_quotes_where_they_need_them() -> None:  # 1
    schema = pa.schema(
        [("a b", pa.int32()), ("c`d", pa.int32()), ("1", pa.int32()), ("é", pa.int32()), ("int", pa.int32())]
    )
    assert ddl_of(schema) == "`a b` INT, `c``d` INT, `1` INT, `é` INT, int INT"
    assert schema_of_ddl(ddl_of(schema)) == schema


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "at the end, character 1: a name"),
        ("a", "at the end, character 2: a type"),
        ("a int,", "at the end, character 7: a name"),
        ("a foo", "at 'foo', character 3: there is no such type"),
        ("a int b int", "at 'b', character 7: the end or ','"),
        ("a int; b int", "at '; b int', character 6: no word"),
        ("a `int`", "at '`int`', character 3: a type"),
        ("a 'x'", "character 3: a type"),
        ("`a int", "at '`a int', character 1: no word"),
        ("`` int", "at '``', character 1: a name"),
        ("a int, a string", "at 'a', character 8: the name is used"),
        ("a struct<x: int, x: int>", "at 'x', character 18: the name is used"),
        ("a struct<>", "at '>', character 10: a name"),
        ("a array<int", "at the end, character 12: '>'"),
        ("a array int", "at 'int', character 9: '<'"),
        ("a map<int>", "at '>', character 10: ','"),
        ("a int not", "at the end, character 10: 'NULL'"),
        ("a int comment b", "at 'b', character 15: a comment"),
        ("a decimal(39, 1)", "at '39', character 11: a number from 1 to 38"),
        ("a decimal(3, 4)", "at '4', character 14: a number from 0 to 3"),
        ("a decimal(x)", "at 'x', character 11: a number"),
        ("(a int", "at the end, character 7: ')'"),
        ("a " + "array<" * 100_000, "character 393: at most 64 types"),
    ],
)
def test_a_text_that_cannot_be_read_is_refused_with_the_place(text: str, place: str) -> None:  # 3, 4
    with pytest.raises(BadDdl) as error:
        schema_of_ddl(text)
    assert place in str(error.value)
    assert repr(text[:SHOWN_CHARACTERS_MAX])[:-1] in str(error.value)


@given(text=st.text("aint<>(),:`'\" \\é1", max_size=20) | st.text(max_size=10))
def test_any_text_is_read_or_refused(text: str) -> None:  # 3
    try:
        schema = schema_of_ddl(text)
    except BadDdl:
        return
    assert schema_of_ddl(ddl_of(schema)) == schema


@pytest.mark.parametrize(
    "kind", [pa.uint8(), pa.timestamp("us"), pa.time64("us"), pa.null(), pa.struct([]), pa.binary(3)]
)
def test_a_column_without_a_type_of_spark_is_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(BadFormat, match=r"column 's\.l\[\]'"):
        ddl_of(pa.schema([("s", pa.struct([("l", pa.list_(kind))]))]))
