"""Audits of topics of a simulated cluster (numbers: invariants of `second_look`, and with `p` of `partition_audit`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest
import trio
from broken_bookies import Broken, BrokenBookies

from gnomon.bookie.ids import BookieId, EntryId, LedgerId
from gnomon.bookie.ledgers.ledgers import connect_ledgers
from gnomon.bookie.record import decode_record, ledger_key
from gnomon.bookie.remote import CALL_SECONDS
from gnomon.broker.subscriptions.positions.record import SubscriberRecord
from gnomon.broker.subscriptions.positions.store import Position
from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.log.audit.audit_place import AuditPlace
from gnomon.log.audit.finding import AuditFinding
from gnomon.log.audit.second_look import LATE_SECONDS
from gnomon.log.audit.topics_audit import AuditReport, TopicMissing, audit_topics
from gnomon.log.chains import PARTITIONS, ledgers_prefix
from gnomon.log.dlsn import CommitPoint
from gnomon.log.entry import Offset
from gnomon.log.segment_record import parse_segment_name
from gnomon.log.subscription_keys import replicators_prefix
from gnomon.log.topic import Topic, topic_key
from gnomon.metadata.client import Delete, KeyValue, Metadata, Put
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.log_checker import LogHistory
from gnomon.testing.storms.kafka.log_clients import SimulatedProducer
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.testing.storms.ledgers.ledger_cluster import METADATA, METADATA_PORT

ADDRESS = f"{METADATA}:{METADATA_PORT}"
CONFIRMED_SECONDS = 0.1
"""After this time without an append every bookie knows that all records are confirmed."""
SEGMENTS = {"segment.bytes": "600", "retention.ms": "-1"}
B1, B2 = BookieId("bookie-1"), BookieId("bookie-2")


class Inspection(NamedTuple):
    """The inside of an auditing process."""

    metadata: Metadata
    bookies: BrokenBookies
    place: AuditPlace

    async def audit(self, *topics: str) -> AuditReport:
        return await audit_topics(self.place, topics or ("orders",))

    async def segments(self) -> list[KeyValue]:
        """The records of the segments of the topic `orders`."""
        topic = await self.metadata.get(topic_key("orders"))
        assert topic is not None
        found = await self.metadata.range(ledger_key(ledgers_prefix(Topic.decode(topic).id, 0)))
        return list(found.items)

    async def break_copy(self, bookie: BookieId, segment: int, entry: int, kind: str) -> None:
        items = await self.segments()
        self.bookies.faults.append(Broken(bookie, LedgerId(items[segment].create_revision), EntryId(entry), kind))


class Stored:
    """A cluster with the topic `orders` of one partition, and its shadow `mirror`."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.cluster = BrokerCluster(simulation, 2)

    async def start(self) -> None:
        async def create(client: WireCluster) -> None:
            await create_topic(client, "orders", SEGMENTS)
            await create_topic(client, "mirror", {SHADOW_SOURCE: "orders"})

        await self.cluster.start()
        await self.cluster.run_client("admin", create)

    async def produce(self, first: int, end: int) -> None:
        async def work(client: WireCluster) -> None:
            producer = SimulatedProducer(client, "orders", {0: LogHistory()}, name="writer", batch_records_max=3)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(producer.run)
                for number in range(first, end):
                    producer.send(b"%d" % number, 0)
                await producer.flush()
                nursery.cancel_scope.cancel()

        await self.cluster.run_client(f"writer-{first}", work)
        await self.simulation.clock.sleep(CONFIRMED_SECONDS)

    async def inspect(self, work: Callable[[Inspection], Awaitable[None]]) -> None:
        async def client(kafka: WireCluster) -> None:
            world = kafka.world
            async with connect_ledgers(ADDRESS, world=world) as ledgers:
                bookies = BrokenBookies(ledgers.bookies)

                def replicated_to(value: bytes):  # type: ignore[no-untyped-def]
                    return SubscriberRecord.decode(value).position.point.dlsn

                place = AuditPlace(ledgers.metadata, bookies, world.blocking, replicated_to)
                await work(Inspection(ledgers.metadata, bookies, place))

        await self.cluster.run_client(f"auditor-{self.simulation.clock.monotonic()}", client)


