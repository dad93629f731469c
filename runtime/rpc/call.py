"""One call of an RPC server, as its methods see it: arguments, answer or stream of items, and end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

import trio

from gnomon.runtime.loop.turn_watch import work_for
from gnomon.runtime.rpc.errors import ErrorTable
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import OUT_OF_MEMORY, Buffer, Connection
from gnomon.wire import rpc
from gnomon.wire.rpc import OPEN, RESULT, STREAM_WINDOW_BYTES, TELL

Method: TypeAlias = "Callable[[Call], None]"
CALL_BYTES_MIN = 256
"""The size that the smallest call counts for, since its bookkeeping takes memory too."""


class CallConnection(Protocol):
    """The server's connection to one client, as its calls use it."""

    transport: Connection
    errors: ErrorTable
    """The errors of the service."""
    service: str
    """The name of the service."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the peer has not taken yet."""

    def answer(self, call: Call, chunks: list[Buffer]) -> None:
        """Ends a call or stream with an encoded frame."""

    def post(self, head: list[Any]) -> int:
        """Queues a frame; returns its size in bytes."""

    def charge(self, call: Call, size_bytes: int) -> None:
        """See `Call.charge`."""

    def set_aside(self, call: Call) -> None:
        """See `Call.set_aside`."""

    def hold_up(self, held: bool) -> None:
        """See `Call.hold_up`."""

    def malformed(self, reason: str) -> None:
        """Ends the connection, and sends the reason to the peer."""

    async def more_room(self) -> None:
        """Waits until some stream may have room."""


class Call:
    """One call that waits for its answer."""

    __slots__ = (
        "_connection",
        "_credit_bytes",
        "args",
        "attachment",
        "cancelled",
        "is_aside",
        "method",
        "number",
        "over",
        "size",
        "streams",
    )

    def __init__(
        self,
        connection: CallConnection,
        kind: int,
        number: int,
        method: Any,
        args: list[Any],
        attachment: Buffer,
        size: int,
    ) -> None:
        self.method = method
        """Its name, as the peer sent it."""
        self.args = args
        """As the peer sent them, of any type that msgpack has."""
        self.attachment = attachment
        """Valid while the method runs; a method that needs it longer copies it."""
        self.cancelled: Callable[[], None] | None = None
        """Called once when the client cancels the call, or its connection is gone."""
        self.over = kind == TELL
        """Whether the call is answered or cancelled; true from the start for a call without an answer."""
        self.streams = kind == OPEN
        """Whether the client takes a stream of items."""
        self.is_aside = False
        """Whether the call was set aside."""
        self.number = number
        self.size = size
        self._connection = connection
        self._credit_bytes = STREAM_WINDOW_BYTES

    @property
    def peer(self) -> str:
        """The address of the caller, for logs."""
        return self._connection.transport.peer

    def named(self) -> dict[str, object]:
        """See `NamedRequest.named`."""
        return {"service": self._connection.service, "method": self.method, "peer": self.peer}

    @property
    def connection(self) -> object:
        """The connection of the call: equal for all calls of one connection, and for no others."""
        return self._connection

    def charge(self, size_bytes: int) -> None:
        """Counts memory that the call takes until its answer, besides the bytes of its frame."""
        self._connection.charge(self, size_bytes)

    def let_others_pass(self) -> None:
        """Makes its connection patient: other connections are served first from now on."""
        self._connection.transport.patient = True

    def set_aside(self) -> None:
        """Lets a method wait for news: from now on its call holds up no others of its connection.

        Raises:
            RpcFailed: too many calls of the connection wait already.
        """
        self._connection.set_aside(self)

    def hold_up(self, held: bool) -> None:
        """Holds up the connection for a method that works in several turns: no further call is taken meanwhile."""
        self._connection.hold_up(held)

    def without_memory(self, error: MemoryError) -> None:
        """Ends the connection: no memory was found for the call, and its effect is unknown."""
        self._connection.malformed(str(error) or OUT_OF_MEMORY)

    @property
    def errors(self) -> ErrorTable:
        """The errors that the caller knows."""
        return self._connection.errors

    def reply(self, value: object = None, attachment: Buffer = b"") -> None:
        """Answers; the attachment may be reused as soon as this returns. Does nothing if the call is over."""
        if not self.over:
            self._connection.answer(self, rpc.encode([RESULT, self.number, value], attachment))

    def answer(self, value: object) -> None:
        """Answers a call. The answer is the only item of a stream, which a client opens where that may take long."""
        if not self.streams:
            self.reply(value)
            return
        if value is not None:
            self.item(value)
        self.end()

    def fail(self, error: Exception) -> None:
        """Answers with an error of the service's table; any other error arrives as RpcFailed. Ends a stream too."""
        if not self.over:
            name, fields, text = self.errors.encode(error)
            self._connection.answer(self, rpc.encode([rpc.ERROR, self.number, name, fields, text]))

    def item(self, value: object) -> None:
        """Sends one item of a stream; await `room` after it, or untaken items pile up in memory."""
        if not self.over:
            self._credit_bytes -= self._connection.post([rpc.ITEM, self.number, value])

    def end(self) -> None:
        """Ends a stream."""
        if not self.over:
            self._connection.answer(self, rpc.encode([rpc.END, self.number]))

    @property
    def has_room(self) -> bool:
        """Whether the client takes more items of this stream now."""
        return self.over or (self._credit_bytes > 0 and self._connection.unsent_bytes < STREAM_WINDOW_BYTES)

    async def room(self) -> None:
        """Waits until `has_room`."""
        while not self.has_room:
            await self._connection.more_room()

    def taken(self, count: int) -> None:
        """Records that the client has consumed `count` bytes of the items."""
        self._credit_bytes += count

    def drop(self) -> None:
        """The call is cancelled, or its connection is gone."""
        self.over = True
        cancelled, self.cancelled = self.cancelled, None
        if cancelled is not None:
            cancelled()


def in_task(tasks: Tasks, work: Callable[[Call], Awaitable[object]]) -> Method:
    """A method that runs as a task: the answer is the result of `work` (`Call.answer`), or a stream of `Call.item`s.

    An error of the service's table is the answer too, and a failed allocation ends the connection. Any other error ends
    `tasks`. Cancelling the call cancels the task. The attachment is copied. `tasks` have to outlive the server.
    """

    def method(call: Call) -> None:
        call.attachment = bytes(call.attachment)
        scope = trio.CancelScope()
        call.cancelled = scope.cancel
        tasks.start_soon(work_for, call, _run, call, work, scope)

    return method


async def _run(call: Call, work: Callable[[Call], Awaitable[object]], scope: trio.CancelScope) -> None:
    with scope:
        try:
            value = await work(call)
        except call.errors.classes as error:
            call.fail(error)
        except MemoryError as error:
            call.without_memory(error)
        else:
            call.answer(value)
