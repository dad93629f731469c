"""A Kafka connection without its socket: the order of replies, its own limits, and its end (numbers: invariants of
`connection`).
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafka_peer import Peer, answer

from gnomon.broker.kafka.connections.connection import BACKLOG_BYTES_MAX, REQUESTS_IN_FLIGHT_MAX
from gnomon.broker.kafka.connections.exchange import Exchange
from gnomon.broker.kafka.connections.request_memory import RequestMemory
from gnomon.runtime.loop.turn_share import SHARE_SECONDS
from gnomon.wire.frame_reader import RECEIVE_BYTES
from gnomon.wire.kafka.frame import MalformedFrame


@given(st.permutations(range(6)), st.lists(st.booleans(), min_size=6, max_size=6), st.sets(st.integers(0, 5)))
def test_replies_are_sent_in_the_order_of_their_requests(
    order: list[int], flushes: list[bool], silent: set[int]
) -> None:  # invariants 1, 2
    peer = Peer()
    peer.ask(6)
    for place in order:
        if place in silent:
            peer.exchanges[place].no_reply()
        else:
            answer(peer.exchanges[place], flush=flushes[place])
    peer.connection.flush()
    assert peer.replies == [number for number in range(6) if number not in silent]
    assert peer.answered == 6
    assert peer.memory.bytes_used == 0


def test_requests_beyond_the_share_of_a_turn_are_handled_in_the_next_one() -> None:  # invariant 8
    def take(exchange: Exchange) -> None:
        peer.now += SHARE_SECONDS / 2
        answer(exchange)

    peer = Peer(dispatch=take)
    peer.ask(8)
    turns = [len(peer.exchanges)]
    while peer.transport.next_turn:
        assert peer.transport.paused
        peer.transport.next_turn.pop(0)()
        turns.append(len(peer.exchanges))
    assert turns == [3, 6, 8]
    assert peer.transport.patient
    assert not peer.transport.paused
    assert peer.replies == list(range(8))


def test_a_connection_that_ends_while_requests_wait_for_the_next_turn_handles_none_of_them() -> None:  # invariant 8
    def take(exchange: Exchange) -> None:
        peer.now += 1.0

    peer = Peer(dispatch=take)
    peer.ask(2)
    (next_turn,) = peer.transport.next_turn
    peer.connection.closed()
    next_turn()
    assert len(peer.exchanges) == 1
    assert peer.memory.bytes_used == 0


def test_a_reply_that_waits_for_its_turn_outlives_its_buffer() -> None:
    peer = Peer()
    peer.ask(2)
    buffer = bytearray(b"\0\0\0\1")
    peer.exchanges[1].reply((memoryview(buffer),))
    buffer[:] = b"\xff\xff\xff\xff"
    answer(peer.exchanges[0])
    assert peer.replies == [0, 1]


def test_a_connection_above_its_own_limit_is_not_read_until_replies_are_sent() -> None:  # invariant 3
    peer = Peer(request_bytes_max=3000)
    peer.ask(4, 1000)
    assert len(peer.exchanges) == 3
    assert peer.transport.paused
    answer(peer.exchanges[0])
    assert len(peer.exchanges) == 4  # the requests in the buffer are handled first
    assert peer.transport.paused
    for exchange in peer.exchanges[1:]:
        answer(exchange)
    assert not peer.transport.paused
    assert peer.memory.bytes_used == 0


def test_the_number_of_small_requests_is_limited() -> None:  # invariant 3
    peer = Peer()
    peer.ask(REQUESTS_IN_FLIGHT_MAX + 5)
    assert len(peer.exchanges) == REQUESTS_IN_FLIGHT_MAX
    assert peer.transport.paused
    for exchange in list(peer.exchanges):
        exchange.no_reply()
    peer.connection.flush()
    assert len(peer.exchanges) == REQUESTS_IN_FLIGHT_MAX + 5
    assert not peer.transport.paused


def test_a_peer_that_does_not_receive_its_replies_is_not_read_and_others_are() -> None:  # invariant 3
    memory = RequestMemory(1 << 20)
    slow, other = Peer(memory, dispatch=answer), Peer(memory, dispatch=answer)
    slow.transport.backlog_bytes = BACKLOG_BYTES_MAX + 1
    slow.ask(3)
    other.ask(3)
    assert (len(slow.exchanges), len(other.exchanges)) == (1, 3)
    assert slow.transport.paused
    slow.transport.backlog_bytes = 0
    slow.connection.drained()
    assert len(slow.exchanges) == 3
    assert not slow.transport.paused


def test_a_waiting_request_is_cut_short_when_another_one_arrives() -> None:  # invariant 4
    cuts: list[int] = []

    def dispatch(exchange: Exchange) -> None:
        def cut() -> None:
            cuts.append(exchange.correlation_id)
            answer(exchange)

        exchange.cut_short = cut

    peer = Peer(dispatch=dispatch)
    peer.ask()
    assert cuts == []
    peer.ask()
    assert cuts == [0]
    peer.ask(2)
    assert cuts == [0, 1, 2]
    assert peer.replies == [0, 1, 2]


def test_a_close_with_requests_in_flight_returns_their_memory_and_drops_their_replies() -> None:  # invariant 2
    memory = RequestMemory(4000)
    cuts: list[str] = []
    peer, other = Peer(memory), Peer(memory, dispatch=answer)
    peer.ask(2, 2000)
    peer.exchanges[1].cut_short = lambda: cuts.append("cut")
    other.ask(3)
    peer.connection.closed()
    assert cuts == ["cut"]
    assert peer.reasons == [None]
    assert memory.bytes_used == 0
    assert other.replies == [0, 1, 2]
    for exchange in peer.exchanges:
        answer(exchange)
    peer.connection.flush()
    assert peer.replies == []
    assert memory.bytes_used == 0


def test_a_request_that_is_decoded_after_the_close_takes_no_memory() -> None:  # invariant 2
    peer = Peer()
    peer.ask()
    peer.connection.closed()
    peer.connection.charge(peer.exchanges[0], 512)
    answer(peer.exchanges[0])
    assert peer.memory.bytes_used == 0


def test_memory_that_a_request_gives_back_before_its_answer_lets_others_go_on() -> None:  # invariants 2, 3
    memory = RequestMemory(10_000)
    unpacking, other = Peer(memory), Peer(memory)
    unpacking.ask()
    unpacking.exchanges[0].charge(20_000)
    other.ask(2)
    assert len(other.exchanges) == 1
    unpacking.exchanges[0].refund(20_000)
    assert len(other.exchanges) == 2
    for exchange in (*unpacking.exchanges, *other.exchanges):
        answer(exchange)
    assert memory.bytes_used == 0


def test_a_request_without_an_answer_is_worked_on_after_its_connection_is_closed() -> None:
    peer = Peer()
    peer.ask()
    peer.ask()
    first, second = peer.exchanges
    second.silent = True
    peer.connection.closed()
    assert (first.gone, second.gone) == (True, False)
    second.charge(5)
    second.refund(5)
    assert peer.memory.bytes_used == 0


def test_a_malformed_frame_ends_the_connection_after_the_earlier_replies() -> None:  # invariant 5
    memory = RequestMemory(1 << 20)
    peer, other = Peer(memory, dispatch=answer), Peer(memory, dispatch=answer)
    peer.ask()
    peer.receive(b"\xff\xff\xff\xff")
    assert peer.transport.ended
    peer.connection.closed()
    assert "negative" in str(peer.reasons[0])
    assert peer.replies == [0]
    other.ask()
    assert other.replies == [0]
    assert memory.bytes_used == 0


def test_an_unfinished_request_is_discarded_with_its_connection() -> None:
    peer = Peer()
    peer.receive((1 << 19).to_bytes(4, "big") + bytes(1 << 18))
    peer.connection.closed()
    assert len(peer.connection.receive_buffer()) == RECEIVE_BYTES


def test_a_request_that_its_handler_finds_malformed_ends_the_connection() -> None:  # invariant 5
    def dispatch(exchange: Exchange) -> None:
        raise MalformedFrame("no such thing")

    peer = Peer(dispatch=dispatch)
    peer.ask(3)
    assert len(peer.exchanges) == 1
    peer.connection.closed()
    assert peer.reasons == ["no such thing"]
    assert peer.memory.bytes_used == 0


def test_a_finishing_connection_takes_no_more_requests_and_ends_after_its_last_reply() -> None:
    peer = Peer()
    peer.ask(2)
    peer.connection.finish()
    assert peer.transport.paused
    answer(peer.exchanges[1])
    assert not peer.transport.ended
    answer(peer.exchanges[0])
    assert peer.transport.ended
    assert peer.replies == [0, 1]


def test_requests_after_one_that_holds_the_connection_wait_for_its_reply() -> None:  # invariant 7
    peer = Peer(dispatch=lambda exchange: exchange.connection.hold(exchange) if exchange.correlation_id == 1 else None)
    peer.ask(4)
    assert [exchange.correlation_id for exchange in peer.exchanges] == [0, 1]
    answer(peer.exchanges[1])  # the first one is still not answered: places in the order do not matter here
    assert [exchange.correlation_id for exchange in peer.exchanges] == [0, 1, 2, 3]
    assert not peer.transport.paused
    for place in (0, 3, 2):
        answer(peer.exchanges[place])
    assert peer.replies == [0, 1, 2, 3]
    assert peer.memory.bytes_used == 0


def test_a_holding_request_that_is_answered_at_once_delays_nothing() -> None:  # invariant 6
    def dispatch(exchange: Exchange) -> None:
        exchange.connection.hold(exchange)
        answer(exchange)

    peer = Peer(dispatch=dispatch)
    peer.ask(3)
    assert peer.replies == [0, 1, 2]
    assert not peer.transport.paused
