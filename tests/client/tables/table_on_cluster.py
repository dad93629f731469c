"""Runs scenarios with a table on a simulated cluster of two brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from gnomon.client.client import NativeClient, connect
from gnomon.client.errors import ERRORS
from gnomon.client.protocol import HEADS, SERVICE
from gnomon.runtime.rpc.client import RpcClient
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT, BrokerCluster
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster


class TableOnCluster:
    """The brokers of a table `settings`, and its clients."""

    def __init__(self, cluster: BrokerCluster, client: WireCluster) -> None:
        self.cluster = cluster
        self.wire = client

    @property
    def leader(self) -> int:
        """The number of the broker that leads the table, as a running broker knows it."""
        return self.cluster.leader("settings", 0)

    @asynccontextmanager
    async def client(self, name: str = "", first: int = 1) -> AsyncIterator[NativeClient]:
        """A native client that knows both brokers, and asks `first` before the other one."""
        numbers = sorted(self.cluster.brokers, key=lambda number: number != first)
        addresses = ",".join(f"broker-{number}:{NATIVE_PORT}" for number in numbers)
        async with connect(addresses, world=self.wire.world, name=name) as client:
            yield client

    @asynccontextmanager
    async def peer(self, broker: int) -> AsyncIterator[RpcClient]:
        """A connection to one broker."""
        async with trio.open_nursery() as nursery:
            peer = RpcClient(self.wire.world, f"broker-{broker}", NATIVE_PORT, SERVICE, ERRORS, heads=HEADS)
            nursery.start_soon(peer.run)
            yield peer
            nursery.cancel_scope.cancel()

    def cut_off(self, *brokers: int) -> None:
        """Cuts the links between brokers and the metadata service."""
        for number in brokers:
            for link in ((f"broker-{number}", "metadata"), ("metadata", f"broker-{number}")):
                self.cluster.simulation.network.block(*link)

    def bring_back(self) -> None:
        """Undoes `cut_off`."""
        self.cluster.simulation.network.heal()


def with_table_on_cluster(scenario: Callable[[TableOnCluster], Awaitable[None]]) -> None:
    """Runs a scenario with an empty table `settings` of one partition."""

    async def run(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2)
        await cluster.start()

        async def use(client: WireCluster) -> None:
            await create_topic(client, "settings", {"gnomon.view": "kv"})
            await scenario(TableOnCluster(cluster, client))

        await cluster.run_client("client", use)

    simulate(1, run)
