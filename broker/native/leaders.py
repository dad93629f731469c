"""The brokers as a native client finds them: a connection to each, and calls to whoever leads a partition.

1. There is one connection to a broker, whoever needs it.
2. Any broker that answers says who leads; the addresses that were given are asked where no connection is left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import trio

from gnomon.broker.native.addresses import Address
from gnomon.broker.native.consumer import Part
from gnomon.broker.native.errors import Retriable, Unavailable
from gnomon.broker.native.link import Link
from gnomon.runtime.world import Unreachable, World

T = TypeVar("T")

RETRY_SECONDS_MIN = 0.05
RETRY_SECONDS_MAX = 1.0
TRY_SECONDS = 30.0
"""How long a call is tried again where that may help."""
AGAIN = (Unreachable, Retriable)
"""Errors where it may."""


class Leaders:
    """The connections of one client."""

    def __init__(
        self, world: World, addresses: Sequence[Address], nursery: trio.Nursery, detached: Callable[[Part], None]
    ) -> None:
        """None yet; `detached` is told each part that its broker sent away, or whose connection has ended."""
        self._world = world
        self._addresses = list(addresses)
        self._nursery = nursery
        self._detached = detached
        self._links: dict[Address, Link] = {}

    def link(self, address: Address) -> Link:
        """The connection to a broker, which may still have to be opened."""
        link = self._links.get(address)
        if link is None or link.gone:
            link = self._links[address] = Link(self._world, *address, self._detached, self._gone)
            self._nursery.start_soon(link.run)
        return link

    def _gone(self, link: Link) -> None:
        for address, known in list(self._links.items()):
            if known is link:
                del self._links[address]
        for part in list(link.parts.values()):
            if part.link is link:
                self._detached(part)

    def forget(self, part: Part) -> None:
        """Drops what comes for a part, on whichever connection that is."""
        for link in self._links.values():
            link.parts.pop(part.number, None)

    def close(self) -> None:
        """Ends every connection."""
        for link in list(self._links.values()):
            link.close()

    # --- who leads ----------------------------------------------------------------------------------------------

    async def look_up(self, topic: str) -> list[Address | None]:
        """The leaders of a topic's partitions; None where there is none at the moment.

        Raises:
            Unreachable, Retriable: no broker could say it now.
            NativeError, RpcFailed: one has refused.
        """
        last: Exception | None = None
        for address in [*self._links, *(each for each in self._addresses if each not in self._links)]:
            try:
                _, leaders = await self.link(address).call("lookup", topic)
            except AGAIN as error:
                last = error
                continue
            return [None if leader is None else (leader[0], leader[1]) for leader in leaders]
        assert last is not None, "there is an address at least"
        raise last

    async def find(self, topic: str) -> list[Address | None]:
        """`look_up`, tried again for TRY_SECONDS where that may help."""
        return await self._persist(lambda: self.look_up(topic))

    async def ask(self, part: Part, method: str, *args: Any) -> Any:
        """Calls whoever leads a partition; tried again for TRY_SECONDS where that may help.

        Raises:
            Unreachable, NativeError, RpcFailed: it did not work, or whether so is unknown.
        """

        async def ask() -> Any:
            leaders = await self.look_up(part.consumer.topic)
            leader = leaders[part.partition] if part.partition < len(leaders) else None
            if leader is None:
                raise Unavailable(f"partition {part.partition} of '{part.consumer.topic}' has no leader at the moment")
            return await self.link(leader).call(method, part.consumer.topic, part.partition, *args)

        return await self._persist(ask)

    async def _persist(self, work: Callable[[], Awaitable[T]]) -> T:
        """Does something until it works, or trying again does not help, or TRY_SECONDS have passed."""
        clock = self._world.clock
        pause, until = RETRY_SECONDS_MIN, clock.monotonic() + TRY_SECONDS
        while True:
            try:
                return await work()
            except AGAIN:
                if clock.monotonic() + pause > until:
                    raise
            await clock.sleep(pause)
            pause = min(2 * pause, RETRY_SECONDS_MAX)
