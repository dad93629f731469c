"""The work of one turn of a broker's loop for subscriptions is bounded for any frames of a peer.

Virtual time stands still while a node works, so a pause ends each of its turns here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from struct import pack
from typing import Any

import pytest
import trio
from native_calls import native, rpc

from gnomon.broker.subscriptions import dispatcher, hosted_partition, key_slots, record_slots, rounds, unpacked
from gnomon.broker.subscriptions.dispatcher import Dispatcher
from gnomon.broker.subscriptions.subscription import Subscription
from gnomon.client import delivered_batch
from gnomon.client.client import NativeClient
from gnomon.client.consumer import Consumer
from gnomon.client.errors import NoSuchTopic
from gnomon.client.protocol import GROUPS_MAX
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.messages.topics import DeleteTopicsRequest
from gnomon.wire.kafka.records import Record, build_batch

RECORDS = 6_000
KEYS = 40
LOOKED_AT = 100
UNITS = 1_000
PER_TURN_MAX = UNITS // dispatcher.LEARNED_UNITS + LOOKED_AT
PAUSE_SECONDS = 0.001


class Turns(trio.abc.Instrument):
    """Counts the turns of Trio's scheduler, and the work done in each of them."""

    def __init__(self) -> None:
        self.turn = 0
        self.done: Counter[int] = Counter()

    def after_io_wait(self, timeout: float) -> None:
        self.turn += 1

    def counted(self, patch: pytest.MonkeyPatch, where: Any, name: str) -> None:
        """Counts the calls of a function, by turn."""
        function = getattr(where, name)

        def counting(*args: Any) -> object:
            self.done[self.turn] += 1
            return function(*args)

        patch.setattr(where, name, counting)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    monkeypatch.setattr(rounds, "PAUSE_SECONDS", PAUSE_SECONDS)
    monkeypatch.setattr(rounds, "UNITS_PER_TURN", UNITS)
    monkeypatch.setattr(dispatcher, "LOOKED_AT_ONCE", LOOKED_AT)
    monkeypatch.setattr(record_slots, "WALKED_AT_ONCE", LOOKED_AT)
    monkeypatch.setattr(key_slots, "STRETCH_RECORDS", RECORDS // 4)
    return Turns()


async def small_records(
    broker: EmbeddedBroker, count: int = RECORDS, compression: Codec = Codec.NONE, topic: str = "orders"
) -> BrokerClient:
    """Produces one batch of records of ten bytes."""
    client = await broker.connect()
    await client.create_topic(topic)
    records = [Record(number, 0, b"%d" % (number % KEYS), b"%010d" % number) for number in range(count)]
    batch = build_batch(records, base_timestamp=0, compression=compression)
    assert (await client.produce(topic, batch)).error_code == 0
    return client


class Received:
    """The records that one set of consumers of a subscription receives."""

    def __init__(self, count: int = RECORDS) -> None:
        self.by_key: dict[bytes, list[int]] = {}
        self.left = count
        self.whole = trio.Event()

    async def read(self, consumer: Consumer) -> None:
        async for record in consumer:
            consumer.ack(record)
            self.by_key.setdefault(record.key or b"", []).append(record.offset)
            self.left -= 1
            if not self.left:
                self.whole.set()

    def check(self, count: int = RECORDS) -> None:
        assert self.by_key == {b"%d" % key: list(range(key, count, KEYS)) for key in range(KEYS)}


async def key_shared(client: NativeClient, topic: str = "orders", **options: Any) -> Consumer:
    return await client.subscribe(topic, "billing", type="key_shared", initial_position="earliest", **options)


@pytest.mark.parametrize("compression", [Codec.NONE, Codec.ZSTD, Codec.SNAPPY])
@pytest.mark.parametrize("at_once_bytes_max", [0, 1 << 20])
def test_a_batch_of_small_records_is_read_in_bounded_slices_and_delivered_whole_and_in_order(
    turns: Turns, monkeypatch: pytest.MonkeyPatch, compression: Codec, at_once_bytes_max: int
) -> None:
    monkeypatch.setattr(unpacked, "AT_ONCE_BYTES_MAX", at_once_bytes_max)

    async def scenario(broker: EmbeddedBroker) -> None:
        await small_records(broker, compression=compression)
        trio.lowlevel.add_instrument(turns)
        turns.counted(monkeypatch, record_slots, "slot_of")
        received = Received()
        async with native(broker) as client, trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(received.read, await key_shared(client, queue_records=100))
            await received.whole.wait()
            nursery.cancel_scope.cancel()
        received.check()
        assert max(turns.done.values()) <= PER_TURN_MAX
        assert sum(turns.done.values()) == RECORDS, "every record was looked at once"

    simulate_broker(scenario)


def test_partitions_whose_batches_do_not_fit_into_memory_together_all_make_progress(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacked, "AT_ONCE_BYTES_MAX", 0)
    monkeypatch.setattr(unpacked, "UNPACKED_BYTES_MAX", 25 * RECORDS)
    monkeypatch.setattr(rounds, "UNITS_PER_TURN", 1)

    async def scenario(broker: EmbeddedBroker) -> None:
        topics = ["orders", "returns", "payments"]
        every = [Received() for _ in topics]
        for topic in topics:
            await small_records(broker, compression=Codec.ZSTD, topic=topic)
        async with native(broker) as client, trio.open_nursery() as nursery:
            for topic, received in zip(topics, every, strict=True):
                nursery.start_soon(received.read, await key_shared(client, topic))
            with trio.fail_after(60.0):
                for received in every:
                    await received.whole.wait()
                    received.check()
            nursery.cancel_scope.cancel()

    simulate_broker(scenario)


def test_producers_and_other_subscriptions_are_served_while_a_batch_is_looked_through(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "PAUSE_SECONDS", 0.05)

    async def scenario(broker: EmbeddedBroker) -> None:
        neighbour = await small_records(broker)
        await neighbour.create_topic("near")
        turns.counted(monkeypatch, record_slots, "slot_of")
        looked_at_by = []
        async with native(broker) as client, trio.open_nursery() as nursery:
            received = Received()
            nursery.start_soon(received.read, await key_shared(client))
            for number in range(10):
                asked = broker.simulation.clock.monotonic()
                batch = build_batch([Record(value=b"%d" % number)], base_timestamp=0)
                assert (await neighbour.produce("near", batch)).error_code == 0
                assert broker.simulation.clock.monotonic() - asked < 0.5
                looked_at_by.append(sum(turns.done.values()))
            beside = await client.subscribe("orders", "beside", initial_position="earliest")
            assert [(await beside.receive()).offset for _ in range(100)] == list(range(100))
            looked_at_by.append(sum(turns.done.values()))
            await received.whole.wait()
            nursery.cancel_scope.cancel()
        assert len(set(looked_at_by)) > 1
        assert looked_at_by[-1] < RECORDS, "all of this was while the batch was looked through"

    simulate_broker(scenario)


async def close(broker: EmbeddedBroker, consumer: Consumer) -> None:
    await consumer.close()


async def seek(broker: EmbeddedBroker, consumer: Consumer) -> None:
    await consumer.seek("earliest")


async def unsubscribe(broker: EmbeddedBroker, consumer: Consumer) -> None:
    await consumer.unsubscribe()


async def end_broker(broker: EmbeddedBroker, consumer: Consumer) -> None:
    await broker.restart()


@pytest.mark.parametrize("disturb", [close, seek, unsubscribe, end_broker])
@pytest.mark.parametrize("turns_before", [1, 4, 9, 20])
def test_a_delivery_that_ends_within_a_batch_begins_again_with_the_whole_batch(
    turns: Turns,
    monkeypatch: pytest.MonkeyPatch,
    disturb: Callable[[EmbeddedBroker, Consumer], Awaitable[None]],
    turns_before: int,
) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await small_records(broker)
        async with native(broker) as client:
            first = await key_shared(client)
            await broker.simulation.sleep(PAUSE_SECONDS * turns_before)
            await disturb(broker, first)
            if not first.closed:
                await first.close()
            received = Received()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(received.read, await key_shared(client))
                nursery.start_soon(received.read, await key_shared(client))
                await received.whole.wait()
                nursery.cancel_scope.cancel()
            received.check()

    simulate_broker(scenario)


def test_a_frame_of_acknowledgements_is_executed_in_bounded_slices_and_before_the_next_call(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await small_records(broker)
        async with rpc(broker) as peer, peer.stream("receive") as deliveries:
            await peer.call("subscribe", "orders", 0, "key_shared", "earliest", [["billing", 0, "me", 1 << 40]])
            for _ in range(4):
                await deliveries.__anext__()
            turns.counted(monkeypatch, Dispatcher, "ack")
            trio.lowlevel.add_instrument(turns)
            peer.tell("ack", *[[offset, offset + 1, pack("<I", 0)] for offset in range(0, RECORDS, 2)])
            peer.tell("ack", *[[offset, offset + 1, pack("<I", 0)] for offset in range(1, RECORDS, 2)])
            await peer.call("close_consumers", pack("<I", 0))
            stats = await peer.call("stats", "orders", 0, ["billing"])
            assert stats["billing"]["backlog"] == 0
        assert sum(turns.done.values()) == RECORDS
        assert max(turns.done.values()) <= UNITS // 4

    simulate_broker(scenario)


def test_hundreds_of_consumers_of_a_connection_that_ends_are_detached_in_bounded_slices(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await small_records(broker, 10)
        items = [["billing", number, str(number), 1] for number in range(500)]
        async with rpc(broker) as peer, peer.stream("receive"):
            await peer.call("subscribe", "orders", 0, "key_shared", "earliest", items)
            trio.lowlevel.add_instrument(turns)
            turns.counted(monkeypatch, Dispatcher, "detach")
        await broker.simulation.sleep(2.0)
        assert sum(turns.done.values()) == len(items)
        assert max(turns.done.values()) <= UNITS // dispatcher.CONSUMER_UNITS
        async with rpc(broker) as peer, peer.stream("receive"):
            answer = await peer.call("subscribe", "orders", 0, "exclusive", "earliest", [["billing", 0, "me", 1]])
            assert type(answer[0]) is int, "nobody else has it"

    simulate_broker(scenario)


def test_delayed_records_are_given_again_in_bounded_slices(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await small_records(broker)
        async with rpc(broker) as peer, peer.stream("receive") as deliveries:
            await peer.call("subscribe", "orders", 0, "key_shared", "earliest", [["billing", 0, "me", 1 << 40]])
            for _ in range(4):
                await deliveries.__anext__()
            monkeypatch.setattr(dispatcher, "RUNS_MAX", 50)
            groups = [[offset, offset + 1, 1000, pack("<I", 0)] for offset in range(RECORDS)]
            for at in range(0, RECORDS, GROUPS_MAX):
                peer.tell("nack", *groups[at : at + GROUPS_MAX])
            trio.lowlevel.add_instrument(turns)
            turns.counted(monkeypatch, Subscription, "give_again")
            for _ in range(4):
                await deliveries.__anext__()
        assert sum(turns.done.values()) == RECORDS
        assert max(turns.done.values()) <= UNITS // 4

    simulate_broker(scenario)


def test_a_client_decodes_a_batch_that_arrives_in_several_pieces_once(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await small_records(broker)
        turns.counted(monkeypatch, delivered_batch, "iterate_records")
        async with native(broker) as client, trio.open_nursery() as nursery:
            received = Received()
            nursery.start_soon(received.read, await key_shared(client, queue_records=100))
            await received.whole.wait()
            nursery.cancel_scope.cancel()
        received.check()
        assert sum(turns.done.values()) == 1

    simulate_broker(scenario)


def test_the_consumers_of_a_partition_are_sent_away_in_bounded_numbers_when_its_term_ends(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted_partition, "SENT_AWAY_AT_ONCE", 3)

    async def scenario(broker: EmbeddedBroker) -> None:
        kafka = await small_records(broker, 1)
        async with native(broker) as client:
            consumers = [await client.subscribe("orders", f"s{number}") for number in range(10)]
            trio.lowlevel.add_instrument(turns)
            turns.counted(monkeypatch, Dispatcher, "detach")
            await kafka.ask(DeleteTopicsRequest(topic_names=["orders"]), 5)
            for consumer in consumers:
                with pytest.raises(NoSuchTopic):
                    await consumer.receive()
        assert sum(turns.done.values()) == 10
        assert max(turns.done.values()) == 3

    simulate_broker(scenario)
