"""Batches with fewer records than offsets, as compaction will produce them, and all readers of such batches."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import trio
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from turns import at_once

from gnomon.broker.partition.log import PartitionLog, PartitionSettings
from gnomon.broker.partition.producers import Duplicate
from gnomon.broker.subscriptions.key_slots import slot_of
from gnomon.broker.subscriptions.record_slots import RecordSlots
from gnomon.client.client import connect
from gnomon.client.consumer import Consumer
from gnomon.client.consumer_options import Type
from gnomon.client.message import DeliveredBatch, Message
from gnomon.log.entry import NO_ABORT, EntryHeader, EntryKind, LeaderEpoch, Offset
from gnomon.log.log_positions import LogPositions
from gnomon.log.partition_reader import open_partition
from gnomon.testing.storms.kafka.embedded_broker import HOST, NATIVE_PORT, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, build_batch, find_by_timestamp, iterate_records, read_keys_by_offset

sys.path.insert(0, str(Path(__file__).parent))  # for `sparse_log`: test folders are no packages

from sparse_log import clean, cleaned

NOW = 1_700_000_000_000
SEGMENTS = {"segment.bytes": "150", "retention.ms": "-1", "message.timestamp.after.max.ms": str(1 << 60)}

TYPES: dict[Type, int] = {"exclusive": 1, "shared": 2, "key_shared": 2}
"""The types of subscriptions, each with its number of consumers."""


class Written(NamedTuple):
    """One record as it was produced."""

    offset: int
    timestamp: int
    key: bytes | None
    kept: bool

    @property
    def value(self) -> bytes:
        return b"value of %d" % self.offset


KEYS = st.sampled_from([None, b"a", b"b", b"c"])
RECORDS = st.tuples(st.integers(0, 50), KEYS, st.booleans())
BATCHES = st.lists(st.lists(RECORDS, min_size=1, max_size=5), min_size=3, max_size=8)


def as_written(batches: list[list[tuple[int, bytes | None, bool]]]) -> list[list[Written]]:
    found, offset = [], 0
    for batch in batches:
        found.append([Written(offset + at, NOW + late, key, kept) for at, (late, key, kept) in enumerate(batch)])
        offset += len(batch)
    return found


def encoded(batch: list[Written], codec: int) -> bytes:
    records = [Record(at, one.timestamp - NOW, one.key, one.value) for at, one in enumerate(batch)]
    return build_batch(records, base_timestamp=NOW, compression=codec)


async def sparse_log(broker: EmbeddedBroker, batches: list[list[Written]], codec: int) -> list[Written]:
    """Writes batches, cleans all segments except the last one, restarts the broker; returns the records left."""
    client = await broker.connect()
    await client.create_topic("orders", configs=SEGMENTS)
    for batch in batches:
        assert (await client.produce("orders", encoded(batch, codec))).error_code == 0
    partition = broker.serving.broker.routes.to_change("orders", 0)
    assert len(partition.segments) > 1
    end = partition.segments[-1].base_offset
    kept = {one.offset for batch in batches for one in batch if one.kept}
    await clean(broker, partition, kept)
    await broker.restart()
    return [one for batch in batches for one in batch if one.kept or one.offset >= end]


async def check_fetches(broker: EmbeddedBroker, left: list[Written], end: int) -> None:
    client = await broker.connect()
    for first in range(end):
        found: dict[int, bytes | None] = {}
        position = first
        while position < end:
            fetched = await client.fetch("orders", position, bytes_max=100)
            assert fetched.error_code == 0
            records = memoryview(fetched.records or b"")
            while records:
                size = 12 + int.from_bytes(records[8:12], "big")
                base = int.from_bytes(records[:8], "big")
                found.update((base + one.offset_delta, one.value) for one in iterate_records(records[:size], 1 << 20))
                reached = base + int.from_bytes(records[23:27], "big") + 1
                records = records[size:]
            assert reached > position, "a client that goes on after the batch comes further"
            position = reached
        assert {offset: value for offset, value in found.items() if offset >= first} == {
            one.offset: one.value for one in left if one.offset >= first
        }


async def check_positions(broker: EmbeddedBroker, left: list[Written], end: int) -> None:
    partition = broker.serving.broker.routes.to_change("orders", 0)
    log = await partition.opened()
    assert log is not None
    assert (log.start_offset, log.high_watermark) == (0, end)
    positions = LogPositions(log, partition)
    dlsns = [await positions.dlsn_of(Offset(offset)) for offset in range(end + 1)]
    assert dlsns == sorted(set(dlsns))
    assert [await positions.offset_of(dlsn) for dlsn in dlsns] == list(range(end + 1))
    for late in range(52):
        place = await partition.offset_for_timestamp(NOW + late, at_once)
        first = next((one for one in left if one.timestamp >= NOW + late), None)
        assert (place and place[:2]) == (first and (first.offset, first.timestamp))
    latest = max((one.timestamp for one in left), default=None)
    found = await partition.max_timestamp_offset(at_once)
    assert (found and found[1]) == latest
    reader = await open_partition(
        broker.serving.broker.storage.metadata, broker.serving.broker.storage.bookies, "orders", 0
    )
    read = [
        (batch.base_offset + one.offset_delta, one.value)
        async for batch in reader.batches()
        for one in iterate_records(memoryview(batch.records), 1 << 20)
    ]
    assert read == [(one.offset, one.value) for one in left]


async def check_subscriptions(broker: EmbeddedBroker, left: list[Written]) -> None:
    """Asserts that each record left is delivered once, at its offset, and that a seek to its id finds it."""
    expected = {one.offset: (one.value, one.key, one.timestamp) for one in left}
    async with connect(f"{HOST}:{NATIVE_PORT}", world=broker.client_world) as client:
        for kind, count in TYPES.items():
            made = [
                await client.subscribe("orders", kind, type=kind, initial_position="earliest", queue_records=4)
                for _ in range(count)
            ]
            found: list[Message] = []

            async def take(consumer: Consumer, found: list[Message] = found) -> None:
                async for message in consumer:
                    found.append(message)
                    consumer.ack(message)

            async with trio.open_nursery() as nursery:
                for consumer in made:
                    nursery.start_soon(take, consumer)
                with trio.fail_after(60):
                    while await made[0].backlog():
                        await broker.simulation.sleep(0.1)
                nursery.cancel_scope.cancel()
            assert {one.offset: (one.value, one.key, one.timestamp_ms) for one in found} == expected
            assert len(found) == len(left), "each record comes once"
            for consumer in made[1:]:
                await consumer.close()
            for message in found[:: max(1, len(found) // 3)]:
                assert await made[0].seek_to_id(0, message.id) == message.offset
                assert (await made[0].receive()).offset == message.offset
            await made[0].close()


@settings(max_examples=15, phases=[Phase.explicit, Phase.generate])
@given(BATCHES, st.sampled_from([Codec.NONE, Codec.GZIP]))
def test_sparse_batches_are_read_by_offset_by_time_and_by_subscriptions(
    drawn: list[list[tuple[int, bytes | None, bool]]], codec: int
) -> None:
    batches = as_written(drawn)
    end = batches[-1][-1].offset + 1

    async def scenario(broker: EmbeddedBroker) -> None:
        left = await sparse_log(broker, batches, codec)
        await check_fetches(broker, left, end)
        await check_positions(broker, left, end)
        await check_subscriptions(broker, left)

    simulate_broker(scenario)


def sparse(*offsets: int, count: int = 6, append_time: bool = False) -> bytes:
    """A batch that covers the offsets 10 to 10 + `count`, with records at `offsets`; at 12 the time is NOW + 2."""
    records = [Record(at, at, b"key %d" % at, b"value") for at in range(count)]
    stored = bytearray(build_batch(records, base_timestamp=NOW, base_offset=10))
    if append_time:
        stored[22] |= 8
    return cleaned(memoryview(stored), offsets)


def test_a_search_by_time_in_a_sparse_batch_finds_an_existing_record() -> None:
    batch = memoryview(sparse(11, 14))
    assert find_by_timestamp(batch, NOW, 1 << 20, 100) == (11, NOW + 1)
    assert find_by_timestamp(batch, NOW + 2, 1 << 20, 100) == (14, NOW + 4)
    assert find_by_timestamp(batch, NOW + 5, 1 << 20, 100) is None
    assert find_by_timestamp(memoryview(sparse()), 0, 1 << 20, 100) is None
    by_append = memoryview(sparse(11, 14, append_time=True))
    assert find_by_timestamp(by_append, NOW, 1 << 20, 100) == (11, NOW + 5)
    assert find_by_timestamp(by_append, NOW, 1 << 20, 100, start_offset=12) == (14, NOW + 5)


def test_the_keys_of_a_sparse_batch_are_those_of_its_offsets() -> None:
    body = sparse(11, 14)[61:]
    keys = [None, b"key 1", None, None, b"key 4", None]
    for first in range(6):
        mark = 0 if first <= 1 else len(body) // 2 if first <= 4 else len(body)
        for count in range(7 - first):
            assert read_keys_by_offset(body, mark, first, count, 100)[0] == keys[first : first + count]
    assert read_keys_by_offset(body[:-1], 0, 0, 6, 100)[0] == keys[:2], "a record that is cut off ends them"


def test_slots_of_a_sparse_batch_are_the_same_however_it_is_cut_into_slices() -> None:
    body = sparse(11, 14, 15)[61:]
    whole = list(RecordSlots(Offset(10), Offset(16), dense=False).look(body, 10, 6))
    assert [whole[at] for at in (1, 4, 5)] == [slot_of(b"key %d" % at, 10 + at) for at in (1, 4, 5)]
    for cut in range(11, 16):
        slots = RecordSlots(Offset(10), Offset(16), dense=False)
        assert [*slots.look(body, 10, cut - 10), *slots.look(body, cut, 16 - cut)] == whole


def test_a_client_knows_the_slots_of_a_sparse_batch_without_a_record() -> None:
    batch = DeliveredBatch(0, 0, 10, 0, sparse(11, 14))
    assert batch.count == 6
    assert [batch.records[place] is not None for place in range(6)] == [False, True, False, False, True, False]
    dense = DeliveredBatch(0, 0, 10, 0, sparse(*range(10, 16)))
    assert [record is not None for record in dense.records] == [True] * 6


def test_a_retry_of_a_batch_that_was_cleaned_meanwhile_is_answered_with_its_offsets() -> None:
    log = PartitionLog(LeaderEpoch(1), Offset(0), Offset(0), PartitionSettings())
    records = [Record(at, 0, None, b"value") for at in range(4)]
    produced = build_batch(records, base_timestamp=NOW, producer_id=7, producer_epoch=0, base_sequence=0)
    header = EntryHeader(EntryKind.BATCH, LeaderEpoch(0), Offset(0), Offset(4), Offset(4), NOW, 0, NO_ABORT)
    log.replay(header, memoryview(cleaned(memoryview(produced), {1})), NOW)
    verdict = log.append(memoryview(produced), NOW, 1)
    assert isinstance(verdict, Duplicate)
    assert verdict[:2] == (0, 4)
    following = build_batch(records, base_timestamp=NOW, producer_id=7, producer_epoch=0, base_sequence=4)
    assert not isinstance(log.append(memoryview(following), NOW, 1), Duplicate)


def test_a_produced_batch_with_gaps_is_refused() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        gaps = build_batch([Record(0, 0, None, b"a"), Record(2, 0, None, b"b")], base_timestamp=NOW)
        assert (await client.produce("orders", gaps)).error_code == ErrorCode.INVALID_RECORD

    simulate_broker(scenario)
