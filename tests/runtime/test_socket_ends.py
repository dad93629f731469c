"""The ends of streams of a socket loop: closed, aborted, reset, or cut off."""

from __future__ import annotations

import socket

import pytest
import trio
import trio.testing
from socket_handlers import BIG, Recorder, open_pair, read_all, run_with_loop

from gnomon.runtime.loop.socket_stream import LINGER_SECONDS
from gnomon.runtime.loop.sockets import SocketLoop
from gnomon.runtime.world import Connection, Listener

pytestmark = pytest.mark.usefixtures("each_poller")


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


def test_the_last_answer_reaches_a_peer_that_still_sends_at_the_close() -> None:
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


def test_abort_drops_the_backlog_and_the_peer_sees_a_reset() -> None:
    async def main(loop: SocketLoop) -> None:
        handler, peer = await open_pair(loop, Recorder)
        handler.connection.write([BIG])
        handler.connection.abort()
        handler.connection.abort()
        assert handler.connection.backlog_bytes == 0
        assert handler.events == []  # `closed` is never called from within `abort`
        await handler.until_closed()
        with pytest.raises(trio.BrokenResourceError):
            assert len(await read_all(peer)) < len(BIG)
        assert handler.events == ["closed"]

    run_with_loop(main)


@pytest.mark.parametrize("how", ["close", "abort"])
def test_closed_is_called_after_received_has_returned(how: str) -> None:
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


def test_listeners_and_streams_of_an_ended_loop_may_be_closed() -> None:
    listeners: list[Listener] = []
    connections: list[Connection] = []

    async def main(loop: SocketLoop) -> None:
        listeners.append(await loop.listen("127.0.0.1", 0, Recorder))
        for _ in range(2):
            handler, _ = await open_pair(loop, Recorder)
            handler.connection.write([BIG])
            connections.append(handler.connection)

    run_with_loop(main)
    listeners[0].close()
    closed, aborted = connections
    closed.pause_reading()
    closed.write([b"never"])
    closed.close()
    aborted.abort()
