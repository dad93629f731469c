"""The brokers of a native client: one connection to each, and calls to the leader of a partition.

1. There is at most one connection to each address of a broker, for all consumers.
2. The client learns the leaders of a topic from the first broker that answers. It asks the brokers to which it has a
   connection, and after them the configured addresses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import trio

from gnomon.client.addresses import Address
from gnomon.client.broker_connection import BrokerConnection
from gnomon.client.errors import Retriable, Unavailable
from gnomon.client.part import Part
from gnomon.runtime.backoff import Backoff
from gnomon.runtime.world import Unreachable, World

T = TypeVar("T")

RETRY = Backoff(0.05, 1.0)
TRY_SECONDS = 30.0
"""The time for which a call is retried."""
RETRIABLE = (Unreachable, Retriable)
"""Errors after which a call may succeed later, or at another broker."""


class Leaders:
    """The connections of one client, by address."""

    def __init__(
        self, world: World, addresses: Sequence[Address], nursery: trio.Nursery, detached: Callable[[Part], None]
    ) -> None:
        """No connection is open yet.

        Args:
            nursery: runs the connections.
            detached: is called with each part that its broker sent away, or whose connection has ended.
        """
        self._world = world
        self._addresses = list(addresses)
        self._nursery = nursery
        self._detached = detached
        self._connections: dict[Address, BrokerConnection[Part]] = {}

    def connection(self, address: Address) -> BrokerConnection[Part]:
        """The connection to a broker, which may not be open yet."""
        connection = self._connections.get(address)
        if connection is None or connection.gone:
            connection = BrokerConnection(self._world, *address, self._detached, self._gone)
            self._connections[address] = connection
            self._nursery.start_soon(connection.run)
        return connection

    def _gone(self, connection: BrokerConnection[Part]) -> None:
        for address, known in list(self._connections.items()):
            if known is connection:
                del self._connections[address]
        for part in list(connection.receivers.values()):
            if part.connection is connection:
                self._detached(part)

    def close(self) -> None:
        """Ends every connection."""
        for connection in list(self._connections.values()):
            connection.close()

    # --- calls to leaders ---------------------------------------------------------------------------------------

    async def look_up(self, topic: str) -> list[Address | None]:
        """The leaders of a topic's partitions; None for a partition that has no leader at the moment.

        Raises:
            Unreachable, Retriable: no broker could answer now.
            NativeError, RpcFailed: a broker has refused.
        """
        last: Exception | None = None
        others = (each for each in self._addresses if each not in self._connections)
        for address in [*self._connections, *others]:
            try:
                _, leaders = await self.connection(address).call("lookup", topic)
            except RETRIABLE as error:
                last = error
                continue
            return [None if leader is None else (leader[0], leader[1]) for leader in leaders]
        assert last is not None, "there is an address at least"
        raise last

    async def find(self, topic: str) -> list[Address | None]:
        """`look_up`, retried for TRY_SECONDS."""
        return await self._retried(lambda: self.look_up(topic))

    async def ask(self, topic: str, partition: int, method: str, *args: Any) -> Any:
        """Calls the leader of a partition, with topic and partition as the first arguments; retried for TRY_SECONDS.

        Raises:
            Unreachable, NativeError, RpcFailed: the call failed, or its outcome is unknown.
        """

        async def ask() -> Any:
            leaders = await self.look_up(topic)
            leader = leaders[partition] if partition < len(leaders) else None
            if leader is None:
                raise Unavailable(f"partition {partition} of '{topic}' has no leader at the moment")
            return await self.connection(leader).call(method, topic, partition, *args)

        return await self._retried(ask)

    async def _retried(self, work: Callable[[], Awaitable[T]]) -> T:
        """Repeats `work` until it succeeds, fails with an error that is not retriable, or TRY_SECONDS have passed."""
        clock = self._world.clock
        failures, until = 0, clock.monotonic() + TRY_SECONDS
        while True:
            try:
                return await work()
            except RETRIABLE:
                failures += 1
                if clock.monotonic() + RETRY.seconds(failures) > until:
                    raise
            await clock.sleep(RETRY.seconds(failures))