def play(scenario: Callable[[Stored], Awaitable[None]]) -> None:
    async def run(simulation: Simulation) -> None:
        stored = Stored(simulation)
        await stored.start()
        await scenario(stored)

    simulate(3, run)


def inspected(work: Callable[[Inspection], Awaitable[None]], records: int = 40) -> None:
    """Runs `work` on a cluster with this many records, whose brokers live and write nothing."""

    async def scenario(stored: Stored) -> None:
        await stored.produce(0, records)
        await stored.inspect(work)

    play(scenario)


def facts(findings: list[AuditFinding]) -> list[tuple[str, str | None, int | None, int | None]]:
    return [(each.kind.value, each.bookie, each.first_entry, each.last_entry) for each in findings]


def test_a_topic_that_no_broker_has_opened_since_its_bookies_started_is_audited_to_its_end() -> None:  # p2
    """Bookies keep the last add confirmed of an idle ledger in memory; its entries name a lower one."""

    async def work(inside: Inspection) -> None:
        report = await inside.audit()
        assert (report.partitions[0].end_offset, list(report.findings)) == (40, [])
        last = len(await inside.segments()) - 1
        await inside.break_copy(B1, last, 0, "missing")
        assert facts(list((await inside.audit()).findings)) == [("missing", "bookie-1", 0, 0)]

    async def scenario(stored: Stored) -> None:
        await stored.produce(0, 40)
        for machine in stored.cluster.brokers.values():
            machine.kill()
        for machine in stored.cluster.ledgers.bookies.values():
            machine.kill()
            machine.start()
        await stored.simulation.clock.sleep(1.0)
        await stored.inspect(work)

    play(scenario)


def test_a_sound_topic_has_no_findings_and_nothing_is_changed() -> None:  # p1
    async def work(inside: Inspection) -> None:
        before = await inside.metadata.range(ledger_key(PARTITIONS))
        report = await inside.audit("orders", "mirror")
        assert list(report.findings) == []
        (partition,) = report.partitions
        assert partition.segments == len(before.items) > 1
        assert (partition.start_offset, partition.end_offset, partition.copies) == (0, 40, 3 * partition.entries)
        assert [(each.topic, each.source) for each in report.shadows] == [("mirror", "orders")]
        assert (await inside.metadata.range(ledger_key(PARTITIONS))).items == before.items

    inspected(work)


@pytest.mark.parametrize("segment", [0, -1])
def test_a_damaged_and_a_missing_copy_are_found_with_bookie_entry_and_offsets(segment: int) -> None:
    async def work(inside: Inspection) -> None:
        await inside.break_copy(B1, segment, 1, "damaged")
        await inside.break_copy(B2, segment, 0, "missing")
        findings = list((await inside.audit()).findings)
        assert facts(findings) == [("missing", B2, 0, 0), ("damaged", B1, 1, 1)]
        assert all(each.first_offset is not None and each.next_offset is not None for each in findings)
        assert {each.topic for each in findings} == {"orders"}

    inspected(work)


def test_a_different_copy_and_one_that_the_bookie_does_not_know_are_found() -> None:
    async def work(inside: Inspection) -> None:
        await inside.break_copy(B1, 0, 0, "different")
        await inside.break_copy(B2, 1, 0, "unknown")
        assert facts(list((await inside.audit()).findings)) == [("different", B1, 0, 0), ("unknown", B2, 0, 0)]

    inspected(work)


