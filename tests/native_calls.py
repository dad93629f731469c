"""Calls of Kafka clients and native clients to one simulated broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from gnomon.broker.native.server import NativeServer
from gnomon.client.client import NativeClient, connect
from gnomon.client.consumer import Consumer
from gnomon.client.errors import ERRORS
from gnomon.client.protocol import HEADS, SERVICE
from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.world import Listener
from gnomon.testing.storms.kafka.embedded_broker import (
    HOST,
    NATIVE_PORT,
    BrokerClient,
    EmbeddedBroker,
    simulate_broker,
)
from gnomon.wire.kafka.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from gnomon.wire.kafka.records import Record, build_batch

SELDOM = {"log.retention.check.interval.ms": "100000000"}
"""Retention runs only when a test asks for it."""
FLUSHED_SECONDS = 1.5
"""After this time a broker has stored the acknowledgements that it received."""


async def orders(broker: EmbeddedBroker, count: int, *, first: int = 0) -> None:
    """Produces batches of one record; creates the topic with the first."""
    client = await broker.connect()
    if first == 0:
        await client.create_topic("orders")
    for number in range(first, first + count):
        batch = build_batch([Record(value=b"%d" % number)], base_timestamp=number)
        assert (await client.produce("orders", batch)).error_code == 0


async def delete_records(client: BrokerClient, before: int) -> None:
    """Deletes the records of `orders` below an offset."""
    partition = DeleteRecordsPartition(partition_index=0, offset=before)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="orders", partitions=[partition])], timeout_ms=1000)
    answer = await client.ask(request, 2)
    assert answer.topics[0].partitions[0].error_code == 0


@asynccontextmanager
async def native(broker: EmbeddedBroker, name: str = "") -> AsyncIterator[NativeClient]:
    async with connect(f"{HOST}:{NATIVE_PORT}", world=broker.client_world, name=name) as client:
        yield client


def play(
    scenario: Callable[[EmbeddedBroker, BrokerClient, NativeClient], Awaitable[None]],
    kafka: Mapping[str, str] = SELDOM,
    **settings: Any,
) -> None:
    """Runs a scenario with a broker, a client of each kind, and settings as for `simulate_broker`."""

    async def run(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        async with native(broker) as subscriber:
            await scenario(broker, client, subscriber)

    simulate_broker(run, kafka=kafka, **settings)


def writing(scenario: Callable[[EmbeddedBroker, NativeClient], Awaitable[None]]) -> None:
    """Runs a scenario with an empty topic `orders` and a native client."""

    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        await kafka.create_topic("orders")
        await scenario(broker, client)

    play(run)


def start_of(broker: EmbeddedBroker) -> int:
    """The start of the log of `orders`, whose partition is open."""
    node = broker.serving.broker
    log = node.partitions.use(node.topics.find("orders"), 0).log
    assert log is not None
    return log.start_offset


@asynccontextmanager
async def rpc(broker: EmbeddedBroker) -> AsyncIterator[RpcClient]:
    async with trio.open_nursery() as nursery:
        client = RpcClient(broker.client_world, HOST, NATIVE_PORT, SERVICE, ERRORS, heads=HEADS)
        nursery.start_soon(client.run)
        yield client
        nursery.cancel_scope.cancel()


async def values(consumer: Consumer, count: int) -> list[int]:
    """Receives the next values and acknowledges them."""
    found = []
    for _ in range(count):
        message = await consumer.receive()
        consumer.ack(message)
        found.append(int(message.value or b""))
    return found


async def read(consumer: Consumer, count: int) -> list[int]:
    """As `values`; returns when the acknowledgements are stored."""
    found = await values(consumer, count)
    await trio.sleep(FLUSHED_SECONDS)
    return found


def listening_late(patch: pytest.MonkeyPatch) -> trio.Event:
    """From now on, brokers bind native ports only after the returned event is set."""
    listen, go_on = NativeServer.listen, trio.Event()

    async def listen_later(server: NativeServer, host: str, port: int) -> Listener:
        await go_on.wait()
        return await listen(server, host, port)

    patch.setattr(NativeServer, "listen", listen_later)
    return go_on
