from __future__ import annotations

import csv
import io
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # for `one_by_one`: test folders are no packages

from one_by_one import assert_alike, decoded, reason, rows

from gnomon.spark.formats.csv_values import CsvDecoder
from gnomon.spark.formats.decoder import BadFormat

UTC_TIME = pa.timestamp("us", tz="UTC")
PAIR = CsvDecoder(pa.schema([("a", pa.int64()), ("b", pa.string())]))
TEXTS = CsvDecoder(pa.schema([("a", pa.string()), ("b", pa.binary()), ("c", pa.string())]))
SINGLE = CsvDecoder(pa.schema([("a", pa.string())]))
FRAGMENTS = [
    b"1",
    b"x",
    b",",
    b'"',
    b'""',
    b"\n",
    b"\r",
    b"\r\n",
    b" ",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b",,",
    b'"a,b"',
    b'a"',
]
VALUES = st.lists(st.none() | st.lists(st.sampled_from(FRAGMENTS), max_size=6).map(b"".join), max_size=6)


def decoder(kind: pa.DataType, nullable: bool = True) -> CsvDecoder:
    return CsvDecoder(pa.schema([pa.field("a", kind, nullable=nullable)]))


def test_fields_have_the_order_of_the_columns() -> None:  # 1
    assert rows(PAIR, b"1,x", b"2, y ") == [{"a": 1, "b": "x"}, {"a": 2, "b": " y "}]


@pytest.mark.parametrize("value", [b"", b"\n", b"1", b"1,x,y", b",,"])
def test_a_blank_value_and_one_with_too_few_or_too_many_fields_are_misfits(value: bytes) -> None:  # 1
    assert reason(PAIR, value)
    assert [misfit.row for misfit in decoded(PAIR, b"1,x", value, b"2,y").misfits] == [1]


def test_a_blank_value_is_null_if_there_is_one_column() -> None:  # 1, 3
    assert rows(SINGLE, b"a", b"", b"\n", b'""') == [{"a": "a"}, {"a": None}, {"a": None}, {"a": ""}]


def test_one_line_end_may_end_a_value() -> None:  # 1
    assert rows(PAIR, b"1,x\n", b"2,y\r\n") == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


@pytest.mark.parametrize("value", [b"1,x\n2,y", b'1,"x\ny"', b"1,x\n\n", b"\n1,x", b"1,x\r2,y", b'1,"x\ry"'])
def test_any_other_line_end_is_a_misfit(value: bytes) -> None:  # 1
    assert reason(PAIR, value) == "a line end inside of the value"


def test_a_field_may_be_quoted() -> None:  # 2
    assert rows(PAIR, b'1,"a,b"', b'2,"say ""x"""', b'"3",x"y') == [
        {"a": 1, "b": "a,b"},
        {"a": 2, "b": 'say "x"'},
        {"a": 3, "b": 'x"y'},
    ]


@pytest.mark.parametrize("value", [b'1,"', b'1,"x', b'1,"x""', b'a"b,"c', b'"1,x'])
def test_an_open_quote_is_a_misfit_and_takes_no_other_value_with_it(value: bytes) -> None:  # 2, 4
    assert reason(PAIR, value)
    for others in ([b"2,y"], [b'2,"y"'], [b'",2'], [b'",2', b'3,"'], [b'"', b'"']):
        assert_alike(PAIR, [value, *others])
        assert_alike(PAIR, [*others, value])


def test_an_empty_field_is_null_and_a_quoted_one_is_an_empty_text() -> None:  # 3
    assert rows(TEXTS, b",,", b'"","",""') == [{"a": None, "b": None, "c": None}, {"a": "", "b": b"", "c": ""}]
    assert rows(TEXTS, b"NULL,null,NA") == [{"a": "NULL", "b": b"null", "c": "NA"}]


def test_a_byte_order_mark_belongs_to_its_field_wherever_the_value_is() -> None:  # 4
    assert rows(SINGLE, b"\xef\xbb\xbfa", b"\xef\xbb\xbfa") == [{"a": "\ufeffa"}] * 2
    assert reason(PAIR, b"\xef\xbb\xbf1,x")


