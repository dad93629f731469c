"""One native client's connection: what it consumes, and the stream of its deliveries.

1. A batch leaves a connection once, with the numbers of all consumers that get something of it.
2. While the client does not take what was sent, nothing more is given to its consumers; other connections go on.
3. What is needed of a partition is held once, in a lane, and not for each of its thousands of consumers.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack

import trio

from gnomon.broker.native.errors import MISSED, MOVED
from gnomon.broker.partition.entry import Offset
from gnomon.broker.subscriptions.delivering_link import DeliveringLink
from gnomon.broker.subscriptions.dispatcher import Part
from gnomon.broker.subscriptions.hosted_partition import HostedPartition
from gnomon.broker.subscriptions.reading import Batch
from gnomon.broker.subscriptions.subscription import Consumer
from gnomon.runtime.rpc_call import Call


class Lane(DeliveringLink):
    """One partition's consumers on a connection."""

    def __init__(self, connection: NativeConnection, host: HostedPartition) -> None:
        self.host = host
        self.ready = connection.ready
        self._connection = connection

    def deliver(self, batch: Batch, parts: Sequence[Part]) -> None:
        """See `DeliveringLink`."""
        self._connection.deliver(batch, parts)

    def let_go(self, consumers: Sequence[Consumer], *, to_return: bool) -> None:
        """See `DeliveringLink`."""
        self._connection.let_go(consumers, to_return=to_return)

    def tell_missed(self, consumers: Sequence[Consumer], first: Offset, end: Offset) -> None:
        """See `DeliveringLink`."""
        self._connection.tell_missed(consumers, first, end)


class NativeConnection:
    """Made when a client opens its stream of deliveries, which lives as long as the connection."""

    def __init__(self, stream: Call) -> None:
        self.consumers: dict[int, Consumer] = {}
        """By the client's numbers; each one's link is a lane."""
        self.ready = True
        """Whether the client takes what is sent."""
        self.deliveries = 0
        """Records times consumers, since it was opened."""
        self._lanes: dict[HostedPartition, Lane] = {}
        self._stream = stream
        self._full = trio.Event()

    @property
    def gone(self) -> bool:
        """Whether the client has left."""
        return self._stream.over

    def lane(self, host: HostedPartition) -> Lane:
        """The one to a partition."""
        lane = self._lanes.get(host)
        if lane is None:
            self._lanes = {each: lane for each, lane in self._lanes.items() if not each.ended}
            lane = self._lanes[host] = Lane(self, host)
        return lane

    def deliver(self, batch: Batch, parts: Sequence[Part]) -> None:
        """See `DeliveringLink`."""
        listed: list[bytes | None] = []
        for part in parts:
            listed += part
        self._stream.item([batch.segment, batch.entry, batch.base_offset, batch.epoch, batch.records, listed])
        self.deliveries += sum(len(part.numbers) for part in parts) // 4
        if not self._stream.has_room:
            self._set_ready(False)
            self._full.set()

    def _set_ready(self, ready: bool) -> None:
        self.ready = ready
        for lane in self._lanes.values():
            lane.ready = ready

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
            self._set_ready(True)
            for lane in list(self._lanes.values()):
                lane.host.dispatcher.link_ready(lane)
                lane.host.pump()

    def close(self) -> None:
        """The client has left: what it did not acknowledge goes to others."""
        self._set_ready(False)
        self._full.set()
        for consumer in self.consumers.values():
            host_of(consumer).dispatcher.detach(consumer)
        self.consumers.clear()
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            lane.host.pump()


def host_of(consumer: Consumer) -> HostedPartition:
    """The partition that a connection's consumer reads."""
    lane = consumer.link
    assert isinstance(lane, Lane), "consumers of connections are attached to lanes"
    return lane.host


def _packed(consumers: Sequence[Consumer]) -> bytes:
    return pack(f"<{len(consumers)}I", *(consumer.number for consumer in consumers))
