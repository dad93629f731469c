"""Offsets to DLSNs and back, in a log of several segments, and batches by offset."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pytest

from gnomon.bookie.ledgers.catalog import LocalViews
from gnomon.broker.partition.partition import Partition
from gnomon.log.dlsn import BEGINNING, Dlsn
from gnomon.log.entry import LeaderEpoch, Offset
from gnomon.log.log_positions import LogPositions
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.records import Record, build_batch

BATCH = 4


async def write(client: BrokerClient, batches: int, *, first: int = 0) -> None:
    """Writes as an idempotent producer, so that every segment begins with a snapshot, which covers no offset."""
    for number in range(first, first + batches):
        records = [Record(place, 0, value=bytes(60)) for place in range(BATCH)]
        batch = build_batch(
            records, base_timestamp=number, producer_id=7, producer_epoch=0, base_sequence=number * BATCH
        )
        assert (await client.produce("orders", batch)).error_code == 0


async def open_log(broker: EmbeddedBroker, batches: int) -> tuple[BrokerClient, Partition, LogPositions]:
    client = await broker.connect()
    await client.create_topic("orders", configs={"segment.bytes": "1000"})
    await write(client, batches)
    partition = broker.serving.broker.routes.to_change("orders", 0)
    log = await partition.opened()
    assert log is not None
    return client, partition, LogPositions(log, partition)


def test_every_offset_has_a_dlsn_that_leads_back_to_the_offset() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        _, partition, positions = await open_log(broker, 20)
        assert len(partition.segments) > 3
        dlsns = [await positions.dlsn_of(Offset(offset)) for offset in range(81)]
        assert all(a < b for a, b in pairwise(dlsns)), "they are ordered as the log is"
        assert [dlsn.slot for dlsn in dlsns[:8]] == [0, 1, 2, 3, 0, 1, 2, 3]
        assert [await positions.offset_of(dlsn) for dlsn in dlsns] == list(range(81))
        assert await positions.offset_of(BEGINNING) == 0

    simulate_broker(scenario)


def test_the_only_dlsn_of_a_shadow_of_an_unused_partition_is_the_beginning() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        await client.create_topic("copy", partitions=-1, configs={"gnomon.shadow.source": "orders"})
        shadow = broker.serving.broker.routes.to_read("copy", 0)
        log = await shadow.opened()
        assert log is not None
        assert not shadow.segments
        positions = LogPositions(log, shadow)
        assert await positions.dlsn_of(log.high_watermark) == BEGINNING
        assert await positions.offset_of(BEGINNING) == 0

    simulate_broker(scenario)


def test_a_dlsn_at_the_end_names_the_record_that_is_written_next() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client, partition, positions = await open_log(broker, 1)
        ends = []
        for number in range(1, 20):
            ends.append((number * BATCH, await positions.dlsn_of(Offset(number * BATCH))))
            await write(client, 1, first=number)
        assert len(partition.segments) > 3
        for offset, dlsn in ends:
            assert await positions.offset_of(dlsn) == offset

    simulate_broker(scenario)


def test_the_dlsn_of_a_deleted_record_leads_to_the_start_and_an_invalid_one_into_the_log() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        _, partition, positions = await open_log(broker, 20)
        dlsn = await positions.dlsn_of(Offset(3))
        await partition.delete_before(Offset(42))
        assert await positions.offset_of(dlsn) == 42
        assert await positions.dlsn_of(Offset(3)) == await positions.dlsn_of(Offset(42))
        assert await positions.offset_of(Dlsn(1_000_000, 0, 0)) == 80
        assert await positions.offset_of(Dlsn(0, 10**9, 5)) == 42

    simulate_broker(scenario)


@pytest.mark.parametrize("offset", [0, 3, 17, 79])
def test_a_batch_is_found_by_any_offset_that_it_covers(offset: int) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        _, _, positions = await open_log(broker, 20)
        with LocalViews() as views:
            batch = positions.batch(Offset(offset), views)
            assert (batch.base_offset, batch.next_offset) == (offset // BATCH * BATCH, offset // BATCH * BATCH + BATCH)
            assert batch.epoch == 0
        found = await positions.dlsn_of(Offset(offset))
        assert (found.segment, found.entry, found.slot) == (batch.segment, batch.entry, offset % BATCH)

    simulate_broker(scenario)


def test_the_dlsn_of_the_end_is_that_of_the_high_watermark_not_of_the_end_of_the_ledger() -> None:
    class Shown(NamedTuple):
        start_offset: Offset
        high_watermark: Offset
        next_offset: Offset = Offset(72)
        epoch: LeaderEpoch = LeaderEpoch(0)

    async def scenario(broker: EmbeddedBroker) -> None:
        _, partition, positions = await open_log(broker, 20)
        before = LogPositions(Shown(Offset(0), Offset(72)), partition)
        assert await positions.offset_of(await before.dlsn_of(Offset(72))) == 72

    simulate_broker(scenario)
