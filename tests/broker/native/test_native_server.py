"""The native front door of one simulated broker: what it refuses, and what happens to topics that are subscribed to."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from struct import pack
from typing import Any

import pytest
import trio
from crc32c import crc32c

from gnomon.broker.native import server
from gnomon.broker.native.client import NativeClient, connect
from gnomon.broker.native.connection import NativeConnection
from gnomon.broker.native.consumer import Consumer
from gnomon.broker.native.errors import ERRORS, SERVICE, InvalidCall, NoSuchSubscription, NoSuchTopic, RecordsMissed
from gnomon.broker.subscriptions.hosted_partition import HostedPartition
from gnomon.broker.subscriptions.record import SubscriberRecord
from gnomon.broker.subscriptions.store import subscriptions_prefix
from gnomon.runtime.rpc_client import RpcClient
from gnomon.testing.embedded_broker import HOST, NATIVE_PORT, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.batch import CRC_FROM
from gnomon.wire.kafka.compression import CorruptData
from gnomon.wire.kafka.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
)
from gnomon.wire.kafka.records import Record, build_batch

ADDRESS = f"{HOST}:{NATIVE_PORT}"
FLUSHED_SECONDS = 1.5


async def orders(broker: EmbeddedBroker, count: int, *, first: int = 0) -> None:
    """Produces batches of one record; creates the topic with the first."""
    client = await broker.connect()
    if first == 0:
        await client.create_topic("orders")
    for number in range(first, first + count):
        batch = build_batch([Record(value=b"%d" % number)], base_timestamp=number)
        assert (await client.produce("orders", batch)).error_code == 0


@asynccontextmanager
async def native(broker: EmbeddedBroker) -> AsyncIterator[NativeClient]:
    async with connect(ADDRESS, world=broker.client_world) as client:
        yield client


@asynccontextmanager
async def rpc(broker: EmbeddedBroker) -> AsyncIterator[RpcClient]:
    async with trio.open_nursery() as nursery:
        client = RpcClient(broker.client_world, HOST, NATIVE_PORT, SERVICE, ERRORS)
        nursery.start_soon(client.run)
        yield client
        nursery.cancel_scope.cancel()


async def values(consumer: Consumer, count: int) -> list[int]:
    found = []
    for _ in range(count):
        message = await consumer.receive()
        consumer.ack(message)
        found.append(int(message.value or b""))
    return found


SENSELESS: list[tuple[str, list[object]]] = [
    ("lookup", []),
    ("lookup", [7]),
    ("subscribe", ["orders"]),
    ("subscribe", ["orders", 0, "exclusive", "earliest", [["one", -1, "me", 1]]]),
    ("subscribe", ["orders", 0, "exclusive", "earliest", [["one", 1 << 32, "me", 1]]]),
    ("subscribe", ["orders", 0, "exclusive", "earliest", [["one", 1, "m" * 101, 1]]]),
    ("subscribe", ["orders", 0, "exclusive", "earliest", [["one", 1, "me"]]]),
    ("subscribe", ["orders", 0, "exclusive", "earliest", [["", 1, "me", 1]]]),
    ("subscribe", ["orders", 0, "exclusive", "in the middle", [["one", 1, "me", 1]]]),
    ("subscribe", ["orders", 0, "exclusive", "earliest", [["one", 1, "me", 1]] * 1001]),
    ("subscribe", ["orders", True, "exclusive", "earliest", []]),
    ("seek", ["orders", 0, "there", "id", [1, 2]]),
    ("seek", ["orders", 0, "there", "id", [1, 2, -3]]),
    ("seek", ["orders", 0, "there", "offset", [1 << 63]]),
    ("seek", ["orders", 0, "there", "moon", []]),
    ("stats", ["orders", 0]),
    ("stats", ["orders", 0, ["x"] * 1001]),
    ("unsubscribe", ["orders", 0, 1, 2]),
    ("close_consumers", ["text"]),
    ("close_consumers", [b"abc"]),
    ("flow", [[1]]),
    ("flow", [[-1, b"abcd"]]),
    ("ack", [7]),
    ("ack", [[1, 2, b"abc"]]),
    ("ack_up_to", [[{}, b"abcd"]]),
    ("nack", [[1, 2, 3, 4]]),
    ("receive", []),
    ("stats", ["orders", 0, [["a list"]]]),
    ("stats", ["orders", 0, [7]]),
]


def test_senseless_calls_are_refused_and_the_broker_goes_on() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 3)
        async with native(broker) as client, rpc(broker) as peer, peer.stream("receive") as stream:
            consumer = await client.subscribe("orders", "there", initial_position="earliest")
            for method, args in SENSELESS:
                with pytest.raises(InvalidCall):
                    await peer.call(method, *args)
                peer.tell(method, *args)
            # of consumers that it does not have
            for method, *group in (("ack", 0, 3), ("flow", 5), ("ack_up_to", 3), ("nack", 0, 3, 0)):
                peer.tell(method, [*group, pack("<I", 0)])
            assert await values(consumer, 3) == [0, 1, 2]
            assert stream is not None

    simulate_broker(scenario)


def test_a_connection_without_a_stream_of_deliveries_cannot_subscribe() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 1)
        async with rpc(broker) as peer:
            with pytest.raises(InvalidCall, match="open the stream"):
                await peer.call("subscribe", "orders", 0, "exclusive", "earliest", [["one", 1, "me", 1]])
            with pytest.raises(NoSuchTopic, match="has 1 partitions"):
                await peer.call("stats", "orders", 1, [])
            with pytest.raises(NoSuchSubscription):
                await peer.call("seek", "orders", 0, "nobody", "earliest", [])

    simulate_broker(scenario)


def test_a_connection_that_ends_makes_room_for_other_consumers() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 2)
        async with native(broker) as client:
            async with rpc(broker) as peer, peer.stream("receive") as stream:
                await peer.call("subscribe", "orders", 0, "exclusive", "earliest", [["one", 1, "me", 1]])
                segment, entry, base_offset, epoch, batch, listed = await stream.__anext__()
                assert (segment, entry, base_offset, epoch, listed) == (0, 0, 0, 0, [pack("<I", 1), None])
                assert batch
            consumer = await client.subscribe("orders", "one")
            assert await values(consumer, 2) == [0, 1]

    simulate_broker(scenario)


def test_a_deleted_topic_takes_its_subscriptions_along_and_their_consumers_are_told_so() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 2)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "one", initial_position="earliest")
            await values(consumer, 2)
            kafka = await broker.connect()
            await kafka.ask(DeleteTopicsRequest(topic_names=["orders"]), 5)
            with pytest.raises(NoSuchTopic, match="'orders' does not exist"):
                await consumer.receive()
            await broker.simulation.clock.sleep(FLUSHED_SECONDS)
            assert (await broker.serving.broker.metadata.range("subscriptions/")).items == ()

    simulate_broker(scenario)


def test_a_subscription_behind_the_start_of_the_log_says_so_and_goes_on_there() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 10)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "one", initial_position="earliest")
            await values(consumer, 2)
            await consumer.close()
            kafka = await broker.connect()
            partition = DeleteRecordsPartition(partition_index=0, offset=6)
            topic = DeleteRecordsTopic(name="orders", partitions=[partition])
            await kafka.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 1)
            consumer = await client.subscribe("orders", "one")
            with pytest.raises(RecordsMissed, match="between offsets 2 and 6"):
                await consumer.receive()
            assert await values(consumer, 4) == [6, 7, 8, 9]
            assert await consumer.backlog() == 0

    simulate_broker(scenario)


def test_a_consumer_finds_the_partitions_that_a_topic_grows_and_all_that_is_in_them() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        kafka = await broker.connect()
        await kafka.create_topic("orders")
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "one", initial_position="latest")
            grown = CreatePartitionsTopic(name="orders", count=3, assignments=None)
            await kafka.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=1000), 1)
            for partition in (1, 2):
                batch = build_batch([Record(value=b"%d" % partition)], base_timestamp=1)
                assert (await kafka.produce("orders", batch, partition)).error_code == 0
            assert sorted(await values(consumer, 2)) == [1, 2]

    simulate_broker(scenario)


def test_positions_that_were_stored_survive_a_loss_of_power() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 10)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "one", initial_position="earliest")
            await values(consumer, 7)
            await broker.simulation.clock.sleep(FLUSHED_SECONDS)
            await broker.restart(power_lost=True)
            assert await values(consumer, 3) == [7, 8, 9]

    simulate_broker(scenario)


def test_a_client_that_does_not_read_holds_up_nobody_else() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        kafka = await broker.connect()
        await kafka.create_topic("orders")
        async with native(broker) as client, rpc(broker) as peer, peer.stream("receive") as stream:
            await peer.call("subscribe", "orders", 0, "exclusive", "earliest", [["slow", 1, "me", 1000]])
            consumer = await client.subscribe("orders", "quick", initial_position="earliest")
            for number in range(20):
                batch = build_batch([Record(value=bytes(50_000))], base_timestamp=number)
                assert (await kafka.produce("orders", batch)).error_code == 0
            for _ in range(20):
                consumer.ack(await consumer.receive())
            offsets = [(await stream.__anext__())[2] for _ in range(20)]
            assert offsets == list(range(20)), "all of it comes once it reads"

    simulate_broker(scenario)


def test_what_is_acknowledged_after_the_client_told_the_rest_at_once_reaches_the_broker_as_well() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 3)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "billing", initial_position="earliest")
            for number in range(3):
                assert await consumer.backlog() == 3 - number  # tells the broker first
                await broker.simulation.sleep(0.1)
                assert await values(consumer, 1) == [number]
                await broker.simulation.sleep(FLUSHED_SECONDS)
                node = broker.serving.broker
                found = await node.metadata.range(subscriptions_prefix(node.find_topic("orders").id, 0))
                assert SubscriberRecord.decode(found.items[0].value).position.dlsn.entry == number + 1

    simulate_broker(scenario)


class Ticks(trio.abc.Instrument):
    """How often tasks that were ready had their turn."""

    count = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += 1


def test_many_consumers_are_attached_in_turns_between_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks, attached, at_ticks = Ticks(), server._attached, list[int]()

    def noted(*args: Any) -> object:
        at_ticks.append(ticks.count)
        return attached(*args)

    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 1)
        trio.lowlevel.add_instrument(ticks)
        async with trio.open_nursery() as nursery:
            for client in range(3):
                nursery.start_soon(subscribe_many, broker, client)

    async def subscribe_many(broker: EmbeddedBroker, client: int) -> None:
        async with rpc(broker) as peer, peer.stream("receive"):
            items = [[f"{client}-{number}", number, "me", 1] for number in range(250)]
            results = await peer.call("subscribe", "orders", 0, "exclusive", "earliest", items)
            assert [type(result) for result in results] == [int] * 250

    monkeypatch.setattr(server, "_attached", noted)
    simulate_broker(scenario)
    assert sorted(Counter(at_ticks).values()) == [50] * 3 + [100] * 6


def test_a_consumer_that_is_sent_away_before_all_of_its_call_are_attached_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attached, sent_away = server._attached, list[str]()

    def sending_away(host: HostedPartition, connection: NativeConnection, kind: Any, item: list[Any]) -> object:
        result = attached(host, connection, kind, item)
        if not sent_away:
            sent_away.append(item[0])
            host.send_away(host.dispatcher.subscriptions[item[0]].consumers)
        return result

    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 2)
        async with native(broker) as client, trio.open_nursery() as nursery:
            for name in ("one", "two"):
                nursery.start_soon(read, client, name)

    async def read(client: NativeClient, name: str) -> None:
        assert await values(await client.subscribe("orders", name, initial_position="earliest"), 2) == [0, 1]

    monkeypatch.setattr(server, "ATTACHED_AT_ONCE", 1)
    monkeypatch.setattr(server, "_attached", sending_away)
    simulate_broker(scenario)
    assert sent_away


def test_what_is_said_of_messages_from_before_a_seek_does_not_undo_it() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 10)
        async with native(broker) as client:
            worker = await client.subscribe("orders", "billing", type="failover", initial_position="earliest")
            before = [await worker.receive() for _ in range(10)]
            operator = await client.subscribe("orders", "billing", type="failover")
            await operator.seek("earliest")
            worker.ack(before[3])  # on its way back, maybe
            await operator.close()
            await broker.simulation.sleep(1.0)
            worker.ack(before[5])
            worker.ack_up_to(before[9])
            worker.nack(before[0], 0.0)
            (stats,) = await worker.stats()
            assert (stats["offset"], stats["acknowledged_ahead"]) == (0, 0)
            assert await values(worker, 10) == list(range(10))
            assert await worker.backlog() == 0

    simulate_broker(scenario)


def test_what_was_received_before_a_broker_ended_is_acknowledged_after_it() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 3)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "billing", initial_position="earliest")
            await consumer.seek("latest")
            await consumer.seek("earliest")
            before = [await consumer.receive() for _ in range(3)]
            await broker.restart()
            consumer.ack(before[0])
            assert (await consumer.receive()).offset in (0, 1)
            consumer.ack_up_to(before[2])
            assert await consumer.backlog() == 0

    simulate_broker(scenario)


def test_what_is_given_before_subscribe_is_answered_is_acknowledged_as_all_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attached = server._attached

    def given_at_once(host: HostedPartition, *args: Any) -> object:
        result = attached(host, *args)
        host.pump()
        return result

    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 3)
        async with native(broker) as client:
            one = await client.subscribe("orders", "one", initial_position="earliest")
            heard = await client.subscribe("orders", "two", initial_position="earliest", listener=Consumer.ack)
            for consumer in (one, heard):
                await consumer.seek("earliest")
            assert await values(one, 3) == [0, 1, 2]
            assert [await one.backlog(), await heard.backlog()] == [0, 0]

    monkeypatch.setattr(server, "_attached", given_at_once)
    simulate_broker(scenario)


def test_late_acknowledgements_of_a_connection_that_was_replaced_do_not_undo_a_seek() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 3)
        item = ["billing", 1, "me", 1000]
        async with rpc(broker) as old, old.stream("receive"), rpc(broker) as new, new.stream("receive"):
            for peer in (old, new):
                await peer.call("subscribe", "orders", 0, "exclusive", "earliest", [item])
            await new.call("seek", "orders", 0, "billing", "earliest", [])
            for peer in (old, new):
                peer.tell("ack", [1, 2, pack("<I", 1)])
                peer.tell("ack_up_to", [3, pack("<I", 1)])
                stats = await peer.call("stats", "orders", 0, ["billing"])
                assert (stats["billing"]["offset"], stats["billing"]["acknowledged_ahead"]) == (0, 0)

    simulate_broker(scenario)


@pytest.mark.parametrize("first", [0, 4])
def test_a_batch_that_cannot_be_read_costs_no_permits(first: int) -> None:
    """The client of one that begins at `first` is given the rest of the first batch by slots."""

    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 0)
        kafka = await broker.connect()
        for _ in range(10):
            assert (await kafka.produce("orders", unreadable(7))).error_code == 0
        await orders(broker, 3, first=70)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "billing", initial_position="earliest", queue_records=10)
            await consumer.seek_to_offset(0, first)
            for _ in range(10):
                with pytest.raises(CorruptData, match="do not decompress"):
                    await consumer.receive()
            assert await values(consumer, 3) == [70, 71, 72]

    simulate_broker(scenario)


def test_a_batch_that_cannot_be_read_ends_one_listener_and_nobody_else() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 1)
        kafka = await broker.connect()
        heard: list[bytes | None] = []
        async with native(broker) as client:
            listening = await client.subscribe(
                "orders", "one", initial_position="earliest", listener=lambda _, message: heard.append(message.value)
            )
            receiving = await client.subscribe("orders", "two", initial_position="earliest")
            for batch in (unreadable(7), build_batch([Record(offset_delta=0, value=b"8")], base_timestamp=1)):
                await kafka.produce("orders", batch)
            assert await values(receiving, 1) == [0]
            with pytest.raises(CorruptData):
                await receiving.receive()
            assert await values(receiving, 1) == [8]
            assert heard == [b"0"]
            assert isinstance(listening.error, CorruptData)

    simulate_broker(scenario)


def unreadable(count: int) -> bytes:
    """A batch that says gzip and is not."""
    batch = bytearray(build_batch([Record(offset_delta=each) for each in range(count)], base_timestamp=1))
    batch[CRC_FROM : CRC_FROM + 2] = pack(">h", 1)
    batch[CRC_FROM - 4 : CRC_FROM] = pack(">I", crc32c(bytes(batch[CRC_FROM:])))
    return bytes(batch)
