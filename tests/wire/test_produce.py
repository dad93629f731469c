"""Produce against kio, which is generated from Kafka's own schemas."""

from __future__ import annotations

import datetime
import importlib
import io
import struct
import tracemalloc
import uuid
from typing import Any

import edges
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32, i32Timedelta

from gnomon.wire.kafka.frame import MalformedFrame, encode_unsigned_varint
from gnomon.wire.kafka.produce import (
    ELEMENTS_MAX,
    VERSION_MAX,
    VERSION_MIN,
    PartitionProduced,
    encode_produce_response,
    parse_produce,
)

VERSIONS = range(VERSION_MIN, VERSION_MAX + 1)

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=20) | edges.texts
records = st.none() | st.binary(max_size=60) | edges.byte_strings | st.integers(100, 40_000).map(bytes)
requests = st.lists(st.tuples(texts, st.lists(st.tuples(int32, records), max_size=4)), max_size=4)


def topic_id(name: str) -> bytes:
    return uuid.uuid5(uuid.NAMESPACE_DNS, name).bytes


def milliseconds(value: int) -> i32Timedelta:
    return i32Timedelta.parse(datetime.timedelta(milliseconds=value))


def encode_with_kio(version: int, transactional_id: str | None, acks: int, timeout_ms: int, topics: Any) -> bytes:
    schema = importlib.import_module(f"kio.schema.produce.v{version}.request")
    message = schema.ProduceRequest(
        transactional_id=transactional_id,
        acks=i16(acks),
        timeout=milliseconds(timeout_ms),
        topic_data=tuple(
            schema.TopicProduceData(
                **({"topic_id": uuid.UUID(bytes=topic_id(name))} if version >= 13 else {"name": name}),
                partition_data=tuple(
                    schema.PartitionProduceData(index=i32(index), records=data) for index, data in partitions
                ),
            )
            for name, partitions in topics
        ),
    )
    target = io.BytesIO()
    entity_writer(schema.ProduceRequest)(target, message)
    return target.getvalue()


@settings(max_examples=150)
@given(
    st.sampled_from(VERSIONS),
    st.none() | texts,
    int16,
    st.integers(0, 2**31 - 1),
    requests,
    st.binary(max_size=3),
)
def test_requests_written_by_kio_are_read(
    version: int, transactional_id: str | None, acks: int, timeout_ms: int, topics: Any, before: bytes
) -> None:
    raw = encode_with_kio(version, transactional_id, acks, timeout_ms, topics)
    request = parse_produce(memoryview(before + raw), len(before), version)
    assert request.transactional_id == transactional_id
    assert (request.acks, request.timeout_ms) == (acks, timeout_ms)
    expected = [(topic_id(name) if version >= 13 else name, partitions) for name, partitions in topics]
    assert [
        (name, [(index, None if data is None else bytes(data)) for index, data in partitions])
        for name, partitions in request.topics
    ] == expected


def test_records_are_views_into_the_frame() -> None:
    frame = bytearray(encode_with_kio(9, None, -1, 100, [("t", [(0, b"records")])]))
    view = parse_produce(memoryview(frame), 0, 9).topics[0][1][0][1]
    assert view is not None
    place = frame.index(b"records")
    frame[place : place + 7] = b"RECORDS"
    assert bytes(view) == b"RECORDS"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_is_malformed(version: int) -> None:
    raw = encode_with_kio(version, "tx", 1, 1_000, [("one", [(0, b"abc"), (1, None)]), ("two", [(2, b"x" * 200)])])
    parse_produce(memoryview(raw), 0, version)
    for size in range(len(raw)):
        with pytest.raises(MalformedFrame, match=f"Produce v{version}"):
            parse_produce(memoryview(raw[:size]), 0, version)


@settings(max_examples=200)
@given(st.sampled_from(VERSIONS), st.data())
def test_changed_bytes_give_the_declared_exception_only(version: int, data: st.DataObject) -> None:
    raw = bytearray(encode_with_kio(version, "tx", 1, 1_000, [("one", [(0, b"abc"), (1, None)])]))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        request = parse_produce(memoryview(raw), 0, version)
    except MalformedFrame:
        return
    assert sum(len(view or b"") for _, partitions in request.topics for _, view in partitions) <= len(raw)


@given(st.sampled_from(VERSIONS), st.binary(max_size=80))
def test_random_bytes_give_the_declared_exception_only(version: int, raw: bytes) -> None:
    try:
        parse_produce(memoryview(raw), 0, version)
    except MalformedFrame:
        return


