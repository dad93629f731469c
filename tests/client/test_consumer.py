"""Acknowledgements of consumers after seeks and lost connections, missed records, and unreadable batches."""

from __future__ import annotations

import gc
from struct import pack
from typing import Any

import pytest
import trio
from crc32c import crc32c
from native_calls import delete_records, native, orders, read, rpc, values

from gnomon.broker.native import arguments, subscription_methods
from gnomon.broker.native.connection import Lane
from gnomon.broker.subscriptions.positions.metadata_store import MetadataSubscriptionsStore
from gnomon.broker.subscriptions.positions.store import Position
from gnomon.client import ack_sender
from gnomon.client.consumer import Consumer
from gnomon.client.errors import RecordsMissed
from gnomon.client.part import Part
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.batch import CRC_FROM
from gnomon.wire.kafka.compression import CorruptData
from gnomon.wire.kafka.records import Record, build_batch


def test_acknowledgements_of_messages_received_before_a_seek_do_not_undo_it() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 10)
        async with native(broker) as client:
            worker = await client.subscribe("orders", "billing", type="failover", initial_position="earliest")
            before = [await worker.receive() for _ in range(10)]
            operator = await client.subscribe("orders", "billing", type="failover")
            await operator.seek("earliest")
            worker.ack(before[3])  # possibly before the worker is notified of the seek
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


def test_messages_received_before_a_restart_of_the_broker_can_be_acknowledged_after_it() -> None:
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


def test_records_delivered_before_subscribe_is_answered_can_be_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attached = subscription_methods.attach_consumer

    def given_at_once(lane: Lane, *args: Any) -> object:
        result = attached(lane, *args)
        lane.host.pump()
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

    monkeypatch.setattr(subscription_methods, "attach_consumer", given_at_once)
    simulate_broker(scenario)


def test_late_acknowledgements_of_a_replaced_connection_do_not_undo_a_seek() -> None:
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


def test_queued_records_that_were_missed_are_not_handed_out() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 0)
        kafka = await broker.connect()
        for first in range(0, 9, 3):
            records = [Record(offset_delta=each, value=b"%d" % (first + each)) for each in range(3)]
            await kafka.produce("orders", build_batch(records, base_timestamp=1))
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "billing", initial_position="earliest", queue_records=9)
            assert await values(consumer, 1) == [0]
            await broker.simulation.sleep(1.0)  # all the others wait in the client
            await delete_records(kafka, 5)
            await broker.simulation.sleep(1.0)
            with pytest.raises(RecordsMissed, match="between offsets 1 and 5"):
                await consumer.receive()
            assert await values(consumer, 4) == [5, 6, 7, 8]
            await orders(broker, 9, first=9)  # there are permits for these records
            assert await values(consumer, 9) == list(range(9, 18))
            assert await consumer.backlog() == 0

    simulate_broker(scenario)


def test_records_removed_while_subscriptions_are_loaded_are_reported_as_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    load = MetadataSubscriptionsStore.load

    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 10)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "billing", initial_position="earliest")
            await read(consumer, 1)
        await broker.restart()
        kafka = await broker.connect()

        async def slow(self: MetadataSubscriptionsStore) -> dict[str, Position]:
            found = await load(self)
            await delete_records(kafka, 5)
            return found

        monkeypatch.setattr(MetadataSubscriptionsStore, "load", slow)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "billing")
            with pytest.raises(RecordsMissed, match="between offsets 1 and 5"):
                await consumer.receive()
            assert await values(consumer, 5) == [5, 6, 7, 8, 9]

    simulate_broker(scenario)


@pytest.mark.parametrize("first", [0, 4])
def test_a_batch_that_cannot_be_read_costs_no_permits(first: int) -> None:
    """A seek into a batch makes the broker send the rest of that batch by slots."""

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


def test_a_batch_that_cannot_be_read_ends_its_listener_and_no_other() -> None:
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
    """A batch that declares gzip and is not compressed."""
    batch = bytearray(build_batch([Record(offset_delta=each) for each in range(count)], base_timestamp=1))
    batch[CRC_FROM : CRC_FROM + 2] = pack(">h", 1)
    batch[CRC_FROM - 4 : CRC_FROM] = pack(">I", crc32c(bytes(batch[CRC_FROM:])))
    return bytes(batch)


