"""The items of one stream of an RPC client, in order.

A slow reader holds up its own stream alone. At most `STREAM_WINDOW_BYTES` of items are kept for it, plus the one item
that exceeds that limit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NewType

import trio

from gnomon.runtime.signal import Signal
from gnomon.wire.rpc import STREAM_WINDOW_BYTES, MalformedRpc

CallNumber = NewType("CallNumber", int)
"""The number of a call or stream within its client."""


class RpcStream:
    """The items of one stream, in order; made by `RpcClient.stream`."""

    def __init__(self, taken: Callable[[CallNumber, int], None], number: CallNumber) -> None:
        """`taken` is called with the bytes of the items that the reader has taken since the last call."""
        self._taken = taken
        self._number = number
        self._items: deque[tuple[Any, int]] = deque()
        self._buffered_bytes = 0
        self._taken_bytes = 0
        self._error: Exception | None = None
        self._changed = Signal()

    def __aiter__(self) -> RpcStream:
        return self

    async def __anext__(self) -> Any:
        """The next item; a cancelled call loses no item.

        Raises:
            Unreachable: the connection is gone.
            Exception: the error with which the service ended the stream.
        """
        await trio.lowlevel.checkpoint()
        while not self._items:
            if self._error is not None:
                raise self._error
            await self._changed.wait()
        value, size = self._items.popleft()
        self._buffered_bytes -= size
        self._taken_bytes += size
        if self._taken_bytes * 2 >= STREAM_WINDOW_BYTES:
            self._taken(self._number, self._taken_bytes)
            self._taken_bytes = 0
        return value

    @property
    def over(self) -> bool:
        """Whether no item follows those that wait here."""
        return self._error is not None

    def add(self, value: Any, size: int) -> None:
        """An item has arrived."""
        if self._buffered_bytes >= STREAM_WINDOW_BYTES:
            raise MalformedRpc("a stream continues although its window is full")
        self._items.append((value, size))
        self._buffered_bytes += size
        self._changed.notify()

    def end(self, error: Exception) -> None:
        """The stream has ended; `error` is StopAsyncIteration for a regular end."""
        self._error = error
        self._changed.notify()
