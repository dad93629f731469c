"""Shadows on other brokers than their source: placement, the tail, and brokers that die."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
import trio

from gnomon.bookie.ledgers.catalog import Bookies, EntryId, LocalViews, SessionId, read_from_memory
from gnomon.broker.partition.chain import Chain
from gnomon.broker.partition.log import PartitionLog, PartitionSettings
from gnomon.broker.replication.source_opener import OPENING_MAX
from gnomon.broker.shadow.image import RefusedEntry, ReplicatedEntry
from gnomon.broker.shadow.partition import ShadowPartition
from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.log.entry import Offset
from gnomon.log.segment import Segment
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import KAFKA_PORT, BrokerCluster
from gnomon.testing.storms.kafka.log_checker import LogHistory, check_log
from gnomon.testing.storms.kafka.log_clients import SimulatedConsumer, SimulatedProducer
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import METADATA_VERSION, WireCluster, WireConnection
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.messages.cluster import MetadataRequest, MetadataRequestTopic, MetadataResponse

LEASE_SECONDS = 3.0
TAIL_SECONDS = 1.0
"""A shadow shows a record at most this long after its acknowledgement."""


async def produce(client: WireCluster, history: LogHistory, name: str, count: int, pause: float = 0.01) -> None:
    producer = SimulatedProducer(client, "orders", {0: history}, name=name)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(producer.run)
        for number in range(count):
            producer.send(f"{name}/{number}".encode(), 0)
            await client.world.clock.sleep(pause)
        await producer.flush()
        nursery.cancel_scope.cancel()


async def consume(client: WireCluster, history: LogHistory, topic: str = "copy") -> None:
    await SimulatedConsumer(client, topic, 0, history, name=f"reader of {topic}").run()


async def read_all(client: WireCluster, topic: str) -> list[tuple[int, bytes]]:
    return await SimulatedConsumer(client, topic, 0, LogHistory(), name="final").read_all()


async def cast(client: WireCluster, *shadows: str, segment_bytes: int = 1 << 20) -> None:
    await create_topic(client, "orders", {"segment.bytes": str(segment_bytes), "retention.ms": "-1"})
    for shadow in shadows or ("copy",):
        await create_topic(client, shadow, {SHADOW_SOURCE: "orders"})


def shadow_at(cluster: BrokerCluster, number: int) -> ShadowPartition:
    broker = cluster.serving[number].broker
    topic = broker.topics.image.get("copy")
    assert topic is not None
    return broker.partitions.use_shadow(topic, 0)


async def shown(partition: ShadowPartition) -> list[bytes]:
    """All batches up to the current high watermark; fails if one is not readable."""
    log = await partition.opened()
    assert log is not None
    found: list[bytes] = []
    position, end = log.start_offset, log.high_watermark

    def read() -> list[bytes]:
        with LocalViews() as views:
            chunks, _, code = partition.read(position, 1 << 20, True, views)
            assert code == 0
            return [bytes(chunk) for chunk in chunks]

    while position < end:
        batches = await read_from_memory(read)
        assert batches, f"nothing is readable at {position}, below the high watermark {end}"
        found += batches
        position = Offset(parse_batch(memoryview(batches[-1])).next_offset)
    return found


async def leaders_told(client: WireCluster, number: int, topic: str) -> list[int]:
    connection = await WireConnection.open(client.world, f"broker-{number}", KAFKA_PORT)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    answer = await connection.request(request, METADATA_VERSION, MetadataResponse)
    return [item.leader_id for item in answer.topics[0].partitions]


def test_a_source_and_its_shadows_are_led_by_distinct_brokers_also_after_one_has_died() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 4, lease_seconds=LEASE_SECONDS)
        await cluster.start()

        async def work(client: WireCluster) -> None:
            await cast(client, "one", "two")
            for number in cluster.brokers:
                await cluster.serving[number].broker.records.current("two")
            await cluster.serving[1].broker.topic_admin.grow("orders", 20)
            victim = cluster.leader("orders", 0)
            for dead in (None, victim):
                if dead is not None:
                    cluster.brokers[dead].kill()
                living = [number for number in cluster.brokers if number != dead]
                await cluster.settled(*living)
                await client.world.clock.sleep(0.1)
                told = {
                    tuple(map(tuple, [await leaders_told(client, number, topic) for topic in topics]))
                    for number in living
                }
                assert len(told) == 1
                for leaders in zip(*told.pop(), strict=True):
                    assert len(set(leaders)) == 3
                    assert dead not in leaders

        topics = ("orders", "one", "two")
        await cluster.run_client("client", work)

    simulate(1, scenario)


def test_a_shadow_of_an_idle_source_shows_a_record_within_the_bound_without_more_writes_to_bookies(
    changes: Counter[str],
) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS)
        await cluster.start()
        history = LogHistory()
        await cluster.run_client("admin", cast)
        assert cluster.leader("orders", 0) != cluster.leader("copy", 0)
        await cluster.run_client("first", lambda client: produce(client, history, "first", 1))
        await simulation.clock.sleep(TAIL_SECONDS)
        shadow = shadow_at(cluster, cluster.leader("copy", 0))
        with cluster.counting[cluster.leader("copy", 0)].measure() as cost:
            log = await shadow.opened()
        assert (cost.reads, cost.writes) == (1, 0)
        assert log is not None
        assert log.high_watermark == 1
        cluster.start_client("consumer", lambda client: consume(client, history))
        await simulation.clock.sleep(5)
        changes.clear()
        slowest = 0.0
        for number in range(10):
            before = log.high_watermark
            await cluster.run_client(
                f"producer-{number}", partial(produce, history=history, name=f"p-{number}", count=1)
            )
            acknowledged_at = simulation.clock.monotonic()
            while log.high_watermark == before:
                await simulation.clock.sleep(0.001)
            slowest = max(slowest, simulation.clock.monotonic() - acknowledged_at)
            await simulation.clock.sleep(2)
        print(f"visible at the shadow at most {slowest * 1000:.0f} ms after the acknowledgement")
        assert slowest <= TAIL_SECONDS
        assert changes == Counter(add=30), "ten batches on three bookies each, and nothing else"
        with cluster.counting[cluster.leader("copy", 0)].measure() as cost:
            await shown(shadow)
        assert (cost.reads, cost.writes) == (0, 0)
        history.final = await cluster.run_client("final", partial(read_all, topic="copy"))
        assert check_log(history) == []

    simulate(2, scenario)


def test_the_shadow_is_always_a_prefix_of_its_source_while_the_source_rolls_and_changes_its_owner() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, lease_seconds=LEASE_SECONDS)
        await cluster.start()
        history = LogHistory()
        await cluster.run_client("admin", partial(cast, segment_bytes=2000))
        await simulation.clock.sleep(0.1)  # until all brokers know the topics
        reader, victim = cluster.leader("copy", 0), cluster.leader("orders", 0)
        await cluster.serving[reader].broker.records.current("copy")
        producer = cluster.start_client("producer", lambda client: produce(client, history, "p", 1000))
        cluster.start_client("consumer", lambda client: consume(client, history))
        seen: list[list[bytes]] = []

        async def look() -> None:
            while True:
                partition = shadow_at(cluster, reader)
                batches = await shown(partition)
                assert not seen or batches[: len(seen[-1])] == seen[-1], "what was shown has changed"
                seen[:] = [batches]
                await simulation.clock.sleep(0.05)

        simulation.start_soon(look)
        await simulation.clock.sleep(3)
        cluster.brokers[victim].kill()
        history_before = len(seen[-1])
        assert history_before > 50
        await simulation.clock.sleep(LEASE_SECONDS / 2)
        assert len(await shown(shadow_at(cluster, reader))) >= history_before, "the history is served meanwhile"
        await cluster.settled(*(number for number in cluster.brokers if number != victim))
        reader = cluster.leader("copy", 0)
        seen.clear()
        assert producer.process is not None
        await producer.process.ended.wait()
        await simulation.clock.sleep(1)
        history.final = await cluster.run_client("final", partial(read_all, topic="orders"))
        assert await cluster.run_client("final copy", partial(read_all, topic="copy")) == history.final
        assert check_log(history) == []
        assert len(history.final) == 1000
        epochs = [
            parse_batch(memoryview(one)).partition_leader_epoch for one in await shown(shadow_at(cluster, reader))
        ]
        assert epochs == sorted(epochs)
        assert set(epochs) == {0, 1}
        assert len(shadow_at(cluster, reader).segments) > 5

    simulate(3, scenario)


def test_a_shadow_whose_broker_dies_continues_elsewhere_at_the_offsets_of_its_readers() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, lease_seconds=LEASE_SECONDS)
        await cluster.start()
        history = LogHistory()
        await cluster.run_client("admin", partial(cast, segment_bytes=2000))
        producer = cluster.start_client("producer", lambda client: produce(client, history, "p", 1000))
        cluster.start_client("consumer", lambda client: consume(client, history))
        await simulation.clock.sleep(3)
        victim = cluster.leader("copy", 0)
        cluster.brokers[victim].kill()
        await cluster.settled(*(number for number in cluster.brokers if number != victim))
        await simulation.clock.sleep(1)
        cluster.start_broker(victim)
        await cluster.settled(*cluster.brokers)
        assert cluster.leader("copy", 0) == victim
        assert producer.process is not None
        await producer.process.ended.wait()
        await simulation.clock.sleep(2)
        history.final = await cluster.run_client("final", partial(read_all, topic="orders"))
        assert len(history.final) == 1000
        assert check_log(history) == []
        assert history.polls["reader of copy"][-1] == history.final[-1]

    simulate(4, scenario)


def test_a_shadow_that_opens_while_no_bookie_answers_shows_nothing_wrong_and_catches_up() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS)
        await cluster.start()
        history = LogHistory()
        await cluster.run_client("admin", cast)
        await cluster.run_client("producer", lambda client: produce(client, history, "p", 20))
        reader = cluster.leader("copy", 0)
        for bookie in cluster.ledgers.bookies.values():
            simulation.network.block(f"broker-{reader}", bookie.name)
        log = await shadow_at(cluster, reader).opened()
        assert log is not None
        assert log.high_watermark == 0
        await simulation.clock.sleep(10)
        assert log.next_offset > 20, "a reader at the end waits"
        simulation.network.heal()
        cluster.start_client("consumer", lambda client: consume(client, history))
        await simulation.clock.sleep(10)
        assert (log.high_watermark, log.next_offset) == (20, 20)
        history.final = await cluster.run_client("final", partial(read_all, topic="copy"))
        assert check_log(history) == []

    simulate(5, scenario)


def test_replicated_entries_are_shown_without_a_bookie_and_false_ones_are_refused() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS)
        await cluster.start()
        history = LogHistory()
        await cluster.run_client("admin", cast)
        await cluster.run_client("first", partial(produce, history=history, name="first", count=3))
        owner, reader = cluster.leader("orders", 0), cluster.leader("copy", 0)
        shadow = shadow_at(cluster, reader)
        log = await shadow.opened()
        await simulation.clock.sleep(5)
        assert log is not None
        for bookie in cluster.ledgers.bookies.values():
            simulation.network.block(f"broker-{reader}", bookie.name)
        simulation.network.block(f"broker-{owner}", f"broker-{reader}")
        ((_, _, source),) = cluster.serving[owner].broker.partitions.with_own_log()
        ledger = source.segments[-1].ledger
        keep = ledger.keep
        assert keep is not None
        stored: list[tuple[EntryId, bytes]] = []

        def keep_and_note(entry: EntryId, value: bytes) -> None:
            stored.append((entry, value))
            keep(entry, value)

        ledger.keep = keep_and_note
        for name in ("second", "third"):
            await cluster.run_client(name, partial(produce, history=history, name=name, count=1))
        assert len(stored) == 2
        base = source.segments[-1].base_offset
        for number, (entry, value) in enumerate(stored, 4):
            shadow.replicated(ReplicatedEntry(base, ledger.session, entry, entry, value))
            assert log.high_watermark == number
            assert sum(parse_batch(memoryview(batch)).records_count for batch in await shown(shadow)) == number
        entry, value = stored[-1]
        refused = [
            ReplicatedEntry(base, ledger.session, entry, EntryId(entry - 1), value),
            ReplicatedEntry(base, SessionId(ledger.session - 1), entry, entry, value),
            ReplicatedEntry(base, ledger.session, EntryId(entry + 1), EntryId(entry + 1), value),
            ReplicatedEntry(base, ledger.session, entry, entry, value[:-1] + bytes([value[-1] ^ 1])),
            ReplicatedEntry(base, ledger.session, entry, entry, b"short"),
        ]
        for told in refused:
            with pytest.raises(RefusedEntry):
                shadow.replicated(told)
        shadow.replicated(ReplicatedEntry(Offset(base + 1000), ledger.session, EntryId(0), EntryId(0)))
        assert log.high_watermark == 5
        assert ledger.last_add_confirmed == shadow.segments[-1].ledger.last_add_confirmed

    simulate(6, scenario)


@pytest.mark.parametrize("brokers", [2, 3])
def test_records_acknowledged_just_before_the_sources_owner_dies_are_shown_although_the_source_is_unused(
    brokers: int,
) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, brokers, lease_seconds=LEASE_SECONDS)
        await cluster.start()
        history = LogHistory()
        await cluster.run_client("admin", cast)
        cluster.start_client("consumer", lambda client: consume(client, history))
        await cluster.run_client("first", partial(produce, history=history, name="first", count=20))
        await simulation.clock.sleep(5)
        owner, reader = cluster.leader("orders", 0), cluster.leader("copy", 0)
        assert owner != reader
        simulation.network.block(f"broker-{owner}", f"broker-{reader}")

        async def last(client: WireCluster) -> None:
            await produce(client, history, "last", 3, pause=0.0)
            cluster.brokers[owner].kill()

        await cluster.run_client("last", last)
        await simulation.clock.sleep(0.1)
        polls = history.polls["reader of copy"]
        assert len(polls) == 20, "somebody knows that they are confirmed"
        await simulation.clock.sleep(LEASE_SECONDS + 1)
        assert [value for _, value in polls[20:]] == [b"last/0", b"last/1", b"last/2"]
        history.final = await cluster.run_client("final", partial(read_all, topic="orders"))
        assert check_log(history) == []

    simulate(7, scenario)


def test_a_broker_that_starts_opens_the_written_sources_that_have_shadows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opening: Counter[Bookies] = Counter()
    most = 0
    original = Chain.open

    async def counted(chain: Chain, settings: PartitionSettings, now_ms: int) -> tuple[PartitionLog, list[Segment]]:
        nonlocal most
        opening[chain._bookies] += 1
        most = max(most, opening[chain._bookies])
        try:
            return await original(chain, settings, now_ms)
        finally:
            opening[chain._bookies] -= 1

    monkeypatch.setattr(Chain, "open", counted)

    async def scenario(simulation: Simulation) -> None:
        written = range(0, 60, 2)
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS)
        await cluster.start()

        async def work(client: WireCluster) -> None:
            await cast(client)
            await create_topic(client, "alone", {})
            await cluster.serving[1].broker.topic_admin.grow("orders", 60)
            for topic, partition in [*(("orders", number) for number in written), ("alone", 0)]:
                producer = SimulatedProducer(client, topic, {partition: LogHistory()}, name=topic)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(producer.run)
                    producer.send(b"value", partition)
                    await producer.flush()
                    nursery.cancel_scope.cancel()

        await cluster.run_client("client", work)
        for machine in cluster.brokers.values():
            machine.kill()
        await simulation.clock.sleep(LEASE_SECONDS)
        for bookie in cluster.ledgers.bookies.values():
            simulation.network.block("broker-1", bookie.name)
        for number in cluster.brokers:
            cluster.start_broker(number)
        await cluster.settled(*cluster.brokers)
        assert cluster.start_costs[1].writes == 1, "its registration: it serves before it opens anything"
        assert cluster.serving[1].broker.partitions.with_own_log() == []
        await simulation.clock.sleep(10)
        assert not any(used.partition.log for used in cluster.serving[1].broker.partitions.with_own_log())
        simulation.network.heal()
        await simulation.clock.sleep(10)
        opened = set()
        for serving in cluster.serving.values():
            orders = serving.broker.topics.find("orders")
            used = serving.broker.partitions.with_own_log()
            assert all(topic_id == orders.id and partition.log for topic_id, _, partition in used)
            opened |= {number for _, number, _ in used}
        assert opened == set(written)
        assert most == OPENING_MAX

    simulate(8, scenario)
