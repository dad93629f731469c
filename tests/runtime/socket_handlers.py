"""Handlers of a socket loop that record their events and let tests wait for them, and their peers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
import trio.testing

from gnomon.runtime.loop.poller import AUTO, make_poller
from gnomon.runtime.loop.sockets import SocketLoop
from gnomon.runtime.trio_world import TrioClock
from gnomon.runtime.world import Connection

POLLER = AUTO  # the fixture `each_poller` sets it
BIG = bytes(range(256)) * (1 << 16)  # 16 MiB: more than any socket buffer takes


class Recorder:
    """A handler that records its data and events and lets tests wait for them."""

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
        loop = SocketLoop(TrioClock(), [].append if said is None else said.append, make_poller(POLLER))
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
