"""Quotas and retention use the positions of subscriptions in either store of positions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from native_calls import play as play_seldom
from native_calls import read, start_of

from gnomon.bookie.errors import NotEnoughBookies
from gnomon.broker.retention.backlog import LOOK_SECONDS
from gnomon.broker.retention.retention import Holds
from gnomon.broker.subscriptions.positions import hold, stores
from gnomon.broker.subscriptions.positions.hold import Holder
from gnomon.broker.subscriptions.positions.store import Position, SubscriptionsStore
from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.client.client import NativeClient, connect
from gnomon.client.errors import RecordsMissed
from gnomon.runtime.settings.settings import SubscriptionsSettings
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT, BrokerCluster
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.testing.storms.metadata.counting_metadata import CountingMetadata
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.produce import PartitionProduceResponse
from gnomon.wire.kafka.records import Record, build_batch

LOOKED_SECONDS = LOOK_SECONDS + 1
BATCH_BYTES = 1080
QUOTA = {"gnomon.backlog.quota.bytes": str(4 * BATCH_BYTES)}
"""A quota of four batches."""
DROP = {**QUOTA, "gnomon.backlog.quota.policy": "drop-oldest"}
OF_ONE_BATCH = {"segment.bytes": "14", "retention.ms": "-1"}
DUE = {**OF_ONE_BATCH, "retention.bytes": "0"}
"""Every segment except the last is due; each has one record."""

Scenario = Callable[[EmbeddedBroker, BrokerClient, NativeClient], Awaitable[None]]


@pytest.fixture(params=["metadata", "segments"], autouse=True)
def positions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The store of positions: in the metadata or in segments."""
    open_store = stores.subscriptions_store

    def opened(settings: SubscriptionsSettings, *where: Any, **how: Any) -> SubscriptionsStore:
        in_segments = request.param == "segments"
        return open_store(replace(settings, log_segment_based_subscriptions_store_enabled=in_segments), *where, **how)

    monkeypatch.setattr(stores, "subscriptions_store", opened)
    return str(request.param)


play = partial(play_seldom, kafka={"log.retention.check.interval.ms": "1000"})


async def orders(client: BrokerClient, configs: dict[str, str]) -> None:
    """The topic `orders`, with a shadow `copy`."""
    await client.create_topic("orders", configs={**OF_ONE_BATCH, **configs})
    await client.create_topic("copy", partitions=-1, configs={SHADOW_SOURCE: "orders"})


async def produce(client: BrokerClient, number: int) -> PartitionProduceResponse:
    record = Record(value=(b"%d" % number).ljust(1000))
    return await client.produce("orders", build_batch([record], base_timestamp=number))


async def more(client: BrokerClient, first: int, count: int) -> None:
    for number in range(first, first + count):
        assert (await produce(client, number)).error_code == 0


topics = pytest.mark.parametrize("topic", ["orders", "copy"])
killed = pytest.mark.parametrize("kill", [False, True], ids=["runs on", "is killed"])


# --- quotas -------------------------------------------------------------------------------------------------------


@killed
@topics
def test_producers_are_accepted_again_once_the_backlog_is_gone(topic: str, kill: bool) -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, QUOTA)
        consumer = await subscriber.subscribe(topic, "billing", initial_position="earliest")
        await more(client, 0, 10)
        await broker.simulation.sleep(LOOKED_SECONDS)
        refused = await produce(client, 10)
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert f"subscription 'billing' of topic '{topic}' has not read" in (refused.error_message or "")
        assert await read(consumer, 1) == [0]
        assert await read(consumer, 9) == list(range(1, 10))
        if kill:
            await consumer.close()  # no consumer loads its position after the restart
            await broker.restart()
            client = await broker.connect()
            await more(client, 10, 1)  # brings the partition into use
        await broker.simulation.sleep(LOOKED_SECONDS)
        await more(client, 11, 3)
        await broker.simulation.sleep(LOOKED_SECONDS)
        await more(client, 14, 1)

    play(scenario)


@killed
@topics
def test_acknowledged_records_are_neither_dropped_for_a_backlog_nor_reported_as_missed(topic: str, kill: bool) -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, DROP)
        consumer = await subscriber.subscribe(topic, "billing", initial_position="earliest")
        for first in (0, 3, 6):
            await more(client, first, 3)
            assert await read(consumer, 3) == list(range(first, first + 3))
        if kill:
            await consumer.close()
            await broker.restart()
            client = await broker.connect()
        await more(client, 9, 3)
        await broker.simulation.sleep(LOOKED_SECONDS)
        assert start_of(broker) == 0
        assert broker.serving.broker.metrics.backlog_records_dropped == 0
        assert not [event for event, _ in broker.events if event in ("backlog_dropped", "subscriptions_jumped")]
        if kill:
            consumer = await subscriber.subscribe(topic, "billing")
        assert await read(consumer, 3) == [9, 10, 11]

    play(scenario)


