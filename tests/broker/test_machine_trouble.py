"""A node on a machine with a full disk, a failed device, or a data directory or port that it cannot use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from gnomon.broker.standalone import run_standalone
from gnomon.metadata.client import InvalidRequest, Metadata, TxnOutcome
from gnomon.runtime.disk.data_directory import OtherFormat
from gnomon.runtime.logs import SilentLogger
from gnomon.runtime.settings.settings import BrokerSettings, Settings
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import AddressTaken, DirectoryTaken
from gnomon.testing.simulation.ground import SimulationFailed
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import (
    MetadataRequest,
    MetadataRequestTopic,
)
from gnomon.wire.kafka.messages.produce import InitProducerIdRequest
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from gnomon.wire.kafka.records import Record, build_batch


def _batch() -> bytes:
    return build_batch([Record(offset_delta=0, key=None, value=b"v")], base_timestamp=1)


def test_producers_get_a_retriable_error_with_a_text_until_a_full_disk_has_room_again() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        assert (await client.produce("t", _batch())).error_code == 0
        broker.machine.disk.conditions.full = True
        for _ in range(5):
            refused = await client.produce("t", _batch())
            assert ErrorCode(refused.error_code).retriable
            assert refused.error_message
            assert (await client.fetch("t", 0)).records
            await broker.simulation.sleep(0.3)
        await broker.serving.broker.retention.enforce()
        broker.machine.disk.conditions.full = False
        await broker.simulation.sleep(5)
        assert (await client.produce("t", _batch())).base_offset == 1

    simulate_broker(scenario)


def test_changes_get_a_storage_error_while_the_disk_is_full_and_their_connection_stays_open() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        broker.machine.disk.conditions.full = True
        refused = ErrorCode.KAFKA_STORAGE_ERROR
        created = await client.ask(
            CreateTopicsRequest(topics=[CreatableTopic(name="u", num_partitions=1, replication_factor=1)]), 7
        )
        assert created.topics[0].error_code == refused
        assert "room" in created.topics[0].error_message
        grown = await client.ask(
            CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2, assignments=None)]), 3
        )
        assert grown.results[0].error_code == refused
        assert (await client.ask(InitProducerIdRequest(), 4)).error_code == refused
        for kind, name, key in ((2, "t", "retention.ms"), (4, "", "log.retention.ms")):
            assert (await client.alter_configs(kind, name, (key, 0, "1000000")))[0] == refused
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True)
        assert (await client.ask(wanted, 9)).topics[0].error_code == refused
        deleted = await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 3)
        assert deleted.responses[0].error_code == refused
        broker.machine.disk.conditions.full = False
        await broker.simulation.sleep(5)
        await client.create_topic("u")
        assert (await client.ask(InitProducerIdRequest(), 4)).producer_id >= 0

    simulate_broker(scenario)


class TakesNothing:
    """Metadata that refuses every transaction with a final error, as etcd refuses one that is too large."""

    def __init__(self, inner: Metadata) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def txn(self, *_: object) -> TxnOutcome:
        raise InvalidRequest("it takes no more than this")


def test_changes_refused_by_the_metadata_service_are_answered_with_its_reason_and_change_nothing() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        node = broker.serving.broker
        inner = node.storage.metadata
        node.storage.metadata = TakesNothing(inner)
        new = CreatableTopic(name="u", num_partitions=1, replication_factor=1)
        more = CreatePartitionsTopic(name="t", count=2, assignments=None)
        answers = [
            (await client.ask(CreateTopicsRequest(topics=[new]), 7)).topics[0],
            (await client.ask(CreatePartitionsRequest(topics=[more]), 3)).results[0],
            (await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 6)).responses[0],
        ]
        told = [(answer.error_code, answer.error_message) for answer in answers]
        told.append(await client.alter_configs(2, "t", ("retention.ms", 0, "1000000")))
        expected = "The metadata service refused the change: it takes no more than this"
        assert told == [(ErrorCode.POLICY_VIOLATION, expected)] * 4
        node.storage.metadata = inner
        assert (await client.ask(CreatePartitionsRequest(topics=[more]), 3)).results[0].error_code == 0

    simulate_broker(scenario)


@pytest.mark.parametrize("where", ["records", "metadata"])
def test_a_failed_device_stops_the_node_with_its_reason(where: str) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        assert (await client.produce("t", _batch())).error_code == 0
        broker.machine.disk.conditions.fail_next = True
        request: Any = client.produce_request("t", _batch())
        if where == "records":
            client.connection.send(request, 9)
        else:
            await client.create_topic("u")
        await broker.simulation.sleep(30)

    with pytest.raises(SimulationFailed, match=r"DiskFailed.*takes no more writes"):
        simulate_broker(scenario)


def _serve(data_dir: Path, port: int = 0) -> Settings:
    return Settings(data_dir=data_dir, broker=BrokerSettings(kafka_port=port, native_port=0))


async def _run(settings: Settings) -> None:
    async with open_trio_world(lambda text: None) as world:
        await run_standalone(world, settings, SilentLogger(), ready=lambda serving: None, stop=trio.Event())


async def _while_one_serves(first: Settings, second: Any) -> None:
    """Runs `second(port)` beside a broker."""
    async with open_trio_world(lambda text: None) as world, trio.open_nursery() as nursery:
        ports: list[int] = []
        ready, stop = trio.Event(), trio.Event()

        def served(serving: Any) -> None:
            ports.append(serving.listeners[0].port)
            ready.set()

        async def serve() -> None:
            await run_standalone(world, first, SilentLogger(), ready=served, stop=stop)

        nursery.start_soon(serve)
        await ready.wait()
        await second(ports[0])
        stop.set()


def test_a_data_directory_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "FORMAT").write_text("7\n")
    with pytest.raises(OtherFormat, match=r"format '7'.*upgrade"):
        trio.run(_run, _serve(tmp_path))


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    async def second(port: int) -> None:
        with pytest.RaisesGroup(AddressTaken, flatten_subgroups=True) as refusal:
            await _run(_serve(tmp_path / "second", port))
        assert f"127.0.0.1:{port}" in str(refusal.value.exceptions)

    trio.run(_while_one_serves, _serve(tmp_path / "first"), second)


def test_a_second_broker_on_a_directory_is_refused(tmp_path: Path) -> None:
    async def second(port: int) -> None:
        with pytest.raises(DirectoryTaken, match=str(tmp_path)):
            await _run(_serve(tmp_path))

    trio.run(_while_one_serves, _serve(tmp_path), second)
