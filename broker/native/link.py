"""A native client's connection to one broker: its stream of deliveries, and the calls beside it."""

from __future__ import annotations

from collections.abc import Callable
from struct import unpack
from typing import Any

import trio

from gnomon.broker.native.consumer import Part
from gnomon.broker.native.errors import ERRORS, SERVICE, NativeError
from gnomon.broker.native.message import DeliveredBatch
from gnomon.runtime.rpc_client import RpcClient
from gnomon.runtime.rpc_errors import RpcFailed
from gnomon.runtime.world import Unreachable, World

NOTICE_FIELDS = 2
MISSED_FIELDS = 4


class Link:
    """Lives as long as its connection; the client makes another one then."""

    def __init__(
        self,
        world: World,
        host: str,
        port: int,
        detached: Callable[[Part], None],
        ended: Callable[[Link], None],
    ) -> None:
        """Not open yet; `detached` is told each part that the broker sent away, `ended` that the connection is gone."""
        self.rpc = RpcClient(world, host, port, SERVICE, ERRORS)
        self.parts: dict[int, Part] = {}
        """What is attached here, by number."""
        self.gone = False
        self._detached = detached
        self._ended = ended
        self._opened = trio.Event()
        self._scope = trio.CancelScope()

    async def run(self) -> None:
        """Takes what comes until the connection is gone, or `close`."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.rpc.run)
                    await self._receive()
                    nursery.cancel_scope.cancel()
        finally:
            self.gone = True
            self._opened.set()
            self._ended(self)

    async def _receive(self) -> None:
        try:
            async with self.rpc.stream("receive") as stream:
                self._opened.set()
                async for item in stream:
                    self._take(item)
        except (Unreachable, RpcFailed, NativeError):
            pass  # whoever calls is told the same

    async def call(self, method: str, *args: Any) -> Any:
        """Calls the broker; raises as `RpcClient.call`."""
        await self._opened.wait()
        return await self.rpc.call(method, *args)

    def tell(self, method: str, groups: list[Any]) -> None:
        """Tells the broker something, if the connection lives."""
        if not self.gone:
            self.rpc.tell(method, *groups)

    def close(self) -> None:
        """Ends the connection."""
        self._scope.cancel()

    def _take(self, item: list[Any]) -> None:
        parts = self.parts
        if len(item) == NOTICE_FIELDS:
            for number in _numbers(item[0]):
                moved = parts.get(number)
                if moved is not None:
                    self._detached(moved)
            return
        if len(item) == MISSED_FIELDS:
            packed, _, first, end = item
            for number in _numbers(packed):
                behind = parts.get(number)
                if behind is not None:
                    behind.consumer.missed(behind, first, end)
            return
        segment, entry, base_offset, epoch, data, listed = item
        batch = DeliveredBatch(segment, entry, base_offset, epoch, data)
        for at in range(0, len(listed), 2):
            slots = listed[at + 1]
            for number in _numbers(listed[at]):
                part = parts.get(number)
                if part is not None:  # else it was closed meanwhile
                    part.consumer.deliver(part, batch, slots)


def _numbers(packed: bytes) -> tuple[int, ...]:
    return unpack(f"<{len(packed) // 4}I", packed)
