"""Fetch against kio, which is generated from Kafka's own schemas."""

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
from kio.static.primitive import i8, i32, i32Timedelta, i64

from gnomon.wire.kafka.fetch import (
    ELEMENTS_MAX,
    VERSION_MAX,
    VERSION_MIN,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    encode_fetch_response,
    parse_fetch,
)
from gnomon.wire.kafka.fields import NO_UUID
from gnomon.wire.kafka.frame import MalformedFrame, encode_unsigned_varint
from gnomon.wire.kafka.messages import fetch as declared
from gnomon.wire.kafka.schema import encode

VERSIONS = range(VERSION_MIN, VERSION_MAX + 1)

int8 = st.integers(-128, 127)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=20) | edges.texts
partitions_asked = st.builds(FetchPartition, int32, int32, int64, int32, int64, int32)
requests = st.builds(
    FetchRequest,
    st.integers(0, 2**31 - 1),
    int32,
    int32,
    int8,
    int32,
    int32,
    st.lists(st.tuples(texts, st.lists(partitions_asked, max_size=4)), max_size=4),
    st.lists(st.tuples(texts, st.lists(int32, max_size=200)), max_size=3),
    texts,
    int32,
)
SAMPLE = FetchRequest(
    500,
    1,
    1 << 20,
    1,
    3,
    4,
    [("one", [FetchPartition(0, 1, 2, 3, 4, 5), FetchPartition(1, 1, 2, 3, 4, 5)]), ("two", [])],
    [("three", [1, 2])],
    "rack",
    7,
)


def topic_id(name: str) -> bytes:
    return uuid.uuid5(uuid.NAMESPACE_DNS, name).bytes


def named(name: str, version: int) -> str | bytes:
    return topic_id(name) if version >= 13 else name


def kio_name(name: str, version: int) -> dict[str, Any]:
    return {"topic_id": uuid.UUID(bytes=topic_id(name))} if version >= 13 else {"topic": name}


def encode_with_kio(version: int, request: FetchRequest) -> bytes:
    schema = importlib.import_module(f"kio.schema.fetch.v{version}.request")
    fields: dict[str, Any] = {
        "max_wait": i32Timedelta.parse(datetime.timedelta(milliseconds=request.max_wait_ms)),
        "min_bytes": i32(request.min_bytes),
        "max_bytes": i32(request.max_bytes),
        "isolation_level": i8(request.isolation_level),
        "topics": tuple(
            schema.FetchTopic(
                **kio_name(str(name), version),
                partitions=tuple(kio_partition(schema, partition, version) for partition in partitions),
            )
            for name, partitions in request.topics
        ),
    }
    if version >= 15:
        fields["replica_state"] = schema.ReplicaState(replica_id=i32(request.replica_id), replica_epoch=i64(5))
    else:
        fields["replica_id"] = i32(request.replica_id)
    if version >= 7:
        fields["session_id"] = i32(request.session_id)
        fields["session_epoch"] = i32(request.session_epoch)
        fields["forgotten_topics_data"] = tuple(
            schema.ForgottenTopic(**kio_name(str(name), version), partitions=tuple(map(i32, partitions)))
            for name, partitions in request.forgotten
        )
    if version >= 11:
        fields["rack_id"] = request.rack_id
    if version >= 12:
        fields["cluster_id"] = "cluster"
    target = io.BytesIO()
    entity_writer(schema.FetchRequest)(target, schema.FetchRequest(**fields))
    return target.getvalue()


def kio_partition(schema: Any, partition: FetchPartition, version: int) -> Any:
    fields: dict[str, Any] = {
        "partition": i32(partition.partition),
        "fetch_offset": i64(partition.fetch_offset),
        "partition_max_bytes": i32(partition.partition_max_bytes),
    }
    if version >= 5:
        fields["log_start_offset"] = i64(partition.log_start_offset)
    if version >= 9:
        fields["current_leader_epoch"] = i32(partition.current_leader_epoch)
    if version >= 12:
        fields["last_fetched_epoch"] = i32(partition.last_fetched_epoch)
    if version >= 17:
        fields["replica_directory_id"] = uuid.UUID(int=9)
    if version >= 18:
        fields["high_watermark"] = i64(11)
    return schema.FetchPartition(**fields)


