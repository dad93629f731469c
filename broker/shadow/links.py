"""From a source's broker to those of its shadows: what is told them, and what they say to it.

1. Nothing waits here: what a link has no room for stays with those who tell (`outbox`).
2. What was told by a connection that is lost was perhaps heard: it is told again.
3. Frames of one connection are taken in their order; an answer names the last one that was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import trio

from gnomon.broker.leadership import LiveBroker
from gnomon.broker.native.errors import ERRORS, SERVICE, NativeError
from gnomon.broker.shadow.hearing import Answer, Told, hear, unpacked
from gnomon.broker.shadow.window import Window
from gnomon.runtime.rpc_client import RpcClient
from gnomon.runtime.rpc_errors import RpcFailed
from gnomon.runtime.world import Unreachable

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker

ITEM_BYTES = 100
"""What telling a shadow costs beside the entries, about."""


class Ears(Protocol):
    """Who tells by a link."""

    def heard(self, link: Link, frame: int, answers: Sequence[Answer]) -> None:
        """The frames up to this one were taken, but for what the answers say; there is room now."""

    def lost(self, link: Link) -> None:
        """What was told and not heard has to be told again, by a link that is connected."""


class Link(Protocol):
    """The way to one broker."""

    @property
    def connected(self) -> bool:
        """Whether it listens."""

    @property
    def room_bytes(self) -> int:
        """How much it may be told now; 0 where nothing at all."""

    @property
    def next_frame(self) -> int:
        """The number of the frame that `send` will send."""

    def send(self, told: Sequence[Told]) -> None:
        """Tells all this in one frame."""

    def close(self) -> None:
        """Ends it; nothing is told any more."""


class RemoteLink:
    """To another broker, over its native port."""

    def __init__(self, broker: Broker, peer: LiveBroker, ears: Ears, nursery: trio.Nursery) -> None:
        self._broker = broker
        self._ears = ears
        self._log = broker.log.bind(peer=peer.id)
        self._rpc = RpcClient(
            broker.world, peer.host, peer.native_port, SERVICE, ERRORS, cluster=broker.cluster_id or None
        )
        self._window = Window()
        self._scope = trio.CancelScope()
        self.connected = False
        nursery.start_soon(self._run)

    @property
    def room_bytes(self) -> int:
        """See `Link`."""
        return self._window.room_bytes if self.connected else 0

    @property
    def next_frame(self) -> int:
        """See `Link`."""
        return self._window.frame + 1

    def send(self, told: Sequence[Told]) -> None:
        """See `Link`."""
        size_bytes = sum(
            sum(len(entry) for entry in one.entries if entry is not None) + ITEM_BYTES * (len(one.runs) + 1)
            for one in told
        )
        self._window.sent(size_bytes)
        self._rpc.tell("told", self._window.frame, [one.packed() for one in told])

    def close(self) -> None:
        """See `Link`."""
        self.connected = False
        self._scope.cancel()

    async def _run(self) -> None:
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._rpc.run)
                problem = ""
                while True:
                    reason = await self._listen()
                    if reason != problem:
                        self._log.warning("shadows_not_told", reason=reason, next="it is tried again; they read alone")
                        problem = reason
                    await self._broker.world.clock.sleep(self._lost())

    async def _listen(self) -> str:
        """Takes answers until the connection is gone; why it is."""
        try:
            async with self._rpc.stream("replicate") as stream:
                async for frame, answers in stream:
                    self.connected = True
                    self._window.heard(frame)
                    self._ears.heard(self, frame, [Answer.unpacked(answer) for answer in answers])
        except (Unreachable, RpcFailed, NativeError, ValueError, TypeError) as error:
            return str(error)
        return "the other broker ends"

    def _lost(self) -> float:
        was_connected, self.connected = self.connected, False
        if was_connected:
            self._ears.lost(self)
        return self._window.lost()


class LocalLink:
    """To the shadows that this broker leads itself."""

    connected = True
    room_bytes = 1 << 30

    def __init__(self, broker: Broker, ears: Ears) -> None:
        self._broker = broker
        self._ears = ears
        self._frame = 0

    @property
    def next_frame(self) -> int:
        """See `Link`."""
        return self._frame + 1

    def send(self, told: Sequence[Told]) -> None:
        """See `Link`: it is taken at once."""
        self._frame += 1
        answers: list[Answer] = []
        for one in told:
            answers += hear(self._broker, *unpacked(one.packed()))
        self._ears.heard(self, self._frame, answers)

    def close(self) -> None:
        """See `Link`."""
