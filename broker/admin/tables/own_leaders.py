"""The leaders of tables as this broker knows them, for the calls that its REST API makes.

1. A look-up asks no other broker. A leader that is wrong refuses the call, and the caller looks up again.
2. A call to this broker itself goes to the address that it listens on, which other machines may reach at another one.
3. There is one connection to each broker, as long as this one runs; a broker of another cluster refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from gnomon.broker.errors import KafkaError
from gnomon.broker.placement.placement import Placement
from gnomon.broker.subscriptions.hosted_partition import STORE_ERRORS
from gnomon.broker.topics.topic_records import TopicRecords
from gnomon.broker.topics.topics import Topics
from gnomon.client.addresses import Address
from gnomon.client.broker_connection import BrokerConnection
from gnomon.client.errors import ERRORS, NoSuchTopic, Unavailable
from gnomon.client.leaders import Leaders
from gnomon.client.part import Part
from gnomon.client.protocol import HEADS, SERVICE
from gnomon.log.topic import Topic
from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.world import World

_LOOPBACK: Mapping[str, str] = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""The address that a program on the same machine reaches a listener at."""


class LeaderConnection(BrokerConnection[Part]):
    """A connection for calls alone: it takes no deliveries, and opens again by itself after a loss."""

    def __init__(self, world: World, address: Address, cluster_id: str) -> None:
        super().__init__(world, *address, lambda part: None, lambda connection: None)
        self.rpc = RpcClient(world, *address, SERVICE, ERRORS, cluster=cluster_id, heads=HEADS)

    async def run(self) -> None:
        """Connects when there is a call, until it is cancelled."""
        await self.rpc.run()

    @property
    def gone(self) -> bool:
        """False: the next call opens the connection again."""
        return False

    async def opened(self) -> None:
        """Returns at once: a call opens the connection."""
        await trio.lowlevel.checkpoint()


class OwnLeaders(Leaders):
    """Connections to the leaders, this broker among them."""

    def __init__(
        self,
        world: World,
        topics: Topics,
        records: TopicRecords,
        placement: Placement,
        cluster_id: str,
        here: Address,
        nursery: trio.Nursery,
    ) -> None:
        """No connection is open yet.

        Args:
            here: the address that this broker's native service listens on.
            nursery: runs the connections.
        """
        super().__init__(world, [], nursery, lambda part: None)
        self._to_leaders: dict[Address, LeaderConnection] = {}
        self._world = world
        self._nursery = nursery
        self._topics = topics
        self._records = records
        self._placement = placement
        self._cluster_id = cluster_id
        self._here: Address = (_LOOPBACK.get(here[0], here[0]), here[1])
        self._has_ended = False

    def connection(self, address: Address) -> LeaderConnection:
        """See `Leaders.connection`.

        Raises:
            Unavailable: this broker stops.
        """
        if self._has_ended:
            raise Unavailable("this broker stops: ask another one")
        connection = self._to_leaders.get(address)
        if connection is None:
            connection = self._to_leaders[address] = LeaderConnection(self._world, address, self._cluster_id)
            self._nursery.start_soon(connection.run)
        return connection

    def end(self) -> None:
        """This broker stops: there are no connections any more."""
        self._has_ended = True

    async def look_up_topic(self, topic: str) -> tuple[str, list[Address | None]]:
        """See `Leaders.look_up_topic`."""
        try:
            await self._records.find(topic)
            found = self._topics.find(topic)
        except KafkaError as error:
            raise NoSuchTopic(error.text) from error
        except STORE_ERRORS as error:
            raise Unavailable(str(error)) from error
        return found.id.hex, [self.leader(found, index) for index in range(found.partitions)]

    def leader(self, topic: Topic, index: int) -> Address | None:
        """The address of the leader of a partition; None while it has none."""
        number = self._placement.leader(topic, index)
        if number == self._placement.node_id:
            return self._here
        broker = self._placement.broker(number)
        return None if broker is None else broker.native
