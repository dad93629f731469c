"""Spark's schemas as Arrow's (`spark.pipelines.tasks.spark_schema`)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from gnomon.spark.pipelines.settings.section import BadPipeline
from gnomon.spark.pipelines.tasks.spark_schema import arrow_schema


def field(name: str, type: Any) -> dict[str, Any]:
    return {"name": name, "type": type, "nullable": True, "metadata": {}}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def mapping(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("boolean", pa.bool_()),
        ("byte", pa.int8()),
        ("short", pa.int16()),
        ("integer", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("string", pa.string()),
        ("string collate UTF8_LCASE", pa.string()),
        ("char(3)", pa.string()),
        ("varchar(30)", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("decimal(10,2)", pa.decimal128(10, 2)),
        ("decimal(38,0)", pa.decimal128(38, 0)),
        (array("long"), pa.list_(pa.int64())),
        (mapping("string", array("double")), pa.map_(pa.string(), pa.list_(pa.float64()))),
        (
            struct(field("x", "date"), field("y", array(struct(field("z", "byte"))))),
            pa.struct([("x", pa.date32()), ("y", pa.list_(pa.struct([("z", pa.int8())])))]),
        ),
    ],
)
def test_each_type_of_spark_has_one_of_arrow(given: Any, expected: pa.DataType) -> None:
    """Invariant 1."""
    assert arrow_schema(struct(field("a", "long"), field("b", given))) == pa.schema(
        [("a", pa.int64()), ("b", expected)]
    )


@pytest.mark.parametrize(
    "type",
    [
        "void",
        "variant",
        "interval day to second",
        "decimal",
        array("void"),
        mapping("string", "void"),
        mapping("void", "string"),
        struct(field("inner", array("variant"))),
        {"type": "udt", "class": "x.y"},
    ],
)
def test_a_type_that_no_table_can_have_is_an_error_that_names_the_column(type: Any) -> None:
    """Invariant 2."""
    with pytest.raises(BadPipeline, match=r"^column 'outer' has the type [\w ]+, which no table can have$"):
        arrow_schema(struct(field("outer", type)))


def test_a_schema_without_columns_is_empty() -> None:
    assert arrow_schema(struct()) == pa.schema([])
