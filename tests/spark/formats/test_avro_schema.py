from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from gnomon.spark.formats.avro_schema import TYPES_MAX, AvroSchema, avro_columns, different_meaning
from gnomon.spark.formats.decoder import BadFormat


def record(*types: Any, **named: Any) -> dict[str, Any]:
    """A record with a field for each type: f0, f1 and so on, or the given names."""
    fields = {**{f"f{at}": kind for at, kind in enumerate(types)}, **named}
    return {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def logical(kind: str, meaning: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


DECIMAL = logical("bytes", "decimal", precision=10, scale=2)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        *(("boolean", pa.bool_()), ("int", pa.int32()), ("long", pa.int64()), ("float", pa.float32())),
        *(("double", pa.float64()), ("bytes", pa.binary()), ("string", pa.string()), (["null", "long"], pa.int64())),
        *((["long", "null"], pa.int64()), (["long"], pa.int64()), ({"type": "long"}, pa.int64())),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.string()),
        ({"type": "fixed", "name": "f", "size": 4}, pa.binary()),
        ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.int32())),
        ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.int32())),
        ({**record("int"), "name": "inner"}, pa.struct([("f0", pa.int32())])),
        (logical("int", "date"), pa.date32()),
        (logical("long", "timestamp-millis"), pa.timestamp("us", tz="UTC")),
        (logical("long", "timestamp-micros"), pa.timestamp("us", tz="UTC")),
        (logical("string", "uuid"), pa.string()),
        (DECIMAL, pa.decimal128(10, 2)),
        (logical("fixed", "decimal", precision=4, name="d", size=2), pa.decimal128(4, 0)),
        (logical("long", "of-our-own"), pa.int64()),
        (logical("string", "date"), pa.string()),
    ],
)
def test_types_have_columns_that_may_be_null(kind: Any, column: pa.DataType) -> None:  # 3, 5
    expected = pa.schema([pa.field("f0", column, nullable=True)])
    assert avro_columns(AvroSchema(record(kind))) == expected
    assert avro_columns(AvroSchema(json.dumps(record(kind)))) == expected


def test_a_named_type_is_found_by_its_name_in_a_namespace() -> None:
    inner = {**record("int"), "name": "inner"}
    columns = avro_columns(AvroSchema({**record(inner, "inner", ["null", "n.s.inner"]), "namespace": "n.s"}))
    assert columns.types == [pa.struct([("f0", pa.int32())])] * 3


@pytest.mark.parametrize(
    "kind",
    [
        *("null", ["null"], ["int", "string"], ["null", "int", "string"], []),
        *(logical("int", "time-millis"), logical("long", "time-micros"), logical("long", "timestamp-nanos")),
        *(logical("long", "local-timestamp-millis"), logical("fixed", "duration", name="d", size=12)),
        *(logical("bytes", "decimal", precision=39, scale=2), logical("bytes", "decimal", precision=0)),
    ],
)
def test_a_field_without_a_type_of_column_is_refused_by_its_name(kind: Any) -> None:  # 4
    inner = {**record(x=kind), "name": "inner"}
    with pytest.raises(BadFormat, match=r"'a\[\]\.x'"):
        avro_columns(AvroSchema(record(a={"type": "array", "items": ["null", inner]}, b="int")))


def test_a_field_that_is_there_twice_is_refused() -> None:
    twice = record("int")
    with pytest.raises(BadFormat, match="'f0' is in the Avro schema twice"):
        avro_columns(AvroSchema({**twice, "fields": twice["fields"] * 2}))


def test_a_record_without_fields_has_no_columns() -> None:
    with pytest.raises(BadFormat, match="no fields"):
        avro_columns(AvroSchema(record()))


@pytest.mark.parametrize(
    "given",
    [
        *("", "{", "5", "null", '"int"', '"r"', "[]", '["null"]', "[" * 100_000, '{"type": "record"}', '{"type": []}'),
        *('{"type": "record", "name": "r", "fields": 5}', '{"type": "array", "items": "int"}', '{"fields": []}'),
        '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "unknown"}]}',
        '{"type": "record", "name": "r", "fields": [], "__fastavro_parsed": true, "type": "rec"}',
        json.dumps(record({"type": "fixed", "name": "f", "size": -1})),
        json.dumps(record({"type": "fixed", "name": "f", "size": "x"})),
        json.dumps(record({"type": "fixed", "name": "f", "size": 1 << 62})),
        json.dumps(record({"type": "fixed", "name": "long", "size": 1})),
        json.dumps(record({"type": "error", "name": "e", "fields": [{"name": "again", "type": ["null", "e"]}]})),
    ],
)
def test_other_texts_are_no_schemas_of_records(given: str) -> None:
    with pytest.raises(BadFormat, match="Avro schema"):
        AvroSchema(given)


