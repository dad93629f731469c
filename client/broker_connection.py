"""A native client's connection to one broker: its stream of deliveries, and calls beside the stream.

1. A `BrokerConnection` never connects again. When its connection is lost, it is `gone` at once, and later calls fail:
   on a new connection the broker would not know the stream. Deliveries that were not taken yet are dropped; the broker
   delivers those records again.
2. The number of an attachment is used again only after the attachment's receiver was removed.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import unpack
from typing import Any, Generic, Protocol, TypeVar
from weakref import ref

import trio

from gnomon.client.addresses import Address
from gnomon.client.delivered_batch import DeliveredBatch
from gnomon.client.errors import ERRORS, BrokerFailed, NativeError
from gnomon.client.protocol import HEADS, SERVICE
from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.rpc.errors import NotSent, RpcFailed
from gnomon.runtime.rpc.stream import RpcStream
from gnomon.runtime.world import Unreachable, World

MOVED_FIELDS = 2
MISSED_FIELDS = 4
NUMBERS = 2**32
"""The numbers of attachments wrap around here."""


class Receiver(Protocol):
    """The end of one attachment, which takes its deliveries."""

    def deliver(self, batch: DeliveredBatch, slots: bytes | None) -> None:
        """Takes records of a batch: those in `slots`, packed as u32, or all of them."""

    def missed(self, first: int, end: int) -> None:
        """Notes that records of [first, end) were removed before the subscription acknowledged them."""


ReceiverT = TypeVar("ReceiverT", bound=Receiver)


class BrokerConnection(Generic[ReceiverT]):
    """One connection, from its opening to its loss; `Leaders` replaces one that is lost."""

    def __init__(
        self,
        world: World,
        host: str,
        port: int,
        moved: Callable[[ReceiverT], None],
        ended: Callable[[BrokerConnection[ReceiverT]], None],
    ) -> None:
        """A connection that is opened by `run`.

        Args:
            moved: is called with each receiver that the broker sends away.
            ended: is called once, when the connection is gone.
        """
        self.address: Address = (host, port)
        self.rpc = RpcClient(world, host, port, SERVICE, ERRORS, heads=HEADS)
        self.receivers: dict[int, ReceiverT] = {}
        """Receivers that are attached here, or being attached, by the number of the attachment."""
        self._last: Callable[[], DeliveredBatch | None] = lambda: None
        """The last batch, while it is in use: a batch that arrives in several pieces is decoded once."""
        self._stream: RpcStream | None = None
        self._over = False
        self._moved = moved
        self._ended = ended
        self._next_number = 0
        self._opened = trio.Event()
        self._scope = trio.CancelScope()

    async def run(self) -> None:
        """Receives deliveries until the connection is lost or `close` is called."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.rpc.run)
                    await self._receive()
                    nursery.cancel_scope.cancel()
        finally:
            self._over = True
            self._opened.set()
            self._ended(self)

    async def _receive(self) -> None:
        try:
            async with self.rpc.stream("receive") as stream:
                self._stream = stream
                self._opened.set()
                async for item in stream:
                    if stream.over:
                        return
                    self._take(item)
        except (Unreachable, RpcFailed, NativeError):
            pass  # each caller gets the same error

    @property
    def gone(self) -> bool:
        """Whether the connection is lost or closed."""
        return self._over or (self._stream is not None and self._stream.over)

    async def opened(self) -> None:
        """Waits until calls can be made; returns at once if the connection is open."""
        if not self._opened.is_set():
            await self._opened.wait()

    def add(self, receiver: ReceiverT) -> int:
        """Delivers to a receiver from now on; returns the number of this new attachment."""
        while self._next_number in self.receivers:
            self._next_number = (self._next_number + 1) % NUMBERS
        number = self._next_number
        self.receivers[number] = receiver
        self._next_number = (number + 1) % NUMBERS
        return number

    async def call(self, method: str, *args: Any) -> Any:
        """Calls the broker, in this turn if the connection is open.

        Raises:
            NotSent: the call had no effect.
            Unreachable: its outcome is unknown.
            NativeError: the broker refused it, or failed.
        """
        await self.opened()
        if self.gone:
            raise NotSent(f"the connection to {self.rpc.address} is lost: nothing was sent")
        try:
            return await self.rpc.call(method, *args)
        except RpcFailed as error:
            raise BrokerFailed(str(error)) from error

    def tell(self, method: str, groups: list[Any]) -> None:
        """Makes a call without an answer; nothing is sent if the connection is gone."""
        if not self.gone:
            self.rpc.tell(method, *groups)

    def close(self) -> None:
        """Ends the connection."""
        self._scope.cancel()

    def _take(self, item: list[Any]) -> None:
        receivers = self.receivers
        if len(item) == MOVED_FIELDS:
            for number in _numbers(item[0]):
                moved = receivers.get(number)
                if moved is not None:
                    self._moved(moved)
            return
        if len(item) == MISSED_FIELDS:
            packed, _, first, end = item
            for number in _numbers(packed):
                receiver = receivers.get(number)
                if receiver is not None:
                    receiver.missed(first, end)
            return
        segment, entry, base_offset, epoch, data, listed = item
        batch = self._last()
        if batch is None or (batch.segment, batch.entry, batch.epoch, batch.data) != (segment, entry, epoch, data):
            batch = DeliveredBatch(segment, entry, base_offset, epoch, data)
            self._last = ref(batch)
        for at in range(0, len(listed), 2):
            slots = listed[at + 1]
            for number in _numbers(listed[at]):
                receiver = receivers.get(number)
                if receiver is not None:  # otherwise its attachment is over
                    receiver.deliver(batch, slots)


def _numbers(packed: bytes) -> tuple[int, ...]:
    return unpack(f"<{len(packed) // 4}I", packed)
