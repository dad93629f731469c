"""What a source's broker tells those of its shadows: how soon, at what cost, and what becomes of it in trouble."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from gnomon.broker.native.errors import ERRORS, SERVICE, InvalidCall
from gnomon.broker.shadow.cast import SHADOW_SOURCE
from gnomon.broker.shadow.partition import ShadowPartition
from gnomon.broker.shadow.replicator import TRAILING_SECONDS
from gnomon.broker.shadow.stats import ReplicationStats
from gnomon.broker.shadow.window import WINDOW_BYTES
from gnomon.runtime.rpc_client import RpcClient
from gnomon.runtime.settings import ShadowReplicationSettings
from gnomon.testing.broker_cluster import NATIVE_PORT, BrokerCluster
from gnomon.testing.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.testing.log_checker import LogHistory
from gnomon.testing.log_clients import SimulatedConsumer, SimulatedProducer
from gnomon.testing.simulation import Simulation, simulate
from gnomon.testing.storm_clients import create_topic
from gnomon.testing.wire_client import KafkaCluster
from gnomon.wire.kafka.records import Record, build_batch

LEASE_SECONDS = 3.0


class Shadowed:
    """A cluster with the topic `orders` and its shadow `copy`, of one partition, on distinct brokers."""

    def __init__(self, simulation: Simulation, brokers: int, **settings: int) -> None:
        self.simulation = simulation
        self.clock = simulation.clock
        replication = ShadowReplicationSettings(**{"flush_seconds": 1.0, **settings})
        self.cluster = BrokerCluster(simulation, brokers, lease_seconds=LEASE_SECONDS, replication=replication)

    async def start(self, **configs: str) -> None:
        await self.cluster.start()

        async def cast(client: KafkaCluster) -> None:
            await create_topic(client, "orders", {"retention.ms": "-1", **configs})
            await create_topic(client, "copy", {SHADOW_SOURCE: "orders"})

        await self.cluster.run_client("admin", cast)
        await self.clock.sleep(0.1)
        assert self.owner != self.reader

    @property
    def owner(self) -> int:
        return self.cluster.leader("orders", 0)

    @property
    def reader(self) -> int:
        return self.cluster.leader("copy", 0)

    @property
    def shadow(self) -> ShadowPartition:
        broker = self.cluster.serving[self.reader].broker
        return broker.partitions.use_shadow(broker.find_topic("copy"), 0)

    def stats(self) -> ReplicationStats:
        broker = self.cluster.serving[self.owner].broker
        stats = broker.replication.stats(broker.find_topic("copy"), 0)
        assert stats is not None
        return stats

    def reads(self) -> int:
        """How often the shadow's broker has asked a bookie for entries."""
        return self.cluster.serving[self.reader].broker.entries.reads

    async def produce(self, name: str, count: int, pause: float = 0.01, value_bytes: int = 0) -> list[float]:
        """Produces one record at a time; gives the seconds that each took."""
        took: list[float] = []

        async def work(client: KafkaCluster) -> None:
            producer = SimulatedProducer(client, "orders", {0: LogHistory()}, name=name)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(producer.run)
                for number in range(count):
                    began = self.clock.monotonic()
                    producer.send(f"{name}/{number}/".encode().ljust(value_bytes, b"x"), 0)
                    await producer.flush()
                    took.append(self.clock.monotonic() - began)
                    await self.clock.sleep(pause)
                nursery.cancel_scope.cancel()

        await self.cluster.run_client(name, work)
        return took

    async def read_all(self, topic: str) -> list[tuple[int, bytes]]:
        async def work(client: KafkaCluster) -> list[tuple[int, bytes]]:
            return await SimulatedConsumer(client, topic, 0, LogHistory(), name=f"final {topic}").read_all()

        return await self.cluster.run_client(f"final-{topic}-{self.clock.monotonic()}", work)

    async def trickle(self, name: str, seconds: float) -> list[float]:
        """Produces a record every 10 ms; gives the seconds that each took."""
        return await self.produce(name, round(seconds * 100), pause=0.01)

    async def caught_up(self, end: int, seconds: float) -> None:
        """The shadow shows everything below `end` within so many seconds, and is told no more then."""
        log = await self.shadow.opened()
        assert log is not None
        until = self.clock.monotonic() + seconds
        while log.high_watermark < end or self.stats().backlog_entries:
            assert self.clock.monotonic() < until, f"the shadow is at {log.high_watermark}, {self.stats()}"
            await self.clock.sleep(0.005)