@pytest.mark.parametrize(
    "again", [["null", "r"], {"type": "array", "items": "r"}, {"type": "map", "values": ["null", "r"]}]
)
def test_a_schema_that_contains_itself_is_refused(again: Any) -> None:  # 1
    with pytest.raises(BadFormat, match="contains itself"):
        AvroSchema(record(again))


def test_a_deep_schema_is_refused() -> None:  # 1
    kind: Any = "int"
    for _ in range(70):
        kind = {"type": "array", "items": kind}
    with pytest.raises(BadFormat, match="levels"):
        AvroSchema(record(kind))
    for _ in range(100_000):
        kind = {"type": "array", "items": kind}
    with pytest.raises(BadFormat, match="levels of JSON"):
        AvroSchema(record(kind))


def test_a_schema_of_many_types_is_refused_although_its_text_is_short() -> None:  # 1
    kinds: list[Any] = ["int"]
    for level in range(50):
        before = f"r{level - 1}" if level else "int"
        kinds.append({**record(before, before), "name": f"r{level}"})
    with pytest.raises(BadFormat, match=f"{TYPES_MAX} types"):
        AvroSchema(record(*kinds))


@pytest.mark.parametrize(
    "items",
    [
        *(
            "null",
            {"type": "fixed", "name": "f", "size": 0},
            {**record(), "name": "q"},
            {**record("null"), "name": "q"},
        ),
        {**record({"type": "fixed", "name": "f", "size": 0}, {**record(), "name": "z"}), "name": "q"},
    ],
)
def test_an_array_whose_items_may_take_no_bytes_is_refused(items: Any) -> None:  # 2
    with pytest.raises(BadFormat, match="no bytes"):
        AvroSchema(record({"type": "array", "items": items}))
    AvroSchema(record({"type": "array", "items": ["null", items] if items != "null" else ["null", "int"]}))
    AvroSchema(record({"type": "map", "values": items}))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (logical("long", "timestamp-millis"), logical("long", "timestamp-micros")),
        (DECIMAL, {**DECIMAL, "scale": 3}),
        (logical("int", "date"), logical("long", "timestamp-millis")),
        (logical("long", "local-timestamp-millis"), logical("long", "timestamp-millis")),
    ],
)
def test_a_field_of_two_meanings_is_found(written: Any, read: Any) -> None:  # 6
    def both(place: Any) -> str | None:
        return different_meaning(AvroSchema(place(written)), AvroSchema(place(read)))

    assert "field 'x' is written as" in (both(lambda kind: record(x=kind)) or "")
    assert "field 'x[].y'" in (
        both(lambda kind: record(x={"type": "map", "values": {**record(y=kind), "name": "q"}})) or ""
    )
    assert "field 'x[]'" in (both(lambda kind: record(x={"type": "array", "items": ["null", kind]})) or "")
    assert different_meaning(AvroSchema(record(x=written)), AvroSchema(record(y=read))) is None
    assert different_meaning(AvroSchema(record(x=written)), AvroSchema(record(x="long"))) is None
    renamed = record(y=read)
    renamed["fields"][0]["aliases"] = ["x"]
    assert "field 'y' is written as" in (different_meaning(AvroSchema(record(x=written)), AvroSchema(renamed)) or "")


def test_equal_meanings_are_no_difference() -> None:  # 6
    schema = AvroSchema(record(DECIMAL, logical("long", "timestamp-millis"), logical("string", "uuid")))
    plain = AvroSchema(record("bytes", "long", "string"))
    assert different_meaning(schema, schema) is None
    assert different_meaning(plain, schema) is None


def test_logical_types_are_left_out_of_the_stored_schema() -> None:  # 5
    kind = logical("long", "timestamp-millis")
    inner = {**record(["null", kind], {"type": "array", "items": kind}, {"type": "map", "values": kind}), "name": "q"}
    schema = AvroSchema(record(DECIMAL, inner))
    assert "logicalType" in str(schema.meaning)
    assert "logicalType" not in str(schema.stored)
