"""The sending side of the replication protocol: one sender for each broker that leads shadows.

1. No entry waits in a sender: entries beyond the room of its window stay in the outboxes of the replicators.
2. Frames that were not acknowledged before the connection was lost may have been received: they are sent again.
3. Frames of one connection are received in order; an ack names the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import trio

from gnomon.broker.placement.leadership import LiveBroker
from gnomon.broker.replication.protocol import Ack, Nack, ReceivedMessage, Replicate, Window
from gnomon.broker.replication.receiver import ReplicationReceiver
from gnomon.client.errors import ERRORS, NativeError
from gnomon.client.protocol import HEADS, SERVICE
from gnomon.runtime.logs import Logger
from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.rpc.errors import RpcFailed
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import Unreachable, World

ReplicationSender: TypeAlias = "PeerSender | LocalSender"


class AckListener(Protocol):
    """The part that senders notify."""

    def acked(self, sender: ReplicationSender, ack: Ack) -> None:
        """A broker acknowledges frames; the sender has room now."""

    def lost(self, sender: ReplicationSender) -> None:
        """The connection is lost: unacknowledged frames have to be sent again once the sender is connected."""


class PeerSender:
    """Sends to another broker, over its native port."""

    def __init__(
        self, world: World, cluster_id: str, peer: LiveBroker, listener: AckListener, tasks: Tasks, log: Logger
    ) -> None:
        self._clock = world.clock
        self._listener = listener
        self._log = log.bind(peer=peer.id)
        self._rpc = RpcClient(world, *peer.native, SERVICE, ERRORS, cluster=cluster_id, heads=HEADS)
        self._window = Window()
        self._scope = trio.CancelScope()
        self.connected = False
        """Whether the broker receives."""
        tasks.start_soon(self._run)

    @property
    def room_bytes(self) -> int:
        """The bytes that may be sent now; 0 if no frame may be sent."""
        return self._window.room_bytes if self.connected else 0

    @property
    def next_frame(self) -> int:
        """The number of the frame that `send` will send."""
        return self._window.frame + 1

    def send(self, messages: Sequence[Replicate]) -> None:
        """Sends one frame."""
        self._window.sent(sum(message.size_bytes for message in messages))
        self._rpc.tell("replicate", self._window.frame, [message.encode() for message in messages])

    def close(self) -> None:
        """Ends the connection."""
        self.connected = False
        self._scope.cancel()

    async def _run(self) -> None:
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._rpc.run)
                problem = ""
                while True:
                    reason = await self._receive_acks()
                    if reason != problem:
                        self._log.warning(
                            "replication_interrupted", reason=reason, next="it is tried again; shadows read bookies"
                        )
                        problem = reason
                    await self._clock.sleep(self._lost())

    async def _receive_acks(self) -> str:
        """Receives acks until the connection is lost; returns the reason."""
        try:
            async with self._rpc.stream("open_replication") as stream:
                async for item in stream:
                    ack = Ack.decode(item)
                    self.connected = True
                    self._window.acked(ack.frame)
                    self._listener.acked(self, ack)
        except (Unreachable, RpcFailed, NativeError, ValueError) as error:
            return str(error)
        return "the other broker ends"

    def _lost(self) -> float:
        was_connected, self.connected = self.connected, False
        if was_connected:
            self._listener.lost(self)
        return self._window.lost()


class LocalSender:
    """Sends to the shadows that this broker leads itself: a call, which is acknowledged when it returns."""

    connected = True
    room_bytes = 1 << 30

    def __init__(self, receiver: ReplicationReceiver, listener: AckListener) -> None:
        self._receiver = receiver
        self._listener = listener
        self._frame = 0

    @property
    def next_frame(self) -> int:
        """See `PeerSender`."""
        return self._frame + 1

    def send(self, messages: Sequence[Replicate]) -> None:
        """See `PeerSender`."""
        self._frame += 1
        nacks: list[Nack] = []
        for message in messages:
            nacks += self._receiver.apply(ReceivedMessage.decode(message.encode()))
        self._listener.acked(self, Ack(self._frame, nacks))
