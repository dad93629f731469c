"""Rows become batches for partitions; numbers cite the invariants of `row_encoder`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.partitioner import partitions_of
from gnomon.spark.writing.row_encoder import RowEncoder, UnknownColumn, check_columns
from gnomon.spark.writing.target import RowRefused, Target
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.records import iterate_records

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
ORDERS = Target("orders", 4, 1_000, False, DAY_MS, DAY_MS)
LOGS = Target("logs", 2, 1 << 20, False, None, None)
TARGETS = {"orders": ORDERS, "logs": LOGS}
TYPES = {"partition": pa.int32(), "timestamp": pa.timestamp("us", "Europe/Berlin"), "key": pa.string()}
HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))


def encoded(
    columns: dict[str, list[Any]], *, topic: str | None = "orders", task: int = 0, targets: dict[str, Target] = TARGETS
) -> dict[TopicPartition, list[tuple[bytes | None, bytes | None, int, tuple[Any, ...]]]]:
    """Key, value, timestamp and headers of the records of each partition."""
    types = {**TYPES, "value": pa.string(), "topic": pa.string(), "headers": HEADERS}
    rows = pa.table({name: pa.array(column, types[name]) for name, column in columns.items()})
    encoder = RowEncoder(topic, task, batch_bytes=300, compression=Codec.LZ4)
    found: dict[TopicPartition, list[Any]] = {}
    for place, batch in encoder.encode(rows, targets, NOW_MS):
        base = parse_batch(memoryview(batch.data)).base_timestamp
        records = list(iterate_records(memoryview(batch.data), 1 << 20))
        assert len(records) == batch.records
        found.setdefault(place, []).extend(
            (each.key, each.value, base + each.timestamp_delta, each.headers) for each in records
        )
    return found


def test_the_rows_of_a_partition_keep_their_order() -> None:  # 1
    values = [f"{number:03}" for number in range(200)]
    found = encoded({"value": values, "partition": [number % 4 for number in range(200)]})
    for place, records in found.items():
        assert [record[1] for record in records] == [each.encode() for each in values[place.partition :: 4]]


@pytest.mark.parametrize(("rows", "bytes_max"), [(200, 64 << 10), (500, 126_000), (4_000, 256 << 10)])
def test_batches_are_larger_where_a_partition_gets_many_rows(rows: int, bytes_max: int) -> None:
    """A row has 1,008 bytes with its partition and its offset in the column."""
    table = pa.table({"value": [b"x" * 1_000] * rows, "partition": pa.array([0] * rows, pa.int32())})
    for given, largest in ((None, bytes_max), (5_000, 5_000)):
        encoder = RowEncoder("logs", 0, batch_bytes=given, compression=Codec.NONE)
        sizes = [len(batch.data) for _, batch in encoder.encode(table, TARGETS, NOW_MS)]
        assert 0.8 * largest < max(sizes) <= largest


def test_the_column_comes_before_the_key_and_the_key_before_the_turn_of_the_task() -> None:  # 2
    keys = ["a", "b", None, "c", None]
    found = encoded({"value": list("vwxyz"), "key": keys, "partition": [3, None, None, None, 0]}, task=6)
    of_keys = partitions_of(pa.array([b"b", b"c"], pa.binary()), 4).tolist()
    expected: dict[int, set[bytes]] = {3: {b"v"}}
    for partition, value in [(of_keys[0], b"w"), (6 % 4, b"x"), (of_keys[1], b"y"), (0, b"z")]:
        expected.setdefault(partition, set()).add(value)
    assert {place.partition: {record[1] for record in records} for place, records in found.items()} == expected


def test_each_row_goes_to_its_topic() -> None:
    found = encoded({"value": list("abc"), "topic": ["logs", "orders", "logs"]}, topic=None)
    assert {place.topic: [record[1] for record in records] for place, records in found.items()} == {
        "logs": [b"a", b"c"],
        "orders": [b"b"],
    }


def test_times_and_headers_of_rows_are_those_of_records() -> None:
    headers = [[{"key": "h", "value": b"1"}, {"key": "none", "value": None}], None, []]
    times = [(NOW_MS - 5) * 1000 + 999, None, NOW_MS * 1000]
    ((_, records),) = encoded({"value": [None, "v", "w"], "timestamp": times, "headers": headers}).items()
    assert records == [
        (None, None, NOW_MS - 5, (("h", b"1"), ("none", None))),
        (None, b"v", NOW_MS, ()),
        (None, b"w", NOW_MS, ()),
    ]


@pytest.mark.parametrize(
    ("columns", "topic", "text"),
    [
        ({"value": ["v"], "partition": [4]}, "orders", "topic 'orders' has the partitions 0 to 3: not 4"),
        ({"value": ["v"], "partition": [-1]}, "orders", "topic 'orders' has the partitions 0 to 3: not -1"),
        ({"value": ["v"], "topic": [None]}, None, "a row has null in its column 'topic'"),
        ({"value": ["v"], "timestamp": [(NOW_MS - DAY_MS - 1) * 1000]}, "orders", f"not {NOW_MS - DAY_MS - 1}"),
        ({"value": ["v"], "timestamp": [(NOW_MS + DAY_MS + 1) * 1000]}, "orders", f"not {NOW_MS + DAY_MS + 1}"),
        (
            {"value": ["v" * 9, None], "key": ["k", None]},
            "compacted",
            "is compacted: a row has no key",
        ),
        ({"value": ["".join(map(chr, range(0x100, 0x4FF)))]}, "orders", r"up to 1000 bytes .*: a row alone has \d+"),
    ],
)
def test_rows_that_a_broker_would_refuse_are_refused(
    columns: dict[str, list[Any]], topic: str | None, text: str
) -> None:  # 3
    compacted = ORDERS._replace(name="compacted", compacted=True)
    with pytest.raises(RowRefused, match=text):
        encoded(columns, topic=topic, targets={**TARGETS, "compacted": compacted})


def test_a_time_is_not_looked_at_where_the_broker_sets_it() -> None:
    ((_, records),) = encoded({"value": ["v"], "timestamp": [0]}, topic="logs").items()
    assert records == [(None, b"v", 0, ())]


@pytest.mark.parametrize(
    ("types", "topic", "text"),
    [
        ({"value": "bigint"}, "orders", "column 'value' has the type bigint: expected binary or string"),
        ({"value": "string", "id": "int"}, "orders", "column 'id': there are key, value, headers, topic"),
        ({"key": "string"}, "orders", "there is no column 'value'"),
        ({"value": "string"}, None, "neither the option topic nor a column 'topic' names the topic"),
    ],
)
def test_columns_that_rows_cannot_have_are_named(types: dict[str, str], topic: str | None, text: str) -> None:
    with pytest.raises(UnknownColumn, match=text):
        check_columns(types, topic)
