"""The native front end of one simulated broker: its refusals, and changes of topics with subscriptions."""

from __future__ import annotations

from collections import Counter
from struct import pack
from typing import Any

import pytest
import trio
from native_calls import FLUSHED_SECONDS, delete_records, native, orders, read, rpc, values

from gnomon.broker.native import subscription_methods
from gnomon.broker.native.connection import Lane, NativeConnection
from gnomon.broker.native.server import NativeServer
from gnomon.broker.subscriptions.hosted_partition import HostedPartition
from gnomon.broker.subscriptions.positions.metadata_store import MetadataSubscriptionsStore
from gnomon.broker.subscriptions.positions.record import SubscriberRecord
from gnomon.client.client import NativeClient
from gnomon.client.errors import InvalidCall, NoSuchSubscription, NoSuchTopic, RecordsMissed
from gnomon.client.protocol import GROUPS_MAX, HEADS, SUBSCRIBE_MAX
from gnomon.log.subscription_keys import subscriptions_prefix
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic, DeleteTopicsRequest
from gnomon.wire.kafka.records import Record, build_batch
from gnomon.wire.rpc import CALL, decode, encode

SENSELESS: list[tuple[str, list[object]]] = [
    ("lookup", []),
    ("lookup", [7]),
    ("lookup", ["t" * 1_025]),
    ("subscribe", ["orders", 0, "k" * 1_025, "earliest", []]),
    ("stats", ["orders", 0, ["s" * 1_025]]),
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
    ("topic", [7]),
    ("stats", ["orders", 0]),
    ("stats", ["orders", 0, ["x"] * 1001]),
    ("unsubscribe", ["orders", 0, 1, 2]),
    ("close_consumers", ["text"]),
    ("close_consumers", [b"abc"]),
    ("flow", [[1]]),
    ("flow", [[-1, b"abcd"]]),
    ("ack", [7]),
    ("ack", [[1, 2, b"abc"]]),
    ("ack", [[1, 2, b""]] * (GROUPS_MAX + 1)),
    ("ack", [[2, 1, b"abcd"]]),
    ("nack", [[2, 1, 0, b"abcd"]]),
    ("ack_up_to", [[{}, b"abcd"]]),
    ("nack", [[1, 2, 3, 4]]),
    ("receive", []),
    ("stats", ["orders", 0, [["a list"]]]),
    ("stats", ["orders", 0, [7]]),
    ("subscriptions", ["orders", 0, "", 0]),
    ("subscriptions", ["orders", 0, "", 1001]),
    ("subscriptions", ["orders", 0, 7, 1]),
    ("describe_subscription", ["orders", 0]),
    ("subscribed_topics", []),
    ("is_idle", ["orders", 0, "there"]),
    ("idle_subscriptions", []),
]


def test_invalid_calls_are_refused_and_the_broker_continues_to_serve() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 3)
        async with native(broker) as client, rpc(broker) as peer, peer.stream("receive") as stream:
            consumer = await client.subscribe("orders", "there", initial_position="earliest")
            for method, args in SENSELESS:
                with pytest.raises(InvalidCall):
                    await peer.call(method, *args)
                peer.tell(method, *args)
            # calls about consumers that the connection does not have
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


def test_a_deleted_topic_deletes_its_subscriptions_and_their_consumers_get_an_error() -> None:
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
            assert (await broker.serving.broker.storage.metadata.range("subscriptions/")).items == ()

    simulate_broker(scenario)


def test_a_subscription_below_the_start_of_the_log_reports_it_and_continues_there() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 10)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "one", initial_position="earliest")
            await values(consumer, 2)
            await consumer.close()
            await delete_records(await broker.connect(), 6)
            consumer = await client.subscribe("orders", "one")
            with pytest.raises(RecordsMissed, match="between offsets 2 and 6"):
                await consumer.receive()
            assert await values(consumer, 4) == [6, 7, 8, 9]
            assert await consumer.backlog() == 0

    simulate_broker(scenario)


def test_a_consumer_receives_all_records_of_the_partitions_that_are_added_to_its_topic() -> None:
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


def test_a_subscription_without_consumers_while_its_topic_grows_misses_no_record_of_the_new_partitions() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 1)
        kafka = await broker.connect()
        async with native(broker) as client:
            names = [f"subscription {number}" for number in range(300)]  # more than fit into a transaction
            await client.close_consumers(await client.subscribe_many("orders", names, initial_position="latest"))
            grown = CreatePartitionsTopic(name="orders", count=3, assignments=None)
            await kafka.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=1000), 1)
            for partition in (1, 2):
                batch = build_batch([Record(value=b"%d" % partition)], base_timestamp=1)
                assert (await kafka.produce("orders", batch, partition)).error_code == 0
            for consumer in await client.subscribe_many("orders", names, initial_position="latest"):
                assert sorted(await values(consumer, 2)) == [1, 2]
            new = await client.subscribe("orders", "new", initial_position="latest")
            assert await new.backlog() == 0

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


def test_a_client_that_does_not_read_delays_no_other_client() -> None:
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


