"""A Kafka connection without its socket (numbers: invariants of `connection`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.broker.kafka.connection import (
    BACKLOG_BYTES_MAX,
    IDLE_LOOK_SECONDS_MIN,
    REQUEST_BYTES_MIN,
    REQUESTS_IN_FLIGHT_MAX,
    Exchange,
    KafkaConnection,
    RequestMemory,
)
from gnomon.wire.kafka.frame import MalformedFrame, RequestHeader


class _Transport:
    """A peer that takes everything, unless `backlog_bytes` says otherwise."""

    peer = "peer:1"

    def __init__(self) -> None:
        self.written = bytearray()
        self.backlog_bytes = 0
        self.paused = False
        self.ended = False

    def write(self, chunks: Sequence[Any]) -> None:
        if not self.ended:
            self.written += b"".join(chunks)

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.ended = True

    abort = close


class _Peer:
    """A connection and the client at its other end."""

    def __init__(
        self,
        memory: RequestMemory | None = None,
        *,
        dispatch: Callable[[Exchange], None] | None = None,
        request_bytes_max: int = 1 << 20,
    ) -> None:
        self.transport = _Transport()
        self.now = 0.0
        self.memory = memory or RequestMemory(1 << 30)
        self.exchanges: list[Exchange] = []
        self.answered = 0
        self.reasons: list[str | None] = []
        self._dispatch = dispatch
        self.connection = KafkaConnection(
            self.transport,
            self.memory,
            self._take,
            self._count,
            lambda connection, reason: self.reasons.append(reason),
            lambda: self.now,
            frame_bytes_max=1 << 20,
            request_bytes_max=request_bytes_max,
        )
        self.sent = 0

    def _take(self, exchange: Exchange, frame: memoryview, header: RequestHeader) -> None:
        self.exchanges.append(exchange)
        if self._dispatch is not None:
            self._dispatch(exchange)

    def _count(self, exchanges: list[Exchange], now: float) -> None:
        self.answered += len(exchanges)

    def receive(self, data: bytes) -> None:
        while data and not self.transport.paused and not self.transport.ended:
            buffer = self.connection.receive_buffer()
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            data = data[count:]
            self.connection.received(count)
        self.unread = data

    def ask(self, count: int = 1, size: int = 10) -> None:
        """Sends requests; all arrive at once."""
        frames = b""
        for _ in range(count):
            body = b"\0\x10\0\0" + self.sent.to_bytes(4, "big") + b"\xff\xff" + bytes(size - 10)
            frames += len(body).to_bytes(4, "big") + body
            self.sent += 1
        self.receive(frames)

    @property
    def replies(self) -> list[int]:
        """The correlation ids that have left, as `answer` writes them."""
        data = bytes(self.transport.written)
        return [int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4)]


def _answer(exchange: Exchange, *, flush: bool = True) -> None:
    exchange.reply((exchange.correlation_id.to_bytes(4, "big"),), flush=flush)


@given(st.permutations(range(6)), st.lists(st.booleans(), min_size=6, max_size=6), st.sets(st.integers(0, 5)))
def test_replies_leave_in_the_order_of_their_requests(
    order: list[int], flushes: list[bool], silent: set[int]
) -> None:  # invariants 1, 2
    peer = _Peer()
    peer.ask(6)
    for place in order:
        if place in silent:
            peer.exchanges[place].no_reply()
        else:
            _answer(peer.exchanges[place], flush=flushes[place])
    peer.connection.flush()
    assert peer.replies == [number for number in range(6) if number not in silent]
    assert peer.answered == 6
    assert peer.memory.bytes_used == 0


def test_a_reply_that_waits_for_its_turn_outlives_its_buffer() -> None:
    peer = _Peer()
    peer.ask(2)
    buffer = bytearray(b"\0\0\0\1")
    peer.exchanges[1].reply((memoryview(buffer),))
    buffer[:] = b"\xff\xff\xff\xff"
    _answer(peer.exchanges[0])
    assert peer.replies == [0, 1]


def test_a_connection_over_its_own_limit_is_not_read_until_replies_have_left() -> None:  # invariant 3
    peer = _Peer(request_bytes_max=3000)
    peer.ask(4, 1000)
    assert len(peer.exchanges) == 3
    assert peer.transport.paused
    _answer(peer.exchanges[0])
    assert len(peer.exchanges) == 4  # what was in the buffer is handled first
    assert peer.transport.paused
    for exchange in peer.exchanges[1:]:
        _answer(exchange)
    assert not peer.transport.paused
    assert peer.memory.bytes_used == 0


def test_small_requests_are_limited_in_number() -> None:  # invariant 3
    peer = _Peer()
    peer.ask(REQUESTS_IN_FLIGHT_MAX + 5)
    assert len(peer.exchanges) == REQUESTS_IN_FLIGHT_MAX
    assert peer.transport.paused
    for exchange in list(peer.exchanges):
        exchange.no_reply()
    peer.connection.flush()
    assert len(peer.exchanges) == REQUESTS_IN_FLIGHT_MAX + 5
    assert not peer.transport.paused


def test_a_peer_that_does_not_take_its_replies_is_not_read_and_the_others_are() -> None:  # invariant 3
    memory = RequestMemory(1 << 20)
    slow, other = _Peer(memory, dispatch=_answer), _Peer(memory, dispatch=_answer)
    slow.transport.backlog_bytes = BACKLOG_BYTES_MAX + 1
    slow.ask(3)
    other.ask(3)
    assert (len(slow.exchanges), len(other.exchanges)) == (1, 3)
    assert slow.transport.paused
    slow.transport.backlog_bytes = 0
    slow.connection.drained()
    assert len(slow.exchanges) == 3
    assert not slow.transport.paused


def test_when_all_memory_is_taken_connections_wait_until_some_is_given_back() -> None:  # invariant 3
    memory = RequestMemory(2000)
    first, second = _Peer(memory), _Peer(memory)
    first.ask(1, 2000)
    second.ask(2, 500)
    assert len(second.exchanges) == 1
    assert first.transport.paused
    assert second.transport.paused
    _answer(first.exchanges[0])
    assert len(second.exchanges) == 2
    assert not first.transport.paused
    assert not second.transport.paused


def test_a_peer_that_drains_while_memory_is_full_goes_on_once_there_is_room() -> None:  # invariant 3
    memory = RequestMemory(2000)
    slow, other = _Peer(memory, dispatch=_answer), _Peer(memory)
    slow.transport.backlog_bytes = BACKLOG_BYTES_MAX + 1
    slow.ask(2)
    assert slow.transport.paused
    other.ask(1, 2000)
    slow.transport.backlog_bytes = 0
    slow.connection.drained()
    assert slow.transport.paused
    _answer(other.exchanges[0])
    assert slow.replies == [0, 1]
    assert not slow.transport.paused


def test_thousands_of_waiting_connections_are_served_without_recursion() -> None:
    memory = RequestMemory(REQUEST_BYTES_MIN)
    held = _Peer(memory)
    held.ask()
    waiting = [_Peer(memory, dispatch=_answer) for _ in range(5000)]
    for peer in waiting:
        peer.ask(2)
        assert len(peer.exchanges) == 1 or peer.transport.paused
    _answer(held.exchanges[0])
    assert all(peer.replies == [0, 1] for peer in waiting)
    assert memory.bytes_used == 0


def test_a_request_that_makes_its_client_wait_is_told_when_another_one_arrives() -> None:  # invariant 4
    cuts: list[int] = []

    def dispatch(exchange: Exchange) -> None:
        def cut() -> None:
            cuts.append(exchange.correlation_id)
            _answer(exchange)

        exchange.cut_short = cut

    peer = _Peer(dispatch=dispatch)
    peer.ask()
    assert cuts == []
    peer.ask()
    assert cuts == [0]
    peer.ask(2)
    assert cuts == [0, 1, 2]
    assert peer.replies == [0, 1, 2]


def test_closing_in_the_middle_gives_the_memory_back_and_drops_the_replies() -> None:  # invariant 2
    memory = RequestMemory(4000)
    cuts: list[str] = []
    peer, other = _Peer(memory), _Peer(memory, dispatch=_answer)
    peer.ask(2, 2000)
    peer.exchanges[1].cut_short = lambda: cuts.append("cut")
    other.ask(3)
    peer.connection.closed()
    assert cuts == ["cut"]
    assert peer.reasons == [None]
    assert memory.bytes_used == 0
    assert other.replies == [0, 1, 2]
    for exchange in peer.exchanges:
        _answer(exchange)
    peer.connection.flush()
    assert peer.replies == []
    assert memory.bytes_used == 0


def test_a_connection_that_waited_for_memory_and_left_is_forgotten() -> None:
    memory = RequestMemory(1000)
    held, gone = _Peer(memory), _Peer(memory)
    held.ask(1, 1000)
    gone.ask(2)
    gone.connection.closed()
    _answer(held.exchanges[0])
    assert memory.bytes_used == 0
    assert len(gone.exchanges) <= 1


def test_a_malformed_frame_ends_the_connection_after_what_was_answered() -> None:  # invariant 5
    memory = RequestMemory(1 << 20)
    peer, other = _Peer(memory, dispatch=_answer), _Peer(memory, dispatch=_answer)
    peer.ask()
    peer.receive(b"\xff\xff\xff\xff")
    assert peer.transport.ended
    peer.connection.closed()
    assert "negative" in str(peer.reasons[0])
    assert peer.replies == [0]
    other.ask()
    assert other.replies == [0]
    assert memory.bytes_used == 0


def test_a_request_that_its_handler_cannot_understand_ends_the_connection() -> None:  # invariant 5
    def dispatch(exchange: Exchange) -> None:
        raise MalformedFrame("no such thing")

    peer = _Peer(dispatch=dispatch)
    peer.ask(3)
    assert len(peer.exchanges) == 1
    peer.connection.closed()
    assert peer.reasons == ["no such thing"]
    assert peer.memory.bytes_used == 0


def test_a_connection_that_is_to_finish_takes_no_more_and_ends_after_its_last_reply() -> None:
    peer = _Peer()
    peer.ask(2)
    peer.connection.finish()
    assert peer.transport.paused
    _answer(peer.exchanges[1])
    assert not peer.transport.ended
    _answer(peer.exchanges[0])
    assert peer.transport.ended
    assert peer.replies == [0, 1]


def test_an_idle_connection_is_ended_and_whoever_looks_too_early_is_told_when_to_come_back() -> None:  # invariant 7
    peer = _Peer(dispatch=_answer)
    assert peer.connection.end_if_idle(9.5, 10) == 10
    peer.now = 9.75
    peer.ask()
    assert peer.connection.end_if_idle(10, 10) == 19.75
    peer.now = 15
    peer.receive(b"\0\0")  # part of a request is a sign of life too
    assert peer.connection.end_if_idle(19.75, 10) == 25
    assert not peer.transport.ended
    assert peer.connection.end_if_idle(25, 10) == math.inf
    assert peer.transport.ended
    peer.connection.closed()
    assert peer.reasons == [None]
    assert peer.memory.bytes_used == 0


def test_a_connection_that_waits_for_its_answer_is_not_idle() -> None:  # invariant 7
    peer = _Peer()
    peer.ask(2)
    assert peer.connection.end_if_idle(50, 10) == 60
    peer.now = 55
    _answer(peer.exchanges[0])
    assert peer.connection.end_if_idle(66, 10) == 76
    peer.now = 70
    _answer(peer.exchanges[1])
    assert peer.connection.end_if_idle(76, 10) == 80
    assert not peer.transport.ended
    assert peer.connection.end_if_idle(80, 10) == math.inf


@pytest.mark.parametrize("takes", [True, False])
def test_a_peer_that_takes_its_answer_slowly_is_not_idle_and_one_that_has_stopped_is(takes: bool) -> None:
    peer = _Peer(dispatch=_answer)  # invariant 7
    peer.transport.backlog_bytes = 900
    peer.ask()
    assert peer.connection.end_if_idle(10, 10) == 20
    peer.transport.backlog_bytes -= 100 if takes else 0
    assert peer.connection.end_if_idle(20, 10) == (30 if takes else math.inf)
    assert peer.transport.ended is not takes
    if takes:
        peer.now = 25
        peer.transport.backlog_bytes = 0
        peer.connection.drained()
        assert peer.connection.end_if_idle(30, 10) == 35


def test_a_connection_that_is_not_read_for_want_of_memory_is_not_idle() -> None:  # invariant 7
    memory = RequestMemory(2000)
    greedy, waiting = _Peer(memory), _Peer(memory, dispatch=_answer)
    greedy.ask(1, 2000)
    waiting.ask()
    assert waiting.transport.paused
    assert waiting.connection.end_if_idle(10, 10) == 20
    _answer(greedy.exchanges[0])
    assert waiting.connection.end_if_idle(20, 10) == math.inf


def test_a_busy_connection_is_not_looked_at_all_the_time_however_short_the_time_allowed() -> None:
    peer = _Peer()
    peer.ask()
    assert peer.connection.end_if_idle(5, 0) == 5 + IDLE_LOOK_SECONDS_MIN


def test_answers_that_peers_do_not_take_leave_less_room_for_further_ones() -> None:
    memory = RequestMemory(1000)
    sloth, other = _Peer(memory), _Peer(memory)
    sloth.ask()
    sloth.transport.backlog_bytes = 900
    _answer(sloth.exchanges[0])
    assert other.connection.answer_room() == 100
    sloth.ask()
    sloth.transport.backlog_bytes = 1500
    _answer(sloth.exchanges[1])
    assert other.connection.answer_room() == 0
    sloth.transport.backlog_bytes = 0
    sloth.connection.drained()
    assert other.connection.answer_room() == 1000
    sloth.ask()
    sloth.transport.backlog_bytes = 300
    _answer(sloth.exchanges[2])
    sloth.connection.closed()
    assert other.connection.answer_room() == 1000


def test_ready_answers_behind_one_that_is_not_are_counted_and_hold_up_the_next_requests() -> None:
    memory = RequestMemory(64 << 20)

    def dispatch(exchange: Exchange) -> None:
        if exchange.correlation_id:
            exchange.reply((memoryview(exchange.correlation_id.to_bytes(4, "big") + bytes(1 << 20)),))

    peer, other = _Peer(memory, dispatch=dispatch), _Peer(memory)
    peer.ask(100)
    assert len(peer.exchanges) == 5
    assert peer.transport.paused
    assert memory.backlog_bytes == 4 * ((1 << 20) + 4)
    assert peer.connection.answer_room() == -1
    assert other.connection.answer_room() == (60 << 20) - 16
    peer.connection.go_on()
    assert len(peer.exchanges) == 5
    _answer(peer.exchanges[0])
    assert len(peer.exchanges) == 100
    assert peer.answered == 100
    assert memory.backlog_bytes == memory.bytes_used == 0


def test_ready_answers_of_a_connection_that_ends_are_given_back() -> None:
    peer = _Peer()
    peer.ask(3)
    _answer(peer.exchanges[2])
    assert peer.memory.backlog_bytes == 4
    peer.connection.closed()
    assert peer.memory.backlog_bytes == 0


def test_unfinished_requests_cannot_fill_the_memory() -> None:
    memory = RequestMemory(1 << 20)
    peers = [_Peer(memory) for _ in range(3)]
    part = (1 << 20).to_bytes(4, "big") + bytes(400 << 10)
    for peer in peers:
        peer.receive(part)
    assert [peer.transport.ended for peer in peers].count(True) == 1
    (ended,) = [peer for peer in peers if peer.transport.ended]
    assert 800 << 10 <= memory.unfinished_bytes <= 1 << 20
    for peer in peers:
        peer.connection.closed()
    assert "unfinished requests" in str(ended.reasons[0])
    assert memory.unfinished_bytes == 0
    assert not memory.unfinished


def test_those_who_hold_most_unfinished_bytes_for_longest_go_and_not_who_sends_just_now() -> None:
    memory = RequestMemory(4 << 20)
    slow = [_Peer(memory) for _ in range(5)]
    for peer in slow:
        peer.receive((1 << 20).to_bytes(4, "big") + bytes(700 << 10))
    honest = _Peer(memory)
    request = (1 << 20).to_bytes(4, "big") + b"\0\x10\0\0" + bytes(4) + b"\xff\xff" + bytes((1 << 20) - 10)
    for number in range(10):
        for peer in [*slow, honest]:
            peer.now += 10
        honest.receive(request[: 900 << 10])
        honest.now += 0.1
        honest.receive(request[900 << 10 :])
        assert len(honest.exchanges) == number + 1
        honest.exchanges[-1].reply((b"done",))
    assert not honest.transport.ended
    assert [peer.transport.ended for peer in slow].count(True) == 1


def test_small_requests_that_never_end_do_not_cost_a_large_one_that_comes() -> None:
    memory = RequestMemory(4 << 20)
    slow = [_Peer(memory) for _ in range(56)]
    for peer in slow:
        peer.receive((1 << 20).to_bytes(4, "big") + bytes(72 << 10))
    honest = _Peer(memory)
    honest.now = 60
    honest.receive((1 << 20).to_bytes(4, "big") + bytes(900 << 10))
    assert not honest.transport.ended
    assert any(peer.transport.ended for peer in slow)


def test_what_comes_behind_a_request_that_holds_the_connection_waits_for_its_answer() -> None:  # invariant 7
    peer = _Peer(dispatch=lambda exchange: exchange.connection.hold(exchange) if exchange.correlation_id == 1 else None)
    peer.ask(4)
    assert [exchange.correlation_id for exchange in peer.exchanges] == [0, 1]
    _answer(peer.exchanges[1])  # the first one is still not answered: places in the order do not matter here
    assert [exchange.correlation_id for exchange in peer.exchanges] == [0, 1, 2, 3]
    assert not peer.transport.paused
    for place in (0, 3, 2):
        _answer(peer.exchanges[place])
    assert peer.replies == [0, 1, 2, 3]
    assert peer.memory.bytes_used == 0


def test_a_request_that_is_answered_at_once_holds_nothing_up() -> None:  # invariant 6
    def dispatch(exchange: Exchange) -> None:
        exchange.connection.hold(exchange)
        _answer(exchange)

    peer = _Peer(dispatch=dispatch)
    peer.ask(3)
    assert peer.replies == [0, 1, 2]
    assert not peer.transport.paused
