from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from gnomon.runtime.sockets import LINGER_SECONDS, SocketLoop
from gnomon.runtime.trio_world import TrioClock
from gnomon.runtime.world import AddressTaken, Connection, Unreachable

BIG = bytes(range(256)) * (1 << 16)  # 16 MiB: more than any socket buffer takes


class Recorder:
    """A handler that keeps what it is told and lets tests wait for it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.data = bytearray()
        self.events: list[str] = []
        self.changed = trio.Event()
        self.buffer = memoryview(bytearray(4096))

    def receive_buffer(self) -> memoryview:
        return self.buffer

    def received(self, count: int) -> None:
        self.data += self.buffer[:count]
        self.tell("received")

    def drained(self) -> None:
        assert self.connection.backlog_bytes == 0
        self.tell("drained")

    def closed(self) -> None:
        self.tell("closed")

    def tell(self, event: str) -> None:
        self.events.append(event)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed = trio.Event()
            await self.changed.wait()

    async def until_closed(self) -> None:
        await self.until(lambda: "closed" in self.events)


class Echo(Recorder):
    def received(self, count: int) -> None:
        self.connection.write([self.buffer[:count]])
        super().received(count)


class Server:
    """A listener whose handlers can be waited for."""

    def __init__(self, make: Callable[[Connection], Recorder]) -> None:
        self.make = make
        self.handlers: list[Recorder] = []
        self.arrived = trio.Event()

    def accept(self, connection: Connection) -> Recorder:
        handler = self.make(connection)
        self.handlers.append(handler)
        self.arrived.set()
        return handler

    async def first(self) -> Recorder:
        await self.arrived.wait()
        return self.handlers[0]


def run_with_loop(
    main: Callable[[SocketLoop], Awaitable[None]], *, clock: trio.abc.Clock | None = None, said: list[str] | None = None
) -> None:
    async def with_loop() -> None:
        loop = SocketLoop(TrioClock(), [].append if said is None else said.append)
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(loop.run)
                await main(loop)
                nursery.cancel_scope.cancel()

    trio.run(with_loop, clock=clock)


async def open_pair(loop: SocketLoop, make: Callable[[Connection], Recorder]) -> tuple[Recorder, trio.SocketStream]:
    """A handler of the loop and its peer, an independent Trio stream."""
    server = Server(make)
    listener = await loop.listen("127.0.0.1", 0, server.accept)
    peer = await trio.open_tcp_stream("127.0.0.1", listener.port)
    return await server.first(), peer


async def read_all(peer: trio.SocketStream) -> bytes:
    data = bytearray()
    while some := await peer.receive_some(1 << 20):
        data += some
    return bytes(data)


async def read_exactly(peer: trio.SocketStream, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        some = await peer.receive_some(count - len(data))
        assert some, "the stream ended early"
        data += some
    return bytes(data)


def test_two_hundred_connections_are_echoed_at_once() -> None:
    async def main(loop: SocketLoop) -> None:
        server = Server(Echo)
        listener = await loop.listen("127.0.0.1", 0, server.accept)

        async def client(number: int) -> None:
            peer = await trio.open_tcp_stream("127.0.0.1", listener.port)
            for round in range(5):
                message = b"%d of %d" % (round, number) * 100
                await peer.send_all(message)
                assert await read_exactly(peer, len(message)) == message
            await peer.aclose()

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(client, number)
        assert len(server.handlers) == 200
        for handler in server.handlers:
            await handler.until_closed()
            assert handler.events.count("closed") == 1
            assert handler.events[-1] == "closed"

    run_with_loop(main)


def test_what_a_slow_reader_does_not_take_is_kept_in_order_and_drained_is_told_once_it_went() -> None:
    async def main(loop: SocketLoop) -> None:
        handler, peer = await open_pair(loop, Recorder)
        buffer = bytearray(BIG)
        handler.connection.write([buffer])
        assert 0 < handler.connection.backlog_bytes < len(BIG)
        handler.connection.write([b"tail", b"", b"end"])
        buffer[:] = bytes(len(buffer))  # the world keeps copies, not the caller's memory
        assert await read_exactly(peer, len(BIG) + 7) == BIG + b"tailend"
        await handler.until(lambda: "drained" in handler.events)
        assert handler.events == ["drained"]
        handler.connection.write([b"again"])
        assert await read_exactly(peer, 5) == b"again"
        assert handler.events == ["drained"]

    run_with_loop(main)


def test_a_write_never_overtakes_the_backlog_when_the_socket_has_room_again() -> None:
    async def main(loop: SocketLoop) -> None:
        server = Server(Recorder)
        listener = await loop.listen("127.0.0.1", 0, server.accept)
        with socket.create_connection(("127.0.0.1", listener.port)) as peer:
            handler = await server.first()
            handler.connection.write([BIG])
            taken = len(BIG) - handler.connection.backlog_bytes
            data = bytearray()
            while len(data) < taken:  # makes room behind the back of the loop, which has no turn here
                data += peer.recv(taken - len(data))
            handler.connection.write([b"tail"])
            peer.setblocking(False)
            while len(data) < len(BIG) + 4:
                await trio.lowlevel.wait_readable(peer)
                data += peer.recv(1 << 20)
            assert data == BIG + b"tail"

    run_with_loop(main)


def test_a_stream_may_be_refused_while_it_is_accepted() -> None:
    class Refused(Recorder):
        def __init__(self, connection: Connection) -> None:
            super().__init__(connection)
            connection.abort()

    async def main(loop: SocketLoop) -> None:
        handler, peer = await open_pair(loop, Refused)
        await handler.until_closed()
        try:
            assert await peer.receive_some(1) == b""
        except trio.BrokenResourceError:
            pass
        assert handler.events == ["closed"]

    run_with_loop(main)


@pytest.mark.parametrize("count", [0, 1, 1024, 1025, 5000])
def test_a_write_may_have_more_chunks_than_one_system_call_takes(count: int) -> None:
    async def main(loop: SocketLoop) -> None:
        handler, peer = await open_pair(loop, Recorder)
        chunks = [b"%07d" % number * 200 for number in range(count)]
        handler.connection.write([memoryview(chunk) for chunk in chunks])
        handler.connection.close()
        assert await read_all(peer) == b"".join(chunks)

    run_with_loop(main)


def test_a_paused_stream_receives_nothing_until_it_is_resumed() -> None:
    async def main(loop: SocketLoop) -> None:
        paused, peer = await open_pair(loop, Recorder)
        other, barrier = await open_pair(loop, Echo)
        paused.connection.pause_reading()
        paused.connection.pause_reading()
        await peer.send_all(b"waits")
        for _ in range(3):  # each round trip is a wake-up of the loop that could have read it
            await barrier.send_all(b"x")
            await read_exactly(barrier, 1)
        assert paused.events == []
        paused.connection.resume_reading()
        paused.connection.resume_reading()
        await paused.until(lambda: paused.data == b"waits")
        assert other.data == b"xxx"

    run_with_loop(main)


def test_a_handler_may_pause_within_received_and_gets_no_more_of_what_waits() -> None:
    class Pausing(Recorder):
        def received(self, count: int) -> None:
            self.connection.pause_reading()
            super().received(count)

    async def main(loop: SocketLoop) -> None:
        handler, peer = await open_pair(loop, Pausing)
        await peer.send_all(bytes(3 * 4096))
        await handler.until(lambda: len(handler.data) == 4096)
        handler.connection.resume_reading()
        await handler.until(lambda: len(handler.data) == 2 * 4096)
        assert handler.events == ["received", "received"]

    run_with_loop(main)


def test_close_sends_the_backlog_first_and_writes_after_it_are_dropped() -> None:
    async def main(loop: SocketLoop) -> None:
        handler, peer = await open_pair(loop, Recorder)
        handler.connection.write([BIG])
        handler.connection.close()
        handler.connection.close()
        handler.connection.write([b"never"])
        assert handler.events == []
        assert await read_all(peer) == BIG
        await peer.aclose()
        await handler.until_closed()
        assert handler.events == ["closed"]

    run_with_loop(main)


def test_the_last_answer_reaches_a_peer_that_still_sends_when_we_close() -> None:
    class AnswersOnce(Recorder):
        def received(self, count: int) -> None:
            super().received(count)
            self.connection.write([b"the error"])
            self.connection.close()

    async def main(loop: SocketLoop) -> None:
        handler, peer = await open_pair(loop, AnswersOnce)
        await peer.send_all(bytes(100_000))  # far more than is read before the close
        assert await read_all(peer) == b"the error"
        await peer.aclose()
        await handler.until_closed()
        assert handler.events == ["received", "closed"]

    run_with_loop(main)


def test_abort_drops_the_backlog_and_a_peer_that_was_owed_data_sees_a_reset() -> None:
    async def main(loop: SocketLoop) -> None:
        handler, peer = await open_pair(loop, Recorder)
        handler.connection.write([BIG])
        handler.connection.abort()
        handler.connection.abort()
        assert handler.connection.backlog_bytes == 0
        assert handler.events == []  # never from within the call
        await handler.until_closed()
        with pytest.raises(trio.BrokenResourceError):
            assert len(await read_all(peer)) < len(BIG)
        assert handler.events == ["closed"]

    run_with_loop(main)


@pytest.mark.parametrize("how", ["close", "abort"])
def test_closed_is_told_after_received_has_returned(how: str) -> None:
    class EndsIt(Recorder):
        def received(self, count: int) -> None:
            getattr(self.connection, how)()
            super().received(count)

    async def main(loop: SocketLoop) -> None:
        handler, peer = await open_pair(loop, EndsIt)
        await peer.send_all(b"x")
        if how == "close":
            assert await read_all(peer) == b""
            await peer.aclose()
        await handler.until_closed()
        assert handler.events == ["received", "closed"]

    run_with_loop(main)


@pytest.mark.parametrize("backlog", [b"", BIG])
def test_a_peer_that_neither_reads_nor_closes_is_cut_off_after_the_linger(backlog: bytes) -> None:
    clock = trio.testing.MockClock()

    async def main(loop: SocketLoop) -> None:
        handler, peer = await open_pair(loop, Recorder)
        handler.connection.write([backlog])
        handler.connection.close()
        clock.jump(LINGER_SECONDS - 0.1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert handler.events == []
        clock.jump(0.2)
        await handler.until_closed()
        await peer.aclose()

    run_with_loop(main, clock=clock)


def test_a_peer_that_resets_ends_a_paused_stream() -> None:
    async def main(loop: SocketLoop) -> None:
        handler, peer = await open_pair(loop, Recorder)
        handler.connection.pause_reading()
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await peer.aclose()
        await handler.until_closed()
        handler.connection.write([b"to nobody"])
        handler.connection.resume_reading()
        handler.connection.close()
        handler.connection.abort()
        assert handler.events == ["closed"]

    run_with_loop(main)


def test_writing_to_a_peer_that_is_gone_ends_the_stream_once() -> None:
    async def main(loop: SocketLoop) -> None:
        handler, peer = await open_pair(loop, Recorder)
        handler.connection.write([BIG])
        await peer.aclose()
        handler.connection.write([b"more"])
        await handler.until_closed()
        assert handler.events == ["closed"]
        assert handler.connection.backlog_bytes == 0

    run_with_loop(main)


def test_an_address_in_use_is_named_with_advice() -> None:
    async def main(loop: SocketLoop) -> None:
        listener = await loop.listen("127.0.0.1", 0, Recorder)
        with pytest.raises(AddressTaken, match=rf"cannot listen on 127\.0\.0\.1:{listener.port}: .*another port"):
            await loop.listen("127.0.0.1", listener.port, Recorder)
        with pytest.raises(AddressTaken, match="address of this machine"):
            await loop.listen("192.0.2.1", 0, Recorder)

    run_with_loop(main)


def test_a_closed_listener_refuses_peers_and_frees_its_port_while_its_streams_live_on() -> None:
    async def main(loop: SocketLoop) -> None:
        server = Server(Echo)
        listener = await loop.listen("127.0.0.1", 0, server.accept)
        peer = await trio.open_tcp_stream("127.0.0.1", listener.port)
        await server.first()
        listener.close()
        listener.close()
        with pytest.raises(Unreachable, match=rf"127\.0\.0\.1:{listener.port}"):
            await loop.connect("127.0.0.1", listener.port, Recorder)
        await peer.send_all(b"still here")
        assert await read_exactly(peer, 10) == b"still here"
        again = await loop.listen("127.0.0.1", listener.port, Recorder)
        assert again.port == listener.port

    run_with_loop(main)


def test_connect_drives_a_client_through_the_same_loop_by_name_too() -> None:
    async def main(loop: SocketLoop) -> None:
        server = Server(Echo)
        listener = await loop.listen("localhost", 0, server.accept)
        clients: list[Recorder] = []

        def accept(connection: Connection) -> Recorder:
            clients.append(Recorder(connection))
            connection.write([b"hello"])  # allowed from the first moment
            return clients[0]

        connection = await loop.connect("localhost", listener.port, accept)
        await clients[0].until(lambda: clients[0].data == b"hello")
        assert connection.peer == f"localhost:{listener.port}"
        assert server.handlers[0].connection.peer.startswith("127.0.0.1:")

    run_with_loop(main)


def test_ipv6_works_where_the_machine_has_it() -> None:
    async def main(loop: SocketLoop) -> None:
        server = Server(Echo)
        try:
            listener = await loop.listen("::1", 0, server.accept)
        except AddressTaken:
            pytest.skip("no IPv6 on this machine")
        client = (await loop.connect("::1", listener.port, Recorder)).peer
        assert client == f"[::1]:{listener.port}"
        assert (await server.first()).connection.peer.startswith("[::1]:")

    run_with_loop(main)


def test_a_full_table_of_files_pauses_accepting_and_is_logged() -> None:
    class NoFiles:
        """A listening socket that cannot accept, once."""

        def __init__(self, real: socket.socket) -> None:
            self.real, self.attempts = real, 0

        def accept(self) -> tuple[socket.socket, Any]:
            self.attempts += 1
            if self.attempts == 1:
                raise OSError(errno.EMFILE, "Too many open files")
            return self.real.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

    said: list[str] = []
    clock = trio.testing.MockClock()

    async def main(loop: SocketLoop) -> None:
        server = Server(Recorder)
        listener = await loop.listen("127.0.0.1", 0, server.accept)
        listener.socket = refusing = NoFiles(listener.socket)  # type: ignore[assignment]
        peer = await trio.open_tcp_stream("127.0.0.1", listener.port)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert refusing.attempts == 1
        assert server.handlers == []
        clock.jump(1)
        await server.first()
        await peer.aclose()

    run_with_loop(main, clock=clock, said=said)
    assert len(said) == 1
    assert "Too many open files" in said[0]
    assert "ulimit -n" in said[0]


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
    assert caught.group_contains(AssertionError, match="invariant 7")


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


def test_calls_of_other_threads_run_in_the_loops_thread_in_their_order_and_not_after_its_end() -> None:
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


def test_a_call_from_a_handler_runs_once_all_events_at_hand_are_served_and_rings_nobody() -> None:
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
            patch.setattr(os, "eventfd_write", lambda *_: rings.append(1))
            for _, peer in (first, second):
                peer.socket._sock.send(b"x")  # no turn of the loop lies between the two
            for _, peer in (first, second):
                await read_exactly(peer, 1)

    run_with_loop(main)
    assert order == ["received"] * 2 + ["called"] * 2 + ["called later"] * 2
    assert rings == []


def test_a_call_from_a_task_runs_soon_though_no_socket_has_events() -> None:
    async def main(loop: SocketLoop) -> None:
        ran = trio.Event()
        loop.call_soon(ran.set)
        assert not ran.is_set()
        await ran.wait()

    run_with_loop(main)


def test_no_call_of_a_thread_is_lost_while_the_loop_is_busy() -> None:
    """Each call waits for the one before it: one that was queued without a ring and not looked for would stop all."""

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