def as_of(version: int, request: FetchRequest) -> FetchRequest:
    """The request with the defaults of the fields that the version lacks."""

    def partition(asked: FetchPartition) -> FetchPartition:
        return asked._replace(
            current_leader_epoch=asked.current_leader_epoch if version >= 9 else -1,
            last_fetched_epoch=asked.last_fetched_epoch if version >= 12 else -1,
            log_start_offset=asked.log_start_offset if version >= 5 else -1,
        )

    return request._replace(
        session_id=request.session_id if version >= 7 else 0,
        session_epoch=request.session_epoch if version >= 7 else -1,
        topics=[(named(str(name), version), [*map(partition, partitions)]) for name, partitions in request.topics],
        forgotten=[(named(str(name), version), partitions) for name, partitions in request.forgotten]
        if version >= 7
        else [],
        rack_id=request.rack_id if version >= 11 else "",
    )


@settings(max_examples=200)
@given(st.sampled_from(VERSIONS), requests, st.binary(max_size=3))
def test_requests_written_by_kio_are_read(version: int, request: FetchRequest, before: bytes) -> None:
    raw = encode_with_kio(version, request)
    assert parse_fetch(memoryview(before + raw), len(before), version) == as_of(version, request)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_is_malformed(version: int) -> None:
    raw = encode_with_kio(version, SAMPLE)
    assert parse_fetch(memoryview(raw), 0, version) == as_of(version, SAMPLE)
    for size in range(len(raw)):
        with pytest.raises(MalformedFrame, match=f"Fetch v{version}"):
            parse_fetch(memoryview(raw[:size]), 0, version)


@settings(max_examples=200)
@given(st.sampled_from(VERSIONS), st.data())
def test_changed_bytes_give_the_declared_exception_only(version: int, data: st.DataObject) -> None:
    raw = bytearray(encode_with_kio(version, SAMPLE))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        parse_fetch(memoryview(raw), 0, version)
    except MalformedFrame:
        return


@given(st.sampled_from(VERSIONS), st.binary(max_size=120))
def test_random_bytes_give_the_declared_exception_only(version: int, raw: bytes) -> None:
    try:
        parse_fetch(memoryview(raw), 0, version)
    except MalformedFrame:
        return


def test_declared_counts_allocate_nothing() -> None:
    head = struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, -1)
    many, many_compact = struct.pack(">i", 2**31 - 1), encode_unsigned_varint(2**32 - 1)
    tracemalloc.start()
    try:
        for raw, version in (
            (head + many, 11),
            (head + struct.pack(">iihi", 0, 1, 0, 2**31 - 1), 11),
            (head + many_compact, 12),
            (head[4:] + b"\x01\x02" + bytes(16) + many_compact, 18),
            (head[4:] + b"\x01\x01\x01" + many_compact, 18),
        ):
            with pytest.raises(MalformedFrame):
                parse_fetch(memoryview(raw), 0, version)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("version", [11, 18])
