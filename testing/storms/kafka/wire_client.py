"""A small Kafka client over a world's network, for simulations: connections, partition leaders and coordinators.

    cluster = WireCluster(world, [("broker-1", 9092)])
    connection = await cluster.leader("orders", 0)
    response = await connection.request(FetchRequest(...), version=12)

Its connections use the broker's own codec, which other tests check against another implementation. The producer and the
consumer in `log_clients` are built on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from gnomon.client.kafka.connection import KafkaClientConnection
from gnomon.runtime.world import Unreachable
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import MetadataRequest, MetadataRequestTopic, MetadataResponse
from gnomon.wire.kafka.messages.group import FindCoordinatorRequest, FindCoordinatorResponse

METADATA_VERSION = 9
FIND_COORDINATOR_VERSION = 3


class WireConnection(KafkaClientConnection):
    """A connection to a broker that never violates the protocol."""

    def malformed(self, fault: str) -> NoReturn:
        """Fails the run."""
        raise AssertionError(fault)


class WireCluster:
    """Finds the leaders of partitions and the coordinators of groups.

    Args:
        bootstrap: host and port of brokers; they are asked in turn, from a random one on.
        auto_create: whether the client asks brokers to create missing topics.
    """

    def __init__(
        self,
        world: SimulatedWorld,
        bootstrap: Sequence[tuple[str, int]],
        client_id: str = "simulated",
        *,
        auto_create: bool = True,
    ) -> None:
        self.world = world
        self.client_id = client_id
        self._bootstrap = list(bootstrap)
        self._auto_create = auto_create
        self._next = world.random("bootstrap").randrange(len(self._bootstrap))

    @property
    def hosts(self) -> list[str]:
        """The hosts of the bootstrap brokers."""
        return [host for host, _ in self._bootstrap]

    async def connect(self) -> WireConnection:
        """A connection to the next broker of the list.

        Raises:
            Unreachable: the broker does not answer.
        """
        host, port = self._bootstrap[self._next % len(self._bootstrap)]
        self._next += 1
        return await WireConnection.open(self.world, host, port, self.client_id)

    async def leader(self, topic: str, partition: int) -> WireConnection:
        """A connection to the leader of the partition; with `auto_create`, a missing topic is created.

        Raises:
            Unreachable: no broker answers, or there is no leader yet.
        """
        connection = await self.connect()
        try:
            topics = [MetadataRequestTopic(name=topic)]
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=self._auto_create)
            metadata = await connection.request(request, METADATA_VERSION, MetadataResponse)
        finally:
            connection.close()
        brokers = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
        for found in metadata.topics[0].partitions:
            if found.partition_index == partition and found.leader_id in brokers:
                return await WireConnection.open(self.world, *brokers[found.leader_id], self.client_id)
        error = ErrorCode(metadata.topics[0].error_code)
        raise Unreachable(f"{topic}-{partition} has no leader ({error.name})")

    async def coordinator(self, group: str) -> WireConnection:
        """A connection to the broker that coordinates the group.

        Raises:
            Unreachable: no broker answers, or there is no coordinator yet.
        """
        connection = await self.connect()
        try:
            request = FindCoordinatorRequest(key=group, key_type=0)
            found = await connection.request(request, FIND_COORDINATOR_VERSION, FindCoordinatorResponse)
        finally:
            connection.close()
        if found.error_code:
            raise Unreachable(f"group {group!r} has no coordinator ({ErrorCode(found.error_code).name})")
        return await WireConnection.open(self.world, found.host, found.port, self.client_id)