def run(seed: int, scenario: Callable[[Shadowed], Awaitable[None]], brokers: int = 2, **settings: int) -> None:
    simulate(seed, lambda simulation: scenario(Shadowed(simulation, brokers, **settings)))


def test_a_shadow_shows_a_record_within_milliseconds_and_reads_no_bookie_for_it() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start()
        await shadowed.produce("first", 1)
        log = await shadowed.shadow.opened()
        assert log is not None
        await shadowed.clock.sleep(2)
        reads = shadowed.reads()
        for number in range(20):
            await shadowed.produce(f"p-{number}", 1, pause=0)
            acknowledged_at = shadowed.clock.monotonic()
            while log.high_watermark < number + 2:
                await shadowed.clock.sleep(0.0005)
            assert shadowed.clock.monotonic() - acknowledged_at < TRAILING_SECONDS + 0.004
        await shadowed.produce("many", 200, pause=0.0005)
        await shadowed.clock.sleep(0.2)
        assert await shadowed.read_all("copy") == await shadowed.read_all("orders")
        assert shadowed.reads() == reads
        stats = shadowed.stats()
        assert stats.connected
        assert (stats.backlog_entries, stats.last_entry, stats.refused) == (0, 220, 0)
        assert stats.records_per_second > 1

    run(1, scenario)


def test_no_produce_on_the_source_waits_for_a_shadow_that_is_slow_paused_or_gone() -> None:
    slowest: dict[str, float] = {}

    async def scenario(shadowed: Shadowed, trouble: str) -> None:
        await shadowed.start()
        await shadowed.produce("first", 1)
        await shadowed.shadow.opened()
        owner, reader, network = shadowed.owner, shadowed.reader, shadowed.simulation.network
        if trouble == "paused":
            network.clog(f"broker-{owner}", f"broker-{reader}", 4)
            network.clog(f"broker-{reader}", f"broker-{owner}", 4)
        elif trouble == "cut off":
            network.block(f"broker-{owner}", f"broker-{reader}")
        elif trouble == "killed":
            shadowed.cluster.brokers[reader].kill()
        took = await shadowed.produce("during", 300, pause=0.002, value_bytes=20_000)
        slowest[trouble] = max(took[1:])  # the client looks for the leader in the first
        if trouble in ("paused", "cut off"):
            assert shadowed.stats().backlog_bytes > WINDOW_BYTES
            (link,) = shadowed.cluster.serving[owner].broker.replication.links()
            assert link.room_bytes == 0
        network.heal()
        if trouble != "killed":
            await shadowed.caught_up(301, 10)
            assert await shadowed.read_all("copy") == await shadowed.read_all("orders")

    for trouble in ("none", "paused", "cut off", "killed"):
        run(2, lambda shadowed, trouble=trouble: scenario(shadowed, trouble))  # type: ignore[misc]
    assert max(slowest.values()) <= slowest["none"] + 0.005, slowest


def test_a_shadow_is_told_again_after_each_reset_of_its_connection() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start()
        await shadowed.produce("first", 1)
        await shadowed.shadow.opened()

        async def reset_often() -> None:
            while True:
                await shadowed.clock.sleep(0.3)
                for stream in shadowed.simulation.network.streams():
                    if {f"broker-{shadowed.owner}", f"broker-{shadowed.reader}"} == {
                        side.process.machine_name for side in stream
                    }:
                        shadowed.simulation.network.reset(stream)

        shadowed.simulation.start_soon(reset_often)
        await shadowed.trickle("during", 3)
        await shadowed.caught_up(301, 3)
        assert await shadowed.read_all("copy") == await shadowed.read_all("orders")
        assert shadowed.stats().refused == 0

    run(3, scenario)


def test_a_new_owner_tells_on_from_the_stored_cursor_in_mid_ledger_also_where_the_shadow_moves() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start(**{"segment.bytes": "20000"})
        await shadowed.produce("first", 1)
        await shadowed.shadow.opened()
        await shadowed.trickle("before", 3)
        await shadowed.clock.sleep(2)
        told = shadowed.stats()
        assert (told.backlog_entries, told.connected) == (0, True)
        before, victim = shadowed.owner, shadowed.owner
        shadowed.cluster.brokers[victim].kill()
        await shadowed.cluster.settled(*(number for number in shadowed.cluster.brokers if number != victim))
        await shadowed.trickle("after", 1)
        assert shadowed.owner != before
        await shadowed.caught_up(401, 3)
        stats = shadowed.stats()
        assert stats.refused == 0
        assert stats.told_entries <= 100 + 10, "what was heard before is not told again"
        shadowed.cluster.start_broker(victim)
        await shadowed.cluster.settled(*shadowed.cluster.brokers)
        await shadowed.trickle("back", 1)
        await shadowed.caught_up(501, 3)
        assert await shadowed.read_all("copy") == await shadowed.read_all("orders")

    run(4, scenario, brokers=3)


