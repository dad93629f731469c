"""Serves the methods of one service to other processes, over the streams of the world's network.

1. A method is called once for each call that arrives; calls of one client run in the order in which the client sent
   them. A call is answered at most once, and an answer after its cancellation is dropped.
2. The answers of one turn of the event loop leave each connection in one write; large answers leave at once.
3. The server reads no more from a connection while its calls in flight and its untaken answers take
   `connection_bytes_max`, or CALLS_MAX of its calls are in flight. It still reads from other connections. A connection
   exceeds its bytes at most by one frame and by the answers to its calls. A call that waits for an event, such as a new
   entry, can be set aside: it does not count toward CALLS_MAX. Beyond WAITING_MAX such calls, further ones are refused.
4. A stream sends items only while its client takes them; the other calls of its connection continue meanwhile.
5. The calls of one connection take about 2 ms of a turn; the others follow in the next turns, after other connections.
6. No input of a peer can stop the node: an invalid call is answered with an error. A malformed frame, or a call without
   memory for its handling, ends its connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from gnomon.runtime.limited_log import LimitedLog
from gnomon.runtime.logs import Logger
from gnomon.runtime.loop.turn_share import TurnShare
from gnomon.runtime.loop.turn_watch import LONG_SECONDS, NOTED_SECONDS, ran
from gnomon.runtime.rpc.call import CALL_BYTES_MIN, Call, Method
from gnomon.runtime.rpc.connection import RpcConnection
from gnomon.runtime.rpc.errors import ErrorTable, RpcFailed
from gnomon.runtime.signal import Signal
from gnomon.runtime.world import Buffer, Connection, Listener, World
from gnomon.wire import rpc
from gnomon.wire.rpc import CALL, CANCEL, DEFAULT_HEADS, MORE, OPEN, TELL, HeadLimits, MalformedRpc

CONNECTION_BYTES_MAX = 32 << 20
CALLS_MAX = 4096
"""The most calls of one connection that wait for their answers and are not set aside."""
WAITING_MAX = 16_384
"""The most calls of one connection that are set aside; a call that waits in a task takes 6 KB."""
STREAMS_MAX = 1024
TICK_SECONDS = 2.0
PING_SECONDS = 14.0
SILENCE_SECONDS = 30.0
"""A peer that is silent for this long counts as gone: a live client answers pings."""

UNFINISHED_BYTES_FREE = 64 << 10
"""An unfinished frame up to this size is not counted: every connection may have one."""
UNFINISHED_BYTES_MAX = 256 << 20

_CALLS = (CALL, TELL, OPEN)


class ConnectionLimit(Protocol):
    """Bounds the connections of a server."""

    def take(self, connection: ServerConnection) -> str | None:
        """Counts a new connection, or returns the reason to refuse it."""

    def give_back(self, connection: ServerConnection) -> None:
        """A connection is gone, counted or not."""


class RpcServer:
    """Serves one service on any number of addresses; `run` finds peers that are gone."""

    def __init__(
        self,
        world: World,
        service: str,
        methods: Mapping[str, Method],
        errors: ErrorTable,
        log: Logger,
        *,
        cluster: str | None = None,
        heads: HeadLimits = DEFAULT_HEADS,
        connection_bytes_max: int = CONNECTION_BYTES_MAX,
        frame_bytes_max: int = rpc.FRAME_BYTES_MAX,
        unfinished_bytes_max: int = UNFINISHED_BYTES_MAX,
        limits: ConnectionLimit | None = None,
    ) -> None:
        """Serves nothing before `listen`.

        Args:
            methods: by name; called in the Trio thread for each call, must be quick, and may raise the errors of the
                table. The arguments come from the caller unchecked.
            cluster: the id of this cluster; a client that names another one is refused. None accepts every client.
            heads: the largest heads of calls.
            unfinished_bytes_max: of frames of all connections that have not arrived whole.
            limits: of the number of connections.
        """
        self.service = service
        self.methods = methods
        self.errors = errors
        self.cluster = cluster
        self.heads = heads
        self.connection_bytes_max = connection_bytes_max
        self.network = world.network
        self.clock = world.clock
        self._log = LimitedLog(log, world.clock)
        self._frame_bytes_max = frame_bytes_max
        self._listeners: list[Listener] = []
        self._connections: dict[ServerConnection, None] = {}
        self._limits = limits
        self._unfinished_bytes = 0
        self._unfinished_bytes_max = unfinished_bytes_max

    async def listen(self, host: str, port: int) -> Listener:
        """Accepts connections from now on.

        Raises:
            AddressTaken: the address is in use or not one of this machine.
        """
        listener = await self.network.listen(host, port, self._accept)
        self._listeners.append(listener)
        return listener

    async def run(self) -> None:
        """Ends connections of silent peers, until it is cancelled; then closes the server."""
        try:
            while True:
                await self.clock.sleep(TICK_SECONDS)
                self._log.flush()
                now = self.clock.monotonic()
                for connection in list(self._connections):
                    connection.tick(now)
        finally:
            self.close()

    def close(self) -> None:
        """Stops listening and ends every connection; calls in flight are cancelled. Idempotent."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.close()
        for connection in list(self._connections):
            connection.finish()

    def forget(self, connection: ServerConnection, reason: str | None) -> None:
        """A connection is gone."""
        self.count_unfinished(connection, 0)
        if self._limits is not None:
            self._limits.give_back(connection)
        if self._connections.pop(connection, connection) is None and reason is not None:
            peer = connection.transport.peer
            address = peer.rpartition(":")[0]
            self._log.warn_limited("rpc connection ended", address, service=self.service, peer=peer, reason=reason)

    def refusal(self, magic: str, versions: list[Any], service: str, cluster: Any) -> str | None:
        """The reason to refuse a client; None for a welcome one."""
        ours = f"this is service {self.service!r} of cluster {self.cluster!r}, protocol versions {list(rpc.VERSIONS)}"
        if magic != rpc.MAGIC:
            return f"the peer does not speak gnomon's protocol; {ours}"
        if service != self.service:
            return f"the peer asks for service {service!r}; {ours}: check the address"
        if None not in (cluster, self.cluster) and cluster != self.cluster:
            return f"the peer is of cluster {cluster!r}; {ours}: check the address"
        if not any(version in rpc.VERSIONS for version in versions):
            return f"the peer speaks protocol versions {versions}; {ours}: upgrade the older one"
        return None

    def serve(self, method: Method, call: Call) -> None:
        """Calls a method; an error of the service is its answer."""
        began = self.clock.monotonic()
        try:
            method(call)
        except self.errors.classes as error:
            call.fail(error)
        except RpcFailed as error:
            call.fail(error)
        took = self.clock.monotonic() - began
        if took > NOTED_SECONDS:
            ran(call, took)
        if took > LONG_SECONDS:
            self._log.warn_limited("long_call", call.peer, **call.named(), seconds=round(took, 3))

    def _accept(self, transport: Connection) -> ServerConnection:
        connection = ServerConnection(self, transport, self._frame_bytes_max, self.clock.monotonic())
        self._connections[connection] = None
        refusal = None if self._limits is None else self._limits.take(connection)
        if refusal is not None:
            connection.malformed(refusal)
        return connection

    def count_unfinished(self, connection: ServerConnection, size: int) -> None:
        """A connection has received `size` bytes of a frame that is not whole, none if it is gone."""
        counted = size if size > UNFINISHED_BYTES_FREE else 0
        self._unfinished_bytes += counted - connection.unfinished_bytes
        connection.unfinished_bytes = counted
        if self._unfinished_bytes > self._unfinished_bytes_max:
            most = max(self._connections, key=lambda each: each.unfinished_bytes)
            most.malformed(
                f"{self._unfinished_bytes} bytes of unfinished frames are in memory, {self._unfinished_bytes_max} are "
                "allowed, and this connection has the most of them"
            )