def test_an_entry_without_a_sound_copy_is_found_and_is_no_gap() -> None:
    async def work(inside: Inspection) -> None:
        for number in range(1, 4):
            await inside.break_copy(BookieId(f"bookie-{number}"), 1, 0, "damaged")
        found = facts(list((await inside.audit()).findings))
        assert [kind for kind, *_ in found] == ["damaged", "damaged", "damaged", "unread"]

    inspected(work)


def test_a_copy_that_arrives_late_is_no_finding() -> None:  # 2
    async def work(inside: Inspection) -> None:
        (*_, last) = await inside.segments()
        end = await last_entry(inside, last)
        await inside.break_copy(B1, -1, end, "missing")

        async def arrive() -> None:
            await inside.bookies.clock.sleep(3.0)
            inside.bookies.faults.clear()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(arrive)
            assert list((await inside.audit()).findings) == []
        await inside.break_copy(B1, -1, end, "missing")
        assert facts(list((await inside.audit()).findings)) == [("missing", B1, end, end)]

    inspected(work)


async def last_entry(inside: Inspection, item: KeyValue) -> int:
    """The last add confirmed of an open ledger, as its bookies report it."""
    bookie = inside.bookies.get(B2)
    assert bookie is not None
    return (await bookie.last_add_confirmed(LedgerId(item.create_revision))).entry


def test_a_missing_copy_that_a_later_one_follows_is_found_though_it_is_repaired_soon() -> None:  # 2
    async def work(inside: Inspection) -> None:
        await inside.break_copy(B1, 0, 0, "missing")

        async def repair() -> None:
            await inside.bookies.clock.sleep(1.0)
            inside.bookies.faults.clear()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(repair)
            assert facts(list((await inside.audit()).findings)) == [("missing", B1, 0, 0)]

    inspected(work)


def test_a_ledger_that_is_deleted_meanwhile_is_no_finding() -> None:  # 1
    async def work(inside: Inspection) -> None:
        first, *_ = await inside.segments()
        for number in range(1, 4):
            await inside.break_copy(BookieId(f"bookie-{number}"), 0, 0, "missing")

        async def delete() -> None:
            await inside.bookies.clock.sleep(0.1)
            await inside.metadata.txn([], [Delete(first.key)])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete)
            assert list((await inside.audit()).findings) == []

    inspected(work)


def test_a_leader_that_writes_rolls_and_trims_meanwhile_gives_no_findings() -> None:  # p2
    async def scenario(stored: Stored) -> None:
        await stored.produce(0, 20)
        written = trio.Event()

        async def audit(inside: Inspection) -> None:
            rounds = 0
            while not written.is_set():
                report = await inside.audit("orders", "mirror")
                assert [each.words for each in report.findings] == []
                rounds += 1
            assert rounds > 3

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stored.inspect, audit)
            for first in range(20, 140, 20):
                await stored.produce(first, first + 20)
                leader = stored.cluster.serving[stored.cluster.leader("orders", 0)].broker
                partition = leader.partitions.use(leader.topics.find("orders"), 0)
                await partition.delete_before(Offset(first - 5))
            written.set()

    play(scenario)


def test_a_new_leader_meanwhile_gives_no_findings() -> None:  # p2
    async def scenario(stored: Stored) -> None:
        await stored.produce(0, 20)
        written = trio.Event()

        async def audit(inside: Inspection) -> None:
            while not written.is_set():
                assert [each.words for each in (await inside.audit()).findings] == []
                await inside.bookies.clock.sleep(0.05)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stored.inspect, audit)
            stored.cluster.brokers[stored.cluster.leader("orders", 0)].kill()
            await stored.produce(20, 40)
            written.set()

    play(scenario)


