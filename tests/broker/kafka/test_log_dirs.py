"""The log directory: sizes of partitions, space of the file system, and refused moves."""

from __future__ import annotations

import pytest

from gnomon.runtime.world import WorldError
from gnomon.testing.simulation.disk.simulated_disk import CAPACITY_BYTES, SimulatedDisk
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.testing.storms.metadata.counting_metadata import Cost, CountingMetadata
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from gnomon.wire.kafka.records import Record, build_batch

Sizes = dict[str, dict[int, int]]


def _batch(value: str) -> bytes:
    return build_batch([Record(offset_delta=0, key=None, value=value.encode())], base_timestamp=1)


async def _described(
    client: BrokerClient, asked: dict[str, list[int]] | None = None, version: int = 5
) -> tuple[DescribeLogDirsResult, Sizes]:
    topics = None if asked is None else [DescribableLogDirTopic(topic=name, partitions=asked[name]) for name in asked]
    response = await client.ask(DescribeLogDirsRequest(topics=topics), version)
    assert response.error_code == 0
    (only,) = response.results
    partitions = [part for topic in only.topics for part in topic.partitions]
    assert all((part.offset_lag, part.is_future_key) == (0, False) for part in partitions)
    return only, {
        topic.name: {part.partition_index: part.partition_size for part in topic.partitions} for topic in only.topics
    }


def test_the_size_of_a_partition_is_that_of_its_batches_also_while_unused_after_a_restart() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("rolled", partitions=2, configs={"segment.bytes": "1048576"})
        await client.create_topic("small", partitions=3)
        large, small = _batch("x" * 400_000), _batch("x")
        for _ in range(5):
            assert (await client.produce("rolled", large, 1)).error_code == 0
        for _ in range(4):
            assert (await client.produce("small", small, 2)).error_code == 0
        expected = {"rolled": {0: 0, 1: 5 * len(large)}, "small": {0: 0, 1: 0, 2: 4 * len(small)}}
        for version in range(1, 6):
            assert (await _described(client, version=version))[1] == expected

        await broker.restart()
        client = await broker.connect()
        assert (await _described(client))[1] == expected
        assert broker.serving.broker.partitions.with_own_log() == []

        assert (await client.fetch("small", 0, 2)).high_watermark == 4
        assert (await _described(client))[1] == expected

    simulate_broker(scenario)


def test_each_existing_partition_of_a_request_is_described_once() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t", partitions=3)
        await client.create_topic("u")
        assert (await _described(client, {"t": [2, 0, 2, 7], "none": [0], "u": [1]}))[1] == {"t": {0: 0, 2: 0}}
        assert (await _described(client, {}))[1] == {}

    simulate_broker(scenario)


def test_the_size_of_the_file_system_is_described_from_version_four_on() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        for version in range(1, 6):
            only, _ = await _described(client, version=version)
            assert (only.log_dir, only.error_code, only.is_cordoned) == ("/data", 0, False)
            known = (CAPACITY_BYTES, CAPACITY_BYTES // 2) if version >= 4 else (-1, -1)
            assert (only.total_bytes, only.usable_bytes) == known
        broker.machine.disk.conditions.full = True
        assert (await _described(client))[0].usable_bytes == 0

    simulate_broker(scenario)


def test_a_directory_whose_file_system_does_not_answer_has_a_storage_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: object) -> None:
        raise WorldError("planted")

    monkeypatch.setattr(SimulatedDisk, "space", failing)

    async def scenario(broker: EmbeddedBroker) -> None:
        only, sizes = await _described(await broker.connect())
        assert (only.log_dir, only.error_code, sizes) == ("/data", ErrorCode.KAFKA_STORAGE_ERROR, {})

    simulate_broker(scenario)


def test_describing_reads_the_metadata_once_and_writes_nothing() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t", partitions=250)
        for index in range(0, 250, 10):
            await client.produce("t", _batch("x"), index)
        await broker.restart()
        client, node = await broker.connect(), broker.serving.broker
        metadata = node.storage.metadata = CountingMetadata(node.storage.metadata)
        with metadata.measure() as cost:
            _, sizes = await _described(client)
        assert sum(size > 0 for size in sizes["t"].values()) == 25
        assert cost == Cost(reads=1, writes=0)

    simulate_broker(scenario)


@pytest.mark.parametrize("version", [1, 2])
def test_no_partition_moves_to_a_directory_that_does_not_exist(version: int) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t", partitions=2)
        dirs = [
            AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=name, partitions=parts)])
            for path, name, parts in [("/data", "t", [0, 5]), ("/other", "t", [1]), ("/data", "none", [0])]
        ]
        response = await client.ask(AlterReplicaLogDirsRequest(dirs=dirs), version)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert {
            topic.topic_name: {part.partition_index: part.error_code for part in topic.partitions}
            for topic in response.results
        } == {"t": {0: 0, 5: unknown, 1: ErrorCode.LOG_DIR_NOT_FOUND}, "none": {0: unknown}}

    simulate_broker(scenario)
