"""The turns of a socket loop: other tasks that run meanwhile, and calls into the loop."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import ExitStack
from functools import partial

import pytest
import trio
import trio.testing
from socket_handlers import Echo, Recorder, Server, open_pair, read_exactly, run_with_loop

from gnomon.runtime.loop.sockets import PATIENT_SECONDS, SocketLoop
from gnomon.runtime.trio_world import TrioClock

pytestmark = pytest.mark.usefixtures("each_poller")


def test_an_exception_of_a_handler_stops_the_loop() -> None:
    class Broken(Recorder):
        def received(self, count: int) -> None:
            raise AssertionError("invariant 7")

    async def main(loop: SocketLoop) -> None:
        _, peer = await open_pair(loop, Broken)
        await peer.send_all(b"x")
        await trio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught:
        run_with_loop(main)
    assert caught.value.subgroup(lambda error: str(error) == "invariant 7")


def test_other_tasks_run_while_the_sockets_are_busy() -> None:
    async def main(loop: SocketLoop) -> None:
        _, peer = await open_pair(loop, Echo)
        turns = 0
        async with trio.open_nursery() as nursery:

            async def busy() -> None:
                for _ in range(200):
                    await peer.send_all(b"x")
                    await read_exactly(peer, 1)
                nursery.cancel_scope.cancel()

            nursery.start_soon(busy)
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()
        assert turns > 200

    run_with_loop(main)


def test_calls_of_other_threads_run_in_order_in_the_loops_thread_and_not_after_its_end() -> None:
    heard: list[tuple[int, int]] = []
    loops: list[SocketLoop] = []

    async def main(loop: SocketLoop) -> None:
        loops.append(loop)
        all_heard = trio.Event()

        def hear(number: int) -> None:
            heard.append((number, threading.get_ident()))
            if number == 999:
                all_heard.set()

        def call_from_elsewhere() -> None:
            for number in range(1000):
                loop.call_soon(partial(hear, number))

        await trio.to_thread.run_sync(call_from_elsewhere)
        await all_heard.wait()

    run_with_loop(main)
    assert heard == [(number, threading.get_ident()) for number in range(1000)]
    loops[0].call_soon(lambda: heard.append((-1, 0)))
    assert len(heard) == 1000


def test_a_call_from_a_handler_runs_after_the_pending_events_without_a_wake_up() -> None:
    order: list[str] = []
    rings: list[int] = []

    class Notes(Echo):
        def received(self, count: int) -> None:
            order.append("received")
            loop = loops[0]
            loop.call_soon(lambda: order.append("called"))
            loop.call_soon(lambda: loop.call_soon(lambda: order.append("called later")))
            super().received(count)

    loops: list[SocketLoop] = []

    async def main(loop: SocketLoop) -> None:
        loops.append(loop)
        first, second = await open_pair(loop, Notes), await open_pair(loop, Notes)
        with pytest.MonkeyPatch.context() as patch:
            for write in ("eventfd_write", "write"):
                patch.setattr(os, write, lambda *_: rings.append(1))
            for _, peer in (first, second):
                peer.socket._sock.send(b"x")  # no turn of the loop lies between the two
            for _, peer in (first, second):
                await read_exactly(peer, 1)

    run_with_loop(main)
    assert order == ["received"] * 2 + ["called"] * 2 + ["called later"] * 2
    assert rings == []


def test_a_call_from_a_task_runs_soon_even_if_no_socket_has_events() -> None:
    async def main(loop: SocketLoop) -> None:
        ran = trio.Event()
        loop.call_soon(ran.set)
        assert not ran.is_set()
        await ran.wait()

    run_with_loop(main)


def test_no_call_of_a_thread_is_lost_while_the_loop_is_busy() -> None:
    """Each call waits for the one before it, so that one call that the loop missed would stop the test."""

    async def main(loop: SocketLoop) -> None:
        server = Server(Echo)
        listener = await loop.listen("127.0.0.1", 0, server.accept)

        def call_from_elsewhere() -> None:
            for _ in range(2000):
                ran = threading.Event()
                loop.call_soon(ran.set)
                assert ran.wait(10)

        async with trio.open_nursery() as nursery:

            async def keep_busy() -> None:
                peer = await trio.open_tcp_stream("127.0.0.1", listener.port)
                while True:
                    await peer.send_all(b"x")
                    await read_exactly(peer, 1)

            nursery.start_soon(keep_busy)
            await trio.to_thread.run_sync(call_from_elsewhere)
            nursery.cancel_scope.cancel()

    run_with_loop(main)


def test_calls_for_the_next_turn_run_after_other_streams_and_only_some_in_one_turn() -> None:  # 5
    ran: list[str] = []

    class Watch(TrioClock):
        def __init__(self) -> None:
            self.now = 0.0
            self.monotonic = lambda: self.now

    class Noting(Recorder):
        def received(self, count: int) -> None:
            ran.append("received")
            super().received(count)

    async def main(loop: SocketLoop) -> None:
        loop.clock = watch = Watch()
        server = Server(Noting)
        listener = await loop.listen("127.0.0.1", 0, server.accept)
        with socket.create_connection(("127.0.0.1", listener.port)) as peer:
            handler = await server.first()

            def slow(number: int) -> None:
                ran.append(f"slow {number}")
                watch.now += PATIENT_SECONDS
                peer.send(b"x")

            def first() -> None:
                for number in range(3):
                    handler.connection.call_next_turn(partial(slow, number))
                peer.send(b"x")

            loop.call_soon(first)
            while ran.count("received") < 4:
                await trio.testing.wait_all_tasks_blocked(0.01)

    run_with_loop(main)
    assert ran == ["received", "slow 0", "received", "slow 1", "received", "slow 2", "received"]


def test_a_call_for_the_next_turn_runs_though_no_stream_has_an_event() -> None:  # 5
    async def main(loop: SocketLoop) -> None:
        server = Server(Recorder)
        listener = await loop.listen("127.0.0.1", 0, server.accept)
        with socket.create_connection(("127.0.0.1", listener.port)):
            handler = await server.first()
            await trio.testing.wait_all_tasks_blocked()  # the loop waits for events
            ran = trio.Event()
            handler.connection.call_next_turn(ran.set)
            with trio.fail_after(5):
                await ran.wait()

    run_with_loop(main)


def test_patient_streams_are_served_last_and_each_in_its_own_turn() -> None:
    served: list[str] = []

    class Watch(TrioClock):
        def __init__(self) -> None:
            self.now = 0.0
            self.monotonic = lambda: self.now

    class Noting(Recorder):
        name = ""

        def received(self, count: int) -> None:
            served.append(self.name)
            super().received(count)

    async def main(loop: SocketLoop) -> None:
        loop.clock = watch = Watch()

        class Slow(Noting):
            """Takes longer than a turn has for patient streams, and gives itself and another stream data to read."""

            def received(self, count: int) -> None:
                watch.now += 1.0
                peers["prompt"].send(b"x")
                super().received(count)
                if served.count(self.name) == 1:
                    peers[self.name].send(b"x")

        peers: dict[str, socket.socket] = {}
        for name, kind in {"prompt": Noting, "a": Slow, "b": Slow, "c": Slow}.items():
            server = Server(kind)
            listener = await loop.listen("127.0.0.1", 0, server.accept)
            peers[name] = stack.enter_context(socket.create_connection(("127.0.0.1", listener.port)))
            handler = await server.first()
            assert isinstance(handler, Noting)
            handler.name, handler.connection.patient = name, kind is Slow
        for name in ("a", "b", "c", "prompt"):
            peers[name].send(b"x")
        while served.count("prompt") < 7:
            await trio.testing.wait_all_tasks_blocked()

    with ExitStack() as stack:
        run_with_loop(main)
    assert served[::2] == ["prompt"] * 7
    assert sorted(served[1:6:2]) == sorted(served[7::2]) == ["a", "b", "c"]