def test_a_dead_bookie_is_one_finding_and_the_other_copies_are_checked() -> None:
    async def scenario(stored: Stored) -> None:
        await stored.produce(0, 40)
        stored.simulation.machine("bookie-2").power_off()

        async def work(inside: Inspection) -> None:
            await inside.break_copy(B1, 0, 0, "damaged")
            report = await inside.audit()
            assert facts(list(report.findings)) == [("damaged", B1, 0, 0), ("unreachable", B2, None, None)]
            count = len(await inside.segments())
            assert f"its copies of {count} ledgers" in report.findings[-1].words

        await stored.inspect(work)

    play(scenario)


def test_bookies_that_are_all_dead_are_findings_and_no_silent_success() -> None:
    async def scenario(stored: Stored) -> None:
        await stored.produce(0, 3)
        for number in range(1, 4):
            stored.simulation.machine(f"bookie-{number}").power_off()

        async def work(inside: Inspection) -> None:
            report = await inside.audit()
            assert [each.kind.value for each in report.findings] == ["unreachable"] * 3
            assert report.partitions[0].entries == 0

        await stored.inspect(work)

    play(scenario)


def test_records_that_contradict_each_other_are_found() -> None:
    async def work(inside: Inspection) -> None:
        first, *_ = await inside.segments()
        record = decode_record(first.value)
        wrong = record.with_properties({**record.properties, "next_offset": 1})
        await inside.metadata.txn([], [Put(first.key, wrong.encode())])
        kinds = [each.kind.value for each in (await inside.audit()).findings]
        assert kinds == ["record", "record"]  # against the next segment, and against the last entry

    inspected(work)


def test_ledgers_of_a_partition_that_the_topic_does_not_have_are_found() -> None:
    async def work(inside: Inspection) -> None:
        first, *_ = await inside.segments()
        await inside.metadata.txn([], [Put(first.key.replace("/0/", "/7/"), first.value)])
        (finding,) = (await inside.audit()).findings
        assert finding.words == "partition 7 of topic 'orders' has ledgers, and the topic has 1 partitions"

    inspected(work)


def test_a_shadow_whose_source_is_gone_is_found() -> None:
    async def scenario(stored: Stored) -> None:
        await stored.produce(0, 3)
        for machine in stored.cluster.brokers.values():
            machine.kill()

        async def work(inside: Inspection) -> None:
            assert list((await inside.audit("mirror")).findings) == []
            await inside.metadata.txn([], [Delete(topic_key("orders"))])
            (finding,) = (await inside.audit("mirror")).findings
            assert finding.words == "topic 'mirror': it is a shadow of topic 'orders', which does not exist"

        await stored.inspect(work)

    play(scenario)


def test_a_cursor_of_a_shadow_is_compared_with_the_end_of_its_source() -> None:
    async def work(inside: Inspection) -> None:
        items = await inside.segments()
        end = await last_entry(inside, items[-1])
        base = parse_segment_name(items[-1].key).base_offset
        mirror = await inside.metadata.get(topic_key("mirror"))
        assert mirror is not None
        key = replicators_prefix(Topic.decode(mirror).id) + "0"

        async def words(value: bytes) -> list[str]:
            await inside.metadata.txn([], [Put(key, value)])
            return [each.words for each in (await inside.audit("mirror")).findings]

        def cursor(entry: int) -> bytes:
            return SubscriberRecord("0", Position(CommitPoint(base, entry, 0, base))).encode()

        assert await words(cursor(end + 1)) == []
        assert await words(cursor(end + 2)) == [
            f"topic 'mirror': partition 0: its cursor is at entry {end + 2}, and its source ends at entry {end}"
        ]
        (unreadable,) = await words(b"\xc0")
        assert "partition 0: its cursor cannot be read" in unreadable

    inspected(work)


def test_the_last_look_is_later_than_a_writer_waits_for_a_bookie() -> None:  # 2
    assert LATE_SECONDS > CALL_SECONDS


def test_a_missing_topic_is_an_error() -> None:
    async def work(inside: Inspection) -> None:
        with pytest.raises(TopicMissing, match="there is no topic 'nowhere'"):
            await inside.audit("nowhere")

    inspected(work, 1)
