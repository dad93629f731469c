"""A server and its clients over real sockets, on request with a virtual clock that jumps when nothing happens."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from typing import Any

import msgpack
import pytest
import trio
import trio.testing

from gnomon.runtime.rpc.call import Call
from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.rpc.errors import ErrorTable
from gnomon.runtime.rpc.server import RpcServer
from gnomon.runtime.trio_world import TrioWorld, open_trio_world
from gnomon.wire import rpc


class Fenced(Exception):
    def __init__(self, ledger: int, session: int) -> None:
        super().__init__(f"ledger {ledger} is fenced by session {session}")
        self.ledger, self.session = ledger, session


class Missing(Exception):
    pass


ERRORS = ErrorTable({Fenced: ("ledger", "session"), Missing: ()})


class Log:
    """The reasons that a server logs."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def bind(self, **fields: object) -> Log:
        return self

    def warning(self, event: str, **fields: object) -> None:
        if event != "long_call":  # a busy machine can make any call long
            self.reasons.append(str(fields["reason"]))

    def debug(self, event: str, **fields: object) -> None:
        pytest.fail(event)

    info = error = exception = debug


class Bench:
    """A server with the methods that tests need, and clients of it."""

    def __init__(self, world: TrioWorld, nursery: trio.Nursery) -> None:
        self.world = world
        self.nursery = nursery
        self.log = Log()
        self.kept: list[Call] = []
        self.told: list[Any] = []
        self.cancelled: list[int] = []
        self.changed = trio.Event()
        self.methods: dict[str, Callable[[Call], None]] = {
            "echo": lambda call: call.reply(call.args, call.attachment),
            "keep": self.keep,
            "tell": lambda call: self.note(self.told.append, [*call.args, bytes(call.attachment)]),
            "fence": self.fence,
            "big": lambda call: call.reply(None, bytes(call.args[0])),
        }
        self.server = self.new_server()

    def new_server(self, **options: Any) -> RpcServer:
        return RpcServer(self.world, "test", self.methods, ERRORS, self.log, **options)

    async def listen(self) -> int:
        self.nursery.start_soon(self.server.run)
        return (await self.server.listen("127.0.0.1", 0)).port

    def client(self, port: int, service: str = "test", **options: Any) -> RpcClient:
        client = RpcClient(self.world, "127.0.0.1", port, service, ERRORS, **options)
        self.nursery.start_soon(client.run)
        return client

    def keep(self, call: Call) -> None:
        call.cancelled = lambda: self.note(self.cancelled.append, call.args[0])
        self.note(self.kept.append, call)

    def fence(self, call: Call) -> None:
        raise Fenced(*call.args)

    def note(self, add: Callable[[Any], None], what: Any) -> None:
        add(what)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed = trio.Event()
            await self.changed.wait()


def run(main: Callable[[Bench], Awaitable[None]], *, virtual: bool = False) -> None:
    async def bounded() -> None:
        with trio.fail_after(600 if virtual else 20):
            async with open_trio_world() as world, trio.open_nursery() as nursery:
                await main(Bench(world, nursery))
                nursery.cancel_scope.cancel()

    trio.run(bounded, clock=trio.testing.MockClock(autojump_threshold=0.02) if virtual else None)


async def raw_client(port: int, *frames: list[Any]) -> trio.SocketStream:
    """Connects a peer that sends these frames as they are."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    for head in frames:
        await stream.send_all(b"".join(rpc.encode(head)))
    return stream


async def frames_of(stream: trio.SocketStream) -> list[list[Any]]:
    """All frames until the peer ends the stream."""
    data = bytearray()
    try:
        while some := await stream.receive_some(1 << 16):
            data += some
    except trio.BrokenResourceError:
        pass
    frames, at = [], 0
    while at < len(data):
        size, head_bytes = struct.unpack_from(">II", data, at)
        frames.append(msgpack.unpackb(data[at + 8 : at + 8 + head_bytes]))
        at += 4 + size
    return frames


HELLO = [rpc.HELLO, rpc.MAGIC, [1], "test", None]