@topics
def test_dropped_records_are_reported_from_the_position_of_the_subscription_on(topic: str) -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, DROP)
        consumer = await subscriber.subscribe(topic, "billing", initial_position="earliest", queue_records=1)
        await more(client, 0, 4)
        await read(consumer, 1)
        await read(consumer, 2)
        await more(client, 4, 8)
        await broker.simulation.sleep(LOOKED_SECONDS)
        assert start_of(broker) == 8
        (told,) = [fields for event, fields in broker.events if event == "backlog_dropped"]
        assert (told["subscription"], told["of_topic"], told["first"], told["end"], told["records"]) == (
            *("billing", topic, 3, 8, 5),
        )
        with pytest.raises(RecordsMissed) as missed:
            await consumer.receive()
        assert (missed.value.first, missed.value.end) == (3, 8)

    play(scenario)


def test_records_that_were_acknowledged_out_of_order_are_not_counted_as_dropped() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, DROP)
        consumer = await subscriber.subscribe("orders", "billing", initial_position="earliest", type="shared")
        await more(client, 0, 4)
        messages = [await consumer.receive() for _ in range(4)]
        for offset in (0, 2):  # each is stored on its own
            consumer.ack(messages[offset])
            await broker.simulation.sleep(LOOK_SECONDS / 5)
        await more(client, 4, 4)
        await broker.simulation.sleep(LOOKED_SECONDS)
        (told,) = [fields for event, fields in broker.events if event == "backlog_dropped"]
        assert (told["first"], told["end"], told["records"]) == (1, 4, 2)
        assert broker.serving.broker.metrics.backlog_records_dropped == 2

    play(scenario)


@pytest.mark.parametrize("positions", ["segments"], indirect=True)
def test_producers_are_not_refused_for_a_position_that_was_within_the_quota_before_the_log_grew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = Holds.slowest

    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, QUOTA)
        consumer = await subscriber.subscribe("orders", "billing", initial_position="earliest")
        await more(client, 0, 6)
        await read(consumer, 3)
        await read(consumer, 3)

        async def grown(holds: Holds, *where: Any) -> Holder | None:
            found = await ask(holds, *where)
            await more(client, 7, 3)
            return found

        await more(client, 6, 1)
        monkeypatch.setattr(Holds, "slowest", grown)
        await broker.serving.broker.backlog_quotas.look()
        await more(client, 10, 1)

    play(scenario)


# --- retention ----------------------------------------------------------------------------------------------------


@killed
@topics
def test_retention_frees_the_records_read_by_a_subscription_that_has_been_idle_since(topic: str, kill: bool) -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, DUE)
        consumer = await subscriber.subscribe(topic, "billing", initial_position="earliest")
        await more(client, 0, 10)
        assert await read(consumer, 1) == [0]
        assert await read(consumer, 6) == list(range(1, 7))
        if kill:
            await consumer.close()
            await broker.restart()
            client = await broker.connect()
            await more(client, 10, 1)
        await broker.simulation.sleep(3.0)
        assert start_of(broker) == 7
        if kill:
            consumer = await subscriber.subscribe(topic, "billing")
        assert await read(consumer, 3) == [7, 8, 9]

    play(scenario)


@pytest.mark.parametrize("positions", ["segments"], indirect=True)
def test_a_subscription_reset_after_its_segment_was_read_holds_the_records_that_it_reads_again() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, DUE)
        retention = broker.serving.broker.retention
        slow = await subscriber.subscribe("copy", "slow", initial_position="earliest")
        consumer = await subscriber.subscribe("orders", "billing", initial_position="earliest")
        await more(client, 0, 8)
        for each in (slow, consumer):
            assert await read(each, 1) == [0]
            assert await read(each, 2) == [1, 2]
        await read(consumer, 4)
        await broker.simulation.sleep(2.0)
        assert start_of(broker) == 3
        await consumer.seek_to_offset(0, 4)
        assert await read(slow, 5) == [3, 4, 5, 6, 7]
        await retention.enforce()
        assert start_of(broker) == 4
        assert await read(consumer, 1) == [4]
        await retention.enforce()
        assert start_of(broker) == 5

    play(scenario)


