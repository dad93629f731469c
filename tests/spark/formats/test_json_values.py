from __future__ import annotations

import json
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

from gnomon.spark.formats.decoder import BadFormat
from gnomon.spark.formats.json_values import JsonDecoder

UTC_TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("d", pa.date32()),
        ("l", pa.list_(pa.struct([("x", pa.int32())]))),
    ]
)
FRAGMENTS = [
    *(b"{", b"}", b"[", b"]", b'"', b":", b",", b"\n", b"\r\n", b" ", b"\0", b"\xff", b"\xef\xbb\xbf", b"\\", b"//"),
    *(b'{"a":1}', b'{"a":', b'"a":1', b'{"b":"x"}', b'{"b":"', b'"}', b'{"d":"2020-01-01"}', b'{"d":"x"}'),
    *(b'{"a":1}{"a":2}', b'{"a":1}\n{"a":2}', b"{}", b"null", b"1", b'{"l":[{"x":1}', b"]}", b"{{", b"}}"),
    *(b'{"c":' + b"[" * 300, b"]" * 300 + b"}", b'{"c":"\xc3', b'\xa9"}', b'{"a":1e400}', b'{"a":NaN}'),
]
VALUES = st.lists(st.none() | st.lists(st.sampled_from(FRAGMENTS), max_size=4).map(b"".join), max_size=6)


def decoder(kind: pa.DataType, nullable: bool = True) -> JsonDecoder:
    return JsonDecoder(pa.schema([pa.field("a", kind, nullable=nullable)]))


def test_members_are_columns_by_name() -> None:  # 1
    assert rows(JsonDecoder(SCHEMA), b'{"b": "x", "other": [1], "a": 1}', b' {"a": null}\n') == [
        {"a": 1, "b": "x", "d": None, "l": None},
        {"a": None, "b": None, "d": None, "l": None},
    ]


def test_texts_are_dates_times_and_decimals_and_whole_numbers_are_floating() -> None:  # 2
    assert rows(decoder(pa.date32()), b'{"a": "2020-02-29"}') == [{"a": date(2020, 2, 29)}]
    assert rows(decoder(pa.list_(pa.date32())), b'{"a": ["2020-02-29", null]}') == [{"a": [date(2020, 2, 29), None]}]
    assert rows(decoder(pa.decimal128(5, 2)), b'{"a": "1.5"}', b'{"a": 1.5}') == [{"a": Decimal("1.50")}] * 2
    assert rows(decoder(pa.float64()), b'{"a": 3}') == [{"a": 3.0}]


@pytest.mark.parametrize(
    "text", ["2020-01-01T02:00:00+02:00", "2020-01-01T00:00:00Z", "2020-01-01 00:00", "2020-01-01"]
)
def test_a_time_without_a_zone_is_in_utc(text: str) -> None:  # 4
    found = rows(decoder(UTC_TIME), json.dumps({"a": text}).encode())
    assert found == [{"a": datetime(2020, 1, 1, tzinfo=UTC)}]


@pytest.mark.parametrize(
    ("kind", "member"),
    [
        (pa.int64(), '"1"'),
        (pa.int64(), "1.0"),
        (pa.int64(), "9223372036854775808"),
        (pa.int8(), "128"),
        (pa.string(), "1"),
        (pa.bool_(), "1"),
        (pa.date32(), '"2020-02-30"'),
        (pa.date32(), "1"),
        (UTC_TIME, "1"),
        (pa.decimal128(5, 2), "1.234"),
        (pa.decimal128(5, 2), "1234.5"),
        (pa.decimal128(5, 2), "1" * 100_000),
        (pa.list_(pa.int64()), "1"),
        (pa.struct([("x", pa.int64())]), "[]"),
    ],
)
def test_a_member_of_another_type_is_a_misfit(kind: pa.DataType, member: str) -> None:  # 2
    assert reason(decoder(kind), b'{"a": %s}' % member.encode())


@pytest.mark.parametrize(
    "value",
    [
        *(
            b"",
            b" ",
            b"1",
            b"null",
            b"[]",
            b'"a"',
            b"{",
            b"}",
            b"{}x",
            b"x{}",
            b"{}{}",
            b"{}\n{}",
            b"{},{}",
            b"\0",
            b"{\0}",
        ),
        *(
            b'\xef\xbb\xbf{"a": 1}',
            b'{"other": "\xff"}',
            b'{"other": "\\ud800"}',
            b'{"other": "\n"}',
            b'{"a": 1, "a": 1}',
        ),
        *(b'{"a": 1} {"a": 2}', b'{"a": 01}', b'{"a": 1,}', b"{'a': 1}", b"{}\0{}", b"{}\0}", None),
    ],
)
def test_a_value_that_is_not_one_object_is_a_misfit_alone_and_among_others(value: bytes | None) -> None:  # 3
    assert reason(JsonDecoder(SCHEMA), value)
    found = decoded(JsonDecoder(SCHEMA), b'{"a": 1}', value, b'{"a": 2}')
    assert found.columns["a"].to_pylist() == [1, 2]
    assert [misfit.row for misfit in found.misfits] == [1]


