"""The native services of the other brokers of a cluster, as this broker asks them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from gnomon.broker.placement.leadership import LiveBroker
from gnomon.client.errors import ERRORS
from gnomon.client.protocol import SERVICE
from gnomon.runtime.background import background
from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.rpc.errors import RpcFailed
from gnomon.runtime.world import Unreachable, World

ASK_SECONDS = 2.0
"""The time that another broker may take to answer."""
SILENT: Final = (RpcFailed, Unreachable)
"""The errors of calls that are not answered; the broker is then asked nothing else on the same occasion."""


class Peers:
    """Connects to other brokers, for some calls each time."""

    def __init__(self, world: World, cluster_id: str) -> None:
        self._world = world
        self._cluster_id = cluster_id

    @asynccontextmanager
    async def connected(self, peer: LiveBroker) -> AsyncIterator[RpcClient]:
        """A connection to a broker for as long as the block lasts; each call waits at most ASK_SECONDS."""
        async with background() as nursery:
            client = RpcClient(
                self._world, *peer.native, SERVICE, ERRORS, cluster=self._cluster_id, call_seconds=ASK_SECONDS
            )
            nursery.start_soon(client.run)
            yield client
