"""The receiving side of the replication protocol: gives replicated entries to the shadows that this broker leads.

1. For each shadow that did not take an entry the ack has a nack with the reason; no received frame stops the broker.
2. A partition of a shadow that is not open here, because it has no readers, is not opened and takes no entries: the
   nack says so.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from functools import partial

from gnomon.broker.authorization.native_access import NativeAccess
from gnomon.broker.authorization.native_table import NativeMethod
from gnomon.broker.authorization.operation import Operation
from gnomon.broker.in_use.partitions_in_use import PartitionsInUse
from gnomon.broker.placement.placement import Placement
from gnomon.broker.replication.protocol import (
    ACK_SECONDS,
    MalformedReplication,
    Nack,
    NackReason,
    PendingAck,
    ReceivedMessage,
    decode_frame,
)
from gnomon.broker.shadow.image import RefusedEntry
from gnomon.broker.topics.topics import Topics
from gnomon.client.errors import InvalidCall
from gnomon.runtime.rpc.call import Call, Method
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import Clock


class _SourceConnection:
    """A connection of a source's broker: its stream of acks."""

    def __init__(self, stream: Call) -> None:
        self.stream = stream
        self.pending = PendingAck()
        self.ack_due = False
        """Whether a timer runs for the next ack."""

    def ack(self) -> None:
        """Acknowledges everything that was received."""
        self.ack_due = False
        self.stream.item(self.pending.take().encode())


class ReplicationReceiver:
    """Receives from the brokers of sources, for all shadows that one broker leads."""

    def __init__(
        self, topics: Topics, placement: Placement, partitions: PartitionsInUse, clock: Clock, timers: Timers
    ) -> None:
        self._topics = topics
        self._placement = placement
        self._partitions = partitions
        self._clock = clock
        self._timers = timers
        self._connections: dict[object, _SourceConnection] = {}

    def methods(self, access: NativeAccess) -> Mapping[str, Method]:
        """The methods of the native service by name."""
        return {"open_replication": partial(self._open, access), "replicate": self._replicate}

    def _open(self, access: NativeAccess, call: Call) -> None:
        if not call.streams or call.args:
            raise InvalidCall("open_replication is a stream without arguments: open it")
        access.question(NativeMethod.OPEN_REPLICATION, call.peer).check(Operation.CLUSTER_ACTION)
        if call.connection in self._connections:
            raise InvalidCall("the connection has a stream of acks already")
        source = self._connections[call.connection] = _SourceConnection(call)
        call.cancelled = lambda: self._forget(call)
        source.ack()

    def _forget(self, call: Call) -> None:
        del self._connections[call.connection]

    def _replicate(self, call: Call) -> None:
        source = self._connections.get(call.connection)
        if source is None:
            raise InvalidCall("open the stream of acks (open_replication) first")
        try:
            frame, messages = decode_frame(call.args)
        except MalformedReplication as error:
            self._forget(call)
            source.stream.cancelled = None
            source.stream.fail(InvalidCall(f"a frame is malformed: {error}"))
            return
        for message in messages:
            source.pending.applied(message, self.apply(message))
        source.pending.received(frame, call.size)
        if source.pending.urgent:
            source.ack()
        elif not source.ack_due:
            source.ack_due = True
            self._timers.call_at(self._clock.monotonic() + ACK_SECONDS, source.ack)

    def apply(self, message: ReceivedMessage) -> Iterator[Nack]:
        """Gives the entries to a partition of each shadow; yields a nack for each entry that a shadow does not take."""
        placement, index = self._placement, message.partition
        for shadow in message.shadows:
            topic = self._topics.image.get_by_id(uuid.UUID(bytes=shadow))
            if topic is None or topic.source is None or index >= topic.partitions:
                yield Nack(shadow, index, NackReason.NOT_LEADER, "this broker does not know this shadow yet")
            elif not placement.leads(topic, index) or not placement.lease_lives():
                yield Nack(shadow, index, NackReason.NOT_LEADER, f"broker {placement.node_id} does not lead it")
            else:
                partition = self._partitions.open_shadow(topic.id, index)
                if partition is None:
                    yield Nack(shadow, index, NackReason.NO_READER, "")
                    continue
                for entry in message.entries:
                    try:
                        partition.replicated(entry)
                    except RefusedEntry as error:
                        yield Nack(shadow, index, NackReason.REFUSED, str(error))
