"""One native client's connection: its consumers, and the stream of its deliveries.

1. A batch is sent once over a connection, with the numbers of all consumers that get records of it.
2. While the client does not take deliveries, its consumers are given nothing more; other connections are not affected.
3. The state that a connection needs for a partition is kept once, in a lane, and not for each of the consumers that the
   connection has in that partition (perhaps thousands).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import pack
from typing import TypeAlias

from gnomon.broker.subscriptions.dispatcher import Parcel
from gnomon.broker.subscriptions.hosted_partition import HostedPartition
from gnomon.broker.subscriptions.subscription import AttachedConsumer
from gnomon.client.protocol import MISSED, MOVED
from gnomon.log.entry import Offset
from gnomon.log.log_positions import Batch
from gnomon.runtime.rpc.call import Call
from gnomon.runtime.signal import Signal


class Lane:
    """The consumers of one partition on a connection: the channel of their dispatcher."""

    def __init__(self, connection: NativeConnection, host: Host, topic: str) -> None:
        self.host = host
        self.topic = topic
        """The name of the partition's topic."""
        self.ready = connection.ready
        self._connection = connection

    @property
    def address(self) -> str:
        """The address of the client."""
        return self._connection.address

    def deliver(self, batch: Batch, parcels: Sequence[Parcel]) -> None:
        """See `DeliveryChannel`."""
        self._connection.deliver(batch, parcels)

    def let_go(self, numbers: Sequence[int]) -> None:
        """See `DeliveryChannel`."""
        self._connection.let_go(numbers)

    def notify_missed(self, numbers: Sequence[int], first: Offset, end: Offset) -> None:
        """See `DeliveryChannel`."""
        self._connection.notify_missed(numbers, first, end)


Host: TypeAlias = HostedPartition[Lane]
"""A partition whose consumers are attached over lanes."""
LaneConsumer: TypeAlias = AttachedConsumer[Lane]


class NativeConnection:
    """The connection of a client from the opening of its stream of deliveries to the end of that stream."""

    def __init__(self, stream: Call) -> None:
        self.consumers: dict[int, LaneConsumer] = {}
        """The attached consumers, by the client's numbers."""
        self.awaited: set[int] = set()
        """Numbers of consumers that are being attached, and were not closed meanwhile."""
        self.ready = True
        """Whether the client takes deliveries now."""
        self.revision = 0
        """All consumers were authorized at this revision of the authorizer or a later one."""
        self.deliveries = 0
        """The deliveries since the connection was opened: a record counts once for each consumer that got it."""
        self._lanes: dict[Host, Lane] = {}
        self._stream = stream
        self._full = Signal()

    @property
    def address(self) -> str:
        """The address of the client, `host:port`."""
        return self._stream.peer

    @property
    def gone(self) -> bool:
        """Whether the client has left."""
        return self._stream.over

    def lane(self, host: Host, topic: str) -> Lane:
        """The lane of a partition, which is made on first use."""
        lane = self._lanes.get(host)
        if lane is None:
            self._lanes = {each: lane for each, lane in self._lanes.items() if not each.ended}
            lane = self._lanes[host] = Lane(self, host, topic)
        return lane

    def deliver(self, batch: Batch, parcels: Sequence[Parcel]) -> None:
        """See `DeliveryChannel`."""
        listed: list[bytes | None] = []
        for parcel in parcels:
            listed += parcel
        self._stream.item([batch.segment, batch.entry, batch.base_offset, batch.epoch, batch.records, listed])
        self.deliveries += sum(len(parcel.numbers) for parcel in parcels) // 4
        if not self._stream.has_room:
            self._set_ready(False)
            self._full.set()

    def _set_ready(self, ready: bool) -> None:
        self.ready = ready
        for lane in self._lanes.values():
            lane.ready = ready

    def let_go(self, numbers: Sequence[int]) -> None:
        """See `DeliveryChannel`."""
        for number in numbers:
            self.consumers.pop(number, None)
        self._stream.item([_packed(numbers), MOVED])

    def notify_missed(self, numbers: Sequence[int], first: Offset, end: Offset) -> None:
        """See `DeliveryChannel`."""
        self._stream.item([_packed(numbers), MISSED, first, end])

    def close_consumers(self, numbers: Iterable[int]) -> Iterator[Host | None]:
        """Detaches consumers that the client has closed or given up; attaching them, if under way, is cancelled.

        Yields:
            After each consumer its partition, which may have records for other consumers now.
        """
        for number in numbers:
            self.awaited.discard(number)
            consumer = self.consumers.pop(number, None)
            if consumer is None:
                yield None
            else:
                host = consumer.channel.host
                host.dispatcher.detach(consumer)
                yield host

    async def watch_room(self) -> None:
        """Resumes deliveries each time that the client has room again, until the connection is gone."""
        while not self.gone:
            await self._full.wait()
            self._full.clear()
            await self._stream.room()
            self._set_ready(True)
            for lane in list(self._lanes.values()):
                lane.host.dispatcher.channel_ready(lane)
                lane.host.pump()

    def close(self) -> Iterator[Host | None]:
        """The client has left: its unacknowledged records go to other consumers, as with `close_consumers`."""
        self._set_ready(False)
        self._full.set()
        self._lanes.clear()
        return self.close_consumers(list(self.consumers))


def _packed(numbers: Sequence[int]) -> bytes:
    return pack(f"<{len(numbers)}I", *numbers)
