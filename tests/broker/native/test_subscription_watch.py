"""The regular look at subscriptions: their backlogs as metrics, and those without consumers that keep records."""

from __future__ import annotations

import pytest
import trio
from native_calls import FLUSHED_SECONDS, native

from gnomon.broker.native import subscription_watch
from gnomon.broker.native.peers import Peers
from gnomon.broker.native.subscription_watch import LOOK_SECONDS, SubscriptionWatch
from gnomon.client.client import NativeClient, connect
from gnomon.runtime.metrics import Metrics
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT, BrokerCluster
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.testing.storms.kafka.log_checker import LogHistory
from gnomon.testing.storms.kafka.log_clients import SimulatedProducer
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.wire.kafka.records import Record, build_batch

PASS_SECONDS = 5.0
SETTINGS = {"log.retention.check.interval.ms": str(int(PASS_SECONDS * 1000))}
LOOKED_SECONDS = LOOK_SECONDS + PASS_SECONDS + 1
KEEPING = {"segment.bytes": "1000", "retention.ms": "-1"}
EXPIRING = {**KEEPING, "retention.bytes": "0"}


async def full_topic(broker: EmbeddedBroker, name: str = "orders", **configs: str) -> None:
    """A topic whose records retention deletes soon, unless a subscription keeps them."""
    kafka = await broker.connect()
    await kafka.create_topic(name, configs=configs or EXPIRING)
    for number in range(40):
        await kafka.produce(name, build_batch([Record(value=bytes(100))], base_timestamp=number))


async def leave(client: NativeClient, topic: str, *names: str) -> None:
    """Creates subscriptions at the first record, without consumers."""
    for name in names:
        await (await client.subscribe(topic, name, initial_position="earliest")).close()


def watch_of(broker: EmbeddedBroker) -> SubscriptionWatch:
    return broker.serving.native.watch


def test_a_subscription_without_consumers_that_keeps_records_is_named_until_it_is_deleted() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await full_topic(broker)
        async with native(broker) as client:
            await leave(client, "orders", "left over")
            assert watch_of(broker).warnings() == [], "retention has kept nothing yet"
            await broker.simulation.sleep(LOOKED_SECONDS)
            (idle,) = await client.subscriptions.idle()
            assert (idle.topic, idle.partition, idle.subscription) == ("orders", 0, "left over")
            assert 30 <= idle.records < 40
            (warned,) = watch_of(broker).warnings()
            assert (warned.name, warned.problem) == ("subscriptions", None)
            assert f"'left over' of topic 'orders' ({idle.records} records of partition 0)" in warned.line
            assert "gnomon_subscriptions_idle_holding 1.0" in broker.serving.metrics.render()[0].decode()
            await client.subscriptions.delete("orders", "left over")
            await broker.simulation.sleep(LOOKED_SECONDS)
            assert await client.subscriptions.idle() == []
            assert watch_of(broker).warnings() == []

    simulate_broker(scenario, kafka=SETTINGS)


def test_a_subscription_with_a_consumer_and_one_whose_topic_keeps_nothing_are_not_named() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await full_topic(broker)
        await full_topic(broker, "kept", **KEEPING)
        async with native(broker) as client:
            await client.subscribe("orders", "slow", initial_position="earliest")
            await leave(client, "kept", "left over")
            await broker.simulation.sleep(LOOKED_SECONDS)
            assert await client.subscriptions.idle() == []

    simulate_broker(scenario, kafka=SETTINGS)


def test_a_subscription_that_was_not_used_since_the_start_is_named() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await full_topic(broker)
        async with native(broker) as client:
            await leave(client, "orders", "left over")
        await broker.restart()
        async with native(broker) as client:
            await broker.simulation.sleep(LOOKED_SECONDS)
            assert [each.subscription for each in await client.subscriptions.idle()] == ["left over"]
        assert list(broker.serving.native.hosts.all()) == [], "its partition has no hosted subscriptions"

    simulate_broker(scenario, kafka=SETTINGS)


def test_backlogs_are_summed_and_the_largest_are_named_within_the_bound() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await full_topic(broker, **KEEPING)
        async with native(broker) as client:
            await leave(client, "orders", "one", "two")
            reader = await client.subscribe("orders", "reader", initial_position="earliest")
            await client.subscribe("orders", "late", initial_position="latest")
            for _ in range(15):
                reader.ack(await reader.receive())
            await broker.simulation.sleep(FLUSHED_SECONDS)
            watch = watch_of(broker)
            await watch.look()
            page = broker.serving.metrics.render()[0].decode()
            assert "gnomon_subscription_backlog_records 105.0" in page
            assert "gnomon_subscriptions_without_consumers 2.0" in page
            assert "gnomon_subscription_backlog{" not in page, "a broker names none unless it is asked to"

    simulate_broker(scenario)


def test_metrics_name_as_many_subscriptions_as_the_setting_allows() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await full_topic(broker, **KEEPING)
        async with native(broker) as client:
            await leave(client, "orders", "one", "two")
            await client.subscribe("orders", "late", initial_position="latest")
            parts, clock, metrics = broker.serving.broker, broker.simulation.clock, Metrics()
            peers = Peers(broker.client_world, parts.cluster_id)
            hosts = broker.serving.native.hosts
            await SubscriptionWatch(
                hosts, parts.topics, parts.placement, peers, parts.holdups, clock, metrics, 2
            ).look()
            page = metrics.render()[0].decode()
            named = [line for line in page.splitlines() if line.startswith("gnomon_subscription_backlog{")]
            assert named == [
                f'gnomon_subscription_backlog{{partition="0",subscription="{name}",topic="orders"}} 40.0'
                for name in ("one", "two")
            ]

    simulate_broker(scenario)


def test_a_look_lets_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_watch, "LOOKED_PER_TURN", subscription_watch.SUBSCRIPTION_WEIGHT)

    async def scenario(broker: EmbeddedBroker) -> None:
        await full_topic(broker)
        async with native(broker) as client:
            await client.subscribe_many("orders", [f"reader-{number}" for number in range(100)])
            began = broker.simulation.clock.monotonic()
            await watch_of(broker).look()
            assert broker.simulation.clock.monotonic() - began > 99 * 0.001

    simulate_broker(scenario)


def test_every_broker_names_the_idle_subscriptions_of_all_also_those_of_shadows_that_others_lead() -> None:
    async def fill(client: WireCluster) -> None:
        await create_topic(client, "orders", EXPIRING)
        await create_topic(client, "copy", {"gnomon.shadow.source": "orders"})
        producer = SimulatedProducer(client, "orders", {0: LogHistory()}, name="producer")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.run)
            for number in range(40):
                producer.send(f"{number}".encode() + bytes(200), 0)
                await client.world.clock.sleep(0.01)
            await producer.flush()
            nursery.cancel_scope.cancel()

    async def operate(client: WireCluster) -> None:
        async with connect(f"broker-1:{NATIVE_PORT}", world=client.world) as native:
            await leave(native, "copy", "left over")
            await client.world.clock.sleep(LOOKED_SECONDS)
            (idle,) = await native.subscriptions.idle()
            assert (idle.topic, idle.subscription) == ("copy", "left over")
            await native.subscribe("copy", "left over")
            await client.world.clock.sleep(LOOKED_SECONDS)
            assert await native.subscriptions.idle() == []

    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, kafka=SETTINGS)
        await cluster.start()
        await cluster.run_client("filler", fill)
        assert cluster.leader("copy", 0) != cluster.leader("orders", 0)
        await cluster.run_client("operator", operate)

    simulate(7, scenario)
