"""Runs a whole broker in a simulation, for tests of one broker: virtual time, and access to the broker's parts.

async def scenario(broker):
    client = await broker.connect()
    await client.create_topic("orders", partitions=3)
    produced = await client.produce("orders", batch, partition=2)
    broker.machine.disk.conditions.full = True
    ...
    await broker.restart()

simulate_broker(scenario, kafka={"num.partitions": "3"})
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import UUID

import trio

from gnomon.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from gnomon.broker.kafka.connections.server import KafkaServer
from gnomon.broker.standalone import Serving, run_standalone
from gnomon.runtime.settings.settings import BrokerSettings, MetricsSettings, Settings, TableSettings
from gnomon.runtime.world import Connection
from gnomon.testing.simulation.coverage import SimulatedLogger
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.wire_client import WireConnection
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fields import NO_UUID, ProtocolMessage
from gnomon.wire.kafka.frame import KafkaFrameReader
from gnomon.wire.kafka.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from gnomon.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from gnomon.wire.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from gnomon.wire.kafka.primitives import Buffer

T = TypeVar("T")

HOST = "broker"
PORT = 9092
NATIVE_PORT = 6650
ANSWER_SECONDS_MAX = 60.0
_FRAME_BYTES_MAX = 1 << 30


class EmbeddedBroker:
    """One broker on a simulated machine, and a machine for its clients; made by `simulate_broker`."""

    def __init__(self, simulation: Simulation, settings: Settings) -> None:
        self.simulation = simulation
        self.settings = settings
        self.authorizer: Authorizer = ALLOW_ALL
        """The authorizer that the broker gets at its next start."""
        self.machine = simulation.machine(HOST)
        self.events: list[tuple[str, dict[str, object]]] = []
        """The events that the broker logged, with their fields, over all its starts."""
        self.stop = trio.Event()
        """Set it to let the broker drain and end."""
        self._serving: Serving | None = None
        self._ready = trio.Event()
        self._client_world: list[SimulatedWorld] = []

    @property
    def serving(self) -> Serving:
        """The parts of the running broker."""
        assert self._serving is not None, "the broker was not started"
        return self._serving

    @property
    def server(self) -> KafkaServer:
        """The Kafka server of the running broker."""
        return self.serving.server

    @property
    def client_world(self) -> SimulatedWorld:
        """The world of the clients' machine."""
        return self._client_world[0]

    async def start(self) -> None:
        """Starts the broker and returns once it serves; the first start also starts the clients' machine."""
        if not self._client_world:
            clients = self.simulation.machine("clients")
            clients.start(self._hold_world)
        self._ready = trio.Event()
        self.stop = trio.Event()
        self.machine.start(self._run)
        await self._ready.wait()

    async def restart(self, *, power_lost: bool = False) -> None:
        """Kills the broker, or takes its power, and starts it again."""
        if power_lost:
            self.machine.power_off()
        else:
            self.machine.kill()
        await self.start()

    async def connect(self) -> BrokerClient:
        """Opens a client's connection."""
        return BrokerClient(await WireConnection.open(self.client_world, HOST, PORT))

    async def connect_raw(self) -> RawConnection:
        """Opens a connection for bytes that no client would send."""
        made: list[RawConnection] = []

        def accept(connection: Connection) -> RawConnection:
            made.append(RawConnection(connection))
            return made[0]

        await self.client_world.network.connect(HOST, PORT, accept)
        return made[0]

    async def _hold_world(self, world: SimulatedWorld) -> None:
        self._client_world.append(world)
        await trio.sleep_forever()

    async def _run(self, world: SimulatedWorld) -> None:
        def ready(serving: Serving) -> None:
            self._serving = serving
            self._ready.set()

        log = _Recorder(world.logger, self.events)
        await run_standalone(world, self.settings, log, ready=ready, stop=self.stop, authorizer=self.authorizer)


class BrokerClient:
    """A client's connection, with the requests that most tests send."""

    def __init__(self, connection: WireConnection) -> None:
        self.connection = connection
        self.topic_ids: dict[str, UUID] = {}

    async def ask(self, message: ProtocolMessage, version: int) -> Any:
        """The response to a request; see `WireConnection.request`."""
        return await self.connection.wait(self.connection.send(message, version))

    async def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> UUID:
        """Creates a topic; returns its id."""
        given = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=given)
        response: CreateTopicsResponse = await self.ask(CreateTopicsRequest(topics=[topic]), 7)
        (result,) = response.topics
        assert result.error_code == 0, f"topic {name}: {ErrorCode(result.error_code).name}: {result.error_message}"
        self.topic_ids[name] = result.topic_id
        return result.topic_id

    async def describe_configs(self, kind: int, name: str, keys: list[str] | None = None, version: int = 4) -> Any:
        """The configs of a topic (kind 2) or broker (4), with synonyms and documentation; without `keys`, all."""
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=version >= 3
        )
        return (await self.ask(request, version)).results[0]

    async def alter_configs(
        self, kind: int, name: str, *changes: tuple[str, int, str | None], validate: bool = False
    ) -> tuple[int, str | None]:
        """Changes configs: each is a key, 0 (set) or 1 (delete), and a value. Returns the error code and its text."""
        configs = [
            IncrementalAlterableConfig(name=key, config_operation=what, value=value) for key, what, value in changes
        ]
        resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate)
        (result,) = (await self.ask(request, 1)).responses
        return result.error_code, result.error_message

    def produce_request(
        self,
        topic: str,
        batch: Buffer | None,
        partition: int = 0,
        *,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> ProduceRequest:
        """A request with one batch; it has the topic's name and id, so that every version can send it."""
        data = PartitionProduceData(index=partition, records=batch)
        named = TopicProduceData(name=topic, topic_id=self.topic_ids.get(topic, NO_UUID), partition_data=[data])
        return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=[named])

    async def produce(
        self, topic: str, batch: Buffer | None, partition: int = 0, *, acks: int = -1, version: int = 9
    ) -> PartitionProduceResponse:
        """Sends one batch and waits for its outcome."""
        request = self.produce_request(topic, batch, partition, acks=acks)
        response: ProduceResponse = await self.ask(request, version)
        return response.responses[0].partition_responses[0]

    def fetch_request(
        self,
        topic: str,
        offset: int,
        partition: int = 0,
        *,
        epoch: int = -1,
        bytes_max: int = 1 << 20,
        **fields: Any,
    ) -> FetchRequest:
        """A request for one partition, with the topic's name and id; `fields` are those of the message."""
        wanted = FetchPartition(
            partition=partition, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=bytes_max
        )
        named = FetchTopic(topic=topic, topic_id=self.topic_ids.get(topic, NO_UUID), partitions=[wanted])
        return FetchRequest(**{"min_bytes": 1, "max_wait_ms": 500, "topics": [named], **fields})

    async def fetch(
        self, topic: str, offset: int, partition: int = 0, *, version: int = 11, **fields: Any
    ) -> PartitionData:
        """Fetches from one partition, without a session."""
        response: FetchResponse = await self.ask(self.fetch_request(topic, offset, partition, **fields), version)
        return response.responses[0].partitions[0]


