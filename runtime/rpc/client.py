"""Calls the methods of one service in another process, over one connection that opens on first use.

1. The outcome of a call is reported exactly once, after `send` has returned, unless the call is cancelled: then it is
   not reported.
2. A call that is lost with its connection, or not answered in time, ends with Unreachable: its effect is unknown.
   A call that ends with NotSent, a subclass of Unreachable, had no effect.
3. Calls leave in the order in which they were made. The calls of one turn of the event loop leave in one write. Only a
   large call, or the first call when no other call is outstanding, leaves at once.
4. While an answer is expected, a peer that sends nothing for SILENCE_SECONDS counts as gone, even if the transport
   reports no error. The silence is measured once a second.
5. A slow reader of a stream holds up its own stream alone (`rpc/stream.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import trio

from gnomon.runtime.backoff import Backoff
from gnomon.runtime.rpc.connection import RpcConnection, is_immutable
from gnomon.runtime.rpc.errors import ErrorTable, NotSent, RpcFailed, RpcRefused
from gnomon.runtime.rpc.stream import CallNumber, RpcStream
from gnomon.runtime.signal import Signal
from gnomon.runtime.world import Buffer, Connection, Unreachable, World
from gnomon.wire import rpc
from gnomon.wire.rpc import CALL, DEFAULT_HEADS, RESULT, HeadLimits, MalformedRpc

Done: TypeAlias = Callable[[Any, memoryview, Exception | None], None]
"""Called with value, attachment (valid during the call) and None; or with None, no bytes and the error."""

CALL_SECONDS = 10.0
CONNECT_SECONDS = 5.0
PING_SECONDS = 2.0
SILENCE_SECONDS = 6.0
TICK_SECONDS = 1.0
CONNECT_BACKOFF = Backoff(0.05, 1.0)
UNSENT_BYTES_MAX = 64 << 20
"""Further calls end with NotSent while more than this is sent and not received by the peer."""

_NO_BYTES = memoryview(b"")


class _PendingCall:
    """A call that waits for its answer."""

    __slots__ = ("deadline", "done")

    def __init__(self, done: Done, deadline: float) -> None:
        self.done = done
        self.deadline = deadline


class RpcClient:
    """Calls one service at one address; nothing happens unless `run` is running."""

    def __init__(
        self,
        world: World,
        host: str,
        port: int,
        service: str,
        errors: ErrorTable,
        *,
        call_seconds: float = CALL_SECONDS,
        cluster: str | None = None,
        heads: HeadLimits = DEFAULT_HEADS,
        frame_bytes_max: int = rpc.FRAME_BYTES_MAX,
        unsent_bytes_max: int = UNSENT_BYTES_MAX,
    ) -> None:
        """Connects with the first call.

        Args:
            call_seconds: a call that is not answered in this time ends with Unreachable, and is cancelled on the other
                side.
            cluster: the id of the expected cluster; a server of another cluster refuses the connection. None means the
                cluster of the server that answers first.
            heads: the largest heads of calls; a larger call ends with RpcFailed and is not sent.
        """
        self.service = service
        self.cluster = cluster
        self.address = f"{host}:{port}"
        self.errors = errors
        self.network = world.network
        self.frame_bytes_max = frame_bytes_max
        self._heads = heads
        self._host, self._port = host, port
        self._clock = world.clock
        self._random = world.random(f"rpc/{service}/{self.address}")
        self._call_seconds = call_seconds
        self._unsent_bytes_max = unsent_bytes_max
        self._connection: _ClientConnection | None = None
        self._calls: dict[CallNumber, _PendingCall] = {}
        self._streams: dict[CallNumber, RpcStream] = {}
        self._waiting: dict[CallNumber, list[Buffer]] = {}
        """Frames that wait for a connection."""
        self._waiting_bytes = 0
        self._next = 0
        self._watched = False
        self._failures = 0
        self._closed = False
        self._stirred = Signal()

    # --- calls --------------------------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether a call waits for its answer."""
        return bool(self._calls)

    def send(self, method: str, args: tuple[Any, ...] | list[Any], attachment: Buffer, done: Done) -> CallNumber:
        """Makes a call; arguments and attachment may be reused as soon as this returns.

        Raises:
            TypeError, ValueError, OverflowError: msgpack has no form for an argument.
        """
        number = CallNumber(self._next)
        chunks = rpc.encode([CALL, number, method, args], attachment)
        self._next = number + 1
        idle = not self._calls
        self._calls[number] = _PendingCall(done, self._clock.monotonic() + self._call_seconds)
        self._submit(number, method, chunks, at_once=idle)  # the only call under way has no others to wait for
        return number

    def cancel(self, number: CallNumber) -> None:
        """Cancels a call: its `done` is not called. Does nothing if the call is over."""
        if self._calls.pop(number, None) is not None:
            self._withdraw(number)

    async def call(self, method: str, *args: Any, attachment: Buffer = b"") -> Any:
        """Makes a call and waits for its value; the outcome of a cancelled call is unknown.

        Raises:
            NotSent: the call had no effect.
            Unreachable: its outcome is unknown.
            RpcFailed: the service failed with an error that is not in the table.
            Exception: an error of the table.
        """
        return (await self.exchange(method, *args, attachment=attachment))[0]

    async def exchange(self, method: str, *args: Any, attachment: Buffer = b"") -> tuple[Any, bytes]:
        """Makes a call as `call` does; returns its value and the attachment of the answer."""
        await trio.lowlevel.checkpoint_if_cancelled()
        task = trio.lowlevel.current_task()
        answer: tuple[Any, bytes] = (None, b"")
        failure: Exception | None = None

        def done(value: Any, view: memoryview, error: Exception | None) -> None:
            nonlocal answer, failure
            try:
                answer, failure = (value, bytes(view)), error
            except MemoryError:
                failure = self._loss("no memory for the answer", Unreachable)
            trio.lowlevel.reschedule(task)

        number = self.send(method, args, attachment, done)

        def abort(_: object) -> trio.lowlevel.Abort:
            self._calls.pop(number, None)  # an answer that arrives before the task runs again must not wake it twice
            return trio.lowlevel.Abort.SUCCEEDED

        try:
            await trio.lowlevel.wait_task_rescheduled(abort)
        except BaseException:
            self._withdraw(number)
            raise
        if failure is not None:
            raise failure
        return answer

    def tell(self, method: str, *args: Any, attachment: Buffer = b"") -> None:
        """Makes a call without an answer: it arrives once or not at all."""
        number = CallNumber(self._next)
        chunks = rpc.encode([rpc.TELL, method, args], attachment)
        self._next = number + 1
        self._submit(number, method, chunks, at_once=False)

    @asynccontextmanager
    async def stream(self, method: str, *args: Any) -> AsyncIterator[RpcStream]:
        """Opens a stream; the block's end cancels it. The iterator raises its errors."""
        number = CallNumber(self._next)
        chunks = rpc.encode([rpc.OPEN, number, method, args])
        self._next = number + 1
        stream = self._streams[number] = RpcStream(self._taken, number)
        self._submit(number, method, chunks, at_once=False)
        try:
            yield stream
        finally:
            if self._streams.pop(number, None) is not None:
                self._withdraw(number)

    def _taken(self, number: CallNumber, count: int) -> None:
        """Reports that the reader of a stream has consumed `count` bytes of its items."""
        if number in self._streams and self._connection is not None:
            self._connection.post([rpc.MORE, number, count])

    def _submit(self, number: CallNumber, method: str, chunks: list[Buffer], at_once: bool) -> None:
        connection = self._connection
        error = self._refusal(method, chunks, self._waiting_bytes if connection is None else connection.unsent_bytes)
        if error is not None:
            self.network.call_soon(lambda: self.end(number, error))
            return
        if connection is not None:
            connection.post_frame(chunks, at_once)
        else:
            if len(chunks) > 1 and not is_immutable(chunks[1]):
                chunks[1] = bytes(chunks[1])
            self._waiting[number] = chunks
            self._waiting_bytes += sum(map(len, chunks))
        if not self._watched or connection is None:
            self._stir()

    def _refusal(self, method: str, chunks: list[Buffer], unsent_bytes: int) -> Exception | None:
        """The reason not to send a frame; None to send it."""
        oversize = rpc.oversize(chunks, self.frame_bytes_max, self._heads.of_method(method))
        if oversize is not None:
            return RpcFailed(f"the call has {oversize}: send less at a time")
        if unsent_bytes > self._unsent_bytes_max:
            return NotSent(
                f"{self.service} at {self.address} has left {unsent_bytes} bytes untaken: nothing was sent, try later"
            )
        if self._closed:
            return NotSent(f"the client of {self.service} at {self.address} is closed: nothing was sent")
        return None

    def _withdraw(self, number: CallNumber) -> None:
        """Withdraws a call: removes its unsent frame, or cancels the call at the server."""
        if not self._unqueue(number) and self._connection is not None:
            self._connection.post([rpc.CANCEL, number])

    def _unqueue(self, number: CallNumber) -> bool:
        """Removes a frame that waits; returns whether it did wait."""
        chunks = self._waiting.pop(number, None)
        if chunks is None:
            return False
        self._waiting_bytes -= sum(map(len, chunks))
        return True

    # --- the connection -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Connects when there is a call and ends overdue calls, until it is cancelled; then closes the client."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_over)
                while True:
                    if self._connection is None and self._waiting:
                        await self._connect()
                    else:
                        await self._stirred.wait()
        finally:
            self.close()

    def close(self) -> None:
        """Ends the connection and all calls; later ones end with NotSent. Idempotent."""
        if not self._closed:
            self._closed = True
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
            self._end_all("this side was closed")

    async def _connect(self) -> None:
        if self._failures:
            await self._clock.sleep(CONNECT_BACKOFF.seconds(self._failures) * self._random.uniform(0.5, 1.0))
        # Connects even if no call waits any more: a caller that always gives up this soon would never get a connection.
        reason = f"cannot connect to {self.address}: no answer within {CONNECT_SECONDS:.0f} s: is the machine up?"
        try:
            with trio.move_on_after(CONNECT_SECONDS):
                await self.network.connect(self._host, self._port, self._accept)
                return
        except Unreachable as error:
            reason = str(error)
        self._failures += 1
        self._end_all(reason)

    def _accept(self, transport: Connection) -> _ClientConnection:
        connection = self._connection = _ClientConnection(self, transport)
        connection.post([rpc.HELLO, rpc.MAGIC, list(rpc.VERSIONS), self.service, self.cluster])
        waiting, self._waiting = self._waiting, {}
        self._waiting_bytes = 0
        for chunks in waiting.values():
            connection.post_frame(chunks)
        return connection

    def welcomed(self, cluster: object) -> None:
        """The server has accepted this client."""
        self._failures = 0
        if self.cluster is None and isinstance(cluster, str):
            self.cluster = cluster

    def lost(self, connection: _ClientConnection, reason: str) -> None:
        """The connection is gone; its calls end."""
        if self._connection is connection:
            self._connection = None
            self._failures += 1
            self._end_all(reason, RpcRefused if connection.refused else Unreachable)
            self._stir()

    def _stir(self) -> None:
        self._stirred.notify()

    # --- outcomes -----------------------------------------------------------------------------------------------

    def result(self, number: CallNumber, value: Any, attachment: memoryview) -> None:
        """An answer has arrived; it is dropped if its call is over."""
        pending = self._calls.pop(number, None)
        if pending is not None:
            pending.done(value, attachment, None)

    def end(self, number: CallNumber, error: Exception) -> None:
        """A call or stream ends with an error."""
        pending = self._calls.pop(number, None)
        if pending is not None:
            pending.done(None, _NO_BYTES, error)
        else:
            stream = self._streams.pop(number, None)
            if stream is not None:
                stream.end(error)

    def end_stream(self, number: CallNumber) -> None:
        """A stream ends without an error."""
        stream = self._streams.pop(number, None)
        if stream is not None:
            stream.end(StopAsyncIteration())

    def item(self, number: CallNumber, value: Any, size: int) -> None:
        """One item of a stream."""
        stream = self._streams.get(number)
        if stream is not None:
            stream.add(value, size)

    def _end_all(self, reason: str, lost: type[Unreachable] = Unreachable) -> None:
        """Ends all calls and streams: those that were sent with `lost`, the others with NotSent."""
        waiting, self._waiting = self._waiting, {}
        self._waiting_bytes = 0
        for number in [*self._calls, *self._streams]:  # a `done` callback may cancel other calls, or make new ones
            self.end(number, self._loss(reason, NotSent if number in waiting else lost))

    def _loss(self, reason: str, kind: type[Unreachable]) -> Unreachable:
        outcome = "nothing was done" if issubclass(kind, NotSent) else "whether the call had an effect is unknown"
        return kind(f"{self.service} at {self.address}: {reason}: {outcome}")

    # --- time ---------------------------------------------------------------------------------------------------

    async def _watch_over(self) -> None:
        """Ends overdue calls, and a connection whose peer is silent."""
        while True:
            if self._calls or self._streams:
                self._watched = True
                await self._watch_pending()
                self._watched = False
            else:
                await self._stirred.wait()

    async def _watch_pending(self) -> None:
        tick_seconds = min(TICK_SECONDS, self._call_seconds / 4)
        now = self._clock.monotonic()
        silent_seconds = 0.0
        heard: tuple[_ClientConnection | None, int] = (None, 0)
        while self._calls or self._streams:
            first = next(iter(self._calls.values()), None)
            left = tick_seconds if first is None else min(tick_seconds, first.deadline - now)
            await self._clock.sleep(max(left, 0.001))
            before, now = now, self._clock.monotonic()
            self._end_overdue(now)
            connection = self._connection
            sign = (connection, 0 if connection is None else connection.bytes_received)
            if connection is None or sign != heard:
                heard, silent_seconds = sign, 0.0
                continue
            # A tick counts for no more than it should take: a pause of this process is not the peer's silence.
            silent_seconds += min(now - before, tick_seconds)
            if silent_seconds >= SILENCE_SECONDS:
                connection.abort()
                self.lost(connection, f"nothing was received for {SILENCE_SECONDS:.0f} s")
            elif silent_seconds >= PING_SECONDS:
                connection.post([rpc.PING])

    def _end_overdue(self, now: float) -> None:
        overdue = []
        for number, pending in self._calls.items():
            if pending.deadline > now:
                break
            overdue.append(number)
        for number in overdue:
            kind = NotSent if number in self._waiting else Unreachable
            if number in self._calls:  # otherwise an earlier callback has cancelled it
                self._withdraw(number)
                self.end(number, self._loss(f"no answer within {self._call_seconds} s", kind))


