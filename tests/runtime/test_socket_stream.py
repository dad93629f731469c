"""A socket stream against a model: a socket that takes some bytes, all, or none, and gives some, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.runtime.loop.poller import READABLE, WRITABLE
from gnomon.runtime.loop.socket_stream import RECEIVES_MAX, SocketStream
from gnomon.runtime.loop.turn_share import SHARE_SECONDS

CHUNKS = st.lists(st.binary(max_size=9), min_size=1, max_size=4)
SIZES = st.sampled_from([None, 0, 1, 2, 3, 5, 8, 100])
"""Bytes that the socket takes or gives in one call; None: it would block."""
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), CHUNKS, SIZES),
        st.tuples(st.just("writable"), SIZES),
        st.tuples(st.just("readable"), st.lists(st.binary(max_size=9), max_size=6)),
        st.tuples(st.just("pause")),
        st.tuples(st.just("resume")),
        st.tuples(st.just("close")),
    ),
    min_size=10,
    max_size=40,
)


class Socket:
    """Takes what the next size allows."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.size: int | None = 0
        self.gives: list[bytes] = []
        self.shut: list[int] = []

    def sendmsg(self, chunks: Sequence[bytes]) -> int:
        if self.size is None:
            raise BlockingIOError
        taken = b"".join(chunks)[: self.size]
        self.sent += taken
        return len(taken)

    def recv_into(self, buffer: memoryview, count: int = 0) -> int:
        some = self.gives.pop(0) if self.gives else b""
        if not some:
            raise BlockingIOError
        buffer[: len(some)] = some
        return len(some)

    def shutdown(self, how: int) -> None:
        self.shut.append(how)


class Loop:
    """Remembers the events that the stream waits for."""

    receive_bytes_max = 1 << 20
    turn_began = 0.0
    scratch = memoryview(bytearray(100))

    class clock:
        @staticmethod
        def monotonic() -> float:
            return 0.0

    class timers:
        @staticmethod
        def call_at(deadline: float, call: Any) -> Any:
            return None

    def __init__(self) -> None:
        self.events = READABLE

    def modify(self, source: Any, events: int) -> None:
        self.events = events


class Handler:
    def __init__(self) -> None:
        self.received_bytes = bytearray()
        self.drained_at: list[int] = []
        self.sent = bytearray()
        self._buffer = memoryview(bytearray(9))

    def receive_buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        self.received_bytes += self._buffer[:count]

    def drained(self) -> None:
        self.drained_at.append(len(self.sent))


@pytest.mark.parametrize(("turn_seconds", "receives"), [(0.0, RECEIVES_MAX), (2 * SHARE_SECONDS, 1)])
def test_a_stream_with_more_to_give_is_read_again_in_a_turn_only_while_the_turn_is_short(
    turn_seconds: float, receives: int
) -> None:
    connected, loop, handler = Socket(), Loop(), Handler()
    stream = SocketStream(cast("Any", loop), cast("Any", connected), "peer")
    stream.handler = cast("Any", handler)
    loop.turn_began = -turn_seconds
    connected.gives = [b"123456789"] * 9
    stream.ready(READABLE)
    assert len(connected.gives) == 9 - receives


@settings(max_examples=300)
@given(STEPS)
def test_bytes_keep_their_order_whatever_the_socket_takes_and_gives(steps: list[Any]) -> None:
    connected, loop, handler = Socket(), Loop(), Handler()
    stream = SocketStream(cast("Any", loop), cast("Any", connected), "peer")
    stream.handler = cast("Any", handler)
    handler.sent = connected.sent
    written, given_bytes, closed, paused = bytearray(), bytearray(), False, False
    for step in steps:
        behind = len(written) - len(connected.sent)
        match step:
            case "write", chunks, size:
                connected.size = size
                stream.write(chunks)
                if not closed:
                    written += b"".join(chunks)
            case "writable", size:
                connected.size = size
                before = len(handler.drained_at)
                if loop.events & WRITABLE:
                    stream.ready(WRITABLE)
                emptied = behind and len(written) == len(connected.sent)
                assert len(handler.drained_at) - before == bool(emptied and not closed)
            case "readable", gives:
                connected.gives = list(gives)
                if loop.events & READABLE:
                    stream.ready(READABLE)
                taken = gives[: len(gives) - len(connected.gives)]
                if not closed:
                    given_bytes += b"".join(taken)
            case ("pause",):
                stream.pause_reading()
                paused = True
            case ("resume",):
                stream.resume_reading()
                paused = False
            case ("close",):
                stream.close()
                closed = True
        assert written.startswith(connected.sent), "bytes were lost, doubled or overtaken"
        assert stream.backlog_bytes == len(written) - len(connected.sent)
        assert bool(loop.events & WRITABLE) == bool(stream.backlog_bytes)
        assert bool(loop.events & READABLE) == (closed or not paused)
        assert handler.received_bytes == given_bytes
        assert bool(connected.shut) == (closed and not stream.backlog_bytes), "our side is shut when all is sent"
