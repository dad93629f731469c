"""Idle Kafka connections (numbers: invariants of `connection`)."""

from __future__ import annotations

import math

import pytest
from kafka_peer import Peer, answer

from gnomon.broker.kafka.connections.connection import IDLE_LOOK_SECONDS_MIN
from gnomon.broker.kafka.connections.request_memory import RequestMemory


def test_an_idle_connection_is_ended_and_an_earlier_check_returns_the_time_of_the_next() -> None:  # invariant 7
    peer = Peer(dispatch=answer)
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


def test_a_connection_with_a_request_in_flight_is_not_idle() -> None:  # invariant 7
    peer = Peer()
    peer.ask(2)
    assert peer.connection.end_if_idle(50, 10) == 60
    peer.now = 55
    answer(peer.exchanges[0])
    assert peer.connection.end_if_idle(66, 10) == 76
    peer.now = 70
    answer(peer.exchanges[1])
    assert peer.connection.end_if_idle(76, 10) == 80
    assert not peer.transport.ended
    assert peer.connection.end_if_idle(80, 10) == math.inf


@pytest.mark.parametrize("takes", [True, False])
def test_a_peer_that_receives_its_answer_slowly_is_not_idle_and_a_peer_that_stopped_is(takes: bool) -> None:
    peer = Peer(dispatch=answer)  # invariant 7
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


def test_a_connection_that_waits_for_memory_is_not_idle() -> None:  # invariant 7
    memory = RequestMemory(2000)
    greedy, waiting = Peer(memory), Peer(memory, dispatch=answer)
    greedy.ask(1, 2000)
    waiting.ask()
    assert waiting.transport.paused
    assert waiting.connection.end_if_idle(10, 10) == 20
    answer(greedy.exchanges[0])
    assert waiting.connection.end_if_idle(20, 10) == math.inf


def test_checks_of_a_busy_connection_have_a_least_interval_for_any_allowed_idle_time() -> None:
    peer = Peer()
    peer.ask()
    assert peer.connection.end_if_idle(5, 0) == 5 + IDLE_LOOK_SECONDS_MIN
