"""Avro schemas: the columns of a record, and the limits within which hostile bytes cost no more than their size. Pure.

1. A schema is refused if it contains itself, is nested deeply or has many types: a reader calls itself for each level.
2. A schema is refused if the items of an array may take no bytes: a few bytes could declare any number of items.
3. All columns may be null, since later schemas of a topic may leave fields out.
4. A field without a type of column is refused by its name: a time without a date, a union of several types.
5. A logical type changes the column of its type only. The bytes are read without it (`stored`): fastavro takes minutes
   for a decimal of a megabyte.
6. Two schemas are not read into each other if they have different logical types for a field.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
from fastavro.schema import SchemaParseException, parse_schema

from gnomon.spark.formats.decoder import BadFormat

JSON_DEPTH_MAX: Final = 200
DEPTH_MAX: Final = 64
TYPES_MAX: Final = 10_000
FIXED_BYTES_MAX: Final = 1 << 30
DECIMAL_DIGITS_MAX: Final = 38

AvroType: TypeAlias = Any
"""A type as JSON: a name, an object with the member `type`, or a list of the branches of a union."""

_BYTES_MIN: Final = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}
_BUILT_IN: Final = _BYTES_MIN.keys() | {"record", "error", "enum", "array", "map", "union", "fixed"}
_UTC: Final = pa.timestamp("us", tz="UTC")
_COLUMNS: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL_COLUMNS: Final[dict[tuple[str, Any], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): _UTC,
    ("long", "timestamp-micros"): _UTC,
    ("string", "uuid"): pa.string(),
}
_WITHOUT_COLUMN: Final = {
    ("int", "time-millis"),
    ("long", "time-micros"),
    ("long", "timestamp-nanos"),
    ("long", "local-timestamp-millis"),
    ("long", "local-timestamp-micros"),
    ("long", "local-timestamp-nanos"),
    ("fixed", "duration"),
    ("fixed", "uuid"),
}


class UnknownSchema(Exception):
    """There is no such schema; the text names its id or subject."""


class _Extent(NamedTuple):
    bytes_min: int
    """The fewest bytes of a value."""
    depth: int
    types: int


class AvroSchema:
    """A schema of records.

    Args:
        given: the schema as JSON: a text, or an object.

    Raises:
        BadFormat: it is no schema of records, or is refused by invariants 1 or 2.
    """

    def __init__(self, given: str | dict[str, Any]) -> None:
        self.meaning = _parsed(_json(given))
        """With the logical types."""
        if not isinstance(self.meaning, dict) or self.meaning.get("type") != "record":
            raise BadFormat("the Avro schema is not one of a record")
        self._named: dict[str, AvroType] = self.meaning["__named_schemas"]
        if _BUILT_IN & self._named.keys():
            raise BadFormat(f"the Avro schema gives a type the name {min(_BUILT_IN & self._named.keys())!r}")
        extent = self._extent(self.meaning, {}, set())
        if extent.depth > DEPTH_MAX or extent.types > TYPES_MAX:
            raise BadFormat(
                f"the Avro schema has {extent.types} types in {extent.depth} levels; "
                f"{TYPES_MAX} types in {DEPTH_MAX} levels are allowed"
            )
        self.stored = _parsed(_without_logical_types(self.meaning))
        """Without the logical types."""

    def type_of(self, given: AvroType) -> dict[str, Any]:
        """A type as an object, with the type in place of its name; not for unions."""
        kind: dict[str, Any] = {"type": given} if isinstance(given, str) else given
        found: dict[str, Any] = self._named.get(kind["type"], kind)
        return found

    def branches(self, given: AvroType) -> list[dict[str, Any]]:
        """The types of a union except null; the type itself if it is not a union."""
        branches = [self.type_of(each) for each in (given if isinstance(given, list) else [given])]
        return [each for each in branches if each["type"] != "null"]

    def _extent(self, given: AvroType, known: dict[str, _Extent], above: set[str]) -> _Extent:
        """The extent of a type.

        Args:
            known: extents by the names of types.
            above: the names of the types that contain this one.
        """
        if isinstance(given, list):
            parts = [self._extent(each, known, above) for each in given]
            return _Extent(1 + min((each.bytes_min for each in parts), default=0), *_below(parts))
        kind = self.type_of(given)
        name = kind.get("name")
        if name in above:
            raise BadFormat(f"the Avro schema's type {name!r} contains itself: no table has such columns")
        if name not in known or name is None:
            found = self._extent_inside(kind, known, above | {name} if name is not None else above)
            if name is None:
                return found
            known[name] = found
        return known[name]

    def _extent_inside(self, kind: dict[str, Any], known: dict[str, _Extent], above: set[str]) -> _Extent:
        match kind["type"]:
            case "record":
                parts = [self._extent(field["type"], known, above) for field in kind["fields"]]
                return _Extent(sum(each.bytes_min for each in parts), *_below(parts))
            case "array":
                items = self._extent(kind["items"], known, above)
                if not items.bytes_min:
                    raise BadFormat("the Avro schema has an array whose items may take no bytes")
                return _Extent(1, *_below([items]))
            case "map":
                return _Extent(1, *_below([self._extent(kind["values"], known, above)]))
            case "fixed":
                size = kind["size"]
                if type(size) is not int or not 0 <= size <= FIXED_BYTES_MAX:
                    raise BadFormat(f"the Avro schema's type {kind['name']!r} has a size of {size!r} bytes")
                return _Extent(size, 1, 1)
            case "enum":
                return _Extent(1, 1, 1)
            case other:
                if other not in _BYTES_MIN:
                    raise BadFormat(f"the Avro schema has a type {other!r}: there is no such")
                return _Extent(_BYTES_MIN[other], 1, 1)


def avro_columns(schema: AvroSchema) -> pa.Schema:
    """The columns of the fields of a record.

    Raises:
        BadFormat: a field has no type of column, or the name of another one; or there is no field.
    """
    columns = _column(schema, schema.meaning, "")
    if not columns.num_fields:
        raise BadFormat("the Avro schema has no fields")
    return pa.schema(list(columns))


def different_meaning(writer: AvroSchema, reader: AvroSchema) -> str | None:
    """The first field with two different logical types in both schemas, with both of them; None if there is no such."""
    return next(_differences(writer, writer.meaning, reader, reader.meaning, ""), None)


def decimal_scale(kind: dict[str, Any]) -> int | None:
    """The scale of a decimal; None for another type."""
    if kind["type"] not in ("bytes", "fixed") or kind.get("logicalType") != "decimal":
        return None
    scale: int = kind.get("scale", 0)
    return scale


def _json(given: str | dict[str, Any]) -> Any:
    try:
        whole = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError) as error:
        raise BadFormat(f"the Avro schema is not JSON: {error}") from None
    level, depth = [whole], 0
    while level:
        depth += 1
        if depth > JSON_DEPTH_MAX:
            raise BadFormat(f"the Avro schema has more than {JSON_DEPTH_MAX} levels of JSON")
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
    if isinstance(whole, dict):  # fastavro would not check a schema with marks of its own
        return {name: value for name, value in whole.items() if not name.startswith("__")}
    return whole


def _parsed(given: Any) -> Any:
    try:
        return parse_schema(given)
    except (SchemaParseException, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadFormat(f"the Avro schema is not valid: {type(error).__name__}: {error}") from None


def _without_logical_types(given: AvroType) -> AvroType:
    if isinstance(given, list):
        return [_without_logical_types(each) for each in given]
    if not isinstance(given, dict):
        return given
    kept = {name: value for name, value in given.items() if name != "logicalType" and not name.startswith("__")}
    if kept["type"] == "record":
        kept["fields"] = [{**field, "type": _without_logical_types(field["type"])} for field in kept["fields"]]
    for inside in ("items", "values"):
        if inside in kept:
            kept[inside] = _without_logical_types(kept[inside])
    return kept


def _below(parts: list[_Extent]) -> tuple[int, int]:
    """The depth and the number of types of a type with these parts."""
    return 1 + max((each.depth for each in parts), default=0), 1 + sum(each.types for each in parts)


def _column(schema: AvroSchema, given: AvroType, place: str) -> pa.DataType:
    branches = schema.branches(given)
    if len(branches) != 1:
        named = ", ".join(str(each["type"]) for each in branches) or "null alone"
        raise BadFormat(
            f"field {place!r}: no column has the types {named}; give it one type, or a union of it and null"
        )
    kind = branches[0]
    match kind["type"]:
        case "record":
            return pa.struct(_fields(schema, kind, place))
        case "array":
            return pa.list_(_column(schema, kind["items"], f"{place}[]"))
        case "map":
            return pa.map_(pa.string(), _column(schema, kind["values"], f"{place}{{}}"))
        case other:
            return _plain_column(kind, other, place)


def _fields(schema: AvroSchema, kind: dict[str, Any], place: str) -> list[pa.Field]:
    before = f"{place}." if place else ""
    for name, count in Counter(field["name"] for field in kind["fields"]).items():
        if count > 1:
            raise BadFormat(f"field {before + name!r} is in the Avro schema twice")
    return [pa.field(field["name"], _column(schema, field["type"], before + field["name"])) for field in kind["fields"]]


def _plain_column(kind: dict[str, Any], name: str, place: str) -> pa.DataType:
    logical = kind.get("logicalType")
    if (name, logical) in _WITHOUT_COLUMN:
        raise BadFormat(f"field {place!r}: no column has the type {logical}; leave the logical type out")
    scale = decimal_scale(kind)
    if scale is None:
        return _LOGICAL_COLUMNS.get((name, logical), _COLUMNS[name])  # others mean nothing, by Avro's specification
    digits = kind.get("precision")
    if (
        type(digits) is not int
        or type(scale) is not int
        or not 0 <= scale <= digits <= DECIMAL_DIGITS_MAX
        or not digits
    ):
        raise BadFormat(f"field {place!r}: no column has a decimal of {digits} digits, {scale} of them after the point")
    return pa.decimal128(digits, scale)


def _meaning(kind: dict[str, Any]) -> str | None:
    """The logical type as far as it changes a column."""
    scale = decimal_scale(kind)
    if scale is not None:
        return f"decimal of scale {scale}"
    logical = kind.get("logicalType")
    changes = logical != "uuid" and ((kind["type"], logical) in _LOGICAL_COLUMNS.keys() | _WITHOUT_COLUMN)
    return str(logical) if changes else None


def _differences(
    writer: AvroSchema, written: AvroType, reader: AvroSchema, wanted: AvroType, place: str
) -> Iterator[str]:
    for target in reader.branches(wanted):
        for source in writer.branches(written):
            had, has = _meaning(source), _meaning(target)
            if had is not None and has is not None and had != has:
                yield f"field {place!r} is written as {had}, and read as {has}"
            if source["type"] != target["type"]:
                continue
            for inside in {"array": ["items"], "map": ["values"]}.get(target["type"], []):
                yield from _differences(writer, source[inside], reader, target[inside], f"{place}[]")
            if target["type"] == "record":
                sources = {field["name"]: field["type"] for field in source["fields"]}
                for field in target["fields"]:
                    name = next((name for name in (field["name"], *field.get("aliases", ())) if name in sources), None)
                    if name is not None:
                        inner = f"{place}.{field['name']}".lstrip(".")
                        yield from _differences(writer, sources[name], reader, field["type"], inner)