def test_a_request_with_more_partitions_than_a_broker_accepts_is_malformed(version: int) -> None:
    wanted = FetchPartition(0, -1, 0, -1, -1, 100)
    topic: Any = "t" if version < 13 else bytes(16)
    allowed = [(topic, [wanted] * (ELEMENTS_MAX // 2 - 1))] * 2
    assert len(parse_fetch(memoryview(_frame(version, allowed)), 0, version).topics) == 2
    for topics in (
        [*allowed, (topic, [])],
        [(topic, [wanted] * (ELEMENTS_MAX + 1))],
        [(topic, [])] * (ELEMENTS_MAX + 1),
    ):
        with pytest.raises(MalformedFrame, match=str(ELEMENTS_MAX)):
            parse_fetch(memoryview(_frame(version, topics)), 0, version)


def _frame(version: int, topics: Any) -> bytes:
    """A request without a session, encoded by the codec of the declared message."""
    return encode(
        declared.FetchRequest(
            session_epoch=-1,
            topics=[
                declared.FetchTopic(
                    topic=topic if version < 13 else "",
                    topic_id=NO_UUID,
                    partitions=[declared.FetchPartition(partition_max_bytes=100)] * len(partitions),
                )
                for topic, partitions in topics
            ],
        ),
        version,
    )


def test_unknown_tagged_fields_are_skipped_at_every_level() -> None:
    tags = b"\x02\x63\x02zz\x64\x00"
    raw = b"".join(
        (
            struct.pack(">iiibii", 1, 2, 3, 0, 5, 6),
            b"\x02" + bytes(16) + b"\x02" + struct.pack(">iiqiqi", 1, 2, 3, 4, 5, 6) + tags + tags,
            b"\x02" + bytes(16) + b"\x02" + struct.pack(">i", 8) + tags,
            b"\x01" + tags,
        )
    )
    request = parse_fetch(memoryview(raw), 0, 17)
    assert request.topics == [(bytes(16), [(1, 2, 3, 4, 5, 6)])]
    assert request.forgotten == [(bytes(16), [8])]
    assert request.replica_id == -1


chunk = st.binary(max_size=50) | edges.byte_strings
partitions_fetched = st.builds(
    FetchedPartition,
    partition=int32,
    error_code=st.sampled_from([0, 1, 3, 6, 74, 76]),
    high_watermark=int64,
    last_stable_offset=int64,
    log_start_offset=int64,
    aborted=st.none() | st.lists(st.tuples(int64, int64), max_size=3),
    preferred_read_replica=int32,
    records=st.lists(chunk | chunk.map(bytearray) | chunk.map(memoryview), max_size=3),
    diverging_epoch=st.none() | st.tuples(st.integers(0, 2**31 - 1), int64),
    current_leader=st.none() | st.tuples(st.integers(0, 2**31 - 1), int32),
)


@settings(max_examples=200)
@given(
    st.sampled_from(VERSIONS),
    int32,
    st.sampled_from([0, 70, 71]),
    int32,
    st.integers(0, 2**31 - 1),
    st.lists(st.tuples(texts, st.lists(partitions_fetched, max_size=3)), max_size=3),
)
def test_responses_are_what_kio_reads(
    version: int, correlation_id: int, error_code: int, session_id: int, throttle_ms: int, results: Any
) -> None:
    topics = [(named(name, version), partitions) for name, partitions in results]
    chunks = encode_fetch_response(correlation_id, version, error_code, session_id, topics, throttle_ms)
    sent_chunks = {
        id(part) for _, partitions in results for partition in partitions for part in partition.records if part
    }
    assert sent_chunks <= {id(part) for part in chunks}
    raw = b"".join(chunks)
    assert struct.unpack_from(">ii", raw) == (len(raw) - 4, correlation_id)
    schema = importlib.import_module(f"kio.schema.fetch.v{version}.response")
    start = 9 if version >= 12 else 8
    message, size = entity_reader(schema.FetchResponse)(raw, start)
    assert start + size == len(raw)
    again = io.BytesIO()
    entity_writer(schema.FetchResponse)(again, message)
    assert again.getvalue() == raw[start:], "kio writes the same message with other bytes"
    assert message.throttle_time == datetime.timedelta(milliseconds=throttle_ms)
    if version >= 7:
        assert (int(message.error_code.value), message.session_id) == (error_code, session_id)
    assert len(message.responses) == len(topics)
    for answer, (name, partitions) in zip(message.responses, topics, strict=True):
        assert (answer.topic_id.bytes if version >= 13 else answer.topic) == name
        for got, sent in zip(answer.partitions, partitions, strict=True):
            check_partition(got, sent, version)


def check_partition(got: Any, sent: FetchedPartition, version: int) -> None:
    assert (got.partition_index, int(got.error_code.value), got.high_watermark, got.last_stable_offset) == sent[:4]
    aborted = got.aborted_transactions
    pairs = None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted]
    assert pairs == sent.aborted
    assert got.records == b"".join(sent.records)
    if version >= 5:
        assert got.log_start_offset == sent.log_start_offset
    if version >= 11:
        assert got.preferred_read_replica == sent.preferred_read_replica
    if version >= 12:
        assert (got.diverging_epoch.epoch, got.diverging_epoch.end_offset) == (sent.diverging_epoch or (-1, -1))
        assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == (sent.current_leader or (-1, -1))


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_answer_has_empty_records_and_not_null(version: int) -> None:
    """2."""
    topics = [(named("t", version), [FetchedPartition(0, 0, 5, 5, 0)])]
    raw = b"".join(encode_fetch_response(1, version, 0, 0, topics))
    schema = importlib.import_module(f"kio.schema.fetch.v{version}.response")
    message, _ = entity_reader(schema.FetchResponse)(raw, 9 if version >= 12 else 8)
    partition = message.responses[0].partitions[0]
    assert partition.records == b""
    assert partition.aborted_transactions == ()


def test_partitions_without_records_share_one_chunk() -> None:
    topics = [("t", [FetchedPartition(index, 0, 5, 5, 0) for index in range(1_000)])]
    assert len(encode_fetch_response(1, 12, 0, 0, topics)) == 2
