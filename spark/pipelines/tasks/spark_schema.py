"""Spark's schemas as Arrow's. Pure.

1. Each of Spark's types has one Arrow type; times are microseconds, in UTC unless the type has no zone.
2. A type that tables cannot have is an error that names the column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from gnomon.spark.pipelines.settings.section import BadPipeline

_TYPES: Final = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_TEXT: Final = re.compile(r"(?:char|varchar)\(\d+\)|string collate .*")


def arrow_schema(given: Mapping[str, Any]) -> pa.Schema:
    """The Arrow schema of a Spark schema.

    Args:
        given: Spark's JSON, as `StructType.jsonValue` makes it.

    Raises:
        BadPipeline: see invariant 2.
    """
    return pa.schema([_field(field, field["name"]) for field in given["fields"]])


def _field(field: Mapping[str, Any], column: str) -> pa.Field:
    return pa.field(field["name"], _type(field["type"], column))


def _type(given: str | Mapping[str, Any], column: str) -> pa.DataType:
    """The type; `column` is the name of the column that it is in."""
    if not isinstance(given, str):
        if given["type"] == "struct":
            return pa.struct([_field(field, column) for field in given["fields"]])
        if given["type"] == "array":
            return pa.list_(_type(given["elementType"], column))
        if given["type"] == "map":
            return pa.map_(_type(given["keyType"], column), _type(given["valueType"], column))
        given = str(given["type"])
    if given in _TYPES:
        return _TYPES[given]
    if found := _DECIMAL.fullmatch(given):
        return pa.decimal128(int(found[1]), int(found[2]))
    if _TEXT.fullmatch(given):
        return pa.string()
    raise BadPipeline(f"column {column!r} has the type {given}, which no table can have")
