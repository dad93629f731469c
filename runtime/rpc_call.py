"""One call of an RPC server, as its methods see it: arguments, its answer or stream of items, and its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from gnomon.runtime.rpc_errors import ErrorTable
from gnomon.runtime.world import Buffer
from gnomon.wire import rpc
from gnomon.wire.rpc import OPEN, RESULT, STREAM_WINDOW_BYTES, TELL

if TYPE_CHECKING:
    from gnomon.runtime.rpc_server import ServerConnection

Method: TypeAlias = "Callable[[Call], None]"


class Call:
    """One call on its way to its answer."""

    __slots__ = (
        "_connection",
        "_credit_bytes",
        "args",
        "attachment",
        "cancelled",
        "is_aside",
        "number",
        "over",
        "size",
        "streams",
    )

    def __init__(
        self, connection: ServerConnection, kind: int, number: int, args: list[Any], attachment: Buffer, size: int
    ) -> None:
        self.args = args
        """As the peer sent them: of any type that msgpack has."""
        self.attachment = attachment
        """Valid while the method runs; who needs it longer copies it."""
        self.cancelled: Callable[[], None] | None = None
        """Called once when nobody wants the answer any more: the client said so, or its connection is gone."""
        self.over = kind == TELL
        """Whether it was answered or cancelled; a tell wants no answer from the first."""
        self.streams = kind == OPEN
        """Whether the client takes items."""
        self.is_aside = False
        """Whether it was set aside."""
        self.number = number
        self.size = size
        self._connection = connection
        self._credit_bytes = STREAM_WINDOW_BYTES

    @property
    def peer(self) -> str:
        """Who calls, for logs."""
        return self._connection.transport.peer

    @property
    def connection(self) -> object:
        """The connection that it came by: equal for all calls of one connection, and for no others."""
        return self._connection

    def let_others_pass(self) -> None:
        """What its connection brings from now on may wait while other connections are served."""
        self._connection.transport.patient = True

    def set_aside(self) -> None:
        """For a method that waits for news: from now on its call holds up no others of its connection.

        Raises:
            RpcFailed: too many calls of the connection wait already.
        """
        self._connection.set_aside(self)

    @property
    def errors(self) -> ErrorTable:
        """The errors that the caller will know."""
        return self._connection.server.errors

    def reply(self, value: object = None, attachment: Buffer = b"") -> None:
        """Answers; the attachment may be reused as soon as this returns. Dropped where the call is over."""
        if not self.over:
            self._connection.answer(self, rpc.encode([RESULT, self.number, value], attachment))

    def fail(self, error: Exception) -> None:
        """Answers with an error of the service's table; any other one arrives as RpcFailed. It ends a stream too."""
        if not self.over:
            name, fields, text = self.errors.encode(error)
            self._connection.answer(self, rpc.encode([rpc.ERROR, self.number, name, fields, text]))

    def item(self, value: object) -> None:
        """Sends one item of a stream; wait for `room` after it, or what the client does not take is kept in memory."""
        if not self.over:
            self._credit_bytes -= self._connection.post([rpc.ITEM, self.number, value])

    def end(self) -> None:
        """Ends a stream."""
        if not self.over:
            self._connection.answer(self, rpc.encode([rpc.END, self.number]))

    @property
    def has_room(self) -> bool:
        """Whether the client takes further items of this stream now."""
        return self.over or (self._credit_bytes > 0 and self._connection.unsent_bytes < STREAM_WINDOW_BYTES)

    async def room(self) -> None:
        """Waits until `has_room`."""
        while not self.has_room:
            await self._connection.more_room()

    def taken(self, count: int) -> None:
        """The client has taken `count` bytes of the items."""
        self._credit_bytes += count

    def drop(self) -> None:
        """Nobody wants the answer any more."""
        self.over = True
        cancelled, self.cancelled = self.cancelled, None
        if cancelled is not None:
            cancelled()


def in_task(nursery: trio.Nursery, work: Callable[[Call], Awaitable[object]]) -> Method:
    """A method that runs as a task: what `work` returns is the answer, or the end of a stream of `Call.item`s.

    An error of the service's table is the answer too, any other one ends the nursery; a call that is cancelled cancels
    its task. The attachment is copied. The nursery has to outlive the server.
    """

    def method(call: Call) -> None:
        call.attachment = bytes(call.attachment)
        scope = trio.CancelScope()
        call.cancelled = scope.cancel
        nursery.start_soon(_run, call, work, scope)

    return method


async def _run(call: Call, work: Callable[[Call], Awaitable[object]], scope: trio.CancelScope) -> None:
    with scope:
        try:
            value = await work(call)
        except call.errors.classes as error:
            call.fail(error)
        else:
            if call.streams:
                call.end()
            else:
                call.reply(value)
