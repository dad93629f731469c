"""What comes by one stream of an RPC client, in order.

A reader that is slow holds up its own stream alone, and at most `STREAM_WINDOW_BYTES` of it are kept.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NewType

import trio

from gnomon.wire.rpc import STREAM_WINDOW_BYTES, MalformedRpc

if TYPE_CHECKING:
    from gnomon.runtime.rpc_client import RpcClient

CallNumber = NewType("CallNumber", int)
"""Of a call or stream, within its client."""


class RpcStream:
    """The items of one stream, in order; made by `RpcClient.stream`."""

    def __init__(self, client: RpcClient, number: CallNumber) -> None:
        self._client = client
        self._number = number
        self._items: deque[tuple[Any, int]] = deque()
        self._buffered_bytes = 0
        self._taken_bytes = 0
        self._error: Exception | None = None
        self._changed = trio.Event()

    def __aiter__(self) -> RpcStream:
        return self

    async def __anext__(self) -> Any:
        """The next item; a call that is cancelled has lost none.

        Raises:
            Unreachable: the connection is gone.
            Exception: what the service ended the stream with.
        """
        await trio.lowlevel.checkpoint()
        while not self._items:
            if self._error is not None:
                raise self._error
            self._changed = trio.Event()
            await self._changed.wait()
        value, size = self._items.popleft()
        self._buffered_bytes -= size
        self._taken_bytes += size
        if self._taken_bytes * 2 >= STREAM_WINDOW_BYTES:
            self._client.tell_taken(self._number, self._taken_bytes)
            self._taken_bytes = 0
        return value

    def add(self, value: Any, size: int) -> None:
        """An item has arrived."""
        if self._buffered_bytes >= STREAM_WINDOW_BYTES:
            raise MalformedRpc("a stream goes on though its window is full")
        self._items.append((value, size))
        self._buffered_bytes += size
        self._changed.set()

    def end(self, error: Exception) -> None:
        """Nothing comes any more; StopAsyncIteration where it is the regular end."""
        self._error = error
        self._changed.set()