def test_types_are_read() -> None:
    assert rows(decoder(pa.date32()), b"2020-02-29") == [{"a": date(2020, 2, 29)}]
    assert rows(decoder(pa.decimal128(5, 2)), b"1.5", b"") == [{"a": Decimal("1.50")}, {"a": None}]
    assert rows(decoder(pa.bool_()), b"true", b"0") == [{"a": True}, {"a": False}]
    assert rows(decoder(pa.float64()), b"1e3") == [{"a": 1000.0}]
    assert rows(decoder(pa.binary()), b"\xff\0") == [{"a": b"\xff\0"}]


@pytest.mark.parametrize(
    "text", [b"2020-01-01T02:00:00+02:00", b"2020-01-01T00:00:00Z", b"2020-01-01 00:00", b"2020-01-01"]
)
def test_a_time_without_a_zone_is_in_utc(text: bytes) -> None:  # 5
    moment = {"a": datetime(2020, 1, 1, tzinfo=UTC)}
    assert rows(decoder(UTC_TIME), text, b"", text) == [moment, {"a": None}, moment]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((pa.int64(), b"x"), (pa.int64(), b"1.0"), (pa.int8(), b"128"), (pa.string(), b"\xff"), (pa.bool_(), b"yes")),
        *((pa.date32(), b"2020-02-30"), (UTC_TIME, b"x"), (UTC_TIME, b'""'), (pa.decimal128(5, 2), b"1.234")),
        *((pa.decimal128(5, 2), b"1234"), (pa.decimal128(5, 2), b"1" * 100_000)),
    ],
)
def test_a_field_of_another_type_is_a_misfit(kind: pa.DataType, value: bytes) -> None:
    assert reason(decoder(kind), value)


def test_a_null_of_a_column_that_is_not_nullable_is_a_misfit() -> None:  # 6
    assert reason(decoder(pa.string(), nullable=False), b"") == "column 'a' is null"
    assert rows(decoder(pa.string(), nullable=False), b'""', b"x") == [{"a": ""}, {"a": "x"}]


def test_reasons_name_the_column() -> None:
    assert reason(PAIR, b"x,y") == "column 'a': CSV conversion error to int64: invalid value 'x'"
    assert reason(PAIR, b"1,2,3") == "CSV parse error: Expected 2 columns, got 3"
    assert "column 'a': Decimal value" in reason(decoder(pa.decimal128(5, 2)), b"1234")


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.list_(pa.int64()), pa.struct([("x", pa.int64())]), pa.map_(pa.string(), pa.int64()), pa.timestamp("ns")),
        *(pa.null(), pa.binary(3), pa.time64("us"), pa.decimal256(40, 2)),
    ],
)
def test_columns_that_a_field_cannot_have_are_refused_by_name(kind: pa.DataType) -> None:  # 7
    with pytest.raises(BadFormat, match="column 'a'"):
        decoder(kind)


def test_columns_need_names_of_their_own() -> None:
    for schema in (pa.schema([]), pa.schema([("a", pa.int64()), ("a", pa.int64())])):
        with pytest.raises(BadFormat, match="needs columns"):
            CsvDecoder(schema)


@pytest.mark.parametrize("delimiter", ["", ",,", '"', "\n", "\r", "é", "\0"])
def test_a_delimiter_is_one_ascii_character(delimiter: str) -> None:
    with pytest.raises(BadFormat, match="delimiter"):
        CsvDecoder(PAIR.schema, delimiter)


def test_another_delimiter_is_used() -> None:
    assert rows(CsvDecoder(PAIR.schema, "\t"), b"1\ta,b") == [{"a": 1, "b": "a,b"}]


@settings(max_examples=300)
@given(values=VALUES)
@example(values=[b'1,"', b'",1'])
@example(values=[b"\xef\xbb\xbf1,x", b"1,x"])
def test_a_value_is_decoded_in_the_same_way_alone_and_among_others(values: list[bytes | None]) -> None:  # 4
    assert_alike(PAIR, values)
    assert_alike(TEXTS, values)
    assert_alike(SINGLE, values)


@given(lines=st.lists(st.tuples(*[st.text("ab, \t\"'é", min_size=1)] * 3), max_size=30))
def test_lines_of_pythons_writer_are_read_as_they_were(lines: list[tuple[str, str, str]]) -> None:  # 1, 2
    values = []
    for line in lines:
        written = io.StringIO()
        csv.writer(written).writerow(line)
        values.append(written.getvalue().encode())
    assert [tuple(row.values()) for row in rows(TEXTS, *values)] == [(a, b.encode(), c) for a, b, c in lines]
