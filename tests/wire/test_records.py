"""Records against the builders and readers of kafka-python and aiokafka."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import edges
import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from gnomon.wire.kafka.batch import (
    CONTROL,
    HEADER,
    HEADER_BYTES,
    TRANSACTIONAL,
    MalformedBatch,
    check_produced,
    parse_batch,
    with_log_append_time,
)
from gnomon.wire.kafka.compression import Codec, CorruptData, UnpackedTooLarge
from gnomon.wire.kafka.records import Record, build_batch, find_by_timestamp, iterate_records, read_keys

LIMIT = 16 << 20
fields = st.none() | st.binary(max_size=20) | edges.byte_strings
header = st.tuples(st.text(max_size=70) | edges.texts, st.none() | st.binary(max_size=10))
headers = st.lists(header, max_size=3).map(tuple)
contents = st.lists(st.tuples(st.integers(0, 2**40), fields, fields, headers), min_size=1, max_size=70)


def numbered(rows: Any) -> list[Record]:
    first = rows[0][0]
    return [
        Record(index, timestamp - first, key, value, headers)
        for index, (timestamp, key, value, headers) in enumerate(rows)
    ]


def read(batch: bytes, bytes_max: int = LIMIT) -> list[Record]:
    return list(iterate_records(memoryview(batch), bytes_max))


@settings(max_examples=60)
@given(contents, st.sampled_from(Codec))
def test_records_survive_a_round_trip_with_every_codec(rows: Any, codec: Codec) -> None:
    records = numbered(rows)
    batch = build_batch(records, base_timestamp=rows[0][0], compression=codec)
    header = check_produced(memoryview(batch), LIMIT)
    assert header.compression == codec
    assert header.records_count == len(records)
    assert header.max_timestamp == max(row[0] for row in rows)
    assert read(batch) == records


@settings(max_examples=60)
@given(contents, st.sampled_from(Codec))
def test_aiokafka_reads_our_batches_and_we_read_those_of_aiokafka(rows: Any, codec: Codec) -> None:
    records = numbered(rows)
    theirs = AiokafkaBatch(build_batch(records, base_timestamp=rows[0][0], base_offset=7, compression=codec))
    assert theirs.validate_crc()
    assert [
        (each.offset, each.timestamp, each.key, each.value, tuple((key, value) for key, value in each.headers))
        for each in theirs
    ] == [(7 + index, *row) for index, row in enumerate(rows)]
    builder = AiokafkaBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for index, (timestamp, key, value, header_list) in enumerate(rows):
        assert builder.append(index, timestamp=timestamp, key=key, value=value, headers=list(header_list))
    batch = bytes(builder.build())
    check_produced(memoryview(batch), LIMIT)
    assert read(batch) == records


@settings(max_examples=60)
@given(contents)
def test_kafka_python_builds_the_same_bytes(rows: Any) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, 1, 5, 6, 7, 1 << 20)
    for index, (timestamp, key, value, header_list) in enumerate(rows):
        builder.append(index, timestamp=timestamp, key=key, value=value, headers=list(header_list))
    theirs = bytes(builder.build())
    ours = build_batch(
        numbered(rows),
        base_timestamp=rows[0][0],
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
        transactional=True,
        leader_epoch=parse_batch(memoryview(theirs)).partition_leader_epoch,
    )
    assert ours == theirs
    assert DefaultRecordBatch(ours).validate_crc()


def test_every_field_of_the_header_can_be_given() -> None:
    batch = build_batch(
        [Record(0, 3), Record(4, 1)],
        base_timestamp=100,
        base_offset=9,
        leader_epoch=8,
        producer_id=7,
        producer_epoch=6,
        base_sequence=5,
        transactional=True,
        control=True,
    )
    header = parse_batch(memoryview(batch))
    assert (header.base_offset, header.partition_leader_epoch, header.last_offset_delta) == (9, 8, 4)
    assert (header.base_timestamp, header.max_timestamp, header.records_count) == (100, 103, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 6, 5)
    assert header.attributes == TRANSACTIONAL | CONTROL
    assert header.is_control


SAMPLE = [Record(0, 0, b"key", b"value" * 20, (("h", b"v"), ("n", None))), Record(1, 10, None, b""), Record(2, 5)]


def test_every_truncation_of_the_records_is_malformed() -> None:
    batch = build_batch(SAMPLE, base_timestamp=0)
    for size in range(HEADER_BYTES, len(batch)):
        cut = bytearray(batch[:size])
        struct.pack_into(">i", cut, 8, size - 12)
        with pytest.raises(MalformedBatch):
            read(bytes(cut))


@pytest.mark.parametrize("count", [-1, 0, 2, 4, 2**31 - 1])
def test_a_wrong_record_count_is_malformed(count: int) -> None:
    batch = bytearray(build_batch(SAMPLE, base_timestamp=0))
    struct.pack_into(">i", batch, 57, count)
    with pytest.raises(MalformedBatch):
        read(bytes(batch))


@pytest.mark.parametrize("codec", Codec)
@settings(max_examples=150)
@given(data=st.data())
def test_changed_bytes_give_the_declared_exceptions_only(codec: Codec, data: st.DataObject) -> None:
    batch = bytearray(build_batch(SAMPLE, base_timestamp=0, compression=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(57, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        read(bytes(batch), 1_000)
        find_by_timestamp(memoryview(batch), 0, 1_000, 100)
    except (MalformedBatch, UnpackedTooLarge, CorruptData):
        return


@pytest.mark.parametrize(
    "body",
    [
        b"\x01",
        b"\x80" * 11,
        b"\x0c\x00\x00\x00\x01\x01\x01",
        b"\x0e\x00\x00\x00\x01\x03\x00\x00",
        b"\x0e\x00\x00\x00\x01\x01\x02\x01",
        b"\x10\x00\x00\x00\x01\x01\x00\x00\x00",
        b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01",
        b"\xfe\xff\xff\xff\x0f\x00",
    ],
)
def test_a_record_with_wrong_lengths_or_counts_is_malformed(body: bytes) -> None:
    plain = build_batch([Record()], base_timestamp=0)
    batch = bytearray(plain[:HEADER_BYTES] + body)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    with pytest.raises(MalformedBatch):
        read(bytes(batch))


def test_declared_counts_inside_a_record_allocate_nothing() -> None:
    plain = build_batch([Record()], base_timestamp=0)
    batch = bytearray(plain[:HEADER_BYTES] + b"\x16\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f\x00")
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedBatch):
            read(bytes(batch))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_in_a_batch_is_stopped(codec: Codec) -> None:
    batch = build_batch([Record(value=bytes(8 << 20))], base_timestamp=0, compression=codec)
    with pytest.raises(UnpackedTooLarge):
        read(batch, 1 << 20)


def test_a_search_by_time_finds_the_first_record_at_or_after_the_time() -> None:
    rows = [(0, 0), (1, 50), (2, 20), (3, 60)]
    batch = build_batch([Record(*row) for row in rows], base_timestamp=1_000, base_offset=70, compression=Codec.ZSTD)
    view = memoryview(batch)
    assert find_by_timestamp(view, 0, LIMIT, 100) == (70, 1_000)
    assert find_by_timestamp(view, 1_001, LIMIT, 100) == (71, 1_050)
    assert find_by_timestamp(view, 1_051, LIMIT, 100) == (73, 1_060)
    assert find_by_timestamp(view, 1_060, LIMIT, 100) == (73, 1_060)
    assert find_by_timestamp(view, 1_061, LIMIT, 100) is None


@pytest.mark.parametrize(
    "changes",
    [{"base_timestamp": (1 << 63) - 1}, {"max_timestamp": 1_010}, {"last_offset_delta": 0}],
    ids=str,
)
def test_a_search_by_time_rejects_a_record_that_contradicts_its_batch(changes: dict[str, int]) -> None:
    batch = memoryview(build_batch([Record(0, 0), Record(1, 50)], base_timestamp=1_000))
    changed = HEADER.pack(*parse_batch(batch)._replace(**changes)) + bytes(batch[HEADER.size :])
    with pytest.raises(MalformedBatch, match="not of its batch"):
        find_by_timestamp(memoryview(changed), 1_005, LIMIT, 100)


def test_records_before_the_start_of_the_log_are_not_found() -> None:
    rows = [(0, 0), (1, 50), (2, 20), (3, 60)]
    view = memoryview(build_batch([Record(*row) for row in rows], base_timestamp=1_000, base_offset=70))
    assert find_by_timestamp(view, 1_010, LIMIT, 100, 72) == (72, 1_020)
    assert find_by_timestamp(view, 1_030, LIMIT, 100, 72) == (73, 1_060)
    stamped = memoryview(with_log_append_time(view, 5_000))
    assert find_by_timestamp(stamped, 1_030, LIMIT, 100, 72) == (72, 5_000)


def test_a_search_by_time_scans_a_limited_number_of_records_and_not_their_contents() -> None:
    records = [Record(number, number, value=b"v") for number in range(11)]
    view = memoryview(build_batch(records, base_timestamp=1_000))
    assert find_by_timestamp(view, 1_009, LIMIT, 10) == (9, 1_009)
    with pytest.raises(UnpackedTooLarge, match="first 10 of 11 records"):
        find_by_timestamp(view, 1_010, LIMIT, 10)
    headers = tuple(("", None) for _ in range(200))
    batch = bytearray(build_batch([Record(0, 0, headers=headers), Record(1, 5)], base_timestamp=1_000))
    batch[HEADER_BYTES + 10] = 0xFF  # the first record's first header
    assert find_by_timestamp(memoryview(batch), 1_005, LIMIT, 10) == (1, 1_005)


def test_log_append_time_is_the_time_of_every_record() -> None:
    batch = build_batch([Record(0, 0), Record(1, 5)], base_timestamp=1_000, base_offset=70)
    stamped = memoryview(with_log_append_time(memoryview(batch), 5_000))
    assert find_by_timestamp(stamped, 1_001, LIMIT, 100) == (70, 5_000)
    assert find_by_timestamp(stamped, 5_001, LIMIT, 100) is None


@given(st.lists(st.integers(0, 30), min_size=1, max_size=10), st.integers(-5, 40))
def test_a_search_by_time_agrees_with_a_scan_of_all_records(deltas: list[int], wanted: int) -> None:
    batch = build_batch([Record(index, delta) for index, delta in enumerate(deltas)], base_timestamp=0)
    expected = next(((index, delta) for index, delta in enumerate(deltas) if delta >= wanted), None)
    assert find_by_timestamp(memoryview(batch), wanted, LIMIT, 100) == expected


def test_keys_are_read_in_parts_and_truncated() -> None:
    records = [
        Record(number, number * 1000, key, b"v" * number, (("header", b"h"),))
        for number, key in enumerate((b"one", None, b"", b"a longer key", b"k" * 300))
    ]
    data = build_batch(records, base_timestamp=0)[HEADER_BYTES:]
    first, position = read_keys(data, 0, 2, 100)
    rest, end = read_keys(data, position, 10, 100)
    assert [*first, *rest] == [b"one", None, b"", b"a longer key", b"k" * 100]
    assert end == len(data)


@given(data=st.binary(max_size=60), at=st.integers(0, 60))
def test_reading_keys_from_broken_bytes_stays_within_the_bytes(data: bytes, at: int) -> None:
    """Such bytes occur if a producer sent no records, or a record declares more bytes than there are."""
    body = build_batch([Record(0, 0, b"key", b"value"), Record(1, 0, b"key", b"value")], base_timestamp=0)[
        HEADER_BYTES:
    ]
    broken = body[:at] + data
    keys, position = read_keys(broken, 0, 1000, 100)
    assert 0 <= position <= len(broken)
    assert all(key is None or len(key) <= len(broken) for key in keys)
    if at >= len(body) / 2:
        assert keys[:1] == [b"key"]
