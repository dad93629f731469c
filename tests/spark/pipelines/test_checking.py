"""The records of a dry run (`spark.pipelines.checking`)."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from gnomon.spark.formats.json_values import JsonDecoder
from gnomon.spark.pipelines.checking import CheckedRecord, checked_records
from gnomon.spark.pipelines.tasks.decoding import READ_SCHEMA, RecordDecoding

PLACE_COLUMNS = ("_topic", "_partition", "_offset", "_timestamp")
NOW = datetime(2026, 1, 31, tzinfo=UTC)


def decoding(*, upserts: bool = False) -> RecordDecoding:
    key = "text" if upserts else "none"
    return RecordDecoding(JsonDecoder(pa.schema([("a", pa.int64())])), key, PLACE_COLUMNS, upserts=upserts, dated=False)


def records(*values: bytes | None) -> pa.Table:
    rows = [
        {"key": b"k", "value": value, "topic": "orders", "partition": 3, "offset": 10 + row, "timestamp": NOW}
        for row, value in enumerate(values)
    ]
    return pa.Table.from_pylist(rows, READ_SCHEMA)


def test_each_record_has_its_place_and_its_row_or_the_reason_why_it_does_not_fit() -> None:
    found = list(checked_records(decoding(), records(b'{"a": 1}', b"x", b"{}")))
    place = {"_topic": "orders", "_partition": 3, "_timestamp": NOW}
    assert found == [
        CheckedRecord("orders-3 offset 10", {"a": 1, **place, "_offset": 10}, None),
        CheckedRecord("orders-3 offset 11", None, "not a JSON object"),
        CheckedRecord("orders-3 offset 12", {"a": None, **place, "_offset": 12}, None),
    ]


def test_a_null_value_of_an_upsert_is_a_deletion() -> None:
    (found,) = checked_records(decoding(upserts=True), records(None))
    assert found.row is not None
    assert (found.row["_key"], found.row["_deleted"], found.row["a"]) == ("k", True, None)


def test_records_of_several_batches_are_all_checked() -> None:
    parts = pa.concat_tables([records(b'{"a": 1}'), records(b'{"a": 2}')])
    assert [each.row and each.row["a"] for each in checked_records(decoding(), parts)] == [1, 2]


def test_a_topic_without_records_has_nothing_to_check() -> None:
    assert list(checked_records(decoding(), None)) == []