def test_a_shadow_that_goes_to_another_broker_is_told_there() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start()
        await shadowed.produce("first", 1)
        await shadowed.shadow.opened()
        victim, owner = shadowed.reader, shadowed.owner
        shadowed.cluster.brokers[victim].kill()
        await shadowed.cluster.settled(*(number for number in shadowed.cluster.brokers if number != victim))
        assert (shadowed.owner, shadowed.reader != victim) == (owner, True)
        await shadowed.trickle("during", 1)
        await shadowed.caught_up(101, 3)
        assert shadowed.stats().connected

    run(5, scenario, brokers=3)


def test_too_large_a_backlog_is_left_out_where_that_is_set_and_the_shadow_loses_nothing_by_it() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start()
        await shadowed.produce("first", 1)
        await shadowed.shadow.opened()
        shadowed.simulation.network.block(f"broker-{shadowed.owner}", f"broker-{shadowed.reader}")
        await shadowed.trickle("during", 9)
        stats = shadowed.stats()
        assert stats.backlog_entries <= 50
        assert stats.resets > 1
        shadowed.simulation.network.heal()
        await shadowed.caught_up(901, 10)
        assert await shadowed.read_all("copy") == await shadowed.read_all("orders")

    run(6, scenario, shadow_replicator_auto_reset_backlog_entries=50)


def test_an_entry_that_is_too_large_is_told_by_its_id_and_read_from_a_bookie() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start()
        await shadowed.produce("first", 1)
        log = await shadowed.shadow.opened()
        assert log is not None
        await shadowed.clock.sleep(2)
        await shadowed.trickle("small", 0.5)
        await shadowed.clock.sleep(0.1)
        reads = shadowed.reads()
        await shadowed.produce("large", 3, value_bytes=3000)
        await shadowed.clock.sleep(0.1)
        assert log.high_watermark == 54
        assert reads < shadowed.reads() <= reads + 3
        assert shadowed.stats().backlog_entries == 0

    run(7, scenario, inline_bytes_max=2000)


def test_nobody_reads_a_shadow_that_nobody_uses() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start()
        await shadowed.trickle("unread", 1)
        await shadowed.clock.sleep(0.2)
        broker = shadowed.cluster.serving[shadowed.reader].broker
        assert broker.partitions.open_shadow(broker.find_topic("copy").id, 0) is None
        assert (shadowed.stats().backlog_entries, shadowed.reads()) == (0, 0)

    run(8, scenario)


def test_the_cursor_goes_with_its_shadow() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start()
        await shadowed.trickle("some", 2)
        broker = shadowed.cluster.serving[shadowed.owner].broker
        await shadowed.clock.sleep(2)
        found = await broker.metadata.range("replicators/")
        assert [item.key.rpartition("/")[2] for item in found.items] == ["0"]
        await broker.topic_admin.delete(broker.find_topic("copy"))
        await shadowed.clock.sleep(5)
        assert (await broker.metadata.range("replicators/")).items == ()
        await shadowed.trickle("more", 1)
        assert broker.replication.links() == []

    run(9, scenario)


SENSELESS: list[list[object]] = [
    [],
    ["one", []],
    [1, "nothing"],
    [1, [[]]],
    [1, [["copy", 0, [], []]]],
    [1, [[[b"short"], 0, [], []]]],
    [1, [[[bytes(16)], -1, [], []]]],
    [1, [[[bytes(16)], 0, [[0, 1, 0, 0]], []]]],
    [1, [[[bytes(16)], 0, [[0, 1, 5, 4, 0, 0, 0, 4]], []]]],
    [1, [[[bytes(16)], 0, [[0, 1, 0, 1 << 63, 0, 0, 0, 4]], []]]],
    [1, [[[bytes(16)], 0, [], ["text"]]]],
]


