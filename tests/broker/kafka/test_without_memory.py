"""A request without memory is refused, or ends its connection; the broker and its other connections go on."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.bookie.ledgers import appender
from gnomon.broker.kafka import poll, produce
from gnomon.broker.kafka.connections.request import Request
from gnomon.broker.partition import appends, writable
from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.partition.unpacking.batch_thread import BatchThread
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fields import ProtocolMessage
from gnomon.wire.kafka.messages.cluster import ApiVersionsRequest, MetadataRequest, MetadataResponse
from gnomon.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gnomon.wire.kafka.records import Record, build_batch

BATCH = build_batch([Record(offset_delta=0, key=None, value=b"v")], base_timestamp=1)
LONG_BATCH = build_batch([Record(offset_delta=0, key=None, value=bytes(300 << 10))], base_timestamp=1)


def poor(*_arguments: object, **_named: object) -> Any:
    raise MemoryError


async def poor_task(*_arguments: object) -> Any:
    raise MemoryError


async def ends_alone(broker: EmbeddedBroker, client: BrokerClient, message: ProtocolMessage, version: int) -> None:
    """The request ends its connection, and another one is served."""
    other = await broker.connect()
    client.connection.send(message, version)
    await broker.simulation.sleep(1)
    event, fields = broker.events[-1]
    assert event == "connection_refused"
    assert "out of memory" in str(fields["reason"])
    assert (await other.ask(ApiVersionsRequest(), 0)).error_code == 0
    assert broker.server.request_bytes == 0


def many_batches() -> ProduceRequest:
    partitions = [PartitionProduceData(index=index, records=BATCH) for index in range(300)]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=partitions)])


def test_a_long_produce_without_memory_for_its_batches_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        monkeypatch.setattr(produce, "refusal_by_attributes", poor)
        await ends_alone(broker, client, many_batches(), 9)

    simulate_broker(scenario)


@pytest.mark.parametrize("waits_seconds", [0, 1])
def test_a_fetch_without_memory_for_its_answer_ends_its_connection(
    waits_seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client, producer = await broker.connect(), await broker.connect()
        await client.create_topic("t")
        assert (await producer.produce("t", BATCH)).error_code == 0
        monkeypatch.setattr(poll, "encode_fetch_body", poor)
        if waits_seconds:
            client.connection.send(client.fetch_request("t", 1, max_wait_ms=60_000, min_bytes=1), 11)
            await broker.simulation.sleep(waits_seconds)
            assert (await producer.produce("t", BATCH)).error_code == 0
            await broker.simulation.sleep(1)
            assert broker.events[-1][0] == "connection_refused"
            assert (await producer.produce("t", BATCH)).error_code == 0
        else:
            await ends_alone(broker, client, client.fetch_request("t", 0), 11)

    simulate_broker(scenario)


@pytest.mark.parametrize("step", ["handler", "task", "answer"])
def test_a_request_without_memory_for_its_handling_or_its_answer_ends_its_connection(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = Request.encode

    def encode_others(request: Request, response: ProtocolMessage) -> bytes:
        return poor() if isinstance(response, MetadataResponse) else encode(request, response)

    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        if step == "answer":
            monkeypatch.setattr(Request, "encode", encode_others)
        else:
            handler = poor if step == "handler" else poor_task
            monkeypatch.setitem(broker.server.requests._handlers, ApiKey.METADATA, handler)
        await ends_alone(broker, client, MetadataRequest(topics=[]), 9)

    simulate_broker(scenario)


@pytest.mark.parametrize("step", ["decide", "store"])
def test_a_batch_without_memory_is_refused_and_the_next_one_continues_the_log(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        assert (await client.produce("t", BATCH)).base_offset == 0
        with monkeypatch.context() as patch:
            if step == "decide":
                patch.setattr(PartitionLog, "append", poor)
            else:
                patch.setattr(appender, "encode_entry", poor)
            assert (await client.produce("t", BATCH)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await broker.simulation.sleep(5)
        assert (await client.produce("t", BATCH)).base_offset == 1
        fetched = await client.fetch("t", 0)
        assert (fetched.error_code, fetched.high_watermark) == (0, 2)
        await broker.restart()
        assert (await (await broker.connect()).fetch("t", 0, max_wait_ms=1000, min_bytes=1)).high_watermark == 2

    simulate_broker(scenario)


def test_a_batch_without_memory_for_its_wait_is_refused_and_those_behind_it_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client, other = await broker.connect(), await broker.connect()
        await client.create_topic("t")
        await broker.restart()
        client, other = await broker.connect(), await broker.connect()
        with monkeypatch.context() as patch:
            patch.setattr(appends, "bytes", poor, raising=False)
            assert (await client.produce("t", BATCH)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await other.produce("t", BATCH)).base_offset == 0

    simulate_broker(scenario)


@pytest.mark.parametrize("step", ["copy", "thread"])
def test_a_batch_without_memory_for_its_recompression_is_refused_and_later_ones_are_written(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t", configs={"compression.type": "gzip"})
        assert (await client.produce("t", BATCH)).base_offset == 0
        with monkeypatch.context() as patch:
            if step == "copy":
                patch.setattr(writable, "bytes", poor, raising=False)
            else:
                patch.setattr(BatchThread, "work", poor_task)
            assert (await client.produce("t", LONG_BATCH)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.produce("t", LONG_BATCH)).base_offset == 1

    simulate_broker(scenario)
