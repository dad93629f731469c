"""The brokers of a cluster, for a client that sends its requests to the leaders of partitions.

    async with KafkaBrokers(world, [("broker-1", 9092)]) as cluster:
        leader = await cluster.leader("orders", 0)

1. There is at most one connection to each address.
2. Leaders are remembered until `forget`, which `retried` calls after each failure.
3. `retried` repeats an attempt for `patience_seconds`, as long as it fails by silence or by a retriable error. Then the
   last failure is raised. So an attempt must be harmless if it is repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar
from uuid import UUID

import trio

from gnomon.client.addresses import Address
from gnomon.client.kafka.connection import KafkaClientConnection
from gnomon.client.kafka.errors import RequestRefused, check
from gnomon.runtime.backoff import Backoff
from gnomon.runtime.world import Unreachable, World
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")

METADATA_VERSION: Final = 12
PATIENCE_SECONDS: Final = 60.0
RETRY: Final = Backoff(0.05, 1.0)


class UnknownTopic(RequestRefused):
    """No topic has this name."""


class TopicLeaders(NamedTuple):
    """A topic, and the brokers that lead its partitions."""

    id: UUID
    leaders: Mapping[int, Address | None]
    """The leader of each partition; None while it has none."""


class KafkaBrokers:
    """The connections of one client; it closes them when its `async with` block ends."""

    def __init__(
        self,
        world: World,
        addresses: Sequence[Address],
        client_id: str = "gnomon",
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Connects to nothing yet.

        Args:
            addresses: of brokers, which are asked for the others.
        """
        self.world, self.clock = world, world.clock
        self._addresses = list(addresses)
        self._client_id = client_id
        self.patience_seconds = patience_seconds
        self._connections: dict[Address, KafkaClientConnection] = {}
        self._opening: dict[Address, trio.Lock] = {}
        self._topics: dict[str, TopicLeaders] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()

    async def any_broker(self) -> KafkaClientConnection:
        """A connection to one of the brokers.

        Raises:
            Unreachable: none of them answers; the text has the reason of each.
        """
        reasons = []
        for address in [*self._connections, *(each for each in self._addresses if each not in self._connections)]:
            try:
                return await self.connection(address)
            except Unreachable as error:
                reasons.append(str(error))
        raise Unreachable("no broker answers: " + "; ".join(reasons))

    async def numbered_broker(self) -> tuple[int, KafkaClientConnection]:
        """One of the brokers that serve, with its node id; raises Unreachable as `any_broker`."""
        asked = await self.any_broker()
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        found = await asked.request(request, METADATA_VERSION, MetadataResponse)
        if not found.brokers:
            raise Unreachable("a broker answers, and knows of no broker")
        return found.brokers[0].node_id, await self.connection((found.brokers[0].host, found.brokers[0].port))

    async def topics(
        self, names: Sequence[str] | None = None, *, skip_unknown: bool = False
    ) -> dict[str, TopicLeaders]:
        """Topics and the leaders of their partitions, as one broker knows them now.

        Args:
            names: the topics; None for all.
            skip_unknown: leaves out topics that do not exist.

        Raises:
            UnknownTopic: one of the names.
            RequestRefused: a broker refused for another reason.
            Unreachable: no broker answers.
        """
        asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        broker = await self.any_broker()
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        found = await broker.request(request, METADATA_VERSION, MetadataResponse)
        brokers = {member.node_id: (member.host, member.port) for member in found.brokers}
        topics = {}
        for topic in found.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                if skip_unknown:
                    continue
                raise UnknownTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r}")
            check(topic.error_code, f"topic {topic.name!r}")
            leaders = {each.partition_index: brokers.get(each.leader_id) for each in topic.partitions}
            topics[topic.name or ""] = TopicLeaders(topic.topic_id, leaders)
        self._topics |= topics
        return topics

    async def topic(self, name: str) -> TopicLeaders:
        """A topic, from memory if it is known; raises as `topics`."""
        known = self._topics.get(name)
        return known if known is not None else (await self.topics([name]))[name]

    async def leader(self, topic: str, partition: int) -> KafkaClientConnection:
        """A connection to the leader of a partition.

        Raises:
            Unreachable: it does not answer, or no broker does.
            RequestRefused: there is no such topic or partition, or no leader at the moment.
        """
        leaders = (await self.topic(topic)).leaders
        if partition not in leaders:  # it may have been added
            leaders = (await self.topics([topic]))[topic].leaders
        place = f"partition {partition} of topic {topic!r}"
        if partition not in leaders:
            raise UnknownTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, place)
        address = leaders[partition]
        if address is None:
            raise RequestRefused(ErrorCode.LEADER_NOT_AVAILABLE, place)
        return await self.connection(address)

    def forget(self, topic: str) -> None:
        """Has the leaders of a topic looked up again."""
        self._topics.pop(topic, None)

    async def retried(self, topic: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of the first attempt that succeeds (invariant 3); `topic` is the one that it uses.

        Raises:
            UnknownTopic: at once.
            RequestRefused: with an error that is not retriable, at once; with another one, after `patience_seconds`.
            Unreachable: after `patience_seconds`.
        """
        until, failures = self.clock.monotonic() + self.patience_seconds, 0
        while True:
            try:
                return await attempt()
            except (Unreachable, RequestRefused) as error:
                is_final = isinstance(error, UnknownTopic) or (
                    isinstance(error, RequestRefused) and not error.code.retriable
                )
                if is_final or self.clock.monotonic() >= until:
                    raise
            self.forget(topic)
            failures += 1
            await self.clock.sleep(RETRY.seconds(failures))

    async def connection(self, address: Address) -> KafkaClientConnection:
        """A connection to the broker at an address; raises Unreachable."""
        async with self._opening.setdefault(address, trio.Lock()):
            known = self._connections.get(address)
            if known is None or known.closed_by_peer:
                self._connections.pop(address, None)
                known = self._connections[address] = await KafkaClientConnection.open(
                    self.world, *address, self._client_id
                )
            return known