def test_what_makes_no_sense_ends_the_stream_with_a_reason_and_stops_nobody() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start()

        async def lie(client: KafkaCluster) -> None:
            async with trio.open_nursery() as nursery:
                rpc = RpcClient(client.world, f"broker-{shadowed.reader}", NATIVE_PORT, SERVICE, ERRORS)
                nursery.start_soon(rpc.run)
                for args in SENSELESS:
                    async with rpc.stream("replicate") as stream:
                        assert await anext(stream) == [0, []]
                        rpc.tell("told", *args)
                        with pytest.raises(InvalidCall, match="makes no sense"):
                            await anext(stream)
                with pytest.raises(InvalidCall, match="open it"):
                    await rpc.call("replicate")
                with pytest.raises(InvalidCall, match="first"):
                    await rpc.call("told", 1, [])
                nursery.cancel_scope.cancel()

        await shadowed.cluster.run_client("liar", lie)

    run(10, scenario)


def test_made_up_and_stale_ids_are_refused_by_name_and_change_nothing() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start()
        await shadowed.trickle("some", 0.1)
        log = await shadowed.shadow.opened()
        assert log is not None
        await shadowed.clock.sleep(2)
        copy = shadowed.cluster.serving[shadowed.owner].broker.find_topic("copy").id.bytes
        session = shadowed.shadow.segments[-1].ledger.record.session

        def told(entry: int, confirmed: int, *, said: int = session, segment: int = 0) -> list[object]:
            return [[copy], 0, [[segment, said, entry, entry, 2 * entry, 2 * entry + 1, 10, confirmed]], []]

        async def lie(client: KafkaCluster) -> None:
            async with trio.open_nursery() as nursery:
                rpc = RpcClient(client.world, f"broker-{shadowed.reader}", NATIVE_PORT, SERVICE, ERRORS)
                nursery.start_soon(rpc.run)
                async with rpc.stream("replicate") as stream:
                    await anext(stream)
                    for frame, (item, why) in enumerate(
                        [
                            (told(20, 12), "not confirmed"),
                            (told(12, 12, said=session - 1), "is over"),
                            ([[bytes(16)], 0, [], []], "not heard of"),
                            ([[copy], 7, [], []], "not heard of"),
                        ],
                        1,
                    ):
                        rpc.tell("told", frame, [item])
                        number, ((_, _, _, text),) = await anext(stream)
                        assert number == frame
                        assert why in text
                    rpc.tell("told", 9, [told(1000, 1000), told(0, 0, segment=5000)])
                    assert await anext(stream) == [9, []], "whether there is such an entry its bookies are asked"
                nursery.cancel_scope.cancel()

        await shadowed.cluster.run_client("liar", lie)
        await shadowed.clock.sleep(1)
        assert log.high_watermark == 10
        assert shadowed.shadow.segments[-1].ledger.last_add_confirmed == 9
        await shadowed.trickle("more", 0.1)
        await shadowed.caught_up(20, 1)
        assert await shadowed.read_all("copy") == await shadowed.read_all("orders")

    run(11, scenario)


def test_a_shadow_on_its_source_s_own_broker_is_told_within_milliseconds() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client, writer = await broker.connect(), await broker.connect()
        await writer.create_topic("orders")
        await client.create_topic("copy", -1, {SHADOW_SOURCE: "orders"})
        node = broker.serving.broker
        await client.fetch("copy", 0)
        await broker.simulation.clock.sleep(3)
        shadow = node.partitions.open_shadow(node.find_topic("copy").id, 0)
        assert shadow is not None
        assert shadow.log is not None
        for number in range(1, 20):
            await writer.produce("orders", build_batch([Record(value=b"a")], base_timestamp=1))
            await broker.simulation.clock.sleep(TRAILING_SECONDS)
            assert shadow.log.high_watermark == number
        stats = node.replication.stats(node.find_topic("copy"), 0)
        assert stats is not None
        assert (stats.connected, stats.backlog_entries, stats.last_entry, stats.told_entries) == (True, 0, 18, 19)

    simulate_broker(scenario)


def test_what_a_shadow_had_not_heard_of_an_owner_that_dies_the_next_one_tells() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start()
        await shadowed.produce("first", 1)
        await shadowed.shadow.opened()
        await shadowed.trickle("heard", 0.5)
        await shadowed.clock.sleep(3)
        heard = shadowed.stats().told_entries
        victim = shadowed.owner
        shadowed.simulation.network.block(f"broker-{victim}", f"broker-{shadowed.reader}")
        await shadowed.trickle("unheard", 1)
        assert shadowed.stats().backlog_entries == 100
        shadowed.cluster.brokers[victim].kill()
        await shadowed.cluster.settled(*(number for number in shadowed.cluster.brokers if number != victim))
        await shadowed.produce("last", 1)
        await shadowed.clock.sleep(1)
        stats = shadowed.stats()
        assert (heard, stats.told_entries, stats.backlog_entries) == (51, 101, 0)

    run(12, scenario, brokers=3)