def test_declared_counts_allocate_nothing() -> None:
    plain = struct.pack(">hhii", -1, 1, 0, 2**31 - 1)
    flexible = b"\x00" + struct.pack(">hi", 1, 0) + encode_unsigned_varint(2**32 - 1)
    tracemalloc.start()
    try:
        for raw, version in ((plain, 8), (flexible, 9), (flexible, 13)):
            with pytest.raises(MalformedFrame):
                parse_produce(memoryview(raw), 0, version)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("version", "raw"),
    [
        (3, struct.pack(">hhii", -1, 1, 0, -1)),
        (3, struct.pack(">hhii", -2, 1, 0, 0)),
        (3, struct.pack(">hhiih", -1, 1, 0, 1, -1) + bytes(20)),
        (3, struct.pack(">hhiihii", -1, 1, 0, 1, 0, -5, 0) + bytes(20)),
        (3, struct.pack(">hhiihiii", -1, 1, 0, 1, 0, 1, 0, -2) + bytes(20)),
        (9, b"\x00" + struct.pack(">hi", 1, 0) + b"\x00\x00"),
        (9, b"\x00" + struct.pack(">hi", 1, 0) + b"\x02\x00\x01\x00\x00"),
        (9, b"\x03\xff\xff" + struct.pack(">hi", 1, 0) + b"\x01\x00"),
    ],
)
def test_null_and_negative_lengths_that_the_protocol_forbids_are_malformed(version: int, raw: bytes) -> None:
    with pytest.raises(MalformedFrame):
        parse_produce(memoryview(raw), 0, version)


def test_unknown_tagged_fields_are_skipped_at_every_level() -> None:
    tags = b"\x01\x63\x02zz"
    raw = b"".join(
        (
            b"\x00" + struct.pack(">hi", -1, 30_000) + b"\x02",
            b"\x02t\x02" + struct.pack(">i", 4) + b"\x04abc" + tags,
            tags,
            tags,
        )
    )
    assert parse_produce(memoryview(raw), 0, 9) == (None, -1, 30_000, [("t", [(4, b"abc")])])


def many(topics: int, partitions: int, tags: int) -> memoryview:
    """A request with partitions without records in each topic, and unknown tagged fields in each partition."""
    fields = encode_unsigned_varint(tags) + b"\x63\0" * tags
    partition = struct.pack(">i", 0) + b"\0" + fields
    topic = b"\x02t" + encode_unsigned_varint(partitions + 1) + partition * partitions + b"\0"
    head = b"\x00" + struct.pack(">hi", -1, 30_000) + encode_unsigned_varint(topics + 1)
    return memoryview(head + topic * topics + b"\0")


def test_topics_partitions_and_tagged_fields_together_are_bounded() -> None:
    topics, partitions, tags = 10, 90, 3
    assert topics * (1 + partitions * (1 + tags)) <= ELEMENTS_MAX
    assert len(parse_produce(many(topics, partitions, tags), 0, 9).topics) == topics
    for more in (many(ELEMENTS_MAX + 1, 0, 0), many(1, ELEMENTS_MAX, 0), many(10, 100, 5), many(1, 1, ELEMENTS_MAX)):
        with pytest.raises(MalformedFrame, match=f"more than {ELEMENTS_MAX} elements"):
            parse_produce(more, 0, 9)


partitions_produced = st.builds(
    PartitionProduced,
    partition=int32,
    error_code=st.sampled_from([0, 2, 3, 6, 10, 45, 87]),
    base_offset=int64,
    log_append_time_ms=st.just(-1) | st.integers(0, 4_000_000_000_000),
    log_start_offset=int64,
    error_message=st.none() | texts,
    current_leader=st.none() | st.tuples(st.integers(0, 2**31 - 1), int32),
)


@settings(max_examples=150)
@given(
    st.sampled_from(VERSIONS),
    int32,
    st.integers(0, 2**31 - 1),
    st.lists(st.tuples(texts, st.lists(partitions_produced, max_size=3)), max_size=3),
)
def test_responses_are_what_kio_reads(version: int, correlation_id: int, throttle_ms: int, results: Any) -> None:
    schema = importlib.import_module(f"kio.schema.produce.v{version}.response")
    named = [(topic_id(name) if version >= 13 else name, partitions) for name, partitions in results]
    raw = encode_produce_response(correlation_id, version, named, throttle_ms)
    assert struct.unpack_from(">ii", raw) == (len(raw) - 4, correlation_id)
    start = 9 if version >= 9 else 8
    message, size = entity_reader(schema.ProduceResponse)(raw, start)
    assert start + size == len(raw)
    again = io.BytesIO()
    entity_writer(schema.ProduceResponse)(again, message)
    assert again.getvalue() == raw[start:], "kio writes the same message with other bytes"
    assert message.throttle_time == datetime.timedelta(milliseconds=throttle_ms)
    assert len(message.responses) == len(named)
    for answer, (name, partitions) in zip(message.responses, named, strict=True):
        assert (answer.topic_id.bytes if version >= 13 else answer.name) == name
        assert len(answer.partition_responses) == len(partitions)
        for got, sent in zip(answer.partition_responses, partitions, strict=True):
            assert (got.index, int(got.error_code.value), got.base_offset) == sent[:3]
            stamp = None if sent.log_append_time_ms == -1 else sent.log_append_time_ms / 1000
            assert (got.log_append_time and got.log_append_time.timestamp()) == stamp
            if version >= 5:
                assert got.log_start_offset == sent.log_start_offset
            if version >= 8:
                assert (got.record_errors, got.error_message) == ((), sent.error_message)
            if version >= 10:
                leader = sent.current_leader or (-1, -1)
                assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == leader