def test_acknowledgements_made_after_an_immediate_flush_reach_the_broker() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 3)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "billing", initial_position="earliest")
            for number in range(3):
                assert await consumer.backlog() == 3 - number  # sends the acknowledgement first
                await broker.simulation.sleep(0.1)
                assert await values(consumer, 1) == [number]
                await broker.simulation.sleep(FLUSHED_SECONDS)
                node = broker.serving.broker
                found = await node.storage.metadata.range(subscriptions_prefix(node.topics.find("orders").id, 0))
                assert SubscriberRecord.decode(found.items[0].value).position.dlsn.entry == number + 1

    simulate_broker(scenario)


class Ticks(trio.abc.Instrument):
    """Counts the turns of Trio's scheduler."""

    count = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += 1


def test_consumers_of_several_calls_are_attached_in_alternating_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks, attached, at_ticks = Ticks(), subscription_methods.attach_consumer, list[int]()

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

    monkeypatch.setattr(subscription_methods, "attach_consumer", noted)
    simulate_broker(scenario)
    assert sorted(Counter(at_ticks).values()) == [50] * 15


def test_a_consumer_detached_before_its_call_is_answered_subscribes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attached, sent_away = subscription_methods.attach_consumer, list[str]()

    def sending_away(lane: Lane, connection: NativeConnection, kind: Any, item: list[Any]) -> object:
        result = attached(lane, connection, kind, item)
        if not sent_away:
            sent_away.append(item[0])
            lane.host.send_away(lane.host.dispatcher.subscriptions[item[0]].consumers)
        return result

    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 2)
        async with native(broker) as client, trio.open_nursery() as nursery:
            for name in ("one", "two"):
                nursery.start_soon(read, client, name)

    async def read(client: NativeClient, name: str) -> None:
        assert await values(await client.subscribe("orders", name, initial_position="earliest"), 2) == [0, 1]

    monkeypatch.setattr(subscription_methods, "ATTACHED_AT_ONCE", 1)
    monkeypatch.setattr(subscription_methods, "attach_consumer", sending_away)
    simulate_broker(scenario)
    assert sent_away


def test_a_consumer_that_a_call_names_a_thousand_times_counts_once() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 3)
        async with rpc(broker) as peer, peer.stream("receive") as stream:
            await peer.call("subscribe", "orders", 0, "exclusive", "earliest", [["one", 1, "me", 0]])
            peer.tell("flow", [1, pack("<1000I", *[1] * 1000)])
            item = await stream.__anext__()
            assert item[2] == 0
            with trio.move_on_after(10):
                raise AssertionError(f"one permit was given, and more came: {await stream.__anext__()}")

    simulate_broker(scenario)


@pytest.mark.parametrize("change", ["seek", "unsubscribe"])
def test_a_change_stored_after_its_owner_ended_is_sent_to_the_next_owner_too(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    hosts: list[HostedPartition] = []
    made = HostedPartition.__init__

    def noted(host: HostedPartition, *args: Any) -> None:
        hosts.append(host)
        made(host, *args)

    def slowed(method: Any) -> Any:
        async def slow(*args: Any) -> None:
            await trio.sleep(3)
            await method(*args)

        return slow

    monkeypatch.setattr(HostedPartition, "__init__", noted)

    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 5)
        async with native(broker) as client:
            one = await client.subscribe("orders", "one", initial_position="earliest")
            two = await client.subscribe("orders", "two", initial_position="earliest")
            assert await read(one, 5) == await read(two, 5) == [0, 1, 2, 3, 4]
            for name in ("reset_commit_position", "delete_subscriber"):
                monkeypatch.setattr(MetadataSubscriptionsStore, name, slowed(getattr(MetadataSubscriptionsStore, name)))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(*((one.seek, "earliest") if change == "seek" else (one.unsubscribe,)))
                await broker.simulation.clock.sleep(0.5)
                hosts[0].end()
            assert len(hosts) == 2
            if change == "unsubscribe":
                assert list(hosts[1].dispatcher.subscriptions) == ["two"]
                return
            with trio.fail_after(60):
                assert await values(one, 5) == [0, 1, 2, 3, 4]

    simulate_broker(scenario)


def test_two_wings_cannot_register_the_same_method() -> None:
    unused: Any = None
    wings = [{"lookup": unused}, {"topic": unused}, {"lookup": unused}]
    with pytest.raises(AssertionError, match="two wings register lookup"):
        NativeServer(unused, unused, "cluster", unused, unused, unused, unused, wings, unused)


@pytest.mark.parametrize(
    ("method", "args"),
    [
        (
            "subscribe",
            ["t" * 249, 0, "key_shared", "earliest", [["s" * 300, 1, "\U0001f600" * 100, 1]] * SUBSCRIBE_MAX],
        ),
        ("ack", [[1, 2, b"abcd"]] * GROUPS_MAX),
        ("nack", [[1, 2, 3, b"abcd"]] * GROUPS_MAX),
    ],
)
def test_the_longest_calls_of_a_client_are_within_the_limits_of_heads(method: str, args: list[Any]) -> None:
    (frame,) = encode([CALL, 1, method, args])
    assert decode(memoryview(frame)[4:], HEADS)[0] == [CALL, 1, method, args]
