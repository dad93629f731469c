"""A shadow beside its source, on the one broker of a standalone node, as Kafka's clients see it."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from gnomon.bookie.record import ledger_key
from gnomon.broker.kafka.positions import EARLIEST, LATEST, MAX_TIMESTAMP
from gnomon.client.client import connect
from gnomon.log.chains import ledgers_prefix
from gnomon.metadata.client import Put
from gnomon.testing.storms.kafka.embedded_broker import HOST, NATIVE_PORT, BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.positions import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from gnomon.wire.kafka.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from gnomon.wire.kafka.records import Record, build_batch, iterate_records

SOURCE = "gnomon.shadow.source"


def batch(*values: str, at: int = 1000) -> bytes:
    return build_batch(
        [Record(offset_delta=number, value=value.encode()) for number, value in enumerate(values)], base_timestamp=at
    )


async def cast(client: BrokerClient, source: str = "orders", shadow: str = "copy") -> UUID:
    return await client.create_topic(shadow, -1, {SOURCE: source})


async def values(client: BrokerClient, topic: str, offset: int = 0, **fields: Any) -> list[str]:
    fetched = await client.fetch(topic, offset, **fields)
    assert fetched.error_code == 0, ErrorCode(fetched.error_code)
    records = memoryview(fetched.records or b"")
    found: list[str] = []
    while records:
        size = 12 + int.from_bytes(records[8:12], "big")
        found += [(record.value or b"").decode() for record in iterate_records(records[:size], 1 << 20)]
        records = records[size:]
    return found


def test_a_shadow_shows_the_bytes_of_its_source_and_refuses_appends() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch("a", "b"))
        await cast(client)
        await client.produce("orders", batch("c"))
        assert await values(client, "copy") == ["a", "b", "c"]
        source, shadow = await client.fetch("orders", 0), await client.fetch("copy", 0)
        assert (shadow.records, shadow.high_watermark, shadow.log_start_offset) == (
            source.records,
            source.high_watermark,
            source.log_start_offset,
        )
        refused = await client.produce("copy", batch("d"))
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert refused.error_message == "topic 'copy' is a shadow of 'orders': write to the source"

    simulate_broker(scenario)


def test_a_reader_at_the_end_of_a_shadow_is_woken_by_an_append_to_the_source() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client, writer = await broker.connect(), await broker.connect()
        await client.create_topic("orders")
        await cast(client)
        await client.produce("orders", batch("a"))
        assert await values(client, "copy") == ["a"]
        clock = broker.simulation.clock
        for number in range(1, 20):
            request = client.fetch_request("copy", number, max_wait_ms=30_000)
            asked = client.connection.send(request, 11)
            await clock.sleep(0.5)
            await writer.produce("orders", batch(str(number)))
            written_at = clock.monotonic()
            response = await client.connection.wait(asked)
            assert response.responses[0].partitions[0].high_watermark == number + 1
            assert clock.monotonic() - written_at < 0.05

    simulate_broker(scenario)


async def delete_records(client: BrokerClient, topic: str, offset: int) -> int:
    wanted = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    answer = await client.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=1000), 2)
    code: int = answer.topics[0].partitions[0].error_code
    return code


async def place(client: BrokerClient, topic: str, timestamp: int) -> tuple[int, int, int]:
    """(offset, timestamp, leader epoch) by ListOffsets."""
    wanted = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
    found = (await client.ask(ListOffsetsRequest(topics=[wanted]), 7)).topics[0].partitions[0]
    assert found.error_code == 0, ErrorCode(found.error_code)
    return found.offset, found.timestamp, found.leader_epoch


async def all_values(client: BrokerClient, topic: str) -> list[str]:
    """All values that a topic shows, read as a consumer reads them."""
    offset, _, _ = await place(client, topic, EARLIEST)
    end, _, _ = await place(client, topic, LATEST)
    found: list[str] = []
    while offset < end:
        got = await values(client, topic, offset)
        assert got, f"nothing is readable at {offset}, below the high watermark {end}"
        found += got
        offset += len(got)
    return found


def test_a_shadow_follows_rolls_and_deleted_records() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders", 1, {"segment.bytes": "400", "retention.ms": "-1"})
        await cast(client)
        for number in range(20):
            await client.produce("orders", batch(str(number)))
            if number % 3 == 0:
                await broker.simulation.clock.sleep(0.1)
                assert await all_values(client, "copy") == [str(one) for one in range(number + 1)]
        ((_, _, partition),) = broker.serving.broker.partitions.with_own_log()
        assert len(partition.segments) > 3
        assert await delete_records(client, "orders", 7) == 0
        await broker.simulation.clock.sleep(0.1)
        fetched = await client.fetch("copy", 7)
        assert fetched.log_start_offset == 7
        assert (await client.fetch("copy", 6)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await all_values(client, "copy"))[-13:] == [str(one) for one in range(7, 20)]
        assert await delete_records(client, "orders", -1) == 0
        await broker.simulation.clock.sleep(0.1)
        assert await place(client, "copy", EARLIEST) == await place(client, "orders", EARLIEST)
        await client.produce("orders", batch("new"))
        assert await values(client, "copy", 20) == ["new"]

    simulate_broker(scenario)


def test_offsets_by_time_and_epoch_are_those_of_the_source() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders", 1, {"segment.bytes": "400", "retention.ms": "-1"})
        for number in range(12):
            await client.produce("orders", batch(str(number), at=1000 * number))
        await cast(client)
        for timestamp in (EARLIEST, LATEST, MAX_TIMESTAMP, 0, 3500, 11_000, 50_000):
            assert await place(client, "copy", timestamp) == await place(client, "orders", timestamp)
        await broker.restart()
        client = await broker.connect()
        assert await place(client, "orders", LATEST) == (12, -1, 1)
        assert await place(client, "copy", LATEST) == (12, -1, 1)
        wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
        ends = [
            (
                await client.ask(
                    OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name, partitions=[wanted])]), 4
                )
            ).topics[0]
            for name in ("orders", "copy")
        ]
        assert ends[0].partitions[0].end_offset == ends[1].partitions[0].end_offset == 12

    simulate_broker(scenario)


def test_a_shadow_of_an_unwritten_source_is_empty_and_fills() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        await cast(client)
        assert await place(client, "copy", EARLIEST) == (0, -1, 0)
        assert await place(client, "copy", LATEST) == (0, -1, 0)
        assert await values(client, "copy") == []
        found = await broker.serving.broker.storage.metadata.range("ledgers/")
        assert found.items == ()
        await client.produce("orders", batch("a"))
        assert await values(client, "copy") == ["a"]

    simulate_broker(scenario)


def test_reading_a_shadow_fences_no_writer_and_writes_to_no_store(changes: Counter[str]) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders", 1, {"segment.bytes": "400", "retention.ms": "-1"})
        for number in range(10):
            await client.produce("orders", batch(str(number)))
        await cast(client)
        node = broker.serving.broker
        session = (await node.storage.metadata.range("ledgers/")).items[-1].value
        changes.clear()
        topics = (await node.storage.metadata.range("topics/")).items
        assert await all_values(client, "copy") == [str(one) for one in range(10)]
        await place(client, "copy", MAX_TIMESTAMP)
        await broker.simulation.clock.sleep(30)
        assert changes == Counter()
        assert (await node.storage.metadata.range("ledgers/")).items[-1].value == session
        assert (await node.storage.metadata.range("topics/")).items == topics
        await client.produce("orders", batch("goes on"))
        assert await values(client, "copy", 10) == ["goes on"]
        assert changes == Counter(add=1)

    simulate_broker(scenario)


def test_a_reader_ahead_of_a_reopened_shadow_waits_and_gets_no_error() -> None:
    """A reopened shadow may not know yet that the records are confirmed that it showed before."""

    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        await cast(client)
        for value in ("a", "b", "c"):
            await client.produce("orders", batch(value))
        assert await values(client, "copy") == ["a", "b", "c"]
        await broker.restart()
        client, writer = await broker.connect(), await broker.connect()
        ahead = client.connection.send(client.fetch_request("copy", 3, max_wait_ms=30_000), 11)
        await broker.simulation.clock.sleep(1)
        await writer.produce("orders", batch("d"))
        answer = (await client.connection.wait(ahead)).responses[0].partitions[0]
        assert (answer.error_code, answer.high_watermark) == (0, 4)
        await broker.simulation.clock.sleep(1)
        assert (await client.fetch("copy", 9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    simulate_broker(scenario)


def test_a_native_subscription_of_a_shadow_follows_its_source_from_segment_to_segment() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders", configs={"segment.bytes": "14"})
        await cast(client)
        async with connect(f"{HOST}:{NATIVE_PORT}", world=broker.client_world) as subscriber:
            consumer = await subscriber.subscribe("copy", "billing")
            for value in ("a", "b", "c"):
                await client.produce("orders", batch(value))
                assert (await consumer.receive()).value == value.encode()

    simulate_broker(scenario)


def test_a_ledger_that_is_not_named_as_a_segment_is_logged_and_skipped() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        source = await client.create_topic("orders")
        await client.produce("orders", batch("a"))
        await cast(client)
        assert await values(client, "copy") == ["a"]
        stray = ledger_key(ledgers_prefix(source, 0) + "backup")
        await broker.serving.broker.storage.metadata.txn([], [Put(stray, b"anything")])
        await client.produce("orders", batch("b"))
        await broker.simulation.clock.sleep(1)
        assert await values(client, "copy") == ["a", "b"]
        (fields,) = [fields for event, fields in broker.events if event == "ledger_not_a_segment"]
        assert f"{stray!r} is no segment" in str(fields["reason"])

    simulate_broker(scenario)
