"""Read holds: retention waits for readers without a subscription (numbers: invariants of `read_holds`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio
from native_calls import SELDOM, delete_records, native, play, read, rpc

from gnomon.broker.native import read_planner
from gnomon.broker.retention import read_holds
from gnomon.broker.retention.read_holds import HeldPlace
from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.client.client import NativeClient, connect
from gnomon.client.errors import InvalidCall, Unavailable
from gnomon.client.read_plans import END, PartitionHolds
from gnomon.log.entry import Offset
from gnomon.log.plans.read_hold import HoldPlace, ReadHold, reads_prefix
from gnomon.log.subscription_keys import hold_key
from gnomon.metadata.client import Delete, KeyValue, LeaseNotFound, Put
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT, BrokerCluster
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.testing.storms.kafka.log_checker import LogHistory
from gnomon.testing.storms.kafka.log_clients import SimulatedProducer
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.wire.kafka.records import Record, build_batch

ONE_RECORD_A_SEGMENT = {"segment.bytes": "14", "retention.bytes": "0", "retention.ms": "-1"}
LEASE_SECONDS = 3.0


async def orders(client: BrokerClient, count: int, configs: dict[str, str] | None = None) -> None:
    """Creates the topic `orders` with `count` segments of one record, all of them due for retention."""
    await client.create_topic("orders", partitions=3, configs={**ONE_RECORD_A_SEGMENT, **(configs or {})})
    for number in range(count):
        batch = build_batch([Record(value=b"%d" % number)], base_timestamp=number)
        assert (await client.produce("orders", batch)).error_code == 0


async def trimmed(broker: EmbeddedBroker) -> int:
    """Enforces retention; returns the start of the log."""
    node = broker.serving.broker
    await node.retention.enforce()
    log = await node.partitions.use(node.topics.find("orders"), 0).opened()
    assert log is not None
    return log.start_offset


async def held(
    client: NativeClient, first: int, name: str = "job", *, topic: str = "orders", seconds: int = 600
) -> int:
    """Takes a hold in partition 0; returns the first offset that the plan has."""
    plan = await client.read_plans.plan(topic, {0: (first, END)}, hold=name, hold_seconds=seconds)
    segments = plan.partitions[0].segments
    return segments[0].base_offset if segments else plan.partitions[0].high_watermark


async def stored(broker: EmbeddedBroker, partition: int = 0, name: str = "job") -> KeyValue | None:
    node = broker.serving.broker
    return await node.storage.metadata.get(HoldPlace(node.topics.find("orders").id, partition, name).key)


async def hold_writes(broker: EmbeddedBroker) -> int:
    """The revision of the key that trims compare; 0 if it was never written."""
    node = broker.serving.broker
    item = await node.storage.metadata.get(hold_key(node.topics.find("orders").id))
    return 0 if item is None else item.mod_revision


def test_retention_waits_for_a_hold_until_its_lease_ends() -> None:  # 2
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        assert await held(reader, 2, seconds=60) == 2
        assert await trimmed(broker) == 2
        await broker.simulation.clock.sleep(50)
        assert await trimmed(broker) == 2
        await broker.simulation.clock.sleep(15)
        assert await stored(broker) is None
        assert await trimmed(broker) == 5

    play(scenario)


def test_a_hold_that_is_renewed_lives_on_and_moves_forward_without_a_write_that_trims_compare() -> None:  # 2, 3
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        await held(reader, 1, seconds=60)
        first, writes = await stored(broker), await hold_writes(broker)
        assert first is not None
        assert writes > 0
        for offset in (1, 3):
            await broker.simulation.clock.sleep(50)
            assert await held(reader, offset, seconds=60) == offset
            assert await trimmed(broker) == offset
        item = await stored(broker)
        assert item is not None
        assert (item.lease, ReadHold.decode(item.value)) == (first.lease, ReadHold(Offset(3), 60))
        assert await hold_writes(broker) == writes
        assert len(broker.serving.broker.storage.metadata._state.leases) == 1  # type: ignore[attr-defined]

    play(scenario)


def test_a_hold_moves_back_only_with_a_write_that_trims_compare() -> None:  # 1
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        await held(reader, 3)
        writes = await hold_writes(broker)
        assert await held(reader, 1) == 1
        assert await hold_writes(broker) > writes
        assert await trimmed(broker) == 1

    play(scenario)


def test_another_time_puts_the_hold_under_another_lease() -> None:  # 2
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        await held(reader, 1, seconds=60)
        writes = await hold_writes(broker)
        await held(reader, 1, seconds=600)
        assert await hold_writes(broker) == writes
        await broker.simulation.clock.sleep(300)
        assert await trimmed(broker) == 1
        await held(reader, 1, seconds=5)
        await broker.simulation.clock.sleep(10)
        assert await trimmed(broker) == 5

    play(scenario)


def test_a_hold_before_the_start_of_the_log_begins_there_and_one_beyond_its_end_holds_nothing_yet() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        await held(reader, 100, "late")
        assert await trimmed(broker) == 5
        await held(reader, 0, "early")
        places = [ReadHold.decode(item.value) for item in [await stored(broker, 0, "early")] if item is not None]
        assert places == [ReadHold(Offset(5), 600)]

    play(scenario)


def test_the_slowest_of_subscriptions_and_holds_decides() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        consumer = await reader.subscribe("orders", "billing", initial_position="earliest")
        await held(reader, 2)
        await held(reader, 3, "other")
        assert await trimmed(broker) == 0
        await read(consumer, 5)
        assert await trimmed(broker) == 2
        await held(reader, 5)
        assert await trimmed(broker) == 3

    play(scenario)


def test_delete_records_waits_for_no_hold() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        await held(reader, 1)
        await delete_records(client, 4)
        assert await trimmed(broker) == 4

    play(scenario)


def test_a_topic_with_hold_none_is_trimmed_although_it_is_held() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5, {"gnomon.retention.hold": "none"})
        await held(reader, 1)
        assert await trimmed(broker) == 5

    play(scenario)


def test_a_hold_of_a_shadow_keeps_the_records_of_its_source() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        await client.create_topic("copy", partitions=-1, configs={SHADOW_SOURCE: "orders"})
        await held(reader, 2, topic="copy")
        assert await stored(broker) is not None
        assert await trimmed(broker) == 2
        assert await reader.read_plans.holds("copy") == [PartitionHolds(0, 1, 2)]

    play(scenario)


def test_a_quota_that_drops_the_oldest_records_waits_for_no_hold() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        quota = {"gnomon.backlog.quota.bytes": "200", "gnomon.backlog.quota.policy": "drop-oldest"}
        await orders(client, 5, quota)
        await reader.subscribe("orders", "billing", initial_position="earliest")
        await held(reader, 0)
        node = broker.serving.broker
        await node.backlog_quotas.look()
        assert await trimmed(broker) == 3

    play(scenario)


def test_an_unreadable_hold_keeps_everything() -> None:  # read_hold 2
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        node = broker.serving.broker
        key = HoldPlace(node.topics.find("orders").id, 0, "newer").key
        for value in (b"\xc1", b"\x91\x01", b"\x92\xa1a\x01", b"\x92\x01\xa1a", b""):
            await node.storage.metadata.txn((), (Put(key, value),))
            assert await trimmed(broker) == 0
        assert await held(reader, 2, "newer") == 2
        assert await trimmed(broker) == 2

    play(scenario)


def _before_txn(broker: EmbeddedBroker, prefix: str, act: Callable[[], Awaitable[object]], times: int = 1) -> list[str]:
    """Runs `act` right before a transaction that puts or deletes a key with a prefix, at most `times` times."""
    node = broker.serving.broker
    inner, done = node.storage.metadata, list[str]()

    class Overtaken:
        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        async def txn(self, compare: Sequence[Any], then: Sequence[Any], otherwise: Sequence[Any] = ()) -> Any:
            keys = [each.key for each in then if isinstance(each, Put | Delete) and each.key.startswith(prefix)]
            if keys and len(done) < times:
                done.append(keys[0])
                await act()
            return await inner.txn(compare, then, otherwise)

    overtaken: Any = Overtaken()
    for _, _, partition in node.partitions.with_own_log():
        partition._chain._metadata = overtaken
    node.storage.metadata = overtaken
    return done


def test_a_hold_taken_during_a_trim_loses_nothing() -> None:  # 1
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        done = _before_txn(broker, "ledgers/topics/", lambda: held(reader, 1))
        assert await trimmed(broker) == 1
        assert len(done) == 1
        assert await held(reader, 1) == 1

    play(scenario)


def test_a_hold_moved_back_during_a_trim_loses_nothing() -> None:  # 1
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        await held(reader, 4)
        done = _before_txn(broker, "ledgers/topics/", lambda: held(reader, 2))
        assert await trimmed(broker) == 2
        assert len(done) == 1

    play(scenario)


def test_a_trim_during_the_taking_of_a_hold_makes_the_client_ask_again() -> None:  # 1
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        done = _before_txn(broker, "reads/", lambda: trimmed(broker))
        assert await held(reader, 1) == 5
        assert len(done) == 1
        item = await stored(broker)
        assert item is not None
        assert ReadHold.decode(item.value).offset == 5

    play(scenario)


def test_a_hold_in_a_segment_that_is_gone_is_refused_and_leaves_no_key() -> None:  # 1
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        node = broker.serving.broker
        source = node.topics.find("orders")
        gone = node.partitions.use(source, 0).segments[1]
        assert await trimmed(broker) == 5
        with pytest.raises(Unavailable, match="was deleted just now"):
            await node.read_holds.take(source, "job", 60, {0: HeldPlace(Offset(1), gone)})
        assert await stored(broker) is None

    play(scenario)


def test_two_requests_for_one_hold_do_not_move_it_back_unnoticed() -> None:  # 1
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        await held(reader, 1)
        done = _before_txn(broker, "reads/", lambda: held(reader, 4))
        before = await hold_writes(broker)
        assert await held(reader, 2) == 2
        assert len(done) == 1
        assert await hold_writes(broker) > before, "from 4 back to 2"
        assert await trimmed(broker) == 2

    play(scenario)


def test_a_hold_whose_lease_ends_while_it_is_renewed_begins_again() -> None:  # 1, 2
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        await held(reader, 1)
        node = broker.serving.broker
        inner = node.storage.metadata
        item = await stored(broker)
        assert item is not None
        assert item.lease is not None
        lease, before = item.lease, await hold_writes(broker)
        source = node.topics.find("orders")
        segment = node.partitions.use(source, 0).segments[2]
        _before_txn(broker, "reads/", lambda: inner.revoke(lease))
        await node.read_holds.take(source, "job", 600, {0: HeldPlace(Offset(2), segment)})
        again = await stored(broker)
        assert again is not None
        assert again.lease not in (None, lease)
        assert await hold_writes(broker) > before
        with pytest.raises(LeaseNotFound):
            await inner.keep_alive(lease)

    play(scenario)


def test_a_topic_has_at_most_so_many_holds_and_the_refusal_has_the_number(monkeypatch: pytest.MonkeyPatch) -> None:  # 4
    monkeypatch.setattr(read_holds, "HOLDS_MAX", 3)

    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        for number in range(3):
            await held(reader, number, f"job-{number}")
        with pytest.raises(InvalidCall, match="has 3 holds, 3 are allowed"):
            await held(reader, 0, "one-more")
        assert await stored(broker, 0, "one-more") is None
        assert await held(reader, 1, "job-0") == 1, "a hold that is there is renewed"
        ranges = {0: (1, END), 1: (0, END), 2: (0, END)}
        await reader.read_plans.plan("orders", ranges, hold="job-1")
        assert await reader.read_plans.holds("orders") == [
            PartitionHolds(0, 3, 1),
            PartitionHolds(1, 1, 0),
            PartitionHolds(2, 1, 0),
        ]

    play(scenario)


def test_the_thousandth_hold_of_a_topic_is_the_last_one() -> None:  # 4
    """The holds of the other readers are put where brokers store them."""

    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        node = broker.serving.broker
        topic_id, metadata = node.topics.find("orders").id, node.storage.metadata
        lease = await metadata.lease(600)
        for first in range(0, 999, 111):
            places = [HoldPlace(topic_id, 0, f"job-{number}") for number in range(first, first + 111)]
            await metadata.txn((), [Put(place.key, ReadHold(Offset(3), 600).encode(), lease) for place in places])
        assert await held(reader, 1, "last") == 1
        assert await reader.read_plans.holds("orders") == [PartitionHolds(0, 1_000, 1)]
        with pytest.raises(InvalidCall, match="has 1000 holds, 1000 are allowed"):
            await held(reader, 0, "one-more")
        assert await held(reader, 2, "last") == 2, "a hold that is there is moved"

    play(scenario)


def test_holds_that_are_created_at_the_same_time_do_not_exceed_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:  # 4
    monkeypatch.setattr(read_holds, "HOLDS_MAX", 1)

    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        done = _before_txn(broker, "reads/", lambda: held(reader, 1, "first"))
        with pytest.raises(InvalidCall, match="has 1 holds"):
            await held(reader, 1, "second")
        assert len(done) == 1

    play(scenario)


def test_many_partitions_are_held_in_several_transactions_under_one_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_holds, "PARTITIONS_MAX", 2)

    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        await reader.read_plans.plan("orders", dict.fromkeys(range(3), (0, END)), hold="job")
        items = [await stored(broker, index) for index in range(3)]
        assert len({item.lease for item in items if item is not None}) == 1
        assert [ReadHold.decode(item.value).offset for item in items if item is not None] == [0, 0, 0]

    play(scenario)


def test_the_holds_of_a_deleted_topic_are_deleted_and_none_is_created_for_it() -> None:  # 5
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 2)
        await held(reader, 0)
        node = broker.serving.broker
        topic = node.topics.find("orders")
        done = _before_txn(broker, "reads/", lambda: node.topic_admin.delete(topic))
        taken = node.read_holds.take(topic, "late", 60, {0: HeldPlace(Offset(0), None)})
        with pytest.raises(Unavailable):
            await taken
        assert len(done) == 1
        assert (await node.storage.metadata.range(reads_prefix(topic.id))).items == ()

    play(scenario)


def test_a_hold_survives_a_restart_of_the_broker() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(await broker.connect(), 5)
        async with native(broker) as reader:
            await held(reader, 2, seconds=60)
        await broker.restart()
        assert await trimmed(broker) == 2
        await broker.simulation.clock.sleep(65)
        assert await trimmed(broker) == 5

    simulate_broker(scenario, kafka=SELDOM)


def test_a_later_page_of_a_plan_does_not_move_the_hold(monkeypatch: pytest.MonkeyPatch) -> None:  # client.read_plans 3
    monkeypatch.setattr(read_planner, "PLANNED_SEGMENTS_MAX", 2)

    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        plan = await reader.read_plans.plan("orders", {0: (1, END), 1: (0, END)}, hold="job")
        assert len(plan.partitions[0].segments) == 4
        assert await reader.read_plans.holds("orders") == [PartitionHolds(0, 1, 1), PartitionHolds(1, 1, 0)]

    play(scenario)


def test_no_hold_is_taken_without_a_name() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, reader: NativeClient) -> None:
        await orders(client, 5)
        await reader.read_plans.plan("orders", {0: (1, END)})
        assert await reader.read_plans.holds("orders") == []
        assert await hold_writes(broker) == 0
        async with rpc(broker) as peer:
            await peer.call("plan", "orders", [[0, 0, 5]], "", -7)

    play(scenario)


# --- several brokers ----------------------------------------------------------------------------------------------


def test_a_hold_outlives_the_broker_that_took_it_and_the_next_leader_waits_for_it() -> None:  # 2
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS, kafka=SELDOM)
        await cluster.start()

        async def work(client: WireCluster) -> None:
            await create_topic(client, "orders", ONE_RECORD_A_SEGMENT)
            addresses = ",".join(f"broker-{number}:{NATIVE_PORT}" for number in cluster.brokers)
            await produced(cluster, client, 5)
            async with connect(addresses, world=client.world) as reader:
                plan = await reader.read_plans.plan("orders", {0: (2, END)}, hold="job", hold_seconds=60)
                assert plan.partitions[0].segments[0].base_offset == 2
                old = cluster.leader("orders", 0)
                cluster.brokers[old].kill()
                await cluster.settled(3 - old)
                node = cluster.serving[3 - old].broker
                await produced(cluster, client, 1)
                partition = node.partitions.use(node.topics.find("orders"), 0)
                for expected in (2, 6):
                    await node.retention.enforce()
                    assert partition.log is not None
                    assert partition.log.start_offset == expected
                    await simulation.clock.sleep(70)

        await cluster.run_client("client", work)

    simulate(1, scenario)


async def produced(cluster: BrokerCluster, client: WireCluster, count: int) -> None:
    producer = SimulatedProducer(client, "orders", {0: LogHistory()}, name="producer")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(producer.run)
        for number in range(count):
            producer.send(b"%d" % number, 0)
            await client.world.clock.sleep(0.2)
        await producer.flush()
        nursery.cancel_scope.cancel()