def test_concurrent_receives_of_one_consumer_are_all_served() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 0)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "billing", initial_position="earliest")
            found: list[int] = []

            async def receive() -> None:
                found.extend(await values(consumer, 1))

            with trio.fail_after(10):
                async with trio.open_nursery() as nursery:
                    for _ in range(3):
                        nursery.start_soon(receive)
                    await broker.simulation.sleep(1.0)  # all tasks wait
                    await orders(broker, 3, first=1)
            assert sorted(found) == [1, 2, 3]

    simulate_broker(scenario)


def test_consumers_that_are_closed_before_they_are_attached_leak_nothing() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 0)
        async with native(broker) as client:
            for number in range(50):
                with trio.move_on_after(0.0005 * number):
                    await (await client.subscribe("orders", f"closed-early-{number}")).close()
            await broker.simulation.sleep(1.0)
            gc.collect()
            parts = [each for each in gc.get_objects() if isinstance(each, Part)]
            left = [each for each in parts if each.consumer.name.startswith("closed-early-")]
            assert len(left) <= 1, "all but the last one, which is forgotten with the next"

    simulate_broker(scenario)


def test_a_client_resumes_after_half_an_hour_without_a_broker() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 3)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "one", initial_position="earliest")
            assert await read(consumer, 3) == [0, 1, 2]
            broker.machine.kill()
            await broker.simulation.clock.sleep(1800)
            await broker.start()
            await orders(broker, 2, first=3)
            with trio.fail_after(60):
                assert await values(consumer, 2) == [3, 4]

    simulate_broker(scenario)


def test_a_cumulative_acknowledgement_without_a_connection_is_sent_later() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 10)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "one", initial_position="earliest")
            last = [await consumer.receive() for _ in range(10)][-1]
            network = broker.simulation.network
            for pair in network.streams():
                network.reset(pair)
            while consumer.parts[0].connection is not None:
                await broker.simulation.clock.sleep(0.0001)
            consumer.ack_up_to(last)
            await broker.simulation.clock.sleep(20)
            assert await consumer.backlog() == 0

    simulate_broker(scenario)


def test_keys_of_removed_records_go_to_their_next_owner() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        kafka = await broker.connect()
        await kafka.create_topic("orders")

        async def produce(numbers: range) -> None:
            for number in numbers:
                batch = build_batch([Record(key=b"%d" % (number % 40), value=b"%d" % number)], base_timestamp=1)
                assert (await kafka.produce("orders", batch)).error_code == 0

        found: list[int] = []

        async def collect(consumer: Consumer) -> None:
            while True:
                found.extend(await values(consumer, 1))

        async with native(broker) as client, trio.open_nursery() as nursery:
            one = await client.subscribe("orders", "one", type="key_shared", initial_position="earliest")
            await produce(range(40))
            await broker.simulation.clock.sleep(1)  # the records wait in the client
            await delete_records(kafka, 40)
            with pytest.raises(RecordsMissed):
                await one.receive()
            nursery.start_soon(collect, one)
            another = await client.subscribe("orders", "one", type="key_shared", on_missed=lambda *_: None)
            nursery.start_soon(collect, another)
            await produce(range(40, 80))
            await broker.simulation.clock.sleep(60)
            assert sorted(found) == list(range(40, 80))
            nursery.cancel_scope.cancel()

    simulate_broker(scenario)


def test_more_acknowledgements_than_fit_into_a_call_are_sent_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "GROUPS_MAX", 3)
    monkeypatch.setattr(ack_sender, "GROUPS_MAX", 3)

    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 20)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "one", initial_position="earliest")
            messages = [await consumer.receive() for _ in range(20)]
            for message in (*messages[::2], *messages[1::2]):
                consumer.ack(message)
            assert await consumer.backlog() == 0

    simulate_broker(scenario)
