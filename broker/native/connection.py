"""One native client's connection: what it consumes, and the stream of its deliveries.

1. A batch leaves a connection once, with the numbers of all consumers that get something of it.
2. While the client does not take what was sent, nothing more is given to its consumers; other connections go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack, unpack_from
from typing import Any

import trio

from gnomon.broker.native.errors import MISSED, MOVED, InvalidCall
from gnomon.broker.partition.entry import Offset
from gnomon.broker.subscriptions.dispatcher import Part
from gnomon.broker.subscriptions.hosted_partition import DeliveringLink, HostedPartition
from gnomon.broker.subscriptions.reading import Batch
from gnomon.broker.subscriptions.subscription import Consumer
from gnomon.runtime.rpc_server import Call


class NativeConnection(DeliveringLink):
    """Made when a client opens its stream of deliveries, which lives as long as the connection."""

    def __init__(self, stream: Call) -> None:
        self.consumers: dict[int, tuple[HostedPartition, Consumer]] = {}
        """By the client's numbers."""
        self.deliveries = 0
        """Records times consumers, since it was opened."""
        self._stream = stream
        self._full = trio.Event()

    @property
    def gone(self) -> bool:
        """Whether the client has left."""
        return self._stream.over

    def deliver(self, batch: Batch, parts: Sequence[Part]) -> None:
        """See `DeliveringLink`."""
        listed: list[bytes | None] = []
        for part in parts:
            listed += part
        self._stream.item([batch.segment, batch.entry, batch.base_offset, batch.epoch, batch.records, listed])
        self.deliveries += sum(len(part.numbers) for part in parts) // 4
        if not self._stream.has_room:
            self.ready = False
            self._full.set()

    def let_go(self, consumers: Sequence[Consumer], *, to_return: bool) -> None:
        """See `DeliveringLink`."""
        for consumer in consumers:
            self.consumers.pop(consumer.number, None)
        if to_return:
            self._stream.item([_packed(consumers), MOVED])

    def tell_missed(self, consumers: Sequence[Consumer], first: Offset, end: Offset) -> None:
        """See `DeliveringLink`."""
        self._stream.item([_packed(consumers), MISSED, first, end])

    async def watch_room(self) -> None:
        """Goes on giving when the client has taken what was sent; until the connection is gone."""
        while not self.gone:
            await self._full.wait()
            self._full = trio.Event()
            await self._stream.room()
            self.ready = True
            for host in {id(host): host for host, _ in self.consumers.values()}.values():
                host.dispatcher.link_ready(self)
                host.pump()

    def close(self) -> None:
        """The client has left: what it did not acknowledge goes to others."""
        self.ready = False
        self._full.set()
        hosts: dict[int, HostedPartition] = {}
        for host, consumer in self.consumers.values():
            host.dispatcher.detach(consumer)
            hosts[id(host)] = host
        self.consumers.clear()
        for host in hosts.values():
            host.pump()


def _packed(consumers: Sequence[Consumer]) -> bytes:
    return pack(f"<{len(consumers)}I", *(consumer.number for consumer in consumers))


def numbers_of(packed: Any) -> tuple[int, ...]:
    """The consumers' numbers in a call.

    Raises:
        InvalidCall: it holds none.
    """
    if type(packed) is not bytes or len(packed) % 4:
        raise InvalidCall("numbers of consumers are packed as u32")
    return unpack_from(f"<{len(packed) // 4}I", packed)
