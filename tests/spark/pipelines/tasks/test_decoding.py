"""From records to rows and dead records (`spark.pipelines.tasks.decoding`)."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.spark.formats.decoder import Decoder
from gnomon.spark.formats.json_values import JsonDecoder
from gnomon.spark.formats.plain_values import RawDecoder, TextDecoder
from gnomon.spark.pipelines.settings.section import BadPipeline
from gnomon.spark.pipelines.tasks.decoding import DEAD_SCHEMA, READ_COLUMNS, RecordDecoding, split

PLACE_COLUMNS = ("_topic", "_partition", "_offset", "_timestamp")
NUMBERS = JsonDecoder(pa.schema([("a", pa.int64())]))
DAY_US = 86_400_000_000

keys = st.none() | st.sampled_from([b"", b"k", b"\xff"])
values = st.none() | st.sampled_from(
    [b'{"a":1}', b'{"a":2} ', b"{}", b"", b"x", b'{"a":"b"}', b'{"a":1}{"a":2}', b"\xff"]
)
records_of = st.lists(st.tuples(keys, values), max_size=12)


def records(*given: tuple[bytes | None, bytes | None], times: list[int] | None = None) -> pa.RecordBatch:
    """Records with these keys and values at offsets from 100 on."""
    count = len(given)
    columns = [
        pa.array([key for key, _ in given], pa.binary()),
        pa.array([value for _, value in given], pa.binary()),
        pa.array(["orders"] * count, pa.string()),
        pa.array([3] * count, pa.int32()),
        pa.array(range(100, 100 + count), pa.int64()),
        pa.array(times or [0] * count, pa.timestamp("us", tz="UTC")),
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(READ_COLUMNS))


def decoding(decoder: Decoder = NUMBERS, key: str = "none", **options: bool) -> RecordDecoding:
    return RecordDecoding(decoder, key, PLACE_COLUMNS, **({"upserts": False, "dated": False} | options))


@given(records_of, st.sampled_from(["none", "text", "raw"]), st.booleans())
def test_each_record_becomes_one_row_or_one_dead_record_in_their_order(
    made: list[tuple[bytes | None, bytes | None]], key: str, upserts: bool
) -> None:  # 1
    found = decoding(key=key, upserts=upserts).decode(records(*made))
    rows, dead = found.rows.column("_offset").to_pylist(), found.dead.column("offset").to_pylist()
    assert sorted(rows + dead) == list(range(100, 100 + len(made)))
    assert (rows, dead) == (sorted(rows), sorted(dead))


@given(records_of, st.sampled_from(["none", "text", "raw"]), st.booleans())
def test_a_record_is_decoded_alone_as_among_others(
    made: list[tuple[bytes | None, bytes | None]], key: str, upserts: bool
) -> None:
    using = decoding(key=key, upserts=upserts)
    together = using.decode(records(*made)).rows.to_pylist()
    whole = records(*made)
    alone = [using.decode(whole.slice(place, 1)).rows.to_pylist() for place in range(len(made))]
    assert together == [row for rows in alone for row in rows]


def test_a_row_has_its_value_its_key_its_place_and_its_date() -> None:  # 2
    given_times = [DAY_US + 5, -1]
    made = records((b"k", b'{"a":1}'), (b"l", b'{"a":2}'), times=given_times)
    found = decoding(key="text", dated=True).decode(made)
    assert found.rows.schema.names == ["a", "_key", *PLACE_COLUMNS, "_date"]
    first: dict[str, Any] = found.rows.to_pylist()[0]
    assert first == {
        "a": 1,
        "_key": "k",
        "_topic": "orders",
        "_partition": 3,
        "_offset": 100,
        "_timestamp": datetime(1970, 1, 2, 0, 0, 0, 5, tzinfo=UTC),
        "_date": date(1970, 1, 2),
    }
    assert found.rows.column("_date").to_pylist() == [date(1970, 1, 2), date(1969, 12, 31)]


def test_a_null_value_deletes_the_row_of_its_key_where_rows_replace_each_other() -> None:  # 2
    made = records((b"k", b'{"a":1}'), (b"k", None), (b"l", b"x"))
    found = decoding(key="raw", upserts=True).decode(made)
    assert [(row["a"], row["_key"], row["_deleted"]) for row in found.rows.to_pylist()] == [
        (1, b"k", False),
        (None, b"k", True),
    ]
    assert found.dead.column("offset").to_pylist() == [102]


def test_a_null_value_is_a_dead_record_where_rows_are_appended() -> None:
    found = decoding().decode(records((b"k", None)))
    assert found.dead.column("reason").to_pylist() == ["the value is null"]


def test_a_record_without_a_key_replaces_no_row() -> None:
    found = decoding(RawDecoder(), "raw", upserts=True).decode(records((None, b"x"), (b"", b"y")))
    assert found.rows.column("value").to_pylist() == [b"y"]
    assert found.dead.column("reason").to_pylist() == ["the key is null, so the record replaces no row"]


def test_a_dead_record_has_the_bytes_the_place_and_the_reason() -> None:  # 3
    found = decoding(key="text").decode(records((b"\xff", b'{"a":1}'), (b"k", b"\xfe"), times=[7, 8]))
    assert found.dead.schema == DEAD_SCHEMA
    bad_key, bad_value = found.dead.to_pylist()
    assert (bad_key["key"], bad_key["value"], bad_key["offset"]) == (b"\xff", b'{"a":1}', 100)
    assert bad_key["reason"].startswith("the key: 'utf-8' codec")
    assert (bad_value["key"], bad_value["value"], bad_value["topic"], bad_value["partition"]) == (
        b"k",
        b"\xfe",
        "orders",
        3,
    )
    assert bad_value["timestamp"] == datetime(1970, 1, 1, 0, 0, 0, 8, tzinfo=UTC)


@given(records_of, st.booleans())
def test_splitting_undoes_combining(made: list[tuple[bytes | None, bytes | None]], upserts: bool) -> None:  # 4
    using = decoding(TextDecoder(), "text", upserts=upserts, dated=True)
    found = using.decode(records(*made))
    combined = using.combined(found, dead=True)
    assert combined.schema == using.combined_schema(dead=True)
    again = split(combined)
    assert again.rows.equals(found.rows)
    assert again.dead.equals(found.dead)


@pytest.mark.parametrize(
    ("upserts", "dead", "required"), [(False, False, True), (False, True, False), (True, False, False)]
)
def test_no_column_is_required_beside_dead_records_and_deletes(upserts: bool, dead: bool, required: bool) -> None:  # 5
    numbers = JsonDecoder(pa.schema([pa.field("a", pa.int64(), nullable=False)]))
    using = decoding(numbers, upserts=upserts)
    combined = using.combined(using.decode(records((b"k", b'{"a": 1}'))), dead=dead)
    assert combined.schema.field("a").nullable is not required
    assert using.queried_schema(dead=dead).field("a").nullable is not required


@pytest.mark.parametrize("name", ["_offset", "_key", "_dead"])
def test_two_columns_of_one_name_are_an_error(name: str) -> None:
    with pytest.raises(BadPipeline, match=f"column '{name}'"):
        decoding(JsonDecoder(pa.schema([(name, pa.int64())])), "text")