class RawConnection:
    """The client side of a stream: sends any bytes and reads whole frames."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.ended = trio.Event()
        """Set once the broker has ended the stream."""
        self.frames: list[bytes] = []
        """The bodies of the frames received so far, oldest first."""
        self._frames = KafkaFrameReader(_FRAME_BYTES_MAX)
        self._moved = trio.Event()

    def send(self, data: bytes) -> None:
        """Sends bytes as they are."""
        self.connection.write([data])

    def send_frame(self, body: bytes) -> None:
        """Sends a frame of these bytes."""
        self.send(len(body).to_bytes(4, "big") + body)

    async def settle(self, frames: int) -> None:
        """Waits until `frames` frames have arrived since the start, or the broker has ended the stream."""
        with trio.fail_after(ANSWER_SECONDS_MAX):
            while len(self.frames) < frames and not self.ended.is_set():
                await self._moved.wait()

    def receive_buffer(self) -> memoryview:
        """See `StreamHandler.receive_buffer`."""
        return self._frames.receive_buffer()

    def received(self, count: int) -> None:
        """See `StreamHandler.received`."""
        self._frames.received(count)
        while (frame := self._frames.next_frame()) is not None:
            self.frames.append(bytes(frame))
        self._notify()

    def drained(self) -> None:
        """See `StreamHandler.drained`."""

    def closed(self) -> None:
        """See `StreamHandler.closed`."""
        self.ended.set()
        self._notify()

    def _notify(self) -> None:
        moved, self._moved = self._moved, trio.Event()
        moved.set()


class _Recorder:
    """A `runtime.logs.Logger` that records each event."""

    def __init__(self, inner: SimulatedLogger, events: list[tuple[str, dict[str, object]]]) -> None:
        self._inner = inner
        self._events = events

    def bind(self, **fields: object) -> _Recorder:
        """See `Logger.bind`."""
        return self

    def debug(self, event: str, **fields: object) -> None:
        """See `Logger.debug`."""
        self._events.append((event, fields))
        self._inner.debug(event, **fields)

    def info(self, event: str, **fields: object) -> None:
        """See `Logger.info`."""
        self._events.append((event, fields))
        self._inner.info(event, **fields)

    def warning(self, event: str, **fields: object) -> None:
        """See `Logger.warning`."""
        self._events.append((event, fields))
        self._inner.warning(event, **fields)

    def error(self, event: str, **fields: object) -> None:
        """See `Logger.error`."""
        self._events.append((event, fields))
        self._inner.error(event, **fields)

    exception = error


def simulate_broker(
    scenario: Callable[[EmbeddedBroker], Awaitable[T]],
    *,
    seed: int | str = 1,
    kafka: Mapping[str, str] | None = None,
    broker: BrokerSettings | None = None,
    table: TableSettings | None = None,
    label_sets_max: int = 0,
) -> T:
    """Runs a scenario against a broker that serves, on virtual time.

    Args:
        label_sets_max: the setting `metrics.label_sets_max`.
        kafka: the broker's settings by Kafka's names.
        broker: the broker's limits; the simulation replaces the addresses in them.
        table: the settings of tables.

    Raises:
        SimulationFailed: the broker failed; an exception of the scenario is raised as it is.
    """
    settings = replace(
        Settings(),
        data_dir=Path("/data"),
        table=table or TableSettings(),
        broker=replace(
            broker or BrokerSettings(),
            kafka_host=HOST,
            native_host=HOST,
            advertised_host=HOST,
            native_advertised_host=HOST,
        ),
        metrics=MetricsSettings(label_sets_max),
        kafka=MappingProxyType({"offsets.topic.num.partitions": "2", **(kafka or {})}),
    )

    async def run(simulation: Simulation) -> T:
        embedded = EmbeddedBroker(simulation, settings)
        await embedded.start()
        return await scenario(embedded)

    return simulate(seed, run).result