@pytest.mark.parametrize(
    ("first", "second"), [(b'{"b": "}', b'{"}'), (b'{"l": [{}', b"{}]}"), (b'{"c": {}', b'{}, "a": 1}')]
)
def test_two_values_are_never_read_as_one_object(first: bytes, second: bytes) -> None:  # 3
    assert [misfit.row for misfit in decoded(JsonDecoder(SCHEMA), first, b"{}{}", second, b"{}").misfits] == [0, 1, 2]


@pytest.mark.parametrize(
    "member", [b"[" * 2_000_000 + b"]" * 2_000_000, b'{"c":' * 1_000_000 + b"1" + b"}" * 1_000_000]
)
def test_a_deeply_nested_member_without_a_column_is_ignored(member: bytes) -> None:  # 1
    assert rows(decoder(pa.int64()), b'{"c": %s, "a": 1}' % member) == [{"a": 1}]


def test_a_deeply_nested_member_of_a_column_and_one_that_does_not_end_are_misfits() -> None:  # 2
    assert reason(decoder(pa.int64()), b'{"a": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}")
    assert reason(decoder(pa.int64()), b'{"c": ' + b"[" * 1_000_000 + b"}")


def test_a_reason_names_the_member_and_no_row_of_the_values_together() -> None:
    found = decoded(decoder(pa.int64()), b'{"a": 1}', b'{"a": "x"}')
    assert found.misfits == [(1, "JSON parse error: Column(/a) changed from number to string")]


def test_a_null_of_a_column_that_is_not_nullable_is_a_misfit() -> None:  # 5
    required = pa.field("x", pa.date32(), nullable=False)
    assert reason(decoder(pa.int64(), nullable=False), b"{}")
    assert reason(decoder(pa.date32(), nullable=False), b'{"a": null}')
    assert reason(decoder(pa.struct([required])), b'{"a": {}}')
    assert reason(decoder(pa.struct([required])), b"{}")
    assert reason(decoder(pa.list_(required)), b'{"a": [null]}')
    assert rows(decoder(pa.struct([required])), b'{"a": {"x": "2020-01-01"}}') == [{"a": {"x": date(2020, 1, 1)}}]
    assert rows(decoder(pa.list_(required)), b"{}", b'{"a": ["2020-01-01"]}') == [
        {"a": None},
        {"a": [date(2020, 1, 1)]},
    ]


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.binary(), pa.binary(4), pa.map_(pa.string(), pa.int64()), pa.timestamp("ns"), pa.time64("us"), pa.null()),
        *(
            pa.duration("us"),
            pa.date64(),
            pa.decimal256(40, 2),
            pa.large_list(pa.int64()),
            pa.dictionary(pa.int32(), "str"),
        ),
    ],
)
def test_columns_that_json_does_not_have_are_refused_by_name(kind: pa.DataType) -> None:  # 6
    with pytest.raises(BadFormat, match="column 'a'"):
        decoder(kind)
    with pytest.raises(BadFormat, match=r"column 'a\[\]\.x'"):
        decoder(pa.list_(pa.struct([("x", kind)])))


def test_columns_need_names_of_their_own() -> None:
    for schema in (pa.schema([]), pa.schema([("a", pa.int64()), ("a", pa.int64())])):
        with pytest.raises(BadFormat, match="needs columns"):
            JsonDecoder(schema)


@settings(max_examples=300)
@given(values=VALUES)
@example(values=[b'{"b":"', b'"}', b'{"b":"}', b'{"}'])
@example(values=[b"\xef\xbb\xbf{}", b"{}"])
def test_a_value_is_decoded_in_the_same_way_alone_and_among_others(values: list[bytes | None]) -> None:  # 3
    assert_alike(JsonDecoder(SCHEMA), values)


@given(values=st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(-3, 3) | st.none()), max_size=50))
def test_objects_are_the_rows_that_pythons_parser_reads(values: list[dict[str, int | None]]) -> None:  # 1
    columns = JsonDecoder(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    expected = [{"a": each.get("a"), "b": each.get("b")} for each in values]
    assert rows(columns, *(json.dumps(each).encode() for each in values)) == expected
