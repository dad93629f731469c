"""Addresses that a socket loop listens on, and connects to."""

from __future__ import annotations

import errno
import resource
import socket
from typing import Any

import pytest
import trio
import trio.testing
from socket_handlers import Echo, Recorder, Server, open_pair, read_exactly, run_with_loop

from gnomon.runtime.loop.sockets import SocketLoop
from gnomon.runtime.world import AddressTaken, Connection, Unreachable

pytestmark = pytest.mark.usefixtures("each_poller")


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


def test_an_address_in_use_is_named_with_advice() -> None:
    async def main(loop: SocketLoop) -> None:
        listener = await loop.listen("127.0.0.1", 0, Recorder)
        with pytest.raises(AddressTaken, match=rf"cannot listen on 127\.0\.0\.1:{listener.port}: .*another port"):
            await loop.listen("127.0.0.1", listener.port, Recorder)
        with pytest.raises(AddressTaken, match="address of this machine"):
            await loop.listen("192.0.2.1", 0, Recorder)

    run_with_loop(main)


def test_an_invalid_host_name_is_an_error_of_listen_and_connect() -> None:
    async def main(loop: SocketLoop) -> None:
        with pytest.raises(AddressTaken, match=r"'a\.\.b' is no host name: give an address of this machine"):
            await loop.listen("a..b", 0, Recorder)
        with pytest.raises(Unreachable, match=r"'a\.\.b' is no host name"):
            await loop.connect("a..b", 1, Recorder)

    run_with_loop(main)


def test_a_closed_listener_refuses_peers_and_frees_its_port_and_its_streams_stay_open() -> None:
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


def test_connect_adds_a_client_to_the_same_loop_and_accepts_a_host_name() -> None:
    async def main(loop: SocketLoop) -> None:
        server = Server(Echo)
        listener = await loop.listen("localhost", 0, server.accept)
        clients: list[Recorder] = []

        def accept(connection: Connection) -> Recorder:
            clients.append(Recorder(connection))
            connection.write([b"hello"])  # allowed before `connect` returns
            return clients[0]

        connection = await loop.connect("localhost", listener.port, accept)
        await clients[0].until(lambda: clients[0].data == b"hello")
        assert connection.peer == f"localhost:{listener.port}"
        assert server.handlers[0].connection.peer.startswith("127.0.0.1:")

    run_with_loop(main)


def test_ipv6_works_if_the_machine_supports_it() -> None:
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


def test_a_peer_is_unreachable_until_a_file_descriptor_is_free() -> None:
    async def main(loop: SocketLoop) -> None:
        listener = await loop.listen("127.0.0.1", 0, Recorder)
        before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
        try:
            with pytest.raises(Unreachable, match=r"Too many open files: .*ulimit -n"):
                await loop.connect("127.0.0.1", listener.port, Recorder)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
        await loop.connect("127.0.0.1", listener.port, Recorder)

    run_with_loop(main)


def test_a_lack_of_file_descriptors_pauses_accepting_and_is_logged() -> None:
    class NoFiles:
        """A listening socket whose first accept fails."""

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
        refusing: Any = NoFiles(listener.socket)
        listener.socket = refusing
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
