"""Frames and headers; numbers in docstrings are the invariants of frame_reader.py."""

from __future__ import annotations

import io
import struct
import tracemalloc
from collections.abc import Sequence

import edges
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as ResponseV0
from kio.schema.response_header.v1.header import ResponseHeader as ResponseV1
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32

from gnomon.wire.frame_reader import RECEIVE_BYTES
from gnomon.wire.kafka.frame import (
    CLIENT_ID_BYTES_MAX,
    FrameTooLarge,
    KafkaFrameReader,
    MalformedFrame,
    encode_unsigned_varint,
    parse_request_header,
    read_unsigned_varint,
    response_prefix,
    skip_tagged_fields,
)
from gnomon.wire.kafka.primitives import allow_elements

LIMIT = 1 << 20


def framed(bodies: Sequence[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def feed(reader: KafkaFrameReader, data: bytes) -> int:
    """Copies as much of `data` as fits into the reader's buffer; returns the number of bytes."""
    buffer = reader.receive_buffer()
    count = min(len(buffer), len(data))
    assert count > 0
    buffer[:count] = data[:count]
    reader.received(count)
    return count


def split(reader: KafkaFrameReader, stream: bytes, steps: Sequence[int]) -> list[bytes]:
    frames = []
    position = turn = 0
    while position < len(stream):
        step = steps[turn % len(steps)]
        turn += 1
        position += feed(reader, stream[position : position + step])
        while (frame := reader.next_frame()) is not None:
            frames.append(bytes(frame))
    return frames


bodies_strategy = st.lists(
    st.one_of(
        st.binary(max_size=40), edges.byte_strings, st.integers(0, 90_000).map(lambda size: bytes([size % 251]) * size)
    ),
    max_size=8,
)


@given(bodies_strategy, st.lists(st.integers(300, 70_000), min_size=1, max_size=6))
def test_any_split_of_the_stream_gives_the_frames_that_were_sent(bodies: list[bytes], steps: list[int]) -> None:
    reader = KafkaFrameReader(LIMIT)
    assert split(reader, framed(bodies), steps) == bodies
    assert reader.buffered_bytes == 0
    assert reader.capacity_bytes <= RECEIVE_BYTES


@given(st.lists(st.binary(max_size=30), max_size=6))
def test_a_stream_of_single_bytes_gives_the_frames(bodies: list[bytes]) -> None:
    assert split(KafkaFrameReader(LIMIT), framed(bodies), [1]) == bodies


@given(bodies_strategy, st.integers(300, 50_000))
def test_frames_that_are_not_taken_at_once_are_kept(bodies: list[bytes], step: int) -> None:
    """3: `receive_buffer` may be called while whole frames wait."""
    reader = KafkaFrameReader(LIMIT)
    stream = framed(bodies)
    position = 0
    while position < len(stream):
        position += feed(reader, stream[position : position + step])
    assert reader.buffered_bytes == len(stream)
    assert [bytes(reader.next_frame() or b"") for _ in bodies] == bodies
    assert reader.next_frame() is None


def test_views_stay_valid_until_the_next_receive_buffer() -> None:
    """3: also the view of the last frame, whose large buffer the empty reader has released."""
    reader = KafkaFrameReader(LIMIT)
    first, second = b"a" * 10, b"b" * 100_000
    stream = framed([first, second])
    position = 0
    while position < len(stream):
        position += feed(reader, stream[position:])
    views = [reader.next_frame(), reader.next_frame()]
    assert reader.next_frame() is None
    assert reader.capacity_bytes == 0
    assert [bytes(view) for view in views if view is not None] == [first, second]


def test_a_lent_buffer_stays_valid_when_the_last_frame_is_taken() -> None:
    """A world may hold the receive buffer while the handler takes waiting frames."""
    reader = KafkaFrameReader(LIMIT)
    first, second = b"a" * 100_000, b"second"
    stream = framed([first])
    position = 0
    while position < len(stream):
        position += feed(reader, stream[position:])
    buffer = reader.receive_buffer()
    assert reader.next_frame() == first
    assert reader.next_frame() is None
    stream = framed([second])
    buffer[: len(stream)] = stream
    reader.received(len(stream))
    assert reader.next_frame() == second


def test_a_declared_length_allocates_nothing() -> None:
    """1."""
    reader = KafkaFrameReader(1 << 30)
    feed(reader, struct.pack(">i", 1 << 30) + b"x" * 100)
    assert reader.next_frame() is None
    assert reader.capacity_bytes == RECEIVE_BYTES
    tracemalloc.start()
    try:
        sent = 104
        while sent < 100_000:
            sent += feed(reader, b"x" * 5_000)
            assert reader.next_frame() is None
            assert reader.capacity_bytes <= max(RECEIVE_BYTES, 2 * sent)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_huge_declared_length_after_a_large_frame_allocates_at_most_2_mib() -> None:
    """1: the reader remembers only the size of a frame that arrived whole, and at most 2 MiB of it."""
    reader = KafkaFrameReader(1 << 30)
    assert len(split(reader, framed([b"z" * 5_000_000]), [60_000])) == 1
    feed(reader, struct.pack(">i", 1 << 30))
    assert reader.next_frame() is None
    assert reader.capacity_bytes <= 128 * 1024
    while reader.buffered_bytes < 200_000:
        feed(reader, b"y" * 60_000)
    assert reader.capacity_bytes <= 2 * 1024 * 1024


def test_a_big_frame_is_copied_a_logarithmic_number_of_times() -> None:
    """2: each growth is one copy; the last buffer ends where the frame ends."""
    reader = KafkaFrameReader(1 << 26)
    body = b"q" * 10_000_000
    stream = framed([body])
    growths = position = 0
    capacity = 0
    while position < len(stream):
        position += feed(reader, stream[position : position + 60_000])
        if reader.capacity_bytes != capacity:
            capacity = reader.capacity_bytes
            growths += 1
    assert growths <= 12
    assert capacity == len(stream)
    frame = reader.next_frame()
    assert frame is not None
    assert frame == body


@pytest.mark.parametrize("size", [-1, -(2**31)])
def test_a_negative_length_is_malformed(size: int) -> None:
    reader = KafkaFrameReader(100)
    feed(reader, struct.pack(">i", size) + b"abc")
    with pytest.raises(MalformedFrame, match=str(size)):
        reader.next_frame()


@pytest.mark.parametrize("size", [101, 2**31 - 1])
def test_a_length_above_the_limit_is_refused_before_its_bytes_arrive(size: int) -> None:
    reader = KafkaFrameReader(100)
    feed(reader, struct.pack(">i", size))
    with pytest.raises(FrameTooLarge, match=rf"{size} bytes.*allows 100"):
        reader.next_frame()


def test_a_frame_of_exactly_the_limit_and_an_empty_one_pass() -> None:
    assert split(KafkaFrameReader(100), framed([b"x" * 100, b""]), [7]) == [b"x" * 100, b""]


@given(
    st.integers(0, 2**15 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.none() | st.text(max_size=40) | edges.texts,
    st.booleans(),
    st.binary(max_size=5),
)
def test_request_headers_written_by_kio_are_read(
    key: int, version: int, correlation_id: int, client_id: str | None, flexible: bool, rest: bytes
) -> None:
    schema = HeaderV2 if flexible else HeaderV1
    target = io.BytesIO()
    entity_writer(schema)(
        target,
        schema(
            request_api_key=i16(key),
            request_api_version=i16(version),
            correlation_id=i32(correlation_id),
            client_id=client_id,
        ),
    )
    raw = target.getvalue()
    asked: list[tuple[int, int]] = []

    def is_flexible(api_key: int, api_version: int) -> bool:
        asked.append((api_key, api_version))
        return flexible

    if client_id is not None and len(client_id.encode()) > CLIENT_ID_BYTES_MAX:
        with pytest.raises(MalformedFrame, match=f"{CLIENT_ID_BYTES_MAX} are allowed"):
            parse_request_header(memoryview(raw + rest), is_flexible)
        return
    header = parse_request_header(memoryview(raw + rest), is_flexible)
    assert header == (key, version, correlation_id, client_id, len(raw))
    assert asked == [(key, version)]


def test_a_client_id_is_bounded() -> None:
    for size, fits in ((CLIENT_ID_BYTES_MAX, True), (CLIENT_ID_BYTES_MAX + 1, False), (32_000, False)):
        raw = memoryview(struct.pack(">hhih", 0, 0, 0, size) + b"c" * size)
        if fits:
            assert parse_request_header(raw, lambda key, version: False).client_id == "c" * size
        else:
            with pytest.raises(MalformedFrame, match=f"client id has {size} bytes, {CLIENT_ID_BYTES_MAX} are allowed"):
                parse_request_header(raw, lambda key, version: False)


def test_unknown_tagged_fields_of_a_request_header_are_skipped() -> None:
    raw = struct.pack(">hhih", 0, 9, 5, -1) + b"\x02" + b"\x00\x03abc" + b"\x90\x01\x00" + b"BODY"
    header = parse_request_header(memoryview(raw), lambda key, version: True)
    assert raw[header.body_start :] == b"BODY"


@given(st.binary(max_size=60), st.booleans())
def test_random_bytes_as_request_header_give_the_declared_exception_only(raw: bytes, flexible: bool) -> None:
    try:
        header = parse_request_header(memoryview(raw), lambda key, version: flexible)
    except MalformedFrame:
        return
    assert 10 <= header.body_start <= len(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00" * 9,
        struct.pack(">hhih", 0, 0, 0, -2),
        struct.pack(">hhih", 0, 0, 0, 3) + b"ab",
        struct.pack(">hhih", 0, 0, 0, 2) + b"\xff\xfe\x00",
        struct.pack(">hhih", 0, 0, 0, -1),
        struct.pack(">hhih", 0, 0, 0, -1) + b"\x01\x00\xff\xff\xff\xff\x0f",
        struct.pack(">hhih", 0, 0, 0, -1) + b"\xff\xff\xff\xff\x0f",
    ],
)
def test_a_broken_request_header_is_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedFrame):
        parse_request_header(memoryview(raw), lambda key, version: True)


@pytest.mark.parametrize("flexible", [False, True])
def test_the_response_prefix_is_what_kio_reads(flexible: bool) -> None:
    raw = response_prefix(11, -7, flexible) + b"b" * 11
    assert struct.unpack_from(">i", raw)[0] == len(raw) - 4
    header, size = entity_reader(ResponseV1 if flexible else ResponseV0)(raw[4:], 0)
    assert header.correlation_id == -7
    assert raw[4 + size :] == b"b" * 11


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_unsigned_varints_round_trip(value: int, rest: bytes) -> None:
    raw = encode_unsigned_varint(value)
    assert read_unsigned_varint(memoryview(raw + rest), 0) == (value, len(raw))
    with pytest.raises(MalformedFrame):
        read_unsigned_varint(memoryview(raw[:-1]), 0)


@pytest.mark.parametrize("raw", [b"\xff\xff\xff\xff\xff\x00", b"\x80" * 20])
def test_a_varint_of_more_than_five_bytes_is_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedFrame):
        read_unsigned_varint(memoryview(raw), 0)


@given(st.dictionaries(st.integers(0, 2**31), st.binary(max_size=20), max_size=4), st.binary(max_size=3))
def test_tagged_fields_are_skipped_and_their_lengths_checked(fields: dict[int, bytes], rest: bytes) -> None:
    raw = encode_unsigned_varint(len(fields)) + b"".join(
        encode_unsigned_varint(tag) + encode_unsigned_varint(len(value)) + value for tag, value in fields.items()
    )
    allow_elements(2 * len(fields))
    assert skip_tagged_fields(memoryview(raw + rest), 0) == len(raw)
    with pytest.raises(MalformedFrame):
        skip_tagged_fields(memoryview(raw[:-1]), 0)
