"""Frames of the internal RPC; numbers in docstrings are the invariants of rpc.py."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import edges
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.wire.rpc import (
    CALL,
    ERROR,
    FRAME_BYTES_MAX,
    HELLO,
    METHOD_BYTES_MAX,
    OPEN,
    PING,
    RESULT,
    TELL,
    FrameKind,
    HeadLimit,
    HeadLimits,
    MalformedRpc,
    RpcFrameReader,
    decode,
    encode,
    oversize,
)

IDS = st.integers(0, 2**63)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
LISTS = st.lists(VALUES, max_size=3)
FIELDS: dict[FrameKind, tuple[st.SearchStrategy[Any], ...]] = {
    FrameKind.HELLO: (st.text(), LISTS, st.text(), st.none() | st.text()),
    FrameKind.WELCOME: (IDS, st.none() | st.text()),
    FrameKind.REFUSED: (st.text(),),
    FrameKind.CALL: (IDS, st.text(), LISTS),
    FrameKind.RESULT: (IDS, VALUES),
    FrameKind.ERROR: (IDS, st.text(), LISTS, st.text()),
    FrameKind.ITEM: (IDS, VALUES),
    FrameKind.END: (IDS,),
    FrameKind.MORE: (IDS, IDS),
    FrameKind.CANCEL: (IDS,),
    FrameKind.TELL: (st.text(), LISTS),
    FrameKind.PING: (),
    FrameKind.PONG: (),
    FrameKind.OPEN: (IDS, st.text(), LISTS),
}
HEADS = st.sampled_from(list(FrameKind)).flatmap(
    lambda kind: st.tuples(*FIELDS[kind]).map(lambda fields: [int(kind), *fields])
)
ATTACHMENTS = st.binary(max_size=64) | edges.byte_strings


def body(head: Any, attachment: bytes = b"") -> memoryview:
    packed = msgpack.packb(head)
    return memoryview(struct.pack(">I", len(packed)) + packed + attachment)


@given(st.lists(st.tuples(HEADS, ATTACHMENTS), max_size=6), st.lists(st.integers(1, 2000), min_size=1))
def test_frames_survive_encoding_and_any_splitting(frames: list[tuple[list[Any], bytes]], steps: list[int]) -> None:
    stream = b"".join(b"".join(encode(head, attachment)) for head, attachment in frames)
    reader = RpcFrameReader(FRAME_BYTES_MAX)
    found, position, turn = [], 0, 0
    while position < len(stream):
        buffer = reader.receive_buffer()
        count = min(len(buffer), steps[turn % len(steps)], len(stream) - position)
        buffer[:count] = stream[position : position + count]
        reader.received(count)
        position, turn = position + count, turn + 1
        while (frame := reader.next_frame()) is not None:
            head, attachment = decode(frame)
            found.append((head, bytes(attachment)))
    assert found == frames


def test_attachments_are_not_copied_except_small_ones() -> None:
    """3."""
    attachment = bytearray(5000)
    chunks = encode([RESULT, 1, None], attachment)
    assert chunks[1] is attachment
    assert len(encode([RESULT, 1, None], b"small")) == 1
    frame = memoryview(b"".join(chunks))[4:]
    view = decode(frame)[1]
    assert isinstance(view, memoryview)
    assert view.obj is frame.obj


@given(st.binary(max_size=300))
def test_random_bytes_are_malformed_or_a_valid_frame(garbage: bytes) -> None:
    """1."""
    for data in (garbage, struct.pack(">I", len(garbage)) + garbage):
        try:
            head, attachment = decode(memoryview(data))
        except MalformedRpc:
            continue
        assert FrameKind(head[0])
        assert bytes(attachment) == data[len(data) - len(attachment) :]


@given(HEADS, st.data())
def test_a_frame_with_broken_bytes_is_malformed_or_another_frame(head: list[Any], data: st.DataObject) -> None:
    """1."""
    frame = bytearray(body(head, b"attachment"))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.integers(0, len(frame)))]
    try:
        decode(memoryview(frame))
    except MalformedRpc:
        pass


@pytest.mark.parametrize(
    "head",
    [
        b"\xdd\x00\x10\x00\x00" * 500,  # nested lists that each declare a million items
        b"\x92\x04\xdd\x7f\xff\xff\xff",
        b"\x92\x04\xdf\x00\x0f\x00\x00\x01",
        b"\x92\x04\xdb\x7f\xff\xff\xff",
        b"\x92\x04\xc6\x7f\xff\xff\xff",
        b"\x92\x04\xc9\x7f\xff\xff\xff\x00",
        b"\xdc\xff\xff" * 5_000,
        b"\x91" * 100_000,
    ],
    ids=["nested lists", "list", "map", "text", "bytes", "extension", "short lists", "deep"],
)
def test_a_declared_length_allocates_nothing(head: bytes) -> None:
    """2."""
    frame = memoryview(struct.pack(">I", len(head)) + head + bytes(2_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(MalformedRpc):
            decode(frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000 + 4 * len(head)


def test_a_frame_that_declares_more_bytes_than_the_limit_is_refused() -> None:
    reader = RpcFrameReader(1000)
    for size, reason in [(1001, "declares 1001 bytes, 1000 are allowed"), (0xFFFFFFFF, "declares 4294967295 bytes")]:
        reader = RpcFrameReader(1000)
        reader.receive_buffer()[:4] = struct.pack(">I", size)
        reader.received(4)
        with pytest.raises(MalformedRpc, match=reason):
            reader.next_frame()


@pytest.mark.parametrize(("first", "reason"), [(b"GET ", "HTTP"), (b"\x16\x03\x01\x02", "TLS")])
def test_other_protocols_are_named(first: bytes, reason: str) -> None:
    reader = RpcFrameReader(FRAME_BYTES_MAX)
    reader.receive_buffer()[:4] = first
    reader.received(4)
    with pytest.raises(MalformedRpc, match=reason):
        reader.next_frame()


@pytest.mark.parametrize(
    "head",
    [
        None,
        [],
        {"kind": 1},
        [True],
        [-1],
        [len(FrameKind)],
        ["call"],
        [HELLO, "gnomon", 1, "bookie", None],
        [CALL, "1", "add", []],
        [CALL, True, "add", []],
        [CALL, 1, b"add", []],
        [CALL, 1, "add", {}],
        [CALL, 1, "add"],
        [CALL, 1, "add", [], 2],
        [ERROR, 1, "Fenced", None, "text"],
        [PING, 1],
    ],
)
def test_a_head_of_another_shape_is_malformed(head: Any) -> None:
    """5."""
    with pytest.raises(MalformedRpc, match="is the peer a newer gnomon"):
        decode(body(head))


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\x05\x91\x0b", b"\0\0\0\x03\x91\x0b\x0b"])
def test_a_frame_without_its_head_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedRpc):
        decode(memoryview(frame))


def test_a_value_without_a_msgpack_form_is_refused_and_does_not_change_the_next_frame() -> None:
    for value in (object(), 2**64, "\udc80"):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            encode([RESULT, 1, ["begun", value]])
    assert encode([PING]) == [b"\0\0\0\x06\0\0\0\x02\x91\x0b"]


LIMITS = HeadLimits({"long": HeadLimit(2 << 20, 20_000), "short": HeadLimit(2_000, 1_500)})


def call_of(method: str, items: int, kind: int = CALL) -> list[Any]:
    """A head with `items` items of lists in all, besides those of its frame."""
    each = 100
    return [kind, *([] if kind == TELL else [1]), method, [[0] * (each - 1)] * (items // each)]


@pytest.mark.parametrize("kind", [CALL, TELL, OPEN])
@pytest.mark.parametrize(("method", "items_max"), [("any", 5_000), ("long", 20_000), ("short", 1_500)])
def test_the_items_of_a_head_are_bounded_by_its_method(kind: int, method: str, items_max: int) -> None:
    """4."""
    fits = call_of(method, items_max - 100, kind)
    assert decode(body(fits), LIMITS)[0] == fits
    for head in (call_of(method, items_max + 100, kind), [*fits[:-1], [0] * (items_max + 1)]):
        with pytest.raises(MalformedRpc, match=str(items_max)):
            decode(body(head), LIMITS)
        assert decode(body(head))[0] == head
    with pytest.raises(MalformedRpc, match=f"{items_max}|are allowed"):
        decode(body([*fits[:-1], [[]] * 1_000_000]), LIMITS)


@pytest.mark.parametrize(("method", "bytes_max"), [("any", 1 << 20), ("long", 2 << 20), ("short", 2_000)])
def test_the_bytes_of_a_head_are_bounded_by_its_method(method: str, bytes_max: int) -> None:
    """4."""
    fits, long = ([CALL, 1, method, [bytes(bytes_max - spare)]] for spare in (20, 0))
    assert decode(body(fits), LIMITS)[0] == fits
    with pytest.raises(MalformedRpc, match=f"{bytes_max} are allowed"):
        decode(body(long), LIMITS)
    assert decode(body(long))[0] == long


@pytest.mark.parametrize("head", [[RESULT, 1, bytes(1 << 20)], [FrameKind.MORE, 1, bytes(1 << 20)], ["x" * 2_000_000]])
def test_a_head_of_a_client_that_is_no_call_has_the_default_limit(head: list[Any]) -> None:
    """4."""
    with pytest.raises(MalformedRpc):
        decode(body(head), LIMITS)


@pytest.mark.parametrize("kind", [CALL, TELL, OPEN])
def test_the_name_of_a_method_is_bounded(kind: int) -> None:
    """4."""
    number = [] if kind == TELL else [2**63]
    fits = [kind, *number, "m" * METHOD_BYTES_MAX, []]
    assert decode(body(fits), LIMITS)[0] == fits
    for size in (METHOD_BYTES_MAX + 1, METHOD_BYTES_MAX + 100, 1_000_000):
        with pytest.raises(MalformedRpc, match=str(METHOD_BYTES_MAX)):
            decode(body([kind, *number, "m" * size, []]), LIMITS)


def test_a_large_head_is_refused_before_its_frame_has_arrived() -> None:
    """4."""
    reader = RpcFrameReader(FRAME_BYTES_MAX, LIMITS.bytes_max)
    begun = struct.pack(">II", 100 << 20, LIMITS.bytes_max + 1)
    reader.receive_buffer()[: len(begun)] = begun
    reader.received(len(begun))
    with pytest.raises(MalformedRpc, match=f"{LIMITS.bytes_max} are allowed"):
        reader.next_frame()


def test_a_frame_that_is_too_large_to_be_sent_is_told_with_its_size() -> None:
    """4."""
    assert oversize(encode([CALL, 1, "add", []], bytes(1000)), 1100) is None
    assert oversize(encode([CALL, 1, "add", []], bytes(5000)), 1100) == "5016 bytes, 1100 are allowed"
    long = encode([CALL, 1, "add", [bytes(1000)]], bytes(100))
    assert oversize(long, FRAME_BYTES_MAX, HeadLimit(1000, 10)) == "1011 bytes besides its attachment, 1000 are allowed"
    assert oversize(long, FRAME_BYTES_MAX) is None


@pytest.mark.parametrize(("method", "items_max"), [("any", 5_000), ("long", 20_000), ("short", 1_500)])
def test_a_call_of_more_items_than_its_server_takes_is_not_sent(method: str, items_max: int) -> None:
    """4."""
    limit = LIMITS.of_method(method)
    fits = call_of(method, items_max - 100)
    assert oversize(encode(fits), FRAME_BYTES_MAX, limit) is None
    for head in (call_of(method, items_max + 100), [*fits[:-1], [0] * (items_max + 1)]):
        assert oversize(encode(head), FRAME_BYTES_MAX, limit) == f"more than {items_max} items"