class ServerConnection(RpcConnection):
    """One client."""

    def __init__(self, server: RpcServer, transport: Connection, frame_bytes_max: int, now: float) -> None:
        super().__init__(transport, server.network, frame_bytes_max, server.heads)
        self._frames.frame_bytes_max = rpc.HELLO_BYTES_MAX
        self.server = server
        self.service = server.service
        self.errors = server.errors
        self._calls: dict[int, Call] = {}
        self._streams: dict[int, Call] = {}
        self._call_bytes = 0
        self.unfinished_bytes = 0
        """Bytes of a frame that has not arrived whole, as the server has counted them."""
        self._calls_aside = 0
        self._held_up = False
        self._share = TurnShare()
        self._resting = False
        self._welcomed = False
        self._reason: str | None = None
        self._more_room = Signal()
        self._sign_of_life = now
        self._signs = (0, 0)

    @property
    def address(self) -> str:
        """The host of the peer, without its port."""
        return self.transport.peer.rpartition(":")[0]

    def received(self, count: int) -> None:
        """See `RpcConnection.received`."""
        super().received(count)
        unfinished_bytes = self._frames.buffered_bytes
        if unfinished_bytes > UNFINISHED_BYTES_FREE or self.unfinished_bytes:
            self.server.count_unfinished(self, 0 if self.gone else unfinished_bytes)

    def take(self, head: list[Any], attachment: memoryview, size: int) -> None:
        """See `RpcConnection.take`."""
        kind = head[0]
        if not self._welcomed:
            self._welcome(head)
        elif kind in _CALLS:
            self._call(kind, head, attachment, size)
        elif kind == CANCEL:
            self._cancel(head[1])
        elif kind == MORE:
            self._more(head[1], head[2])
        elif kind == rpc.PING:
            self.post([rpc.PONG])
        elif kind != rpc.PONG:
            raise MalformedRpc(f"a client has no {rpc.FrameKind(kind).name} to send")

    def _welcome(self, head: list[Any]) -> None:
        if head[0] != rpc.HELLO:
            raise MalformedRpc("the first frame is no HELLO")
        server = self.server
        reason = server.refusal(*head[1:])
        if reason is not None:
            self.malformed(reason)
            return
        self._welcomed = True
        self._frames.frame_bytes_max = self.frame_bytes_max
        self.post([rpc.WELCOME, max(version for version in head[2] if version in rpc.VERSIONS), server.cluster])

    def _call(self, kind: int, head: list[Any], attachment: memoryview, size: int) -> None:
        number = 0
        if kind != TELL:
            number = head[1]
            if number in self._calls or number in self._streams:
                raise MalformedRpc(f"there is a call {number} already")
        size = size if size > CALL_BYTES_MIN else CALL_BYTES_MIN
        call = Call(self, kind, number, head[-2], head[-1], attachment, size)
        if kind == CALL:
            self._calls[number] = call
            self._call_bytes += call.size
        elif kind == OPEN:
            self._streams[number] = call
        server = self.server
        method = server.methods.get(head[-2])
        if method is None:
            call.fail(
                RpcFailed(f"service {server.service!r} has no method {head[-2]!r:.200}: is the caller a newer gnomon?")
            )
        elif len(self._streams) > STREAMS_MAX:
            call.fail(RpcFailed(f"one connection may have {STREAMS_MAX} streams open: share some of them"))
        else:
            server.serve(method, call)
        if self._full():
            self.hold()

    def turn_begins(self) -> None:
        """See `RpcConnection.turn_begins`."""
        self._share.begin(self.server.clock.monotonic())

    def turn_is_over(self) -> bool:
        """See `RpcConnection.turn_is_over`: then the connection continues in the next turn, after others."""
        if not self._resting and self._share.is_spent(self.server.clock.monotonic()):
            self._resting = True
            self.transport.patient = True
            self.transport.call_next_turn(self._next_turn)
        return self._resting

    def _next_turn(self) -> None:
        self._resting = False
        self._share.renew(self.server.clock.monotonic())
        self.eased()

    def _full(self) -> bool:
        return (
            self._resting
            or self._held_up
            or self._call_bytes + self.unsent_bytes >= self.server.connection_bytes_max
            or len(self._calls) - self._calls_aside >= CALLS_MAX
        )

    def hold_up(self, held: bool) -> None:
        """See `Call.hold_up`."""
        if held == self._held_up:
            return
        self._held_up = held
        if not held:
            self.eased()
        elif not self.gone:
            self.hold()

    def charge(self, call: Call, size_bytes: int) -> None:
        """See `Call.charge`."""
        if self._calls.get(call.number) is call:  # otherwise it is a one-way call or a stream, which are not counted
            call.size += size_bytes
            self._call_bytes += size_bytes

    def set_aside(self, call: Call) -> None:
        """See `Call.set_aside`."""
        if self._calls_aside >= WAITING_MAX:
            raise RpcFailed(f"{WAITING_MAX} calls of one connection wait already: ask again later")
        if self._calls.get(call.number) is call:  # otherwise it is a one-way call or a stream, which are not counted
            call.is_aside = True
            self._calls_aside += 1

    def answer(self, call: Call, chunks: list[Buffer]) -> None:
        """Ends a call or stream with an encoded frame."""
        self._forget(call)
        oversize = rpc.oversize(chunks, self.frame_bytes_max)
        if oversize is not None:
            text = f"the answer has {oversize}: ask for less at a time"
            chunks = rpc.encode([rpc.ERROR, call.number, RpcFailed.__name__, [], text])
        self.post_frame(chunks)

    def _forget(self, call: Call) -> None:
        call.over = True
        if call.streams:
            del self._streams[call.number]
        else:
            del self._calls[call.number]
            self._call_bytes -= call.size
            self._calls_aside -= call.is_aside

    def _cancel(self, number: int) -> None:
        call = self._calls.get(number) or self._streams.get(number)
        if call is not None:  # otherwise its answer is on the way
            self._forget(call)
            call.drop()
            self.eased()

    def _more(self, number: int, count: int) -> None:
        if count <= 0:
            raise MalformedRpc(f"MORE with {count} bytes")
        call = self._streams.get(number)
        if call is not None:
            call.taken(count)
            self._wake_streams()

    async def more_room(self) -> None:
        """Waits until some stream may have room."""
        await self._more_room.wait()

    def _wake_streams(self) -> None:
        self._more_room.notify()

    def eased(self) -> None:
        """See `RpcConnection.eased`."""
        if self.gone:
            return
        self._wake_streams()
        if self.held and not self._full():
            self.release()

    def malformed(self, reason: str) -> None:
        """See `RpcConnection.malformed`: sends the reason to the peer, then ends the connection."""
        self._reason = reason
        self.post([rpc.REFUSED, reason])
        self.finish()

    def finish(self) -> None:
        """Ends the connection after the answers given so far."""
        if not self.gone:
            self.close()
            self.ended()

    def ended(self) -> None:
        """See `RpcConnection.ended`: drops all calls."""
        self.server.forget(self, self._reason)
        calls = [*self._calls.values(), *self._streams.values()]
        self._calls.clear()
        self._streams.clear()
        for call in calls:
            call.drop()
        self._wake_streams()

    def tick(self, now: float) -> None:
        """Checks that the peer is alive: it has sent bytes, has taken bytes that waited, or waits for this server."""
        received, unsent = self.bytes_received, self.unsent_bytes
        waits_for_us = self.held and not unsent
        if waits_for_us:
            self.post([rpc.PONG])  # its pings are not read now
        if waits_for_us or received != self._signs[0] or unsent < self._signs[1]:
            self._sign_of_life = now
        elif now - self._sign_of_life >= SILENCE_SECONDS:
            self._reason = f"nothing was received for {SILENCE_SECONDS:.0f} s: the peer is gone, or does not read"
            self.abort()
            self.ended()
        elif now - self._sign_of_life >= PING_SECONDS and self._welcomed:
            self.post([rpc.PING])
        self._signs = (received, unsent)
