"""A small Kafka client over a world's network, for simulations: connections, partition leaders and coordinators.

    cluster = WireCluster(world, [("broker-1", 9092)])
    connection = await cluster.leader("orders", 0)
    response = await connection.request(FetchRequest(...), version=12)

It uses the broker's own codec, which other tests check against another implementation. The producer and the consumer
in `log_clients` are built on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TypeVar, cast

import trio

from gnomon.runtime.world import Connection, Unreachable, World
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.wire.kafka.api import APIS, ApiKey, request_header_version, response_header_version
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.frame import HEADER_TAGS_MAX, KafkaFrameReader, skip_tagged_fields
from gnomon.wire.kafka.messages.cluster import MetadataRequest, MetadataRequestTopic, MetadataResponse
from gnomon.wire.kafka.messages.group import FindCoordinatorRequest, FindCoordinatorResponse
from gnomon.wire.kafka.primitives import allow_elements
from gnomon.wire.kafka.schema import ProtocolMessage, decode, encode

R = TypeVar("R", bound=ProtocolMessage)

REQUEST_SECONDS_MAX = 10.0
FRAME_BYTES_MAX = 128 * 1024 * 1024
METADATA_VERSION = 9
FIND_COORDINATOR_VERSION = 3
_HEADER = Struct(">ihhih")


class WireAnswer:
    """A response that is awaited."""

    def __init__(self, key: ApiKey, version: int) -> None:
        self.key = key
        self.version = version
        self.settled = trio.Event()
        self.message: ProtocolMessage | None = None
        """Once settled: the response, or None if the connection ended before it came."""


class WireConnection:
    """One connection with its requests in flight; made by `WireConnection.open`."""

    def __init__(self, connection: Connection, client_id: str) -> None:
        self.connection = connection
        self.closed_by_peer = False
        self._client_id = client_id.encode()
        self._frames = KafkaFrameReader(FRAME_BYTES_MAX)
        self._answers: dict[int, WireAnswer] = {}
        self._correlation_id = 0

    @staticmethod
    async def open(world: World, host: str, port: int, client_id: str = "simulated") -> WireConnection:
        """Connects.

        Raises:
            Unreachable: no listener, or no answer within 10 s.
        """
        made: list[WireConnection] = []

        def accept(connection: Connection) -> WireConnection:
            made.append(WireConnection(connection, client_id))
            return made[0]

        with trio.move_on_after(REQUEST_SECONDS_MAX):
            await world.network.connect(host, port, accept)
            return made[0]
        raise Unreachable(f"no connection to {host}:{port} within {REQUEST_SECONDS_MAX} s")

    def send(self, message: ProtocolMessage, version: int) -> WireAnswer:
        """Sends a request; requests are answered in order."""
        number = type(message).KEY
        assert number is not None, f"{type(message).__name__} is no request"
        key = ApiKey(number)
        answer = WireAnswer(key, version)
        if self.closed_by_peer:
            answer.settled.set()
            return answer
        self._correlation_id += 1
        self._answers[self._correlation_id] = answer
        tags = b"\0" if request_header_version(key, version) == 2 else b""
        body = encode(message, version)
        size = _HEADER.size - 4 + len(self._client_id) + len(tags) + len(body)
        head = _HEADER.pack(size, key, version, self._correlation_id, len(self._client_id))
        self.connection.write([head, self._client_id, tags, body])
        return answer

    async def request(self, message: ProtocolMessage, version: int, response: type[R]) -> R:
        """Sends a request and waits for its response, which is of the class `response`.

        Raises:
            Unreachable: no answer within 10 s, or the connection ended; the request may have taken effect.
        """
        return cast(R, await self.wait(self.send(message, version)))

    async def wait(self, answer: WireAnswer) -> ProtocolMessage:
        """Waits for the response to an earlier request; raises as `request`."""
        with trio.move_on_after(REQUEST_SECONDS_MAX):
            await answer.settled.wait()
        if answer.message is None:
            self.close()
            raise Unreachable(f"no answer to {answer.key.name} from {self.connection.peer}")
        return answer.message

    def close(self) -> None:
        """Ends the connection; requests in flight are not answered."""
        self.connection.abort()

    def receive_buffer(self) -> memoryview:
        """See `StreamHandler.receive_buffer`."""
        return self._frames.receive_buffer()

    def received(self, count: int) -> None:
        """See `StreamHandler.received`."""
        self._frames.received(count)
        while (frame := self._frames.next_frame()) is not None:
            self._take(memoryview(bytes(frame)))

    def drained(self) -> None:
        """See `StreamHandler.drained`."""

    def closed(self) -> None:
        """See `StreamHandler.closed`."""
        self.closed_by_peer = True
        for answer in self._answers.values():
            answer.settled.set()
        self._answers.clear()

    def _take(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big")
        first = next(iter(self._answers), None)
        assert correlation_id == first, f"the broker answered request {correlation_id}, {first} is the oldest one"
        answer = self._answers.pop(correlation_id)
        allow_elements(HEADER_TAGS_MAX)
        start = skip_tagged_fields(frame, 4) if response_header_version(answer.key, answer.version) == 1 else 4
        message, end = decode(APIS[answer.key].response, answer.version, frame, start)
        assert end == len(frame), f"{len(frame) - end} bytes follow the response to {answer.key.name}"
        answer.message = message
        answer.settled.set()


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