class _ClientConnection(RpcConnection):
    """The stream to the server."""

    def __init__(self, client: RpcClient, transport: Connection) -> None:
        super().__init__(transport, client.network, client.frame_bytes_max)
        self.refused = False
        self._client = client
        self._welcomed = False

    def take(self, head: list[Any], attachment: memoryview, size: int) -> None:
        """See `RpcConnection.take`."""
        kind = head[0]
        if kind == RESULT and self._welcomed:
            self._client.result(head[1], head[2], attachment)
        elif kind == rpc.WELCOME and not self._welcomed:
            self._welcomed = True
            self._client.welcomed(head[2])
        elif kind == rpc.REFUSED:
            self.refused = not self._welcomed
            self.malformed(f"refused: {head[1]}")
        elif kind == rpc.PING:
            self.post([rpc.PONG])
        elif kind == rpc.PONG:
            pass
        elif not self._welcomed:
            raise MalformedRpc(f"the first frame is a {rpc.FrameKind(kind).name}, no WELCOME")
        elif kind == rpc.ERROR:
            self._client.end(head[1], self._client.errors.decode(head[2], head[3], head[4]))
        elif kind == rpc.ITEM:
            self._client.item(head[1], head[2], size + 4)
        elif kind == rpc.END:
            self._client.end_stream(head[1])
        else:
            raise MalformedRpc(f"a server has no {rpc.FrameKind(kind).name} to send")

    def malformed(self, reason: str) -> None:
        """See `RpcConnection.malformed`."""
        self.abort()
        self._client.lost(self, reason)

    def eased(self) -> None:
        """See `RpcConnection.eased`: does nothing, since no caller waits for room."""

    def ended(self) -> None:
        """See `RpcConnection.ended`."""
        early = "the connection ended before the first answer: is this the port of another service?"
        self._client.lost(self, "the connection is gone" if self._welcomed else early)
