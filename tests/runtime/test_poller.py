"""The promises of the pollers, by the numbers in the head of `poller.py`."""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from gnomon.runtime.loop.poller import (
    AUTO,
    BROKEN,
    EPOLL,
    QUIET_SECONDS,
    READABLE,
    SELECTORS,
    WRITABLE,
    EpollPoller,
    Poller,
    SelectorPoller,
    UnknownPoller,
    make_poller,
)
from gnomon.runtime.settings.settings import declared_settings


@pytest.fixture(params=[EPOLL, SELECTORS])
def poller(request: pytest.FixtureRequest) -> Iterator[Poller]:
    made = make_poller(request.param)
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection over TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    with ours, theirs:
        yield ours, theirs


def found(poller: Poller, wanted: socket.socket, events_max: int = 256) -> int:
    """The events that the poller reports of a socket."""
    return dict(poller.poll(0, events_max)).get(wanted.fileno(), 0)


async def waited(poller: Poller, wanted: socket.socket) -> int:
    """The first events that the poller reports of a socket."""
    with trio.fail_after(20):
        while not (events := found(poller, wanted)):
            await poller.wait()
    return events


def test_the_events_have_epolls_numbers() -> None:
    assert (READABLE, WRITABLE) == (select.EPOLLIN, select.EPOLLOUT)
    assert select.EPOLLERR | select.EPOLLHUP == BROKEN


def test_asked_events_are_reported_as_long_as_they_last_1(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair

    async def main() -> None:
        poller.register(ours, READABLE)
        assert found(poller, ours) == 0
        theirs.send(b"xy")
        for _ in range(2):
            assert await waited(poller, ours) == READABLE
        poller.modify(ours, READABLE | WRITABLE)
        assert found(poller, ours) == READABLE | WRITABLE
        ours.recv(2)
        assert found(poller, ours) == WRITABLE
        poller.modify(ours, 0)
        poller.modify(ours, 0)
        theirs.send(b"z")
        assert found(poller, ours) == 0
        poller.modify(ours, READABLE)
        assert await waited(poller, ours) == READABLE

    trio.run(main)


@pytest.mark.parametrize("events", [READABLE, 0])
def test_a_socket_that_was_shut_down_is_reported_broken_2(
    poller: Poller, pair: tuple[socket.socket, socket.socket], events: int
) -> None:
    ours, _ = pair
    poller.register(ours, READABLE)

    async def main() -> None:
        poller.modify(ours, events)
        ours.shutdown(socket.SHUT_RDWR)
        poller.hung_up(ours)
        assert await waited(poller, ours) & BROKEN

    trio.run(main)


def test_a_reset_is_noticed_while_no_event_is_asked_for_2(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    poller.register(ours, READABLE)

    async def main() -> float:
        poller.modify(ours, 0)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        began = trio.current_time()
        assert await waited(poller, ours) & BROKEN
        return trio.current_time() - began

    took = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.01))
    assert took <= QUIET_SECONDS


def test_nothing_is_reported_after_forget_3(poller: Poller, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    number = ours.fileno()
    theirs.send(b"x")
    poller.register(ours, READABLE)
    poller.hung_up(ours)
    poller.forget(ours)
    ours.close()
    os.dup2(theirs.fileno(), number)  # a later socket with the same number
    try:
        assert number not in dict(poller.poll(0, 256))
    finally:
        os.close(number)


def test_a_quiet_socket_may_be_forgotten_3(poller: Poller, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair

    async def main() -> None:
        poller.register(ours, READABLE)
        poller.modify(ours, 0)
        poller.forget(ours)
        ours.close()
        poller.register(theirs, WRITABLE)
        assert await waited(poller, theirs) == WRITABLE

    trio.run(main)


def test_a_ring_from_another_thread_ends_the_wait_4(poller: Poller) -> None:
    async def main() -> None:
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, poller.ring)
                with trio.fail_after(20):
                    await poller.wait()
            poller.poll(0, 256)

    trio.run(main)


def test_any_number_of_rings_is_possible_also_after_the_end_4(poller: Poller) -> None:
    for _ in range(70_000):  # more than a pipe has room for
        poller.ring()
    poller.close()
    poller.ring()


def test_more_sockets_than_one_poll_reports_all_have_their_turn_5(poller: Poller) -> None:
    pairs = [socket.socketpair() for _ in range(5)]
    try:
        for ours, _ in pairs:
            poller.register(ours, WRITABLE)
        turns = [[number for number, _ in poller.poll(0, 2)] for _ in range(3)]
        assert [len(turn) for turn in turns] == [2, 2, 2]
        assert {number for turn in turns for number in turn} == {ours.fileno() for ours, _ in pairs}
    finally:
        for both in pairs:
            for end in both:
                end.close()


def test_each_value_of_the_setting_is_a_poller() -> None:
    for name in declared_settings()["network.poller"].choices:
        make_poller(name).close()


def test_without_epoll_the_second_poller_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(make_poller(AUTO), EpollPoller)
    monkeypatch.delattr(select, "epoll")
    monkeypatch.delattr(os, "eventfd")
    taken = make_poller(AUTO)
    assert isinstance(taken, SelectorPoller)
    taken.close()
    with pytest.raises(UnknownPoller, match=r"network\.poller"):
        make_poller(EPOLL)
