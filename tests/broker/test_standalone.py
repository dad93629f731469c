"""A whole node: its warnings and answers when it starts, and its graceful end."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from native_calls import listening_late

from gnomon.broker.kafka.connections.server import DRAIN_SECONDS
from gnomon.broker.standalone import Serving, run_standalone
from gnomon.runtime.settings.settings import BrokerSettings, Settings
from gnomon.testing.simulation.ground import SimulationFailed
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.embedded_broker import HOST, PORT, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.messages.cluster import MetadataRequest
from gnomon.wire.kafka.messages.topics import CreatableTopic, CreateTopicsRequest
from gnomon.wire.kafka.records import Record, build_batch


@pytest.mark.parametrize(
    ("broker", "warned"),
    [
        (BrokerSettings(kafka_host="0.0.0.0"), True),
        (BrokerSettings(kafka_host="::"), True),
        (BrokerSettings(kafka_host="0.0.0.0", advertised_host="broker.example"), False),
        (BrokerSettings(kafka_host="127.0.0.1"), False),
    ],
)
def test_a_node_warns_of_an_address_that_remote_clients_cannot_use(broker: BrokerSettings, warned: bool) -> None:
    async def scenario(simulation: Simulation) -> None:
        stop, ended = trio.Event(), trio.Event()
        served: list[Serving] = []

        async def node(world: SimulatedWorld) -> None:
            settings = Settings(data_dir=Path("/data"), broker=broker)
            await run_standalone(world, settings, world.logger, ready=served.append, stop=stop)
            ended.set()

        simulation.machine("node").start(node)
        while not served:
            await simulation.sleep(0.1)
        assert served[0].bookie_problem() is None
        await simulation.sleep(0.1)
        assert served[0].broker.topics.problem() is None
        assert simulation.coverage.counts["log/advertised_host_missing"] == int(warned)
        stop.set()
        with trio.fail_after(10):
            await ended.wait()

    simulate(1, scenario)


def test_a_client_gets_the_brokers_address_before_the_native_port_is_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        go_on = listening_late(monkeypatch)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.restart)
            await broker.simulation.sleep(1)
            client = await broker.connect()
            told = (await client.ask(MetadataRequest(topics=[]), 12)).brokers
            go_on.set()
        assert [(one.host, one.port) for one in told] == [(HOST, PORT)]

    simulate_broker(scenario)


def test_a_device_failure_while_the_node_stops_ends_it_with_that_reason() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        batch = build_batch([Record(offset_delta=0, key=None, value=b"v")], base_timestamp=1)
        assert (await client.produce("t", batch)).error_code == 0
        broker.machine.disk.conditions.fail_next = True
        broker.machine.disk.conditions.slowness = 1000
        client.connection.send(client.produce_request("t", batch), 9)
        await broker.simulation.sleep(0.1)
        broker.stop.set()
        await broker.simulation.sleep(60)

    with pytest.raises(SimulationFailed, match=r"DiskFailed.*takes no more writes"):
        simulate_broker(scenario)


def test_changes_that_wait_for_the_metadata_when_the_node_stops_are_dropped_without_an_error() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        clients = [await broker.connect() for _ in range(3)]
        broker.machine.disk.conditions.slowness = 100_000
        for number, client in enumerate(clients):
            topic = CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1)
            client.connection.send(CreateTopicsRequest(topics=[topic]), 7)
        await broker.simulation.sleep(1)
        broker.stop.set()
        await broker.simulation.sleep(10 * DRAIN_SECONDS)
        broker.machine.disk.conditions.slowness = 1
        await broker.start()
        kept = list(broker.serving.broker.topics.image)
        assert len(kept) == 1, "the commit under way is kept, and those that waited for it are not"

    simulate_broker(scenario)
