"""Streams of a socket loop: writes, reads, and their order."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing
from socket_handlers import BIG, Echo, Recorder, Server, open_pair, read_all, read_exactly, run_with_loop

from gnomon.runtime.loop.sockets import RECEIVE_BYTES, SocketLoop

pytestmark = pytest.mark.usefixtures("each_poller")


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


def test_the_backlog_of_a_slow_reader_keeps_its_order_and_drained_is_called_when_it_is_sent() -> None:
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
            while len(data) < taken:  # makes room while the loop has no turn
                data += peer.recv(taken - len(data))
            handler.connection.write([b"tail"])
            peer.setblocking(False)
            while len(data) < len(BIG) + 4:
                await trio.lowlevel.wait_readable(peer)
                data += peer.recv(1 << 20)
            assert data == BIG + b"tail"

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
        for _ in range(3):  # the loop wakes up in each round trip and could have read the data
            await barrier.send_all(b"x")
            await read_exactly(barrier, 1)
        assert paused.events == []
        paused.connection.resume_reading()
        paused.connection.resume_reading()
        await paused.until(lambda: paused.data == b"waits")
        assert other.data == b"xxx"

    run_with_loop(main)


def test_a_handler_that_pauses_within_received_gets_no_more_of_the_waiting_data() -> None:
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


class WithoutBuffer(Recorder):
    def receive_buffer(self) -> memoryview:
        raise MemoryError


class WithoutMemory(Recorder):
    def received(self, count: int) -> None:
        raise MemoryError("no memory for 7 bytes")


@pytest.mark.parametrize(
    ("handler", "words"), [(WithoutBuffer, "out of memory"), (WithoutMemory, "no memory for 7 bytes")]
)
def test_a_stream_without_memory_for_its_bytes_is_closed_and_others_are_served(
    handler: type[Recorder], words: str
) -> None:
    said: list[str] = []

    async def main(loop: SocketLoop) -> None:
        poor, peer = await open_pair(loop, handler)
        _, other = await open_pair(loop, Echo)
        await peer.send_all(b"much")
        await poor.until_closed()
        assert words in said[0]
        await other.send_all(b"x")
        assert await read_exactly(other, 1) == b"x"

    run_with_loop(main, said=said)


def test_a_stream_without_memory_for_the_rest_of_a_write_is_closed_and_the_writer_goes_on() -> None:
    class Chunks(list[bytes]):
        def __getitem__(self, index: Any) -> Any:
            def rest() -> Iterator[bytes]:
                yield b"some"
                raise MemoryError

            return rest()

    said: list[str] = []

    async def main(loop: SocketLoop) -> None:
        handler, _ = await open_pair(loop, Recorder)
        handler.connection.write(Chunks([BIG]))
        handler.connection.write([b"dropped"])
        assert handler.connection.backlog_bytes == 0
        await handler.until_closed()
        assert "out of memory" in said[0]

    run_with_loop(main, said=said)


def test_streams_that_are_ready_together_receive_a_bounded_number_of_bytes_in_a_turn() -> None:
    turns = Counter[int]()

    class Greedy(Recorder):
        def receive_buffer(self) -> memoryview:
            return memoryview(bytearray(1 << 22))

        def received(self, count: int) -> None:
            turns[turn[0]] += count
            self.data += bytes(count)
            self.tell("received")

    turn = [0]

    class Turns(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            turn[0] += 1

    async def main(loop: SocketLoop) -> None:
        trio.lowlevel.add_instrument(Turns())
        pairs = [await open_pair(loop, Greedy) for _ in range(4)]
        for handler, _ in pairs:
            handler.connection.pause_reading()
        async with trio.open_nursery() as nursery:
            for _, peer in pairs:
                nursery.start_soon(peer.send_all, BIG)
            for handler, _ in pairs:
                handler.connection.resume_reading()
            for handler, _ in pairs:
                await handler.until(lambda handler=handler: len(handler.data) == len(BIG))
        assert max(turns.values()) <= 2 * RECEIVE_BYTES

    run_with_loop(main)
