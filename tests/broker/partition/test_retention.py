"""Retention of unused partitions, through a whole broker."""

from __future__ import annotations

from native_calls import SELDOM

from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.testing.storms.metadata.counting_metadata import CountingMetadata
from gnomon.wire.kafka.records import Record, build_batch

RETENTION_SECONDS = 60


async def _filled(broker: EmbeddedBroker, partitions: int, at: int) -> BrokerClient:
    client = await broker.connect()
    await client.create_topic("t", partitions, {"retention.ms": str(1000 * RETENTION_SECONDS)})
    batch = build_batch([Record(offset_delta=0, key=None, value=b"v")], base_timestamp=at)
    for index in range(partitions):
        assert (await client.produce("t", batch, index)).error_code == 0
    return client


def test_the_open_segment_of_an_unused_partition_expires_and_is_read_once() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await _filled(broker, 3, broker.client_world.clock.wall_ms())
        await broker.restart()
        node = broker.serving.broker
        metadata = node.storage.metadata = CountingMetadata(node.storage.metadata)
        with metadata.measure() as cost:
            await node.retention.enforce()
        assert (cost.reads, cost.writes) == (1, 0)
        assert node.partitions.with_own_log() == []
        await broker.simulation.sleep(RETENTION_SECONDS + 1)
        await node.retention.enforce()
        logs = [used.partition.log for used in node.partitions.with_own_log()]
        assert [(log.start_offset, log.high_watermark) for log in logs if log is not None] == [(1, 1)] * 3
        await broker.simulation.sleep(3 * RETENTION_SECONDS)
        with metadata.measure() as cost:
            await node.retention.enforce()
        assert (cost.reads, cost.writes) == (1, 0)
        assert (await (await broker.connect()).fetch("t", 1, max_wait_ms=0)).log_start_offset == 1

    simulate_broker(scenario, kafka=SELDOM)


def test_a_younger_record_in_an_old_segment_keeps_it_and_the_partition_is_opened_only_once() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await _filled(broker, 1, broker.client_world.clock.wall_ms() + 1_000_000)
        await broker.restart()
        node = broker.serving.broker
        metadata = node.storage.metadata = CountingMetadata(node.storage.metadata)
        await broker.simulation.sleep(RETENTION_SECONDS + 1)
        for expected in ((2, 1), (1, 0)):
            with metadata.measure() as cost:
                await node.retention.enforce()
            assert (cost.reads, cost.writes) == expected
        assert (await (await broker.connect()).fetch("t", 0)).records

    simulate_broker(scenario, kafka=SELDOM)


def test_a_partition_whose_last_append_failed_is_trimmed_without_another_append() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await _filled(broker, 1, broker.client_world.clock.wall_ms())
        broker.machine.disk.conditions.full = True
        batch = build_batch([Record(offset_delta=0, key=None, value=b"v")], base_timestamp=1)
        assert (await client.produce("t", batch)).error_code != 0
        broker.machine.disk.conditions.full = False
        await broker.simulation.sleep(RETENTION_SECONDS + 1)
        await broker.serving.broker.retention.enforce()
        assert (await client.fetch("t", 1, max_wait_ms=0)).log_start_offset == 1

    simulate_broker(scenario, kafka=SELDOM)
