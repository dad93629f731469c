"""The memory shared by all Kafka connections: waits and refusals (numbers: invariants of `connection`)."""

from __future__ import annotations

from kafka_peer import Peer, answer

from gnomon.broker.kafka.connections.connection import BACKLOG_BYTES_MAX, REQUEST_BYTES_MIN
from gnomon.broker.kafka.connections.exchange import Exchange
from gnomon.broker.kafka.connections.request_memory import LAST_ANSWERS_BYTES, RequestMemory


def test_connections_wait_while_all_memory_is_taken() -> None:  # invariant 3
    memory = RequestMemory(2000)
    first, second = Peer(memory), Peer(memory)
    first.ask(1, 2000)
    second.ask(2, 500)
    assert len(second.exchanges) == 1
    assert first.transport.paused
    assert second.transport.paused
    answer(first.exchanges[0])
    assert len(second.exchanges) == 2
    assert not first.transport.paused
    assert not second.transport.paused


def test_a_peer_that_drains_while_memory_is_full_continues_once_there_is_room() -> None:  # invariant 3
    memory = RequestMemory(2000)
    slow, other = Peer(memory, dispatch=answer), Peer(memory)
    slow.transport.backlog_bytes = BACKLOG_BYTES_MAX + 1
    slow.ask(2)
    assert slow.transport.paused
    other.ask(1, 2000)
    slow.transport.backlog_bytes = 0
    slow.connection.drained()
    assert slow.transport.paused
    answer(other.exchanges[0])
    assert slow.replies == [0, 1]
    assert not slow.transport.paused


def test_the_connection_with_the_most_unreceived_answers_is_cut_off() -> None:
    memory = RequestMemory(2000)
    slow, slowest, other = (Peer(memory, dispatch=answer) for _ in range(3))
    slow.transport.backlog_bytes = LAST_ANSWERS_BYTES // 4
    slowest.transport.backlog_bytes = LAST_ANSWERS_BYTES // 2
    slow.ask()
    slowest.ask()
    assert not slowest.transport.ended
    other.transport.backlog_bytes = LAST_ANSWERS_BYTES * 3 // 8
    other.ask()
    assert [peer.transport.ended for peer in (slow, slowest, other)] == [False, True, False]
    assert memory.backlog_bytes == LAST_ANSWERS_BYTES * 5 // 8
    slowest.connection.closed()
    for peer in (slow, other):
        peer.transport.backlog_bytes = 0
        peer.connection.drained()
    assert memory.backlog_bytes == 0


def test_thousands_of_waiting_connections_are_served_without_recursion() -> None:
    memory = RequestMemory(REQUEST_BYTES_MIN)
    held = Peer(memory)
    held.ask()
    waiting = [Peer(memory, dispatch=answer) for _ in range(5000)]
    for peer in waiting:
        peer.ask(2)
        assert len(peer.exchanges) == 1 or peer.transport.paused
    answer(held.exchanges[0])
    assert all(peer.replies == [0, 1] for peer in waiting)
    assert memory.bytes_used == 0


def test_a_connection_that_waited_for_memory_and_left_is_forgotten() -> None:
    memory = RequestMemory(1000)
    held, gone = Peer(memory), Peer(memory)
    held.ask(1, 1000)
    gone.ask(2)
    gone.connection.closed()
    answer(held.exchanges[0])
    assert memory.bytes_used == 0
    assert len(gone.exchanges) <= 1


def test_answers_that_peers_do_not_receive_leave_less_room_for_other_answers() -> None:
    memory = RequestMemory(1000)
    sloth, other = Peer(memory), Peer(memory)
    sloth.ask()
    sloth.transport.backlog_bytes = 900
    answer(sloth.exchanges[0])
    assert other.connection.answer_room() == 100
    sloth.ask()
    sloth.transport.backlog_bytes = 1500
    answer(sloth.exchanges[1])
    assert other.connection.answer_room() == 0
    sloth.transport.backlog_bytes = 0
    sloth.connection.drained()
    assert other.connection.answer_room() == 1000
    sloth.ask()
    sloth.transport.backlog_bytes = 300
    answer(sloth.exchanges[2])
    sloth.connection.closed()
    assert other.connection.answer_room() == 1000


def test_ready_answers_after_an_unready_one_are_counted_and_delay_the_next_requests() -> None:
    memory = RequestMemory(64 << 20)

    def dispatch(exchange: Exchange) -> None:
        if exchange.correlation_id:
            exchange.reply((memoryview(exchange.correlation_id.to_bytes(4, "big") + bytes(1 << 20)),))

    peer, other = Peer(memory, dispatch=dispatch), Peer(memory)
    peer.ask(100)
    assert len(peer.exchanges) == 5
    assert peer.transport.paused
    assert memory.backlog_bytes == 4 * ((1 << 20) + 4)
    assert peer.connection.answer_room() == -1
    assert other.connection.answer_room() == (60 << 20) - 16
    peer.connection.go_on()
    assert len(peer.exchanges) == 5
    answer(peer.exchanges[0])
    assert len(peer.exchanges) == 100
    assert peer.answered == 100
    assert memory.backlog_bytes == memory.bytes_used == 0


def test_the_memory_of_ready_answers_is_returned_when_their_connection_ends() -> None:
    peer = Peer()
    peer.ask(3)
    answer(peer.exchanges[2])
    assert peer.memory.backlog_bytes == 4
    peer.connection.closed()
    assert peer.memory.backlog_bytes == 0


def test_unfinished_requests_cannot_fill_the_memory() -> None:
    memory = RequestMemory(1 << 20)
    peers = [Peer(memory) for _ in range(3)]
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


def test_the_peer_with_the_most_unfinished_bytes_for_the_longest_is_refused_and_not_the_current_sender() -> None:
    memory = RequestMemory(4 << 20)
    slow = [Peer(memory) for _ in range(5)]
    for peer in slow:
        peer.receive((1 << 20).to_bytes(4, "big") + bytes(700 << 10))
    honest = Peer(memory)
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


def test_small_unfinished_requests_do_not_end_the_connection_of_a_large_one_that_arrives() -> None:
    memory = RequestMemory(4 << 20)
    slow = [Peer(memory) for _ in range(56)]
    for peer in slow:
        peer.receive((1 << 20).to_bytes(4, "big") + bytes(72 << 10))
    honest = Peer(memory)
    honest.now = 60
    honest.receive((1 << 20).to_bytes(4, "big") + bytes(900 << 10))
    assert not honest.transport.ended
    assert any(peer.transport.ended for peer in slow)