# --- costs, and segments out of reach -----------------------------------------------------------------------------


@pytest.mark.parametrize("positions", ["segments"], indirect=True)
def test_a_segment_is_read_again_only_if_its_last_known_position_would_exceed_the_quota() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, QUOTA)
        consumer = await subscriber.subscribe("orders", "billing", initial_position="earliest")
        quick = await subscriber.subscribe("orders", "quick", initial_position="earliest")
        for first in (0, 2, 4, 6):
            await more(client, first, 2)
            for each in (consumer, quick):
                await read(each, 2)
        node = broker.serving.broker
        metadata = node.storage.metadata = CountingMetadata(node.storage.metadata)
        reads = []

        async def look() -> None:
            with metadata.measure() as cost:
                await node.backlog_quotas.look()
            reads.append(cost.reads)

        await look()
        await look()
        await more(client, 8, 4)
        await look()
        await more(client, 12, 1)
        await look()
        others = 2 + 1 + 1  # the key, twice; the topics with subscriptions; the positions of the one such topic
        assert reads[1:] == [1, others + 2, others + 1], (
            "the key alone; then both segments; then one of two that are even"
        )
        assert (await produce(client, 13)).error_code == ErrorCode.POLICY_VIOLATION

    play(scenario)


@pytest.mark.parametrize("positions", ["segments"], indirect=True)
@pytest.mark.parametrize("policy", [QUOTA, DROP], ids=["refuse-produce", "drop-oldest"])
def test_while_a_segment_is_out_of_reach_no_more_producers_are_refused_and_nothing_is_dropped(
    policy: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def out_of_reach(*where: Any) -> Position | None:
        raise NotEnoughBookies("the bookies are away")

    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, policy)
        consumer = await subscriber.subscribe("orders", "billing", initial_position="earliest")
        await more(client, 0, 4)
        await read(consumer, 1)
        await read(consumer, 3)
        with monkeypatch.context() as patch:
            patch.setattr(hold, "read_segment", out_of_reach)
            await more(client, 4, 4)
            await broker.simulation.sleep(LOOKED_SECONDS)
            await more(client, 8, 1)
            assert start_of(broker) == 0
            told = [fields["reason"] for event, fields in broker.events if event == "backlog_not_measured"]
            assert told == ["the bookies are away"]
        await broker.simulation.sleep(LOOKED_SECONDS)
        if policy is QUOTA:
            assert (await produce(client, 9)).error_code == ErrorCode.POLICY_VIOLATION
        else:
            assert start_of(broker) == 5

    play(scenario)


# --- several brokers ----------------------------------------------------------------------------------------------


def test_the_sources_broker_reads_the_positions_of_a_shadow_also_after_the_shadows_owner_was_killed() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, kafka={"log.retention.check.interval.ms": "1000"})
        await cluster.start()

        async def work(client: WireCluster) -> None:
            await create_topic(client, "orders", {**DUE, **QUOTA})
            await create_topic(client, "copy", {SHADOW_SOURCE: "orders"})
            owner = cluster.leader("copy", 0)
            assert owner != cluster.leader("orders", 0)
            addresses = ",".join(f"broker-{number}:{NATIVE_PORT}" for number in cluster.brokers)
            source = BrokerClient(await client.leader("orders", 0))
            node = cluster.serving[cluster.leader("orders", 0)].broker
            log = node.partitions.use(node.topics.find("orders"), 0)
            async with connect(addresses, world=client.world) as subscriber:
                consumer = await subscriber.subscribe("copy", "screens", initial_position="earliest")
                await more(source, 0, 8)
                await simulation.sleep(LOOKED_SECONDS)
                assert (await produce(source, 8)).error_code == ErrorCode.POLICY_VIOLATION
                await read(consumer, 1)
                await read(consumer, 5)
                await simulation.sleep(LOOKED_SECONDS)
                await more(source, 8, 1)
                assert log.log is not None
                assert log.log.start_offset == 6
                await read(consumer, 2)
            cluster.brokers[owner].kill()
            await simulation.sleep(LOOKED_SECONDS)
            await more(source, 9, 2)
            await simulation.sleep(LOOKED_SECONDS)
            await more(source, 11, 1)
            assert log.log.start_offset == 8
            async with connect(addresses, world=client.world) as subscriber:
                consumer = await subscriber.subscribe("copy", "screens")  # at the next owner
                assert await read(consumer, 2) == [8, 9]
                await simulation.sleep(2.0)
                assert log.log.start_offset == 10

        await cluster.run_client("client", work)

    simulate(1, scenario)
