"""Read plans of one broker and of a cluster (numbers: invariants of `read_planner`, or of the module that is named)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import pairwise

import pytest
import trio
from cluster_calls import lose_leader
from native_calls import delete_records, play, rpc

from gnomon.bookie.errors import DigestMismatch
from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledgers.catalog import EntryView, read_from_memory
from gnomon.bookie.record import ledger_key, shrink
from gnomon.broker.authorization.operation import Operation, Resource, ResourceType
from gnomon.broker.authorization.session import Session
from gnomon.broker.broker import Broker
from gnomon.broker.native import read_planner
from gnomon.broker.partition.partition import Partition
from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.client.client import NativeClient, connect
from gnomon.client.errors import InvalidCall, NoSuchTopic, NotAuthorized, NotLeader, Unavailable
from gnomon.client.read_plans import END
from gnomon.log.entry import EntryHeader, Offset
from gnomon.log.plans.read_plan import PlannedPartition, PlannedSegment, decode_plan
from gnomon.log.segment import Segment
from gnomon.metadata.client import Delete, KeyValue, Metadata, Put
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT, BrokerCluster
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.testing.storms.kafka.log_checker import LogHistory
from gnomon.testing.storms.kafka.log_clients import SimulatedProducer
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.wire.kafka.records import Record, build_batch

SMALL_SEGMENTS = {"segment.bytes": "300", "retention.ms": "-1"}
"""Two batches of two records fit into a segment."""
LEASE_SECONDS = 3.0


async def orders(client: BrokerClient, batches: int, *, first: int = 0, configs: dict[str, str] | None = None) -> None:
    """Produces batches of two records to partition 0 of `orders`; creates the topic with the first."""
    if first == 0:
        await client.create_topic("orders", partitions=2, configs={**SMALL_SEGMENTS, **(configs or {})})
    for number in range(first, first + batches):
        records = [Record(offset_delta=delta, value=b"%d" % (2 * number + delta)) for delta in range(2)]
        assert (await client.produce("orders", build_batch(records, base_timestamp=number))).error_code == 0


def partition_of(broker: Broker, topic: str = "orders", index: int = 0) -> Partition:
    return broker.partitions.use(broker.topics.find(topic), index)


async def run_of(broker: Broker, planned: PlannedSegment) -> tuple[Sequence[EntryHeader], int]:
    """The headers and the payload bytes of the entries of a planned run, as the leader of the source has them."""
    (segment,) = [each for each in partition_of(broker).segments if each.ledger.id == planned.ledger]
    assert segment.base_offset == planned.base_offset

    def found() -> tuple[list[EntryHeader], int]:
        with segment.view() as view:
            entries = [EntryId(entry) for entry in range(planned.first, planned.last + 1)]
            return [segment.header(view, each) for each in entries], sum(len(view.payload(each)) for each in entries)

    return await read_from_memory(found)


async def check(broker: Broker, planned: PlannedPartition, first: int, end: int) -> list[tuple[int, int]]:
    """Checks that the runs cover [first, end) once and tightly; returns the offsets of their entries."""
    offsets: list[tuple[int, int]] = []
    for segment in planned.segments:
        headers, size_bytes = await run_of(broker, segment)
        assert size_bytes == segment.size_bytes
        assert headers[-1].next_offset == segment.next_offset <= planned.high_watermark
        offsets += [(each.base_offset, each.next_offset) for each in headers if each.next_offset > each.base_offset]
    assert all(before[1] == after[0] for before, after in pairwise(offsets))
    if first < end:
        assert offsets[0][0] <= first < offsets[0][1]
        assert offsets[-1][0] < end <= offsets[-1][1]
    else:
        assert offsets == []
    return offsets


def test_the_runs_of_a_plan_have_each_record_of_the_range_once_and_no_entry_more() -> None:  # 1
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, native: NativeClient) -> None:
        await orders(client, 11)
        node = broker.serving.broker
        assert len(partition_of(node).segments) > 3
        for first in range(23):
            for end in range(first, 24):
                plan = await native.read_plans.plan("orders", {0: (first, end)})
                found = plan.partitions[0]
                assert (found.start_offset, found.high_watermark) == (0, 22)
                await check(node, found, first, min(end, 22))

    play(scenario)


def test_a_plan_names_the_topic_the_cluster_and_the_newest_records() -> None:  # 2
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, native: NativeClient) -> None:
        await orders(client, 5)
        node = broker.serving.broker
        plan = await native.read_plans.plan("orders", {0: (0, END), 1: (0, END)})
        assert plan.topic_id == node.topics.find("orders").id
        assert plan.cluster == node.cluster_id
        assert plan.bookies == (), "no other process can read the entries of a standalone node"
        assert plan.partitions[1] == PlannedPartition(Offset(0), Offset(0), ())
        segments = {each.ledger.id: each.ledger.record for each in partition_of(node).segments}
        planned = {each.ledger: each.record for each in plan.partitions[0].segments}
        assert planned == segments
        assert [each.record.sealed for each in plan.partitions[0].segments][-2:] == [True, False]

    play(scenario)


def test_an_entry_that_is_not_confirmed_is_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:  # planned_range 1
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, native: NativeClient) -> None:
        await orders(client, 3, configs={"segment.bytes": "100000"})
        node = broker.serving.broker
        broker.machine.disk.conditions.sync_seconds_min = 5.0
        batch = build_batch([Record(value=b"later")], base_timestamp=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.produce, "orders", batch)
            await broker.simulation.clock.sleep(0.5)
            log = partition_of(node).log
            assert log is not None
            assert (log.high_watermark, log.next_offset) == (6, 7)
            found = (await native.read_plans.plan("orders", {0: (0, END)})).partitions[0]
            assert found.high_watermark == 6
            await check(node, found, 0, 6)
            assert found.segments[-1].next_offset == 6

    play(scenario)


def test_records_before_the_start_of_the_log_are_not_planned() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, native: NativeClient) -> None:
        await orders(client, 11)
        await delete_records(client, 9)
        found = (await native.read_plans.plan("orders", {0: (0, END)})).partitions[0]
        assert found.start_offset == 9
        await check(broker.serving.broker, found, 9, 22)
        beyond = (await native.read_plans.plan("orders", {0: (30, 40)})).partitions[0]
        assert beyond == PlannedPartition(Offset(9), Offset(22), ())

    play(scenario)


def test_a_plan_that_does_not_fit_into_an_answer_is_read_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:  # 3
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, native: NativeClient) -> None:
        await orders(client, 11)
        whole = await native.read_plans.plan("orders", {0: (1, END), 1: (0, END)})
        count = len(whole.partitions[0].segments)
        assert count >= 4
        for bound, value in (("PLANNED_SEGMENTS_MAX", 2), ("PLANNED_SEGMENTS_MAX", count), ("GETS_MAX", 1)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(read_planner, bound, value)
                if bound == "GETS_MAX":
                    patch.setattr(read_planner, "ANSWER_BYTES_MAX", 1)
                assert await native.read_plans.plan("orders", {0: (1, END), 1: (0, END)}) == whole
                async with rpc(broker) as peer:
                    page = decode_plan(await peer.call("plan", "orders", [[0, 1, END]], "", 0))
                assert len(page.partitions[0].segments) == (1 if bound == "GETS_MAX" else value)
                assert page.partitions[0].high_watermark == 22

    play(scenario)


def test_records_that_are_written_while_a_plan_is_read_in_pages_are_not_planned(  # client.read_plans 2
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, native: NativeClient) -> None:
        await orders(client, 11)
        whole = await native.read_plans.plan("orders", {0: (0, END)})
        monkeypatch.setattr(read_planner, "PLANNED_SEGMENTS_MAX", 1)
        added = read_planner._Answer.complete

        async def complete(answer: read_planner._Answer) -> None:
            await added(answer)
            await orders(client, 1, first=1_000)

        monkeypatch.setattr(read_planner._Answer, "complete", complete)
        plan = await native.read_plans.plan("orders", {0: (0, END)})
        assert plan.partitions[0].high_watermark == 22
        assert [each[3:] for each in plan.partitions[0].segments] == [each[3:] for each in whole.partitions[0].segments]

    play(scenario)


def test_a_plan_of_a_shadow_names_the_segments_of_its_source() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, native: NativeClient) -> None:
        await orders(client, 7)
        await client.create_topic("copy", partitions=-1, configs={SHADOW_SOURCE: "orders"})
        own = await native.read_plans.plan("orders", {0: (3, END)})
        plan = await native.read_plans.plan("copy", {0: (3, END)})
        assert plan.partitions == own.partitions
        assert plan.topic_id == broker.serving.broker.topics.find("copy").id != own.topic_id

    play(scenario)


def test_a_damaged_entry_is_planned_so_that_its_reader_gets_the_error(  # planned_range 2
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, native: NativeClient) -> None:
        await orders(client, 6, configs={"segment.bytes": "100000"})
        header, (segment,) = Segment.header, partition_of(broker.serving.broker).segments

        def plans(*damaged: int) -> Awaitable[PlannedPartition]:
            def damaged_header(segment: Segment, view: EntryView, entry: EntryId) -> EntryHeader:
                if entry in damaged:
                    raise DigestMismatch(segment.ledger.id, entry)
                return header(segment, view, entry)

            monkeypatch.setattr(Segment, "header", damaged_header)
            return planned(native, 4, 8)

        assert [each[3:6] for each in (await plans()).segments] == [(2, 3, 8)]
        for damaged in ((2,), (3,), (2, 3), (1, 2), (3, 4), (1, 2, 3, 4), (3, 4, 5)):
            (found,) = (await plans(*damaged)).segments
            assert found.first <= 2
            assert 3 <= found.last <= 5
            assert found.next_offset >= 8
        assert segment.ledger.last_add_confirmed == 5

    async def planned(native: NativeClient, first: int, end: int) -> PlannedPartition:
        return (await native.read_plans.plan("orders", {0: (first, end)})).partitions[0]

    play(scenario)


def test_an_unreadable_entry_before_one_above_the_watermark_is_the_last_of_a_run(  # planned_range 1, 2
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, native: NativeClient) -> None:
        await orders(client, 6, configs={"segment.bytes": "100000"})
        header, (segment,) = Segment.header, partition_of(broker.serving.broker).segments

        def damaged(segment: Segment, view: EntryView, entry: EntryId) -> EntryHeader:
            if entry == 3:
                raise DigestMismatch(segment.ledger.id, entry)
            return header(segment, view, entry)

        with segment.view() as view:
            assert segment.last_entry(view, Offset(8), Offset(8)) == (3, 8)
            monkeypatch.setattr(Segment, "header", damaged)
            assert segment.last_entry(view, Offset(8), Offset(8)) == (3, 8)
            assert segment.last_entry(view, Offset(8), Offset(12)) == (4, 10)

    play(scenario)


def test_the_records_of_a_plan_are_those_of_the_metadata() -> None:  # 2
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, native: NativeClient) -> None:
        await orders(client, 5)
        ledger = partition_of(broker.serving.broker).segments[0].ledger
        newer = ledger.record.with_properties({**ledger.properties, "moved": 1})
        await broker.serving.broker.storage.metadata.txn((), (Put(ledger_key(ledger.name), newer.encode()),))
        plan = await native.read_plans.plan("orders", {0: (0, END)})
        assert plan.partitions[0].segments[0].record == newer != ledger.record

    play(scenario)


def test_records_that_another_leader_has_deleted_are_not_planned() -> None:  # 2
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, native: NativeClient) -> None:
        await orders(client, 5)
        metadata = broker.serving.broker.storage.metadata
        ledger = partition_of(broker.serving.broker).segments[0].ledger
        key, shrunk = ledger_key(ledger.name), shrink(ledger.record, EntryId(1), 100)
        async with rpc(broker) as peer:
            await metadata.txn((), (Put(key, shrunk.encode()),))
            with pytest.raises(Unavailable, match="entries of segment"):
                await peer.call("plan", "orders", [[0, 0, END]], "", 0)
            later = decode_plan(await peer.call("plan", "orders", [[0, 2, END]], "", 0))
            assert later.partitions[0].segments[0].record == shrunk
            for operation in (Delete(key), Put(key, ledger.record.encode())):
                await metadata.txn((), (operation,))
                with pytest.raises(Unavailable, match=r"segment .* deleted just now"):
                    await peer.call("plan", "orders", [[0, 2, END]], "", 0)

    play(scenario)


@pytest.mark.parametrize("before", [2, 5, 9])
def test_records_that_are_deleted_while_a_plan_is_made_are_not_planned(  # 2
    before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, native: NativeClient) -> None:
        await orders(client, 11)
        inner, done = read_planner.read_many, list[int]()

        async def deleting(metadata: Metadata, keys: Iterable[str]) -> dict[str, KeyValue]:
            if not done:
                done.append(before)
                await delete_records(client, before)
            return await inner(metadata, keys)

        monkeypatch.setattr(read_planner, "read_many", deleting)
        found = (await native.read_plans.plan("orders", {0: (0, END)})).partitions[0]
        assert done
        assert found.start_offset == before
        await check(broker.serving.broker, found, before, 22)

    play(scenario)


def test_a_plan_of_many_segments_takes_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:  # 4
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, native: NativeClient) -> None:
        await orders(client, 11)
        monkeypatch.setattr(read_planner, "PER_TURN", 1)
        began = broker.simulation.clock.monotonic()
        plan = await native.read_plans.plan("orders", {0: (0, END)})
        segments = len(plan.partitions[0].segments)
        assert broker.simulation.clock.monotonic() - began >= 0.001 * (segments - 1)

    play(scenario)


SENSELESS: list[tuple[list[object], str]] = [
    ([], "arguments are"),
    (["orders", [], "", 0], "plan 1 to 1000 partitions at a time, not 0"),
    (["orders", [[index, 0, 1] for index in range(1_001)], "", 0], "not 1001"),
    (["orders", [[0, 0]], "", 0], "arguments are"),
    (["orders", [[0, 5, 4]], "", 0], "not 5 to 4"),
    (["orders", [[0, -1, 4]], "", 0], "not -1 to 4"),
    (["orders", [[0, 0, 1 << 62]], "", 0], "arguments are"),
    (["orders", [[0, 0, 1], [0, 1, 2]], "", 0], "named twice"),
    (["orders", [[0, 0, 1]], "a/b", 60], "not by 'a/b'"),
    (["orders", [[0, 0, 1]], "n" * 101, 60], "1 to 100 letters"),
    (["orders", [[0, 0, 1]], "job", 0], "1 to 3600 seconds, not 0"),
    (["orders", [[0, 0, 1]], "job", 3_601], "not 3601"),
    (["orders", [[0, 0, 1]], "job", 1.5], "arguments are"),
]


def test_invalid_questions_are_refused_with_the_limit() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, native: NativeClient) -> None:
        await orders(client, 1)
        async with rpc(broker) as peer:
            for args, text in SENSELESS:
                with pytest.raises(InvalidCall, match=text):
                    await peer.call("plan", *args)
            with pytest.raises(NoSuchTopic, match="has 2 partitions"):
                await peer.call("plan", "orders", [[2, 0, 1]], "", 0)
            with pytest.raises(NoSuchTopic):
                await peer.call("plan", "others", [[0, 0, 1]], "", 0)
            with pytest.raises(InvalidCall):
                await peer.call("read_holds")
        with pytest.raises(InvalidCall, match="at least one partition"):
            await native.read_plans.plan("orders", {})

    play(scenario)


class Refusing:
    """An authorizer that refuses one operation on topics."""

    revision = 0

    def __init__(self, refused: Operation) -> None:
        self._refused = refused

    def allows(self, session: Session, operation: Operation, resource: Resource) -> bool:
        """See `Authorizer.allows`."""
        return operation is not self._refused

    def allows_any(self, session: Session, operation: Operation, type: ResourceType) -> bool:
        """See `Authorizer.allows_any`."""
        return True


def test_a_plan_needs_read_on_the_topic_and_its_holds_are_shown_to_those_who_may_describe_it() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        for refused, method, args in (
            (Operation.READ, "plan", [[[0, 0, 1]], "", 0]),
            (Operation.DESCRIBE, "read_holds", []),
        ):
            broker.authorizer = Refusing(refused)
            await broker.restart()
            async with rpc(broker) as peer:
                with pytest.raises(NotAuthorized, match=f"for {refused.name} on"):
                    await peer.call(method, "orders", *args)

    simulate_broker(scenario)


# --- a cluster ----------------------------------------------------------------------------------------------------


def on_cluster(
    work: Callable[[BrokerCluster, WireCluster, NativeClient], Awaitable[None]], *, brokers: int = 2, seed: int = 1
) -> None:
    """Runs `work` on a client of a cluster with the topic `orders` of four partitions, and its shadow `copy`."""

    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, brokers, lease_seconds=LEASE_SECONDS)
        await cluster.start()

        async def client(client: WireCluster) -> None:
            await create_topic(client, "orders", SMALL_SEGMENTS, partitions=4)
            await create_topic(client, "copy", {SHADOW_SOURCE: "orders"}, partitions=-1)
            addresses = ",".join(f"broker-{number}:{NATIVE_PORT}" for number in cluster.brokers)
            async with connect(addresses, world=client.world) as native:
                await work(cluster, client, native)

        await cluster.run_client("client", client)

    simulate(seed, scenario)


async def produce(client: WireCluster, partition: int, count: int) -> None:
    producer = SimulatedProducer(client, "orders", {partition: LogHistory()}, name=f"producer-{partition}")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(producer.run)
        for number in range(count):
            producer.send(b"%d" % number, partition)
            await client.world.clock.sleep(0.01)
        await producer.flush()
        nursery.cancel_scope.cancel()


def test_a_plan_of_a_cluster_comes_from_all_leaders_and_names_the_bookies_with_their_disks() -> None:  # 1
    async def work(cluster: BrokerCluster, client: WireCluster, native: NativeClient) -> None:
        for partition in range(4):
            await produce(client, partition, 20)
        assert len({cluster.leader("orders", partition) for partition in range(4)}) == 2
        plan = await native.read_plans.plan("orders", dict.fromkeys(range(4), (0, END)))
        assert sorted(plan.partitions) == [0, 1, 2, 3]
        assert {each.high_watermark for each in plan.partitions.values()} == {20}
        named = {name for each in plan.partitions.values() for one in each.segments for name in one.record.bookies}
        metadata = cluster.serving[1].broker.storage.metadata
        cookies = {item.key.removeprefix("cookies/"): item for item in (await metadata.range("cookies/")).items}
        assert {bookie.name: bookie.disk for bookie in plan.bookies} == {
            name: cookies[name].create_revision for name in named
        }
        assert {(bookie.host, bookie.port) for bookie in plan.bookies} == {
            (machine.name, plan.bookies[0].port) for machine in cluster.ledgers.bookies.values()
        }

    on_cluster(work)


def test_a_bookie_without_a_lease_is_named_by_the_records_alone() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster, native: NativeClient) -> None:
        await produce(client, 0, 20)
        name, machine = next(iter(cluster.ledgers.bookies.items()))
        machine.kill()
        await client.world.clock.sleep(3 * LEASE_SECONDS)
        plan = await native.read_plans.plan("orders", {0: (0, END)})
        assert name in {each for one in plan.partitions[0].segments for each in one.record.bookies}
        assert len(plan.bookies) == len(cluster.ledgers.bookies) - 1
        assert name not in {bookie.name for bookie in plan.bookies}

    on_cluster(work)


def test_a_broker_that_does_not_lead_a_partition_sends_the_client_away() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster, native: NativeClient) -> None:
        leader = cluster.leader("orders", 0)
        other = cluster.serving[3 - leader].broker
        connection = native._leaders.connection((f"broker-{3 - leader}", NATIVE_PORT))
        with pytest.raises(NotLeader):
            await connection.call("plan", "orders", [[0, 0, 1]], "", 0)
        assert other.partitions.get(other.topics.find("orders").id, 0) is None

    on_cluster(work)


def test_a_plan_is_made_by_the_next_leader_after_a_leader_has_died() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster, native: NativeClient) -> None:
        await produce(client, 0, 20)
        before = await native.read_plans.plan("orders", {0: (0, END)})
        number = await lose_leader(cluster)
        after = await native.read_plans.plan("orders", {0: (0, END)})
        assert [each[0:2] + each[3:] for each in after.partitions[0].segments] == [
            each[0:2] + each[3:] for each in before.partitions[0].segments
        ]
        await check(cluster.serving[number].broker, after.partitions[0], 0, 20)

    on_cluster(work)


def test_the_runs_of_a_clusters_plan_cover_the_range_also_from_entries_that_are_in_no_memory() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster, native: NativeClient) -> None:
        await produce(client, 0, 40)
        number = await lose_leader(cluster)
        for first, end in ((0, 40), (3, 11), (17, 18), (39, END), (5, 40)):
            plan = await native.read_plans.plan("orders", {0: (first, end)})
            await check(cluster.serving[number].broker, plan.partitions[0], first, min(end, 40))

    on_cluster(work)


def test_a_shadow_on_another_broker_plans_up_to_its_own_watermark() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster, native: NativeClient) -> None:
        await produce(client, 0, 20)
        own = (await native.read_plans.plan("orders", {0: (3, END)})).partitions[0]
        leader = cluster.leader("copy", 0)
        assert leader != cluster.leader("orders", 0)
        await native.read_plans.plan("copy", {0: (3, END)})
        await client.world.clock.sleep(2.0)
        plan = await native.read_plans.plan("copy", {0: (3, END)})
        assert plan.partitions[0] == own
        link = (f"broker-{3 - leader}", f"broker-{leader}")
        cluster.simulation.network.block(*link)
        broker = cluster.serving[leader].broker
        shadow = broker.partitions.use_shadow(broker.topics.find("copy"), 0)
        shown = shadow.log
        assert shown is not None
        await produce(client, 0, 3)
        plan = await native.read_plans.plan("copy", {0: (3, END)})
        assert plan.partitions[0].high_watermark <= shown.high_watermark
        assert plan.partitions[0].segments[-1].next_offset == plan.partitions[0].high_watermark

    on_cluster(work, brokers=2, seed=3)


def test_a_whole_segment_is_planned_without_a_read() -> None:  # planned_range 3
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, native: NativeClient) -> None:
        await orders(client, 11)
        looked: list[int] = []
        header = Segment.header

        def counted(segment: Segment, view: EntryView, entry: EntryId) -> EntryHeader:
            looked.append(segment.base_offset)
            return header(segment, view, entry)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Segment, "header", counted)
            plan = await native.read_plans.plan("orders", {0: (0, END)})
        assert set(looked) == {plan.partitions[0].segments[-1].base_offset}, "only the one that is being written"

    play(scenario)
