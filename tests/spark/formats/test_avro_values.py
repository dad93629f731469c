from __future__ import annotations

import io
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # for `one_by_one`: test folders are no packages

from one_by_one import assert_alike, decoded, reason, rows

from gnomon.spark.formats.avro_schema import UnknownSchema
from gnomon.spark.formats.avro_values import WRITERS_MAX, AvroDecoder
from gnomon.spark.formats.decoder import BadFormat


def record(**named: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in named.items()]}


def written(schema: dict[str, Any], **fields: Any) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(schema), fields)
    return out.getvalue()


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def with_id(schema_id: int, value: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + value


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DATE = {"type": "int", "logicalType": "date"}
PAIR = record(a="long", b=["null", "string"])
WIDE = record(
    a="long",
    b=["null", "string"],
    t=MILLIS,
    d=["null", DECIMAL],
    l={"type": "array", "items": ["null", DATE]},
    m={"type": "map", "values": MICROS},
    s={**record(x="double", y={"type": "enum", "name": "e", "symbols": ["A", "B"]}), "name": "inner"},
    f={"type": "fixed", "name": "four", "size": 4},
)
MOMENT = datetime(2020, 1, 2, 3, 4, 5, 678000, UTC)
ROW: dict[str, Any] = {
    "a": -7,
    "b": "é",
    "t": MOMENT,
    "d": Decimal("-1.50"),
    "l": [date(2020, 1, 2), None],
    "m": {"k": MOMENT + timedelta(microseconds=1)},
    "s": {"x": 1.5, "y": "B"},
    "f": b"\0\1\2\3",
}


def test_records_are_rows() -> None:  # 1
    expected = {**ROW, "m": list(ROW["m"].items())}
    assert rows(AvroDecoder(WIDE), written(WIDE, **ROW)) == [expected]
    nothing = {**ROW, "b": None, "d": None, "l": [], "m": {}}
    assert rows(AvroDecoder(WIDE), written(WIDE, **nothing)) == [{**nothing, "m": []}]


def test_decimals_and_times_inside_of_other_types_are_rows() -> None:  # 1
    schema = record(
        l={"type": "array", "items": {**record(d=["null", DECIMAL]), "name": "q"}},
        m={"type": "map", "values": {"type": "array", "items": MILLIS}},
    )
    row = {"l": [{"d": Decimal("1.00")}, {"d": None}], "m": {"k": [MOMENT]}}
    assert rows(AvroDecoder(schema), written(schema, **row)) == [{**row, "m": [("k", [MOMENT])]}]


def test_the_writers_schema_is_found_by_id_and_resolved() -> None:  # 1, 2
    writers = {1: record(a="int", gone="string"), 2: record(gone="bytes", old="string", a="long")}
    reader = record(a="long", b="string", c=["null", "long"])
    reader["fields"][1].update(aliases=["old"], default="none")
    reader["fields"][2].update(default=None)
    first = with_id(1, written(writers[1], a=5, gone="x"))
    second = with_id(2, written(writers[2], a=6, gone=b"x", old="y"))
    assert rows(AvroDecoder(reader, writers.__getitem__), first, second) == [
        {"a": 5, "b": "none", "c": None},
        {"a": 6, "b": "y", "c": None},
    ]


def test_defaults_are_values_of_their_types() -> None:  # 1
    inner = {"type": "record", "name": "inner", "fields": [{"name": "t", "type": MILLIS, "default": 1_000}]}
    defaults = {
        "by": ("bytes", "\u00ff", b"\xff"),
        "d": (DECIMAL, "\u0096", Decimal("-1.06")),
        "i": (inner, {}, {"t": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}),
        "l": ({"type": "array", "items": MILLIS}, [1_000], [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]),
        "m": ({"type": "map", "values": "bytes"}, {"k": "\u00ff"}, [("k", b"\xff")]),
        "n": (["null", "long"], None, None),
        "x": ("double", 1, 1.0),
    }
    reader = record(a="long", **{name: kind for name, (kind, _, _) in defaults.items()})
    for field in reader["fields"][1:]:
        field["default"] = defaults[field["name"]][1]
    value = with_id(1, written(record(a="long"), a=1))
    expected = {"a": 1, **{name: row for name, (_, _, row) in defaults.items()}}
    assert rows(AvroDecoder(reader, lambda _: record(a="long")), value, value) == [expected, expected]


def test_a_default_of_another_type_is_refused() -> None:
    reader = record(a="bytes")
    reader["fields"][0]["default"] = "\u0100"
    with pytest.raises(BadFormat, match="'a'"):
        AvroDecoder(reader)


def test_the_writer_of_an_id_is_asked_for_once() -> None:  # 2
    asked = []

    def writer_of(schema_id: int) -> dict[str, Any]:
        asked.append(schema_id)
        if schema_id == 3:
            raise UnknownSchema("no schema 3")
        return PAIR

    decoder = AvroDecoder(PAIR, writer_of)
    value = written(PAIR, a=1, b=None)
    for _ in range(2):
        found = decoded(decoder, with_id(1, value), with_id(3, value), with_id(2, value), with_id(1, value))
        assert [misfit.reason for misfit in found.misfits] == ["schema 3: no schema 3"]
    assert sorted(asked) == [1, 2, 3]


def test_ids_are_remembered_up_to_a_number() -> None:  # 2
    asked = []

    def writer_of(schema_id: int) -> dict[str, Any]:
        asked.append(schema_id)
        raise UnknownSchema("none")

    decoder = AvroDecoder(PAIR, writer_of)
    for schema_id in [*range(WRITERS_MAX + 1), 0, 2]:
        decoded(decoder, with_id(schema_id, b""))
    assert asked == [*range(WRITERS_MAX + 1), 0]


def test_an_error_of_the_registry_is_raised() -> None:
    class Unreachable(Exception):
        pass

    def writer_of(schema_id: int) -> dict[str, Any]:
        raise Unreachable

    with pytest.raises(Unreachable):
        decoded(AvroDecoder(PAIR, writer_of), with_id(1, b""))


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\0\0\0", b"\1\0\0\0\1\2\0", b'{"a": 1}'])
def test_a_value_without_an_id_is_a_misfit(value: bytes) -> None:  # 2
    assert "id of a schema" in reason(AvroDecoder(PAIR, lambda _: PAIR), value)


@pytest.mark.parametrize(
    "writer",
    [
        *("{", '"int"', {**PAIR, "name": "other"}, record(b="string"), record(a="string")),
        *(record(a="long", again=["null", "r"]), record(a="long", x={"type": "array", "items": "null"})),
        record(a=MILLIS, b=["null", "string"]),
    ],
)
def test_a_writers_schema_that_does_not_fit_is_a_misfit(writer: Any) -> None:  # 2
    decoder = AvroDecoder(record(a=MICROS, b=["null", "string"]), lambda _: writer)
    assert reason(decoder, with_id(1, varint(1) + varint(1) + varint(1) + b"x"))


def test_bytes_after_the_record_are_a_misfit() -> None:  # 3
    value = written(PAIR, a=1, b="x")
    assert reason(AvroDecoder(PAIR), value + b"\0") == "1 bytes after the record"
    assert reason(AvroDecoder(PAIR), value + value) == f"{len(value)} bytes after the record"
    assert reason(AvroDecoder(PAIR, lambda _: PAIR), with_id(1, value + b"xyz")) == "3 bytes after the record"


def test_a_record_that_ends_early_is_a_misfit() -> None:  # 3
    value = written(WIDE, **ROW)
    reader = record(a="long")
    for end in range(len(value)):
        assert reason(AvroDecoder(WIDE), value[:end])
        assert reason(AvroDecoder(reader, lambda _: WIDE), with_id(1, value[:end]))
    assert rows(AvroDecoder(reader, lambda _: WIDE), with_id(1, value)) == [{"a": -7}]


@pytest.mark.parametrize("size", [-1, -5, 6, 1 << 40, 1 << 62])
@pytest.mark.parametrize("kind", ["string", "bytes"])
def test_a_declared_length_that_is_not_there_is_a_misfit(kind: str, size: int) -> None:  # 3, 4
    schema = record(a=kind, z="long")
    reader = record(z="long")
    value = varint(size) + b"abcd" + varint(1)
    assert reason(AvroDecoder(schema), value)
    assert reason(AvroDecoder(reader, lambda _: schema), with_id(1, value))


@pytest.mark.parametrize("count", [3, 1 << 60, -(1 << 60), -2])
@pytest.mark.parametrize("kind", [{"type": "array", "items": ["null", "long"]}, {"type": "map", "values": "null"}])
def test_a_declared_count_that_is_not_there_costs_nothing(kind: Any, count: int) -> None:  # 3, 4
    writer = record(x=kind, a="long")
    value = varint(count) + (varint(1 << 50) if count < 0 else b"") + b"\0" * 2
    if kind["type"] == "array":
        assert reason(AvroDecoder(writer), value)
    assert reason(AvroDecoder(record(a="long"), lambda _: writer), with_id(1, value))


def test_a_huge_decimal_is_a_misfit_at_once() -> None:  # 4, 6
    schema = record(d=DECIMAL)
    assert "5 digits" in reason(AvroDecoder(schema), varint(4 << 20) + b"a" * (4 << 20))


def test_a_decimal_of_more_digits_is_a_misfit() -> None:  # 6
    schema = record(d=DECIMAL)

    def value(number: int, size: int = 4) -> bytes:
        return varint(size) + number.to_bytes(size, "big", signed=True)

    found = rows(AvroDecoder(schema), value(99_999), value(-99_999, 40), varint(0))
    assert found == [{"d": Decimal("999.99")}, {"d": Decimal("-999.99")}, {"d": Decimal("0.00")}]
    assert "5 digits" in reason(AvroDecoder(schema), value(100_000))
    assert "5 digits" in reason(AvroDecoder(schema), value(-100_000))


def test_a_decimal_of_38_digits_keeps_all_of_them() -> None:  # 6
    schema = record(d={**DECIMAL, "precision": 38, "scale": 10})
    exact = Decimal("1234567890123456789012345678.1234567891")
    assert rows(AvroDecoder(schema), written(schema, d=exact)) == [{"d": exact}]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *(
            ("int", varint(1 << 40)),
            (DATE, varint(1 << 40)),
            (MILLIS, varint(1 << 62)),
            ("string", varint(1) + b"\xff"),
        ),
        *((["null", "long"], varint(2)), (["null", "long"], varint(1 << 60)), ("double", b"1234567")),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, varint(1)),
    ],
)
def test_a_value_that_is_out_of_the_range_of_its_type_is_a_misfit(kind: Any, value: bytes) -> None:
    assert reason(AvroDecoder(record(a=kind)), value)


VALID = written(WIDE, **ROW)
CUT = st.integers(0, len(VALID))
DAMAGED = st.builds(lambda start, end, inside: VALID[:start] + inside + VALID[end:], CUT, CUT, st.binary(max_size=4))
VALUES = st.lists(st.none() | st.just(VALID) | st.binary(max_size=30) | DAMAGED, max_size=5)


@settings(max_examples=300)
@given(values=VALUES)
def test_a_value_is_decoded_in_the_same_way_alone_and_among_others(values: list[bytes | None]) -> None:  # 5
    assert_alike(AvroDecoder(WIDE), values)
    ids = [None if value is None else with_id(1, value) for value in values]
    assert_alike(AvroDecoder(record(a="long", m={"type": "map", "values": MICROS}), lambda _: WIDE), ids)


@given(pairs=st.lists(st.tuples(st.integers(-(1 << 63), (1 << 63) - 1), st.none() | st.text(max_size=5)), max_size=20))
def test_records_of_fastavros_writer_are_read_as_they_were(pairs: list[tuple[int, str | None]]) -> None:  # 1
    expected = [{"a": a, "b": b} for a, b in pairs]
    assert rows(AvroDecoder(PAIR), *(written(PAIR, **each) for each in expected)) == expected
