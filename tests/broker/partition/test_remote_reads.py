"""A partition whose bookies are all on other machines (numbers: invariants of `bookie.entry_cache`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
import trio
from turns import at_once

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ledgers.catalog import EntryCache, LocalViews, Quorum, read_from_memory
from gnomon.broker.partition.appends import Produced
from gnomon.broker.partition.chain import Chain
from gnomon.broker.partition.leader_policy import LeaderPolicy
from gnomon.broker.partition.log import PartitionSettings
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.producers import AwaitedBatches
from gnomon.broker.partition.unpacking.batch_thread import BatchThread
from gnomon.log.chains import PARTITIONS, all_segments, ledgers_prefix, stored_bytes
from gnomon.log.entry import LeaderEpoch, Offset
from gnomon.log.topic import topic_key
from gnomon.metadata.client import Put
from gnomon.runtime.logs import SilentLogger
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, build_batch, iterate_records

TOPIC = UUID(int=7)
KEY = topic_key("orders")
COPIES = Quorum(3, 3, 2)
STRIPES = Quorum(3, 2, 2)
ALONE = Quorum(1, 1, 1)
TINY = 1
AMPLE = 1 << 24

Work = Callable[["Leader"], Awaitable[None]]

SOLE_LEADER = LeaderPolicy(tells_epochs=True, confirms_leadership=False)


class Append:
    """The outcome of one append."""

    def __init__(self) -> None:
        self.outcomes: list[Produced] = []
        self.settled = trio.Event()

    def appended(self, _slot: Any, outcome: Produced) -> None:
        self.outcomes.append(outcome)
        self.settled.set()


class Leader:
    """A process that leads the one partition; `entries` is its cache."""

    def __init__(self, client: LedgerClient, nursery: trio.Nursery, quorum: Quorum, cache_bytes: int) -> None:
        self.client = client
        self.entries = EntryCache(client.bookies, cache_bytes)
        self._nursery = nursery
        self._quorum = quorum

    async def partition(self, **settings: Any) -> Partition:
        """The partition, opened."""
        metadata = self.client.metadata
        found = await metadata.get(KEY)
        if found is None:
            await metadata.txn([], [Put(KEY, b"topic")])
            found = await metadata.get(KEY)
        assert found is not None
        names = ledgers_prefix(TOPIC, 0)
        chain = Chain(metadata, self.client.bookies, self.entries, names, KEY, found.create_revision, self._quorum)
        obeyed = PartitionSettings(**{"retention_ms": -1, "timestamp_after_ms_max": 1 << 60, **settings})
        clock = self.client.world.clock
        batch_thread = BatchThread(self.client.world)
        told: Any = (Partition.wake_waiters, lambda: None, SilentLogger())
        partition = Partition(chain, obeyed, clock, self._nursery, *told, AwaitedBatches(), SOLE_LEADER, batch_thread)
        while await partition.opened() is None:
            await clock.sleep(1)
        return partition

    @staticmethod
    async def append(partition: Partition, *values: str, at: int = 1000, **producer: int) -> Produced:
        """Appends a batch and waits for its outcome."""
        answer = Append()
        records = [Record(offset_delta=number, key=None, value=value.encode()) for number, value in enumerate(values)]
        given = {"producer_epoch": 0, **producer} if producer else {}
        partition.append(memoryview(build_batch(records, base_timestamp=at, **given)), answer, 0)
        with trio.fail_after(60):
            await answer.settled.wait()
        return answer.outcomes[0]

    @classmethod
    async def fill(cls, partition: Partition, count: int, first: int = 0, **options: int) -> None:
        """Appends batches of one record: its number, padded to 100 bytes, at 1000 times its number."""
        for number in range(first, first + count):
            assert (await cls.append(partition, f"{number:0100}", at=1000 * number)).error == ErrorCode.NONE

    @staticmethod
    async def numbers(partition: Partition, first: int = 0, bytes_max: int = 1 << 20) -> list[int]:
        """The numbers of the readable records from an offset on, as `fill` wrote them."""
        log = partition.log
        assert log is not None
        found: list[int] = []
        position = Offset(first)

        def read() -> tuple[list[bytes], ErrorCode]:
            with LocalViews() as views:
                chunks, _, code = partition.read(position, bytes_max, True, views)
                return [bytes(chunk) for chunk in chunks], code

        while position < log.high_watermark:
            chunks, code = await read_from_memory(read)
            assert code == ErrorCode.NONE, f"at {position}"
            assert chunks, f"nothing could be read at {position}"
            for chunk in chunks:
                found += [int(record.value or b"-1") for record in iterate_records(chunk, 1 << 20)]
                position = Offset(parse_batch(memoryview(chunk)).next_offset)
        return found


class House:
    """Three bookies and a metadata service on machines; one leader at a time runs on another machine."""

    def __init__(self, cluster: LedgerCluster, quorum: Quorum) -> None:
        self.cluster = cluster
        self.quorum = quorum

    async def lead(self, machine: str, work: Work, cache_bytes: int = AMPLE) -> None:
        async def led(client: LedgerClient) -> None:
            async with trio.open_nursery() as nursery:
                await work(Leader(client, nursery, self.quorum, cache_bytes))
                nursery.cancel_scope.cancel()

        await self.cluster.run_client(machine, led)


def play(scenario: Callable[[House], Awaitable[None]], quorum: Quorum = COPIES, seed: int = 1) -> None:
    async def play_it(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=3)
        await cluster.start()
        await scenario(House(cluster, quorum))

    simulate(seed, play_it)


each_quorum = pytest.mark.parametrize("quorum", [COPIES, STRIPES, ALONE], ids=["copies", "stripes", "alone"])
each_size = pytest.mark.parametrize("cache_bytes", [TINY, 20_000, AMPLE])


def test_the_broker_that_appended_reads_the_end_of_the_log_without_asking_bookies() -> None:
    async def scenario(house: House) -> None:
        async def work(leader: Leader) -> None:
            partition = await leader.partition(segment_bytes=2000)
            await leader.fill(partition, 50)
            assert len(partition.segments) > 2
            assert await leader.numbers(partition) == list(range(50))
            assert leader.entries.reads == 0

        await house.lead("broker-1", work)

    play(scenario)


@each_quorum
@each_size
def test_another_leader_reads_everything_with_any_size_of_cache(quorum: Quorum, cache_bytes: int) -> None:  # 1, 2
    async def scenario(house: House) -> None:
        async def write(leader: Leader) -> None:
            await leader.fill(await leader.partition(segment_bytes=4000), 60)

        async def read(leader: Leader) -> None:
            partition = await leader.partition(segment_bytes=4000)
            assert len(partition.segments) > 1
            for first in (0, 31, 59, 30):
                assert await leader.numbers(partition, first) == list(range(first, 60))
                assert await leader.numbers(partition, first, bytes_max=300) == list(range(first, 60))
            await leader.fill(partition, 5, first=60)
            assert await leader.numbers(partition) == list(range(65))
            assert leader.entries.size_bytes <= cache_bytes

        await house.lead("broker-1", write)
        await house.lead("broker-2", read, cache_bytes)

    play(scenario, quorum)


@each_quorum
def test_entries_are_read_ahead_for_a_reader_that_continues(quorum: Quorum) -> None:
    async def scenario(house: House) -> None:
        async def write(leader: Leader) -> None:
            await leader.fill(await leader.partition(), 300)

        async def read(leader: Leader) -> None:
            partition = await leader.partition()
            assert await leader.numbers(partition, 295) == list(range(295, 300))
            searched = leader.entries.reads
            assert searched < 12
            assert await leader.numbers(partition, bytes_max=5000) == list(range(300))
            assert leader.entries.reads - searched < 12

        await house.lead("broker-1", write)
        await house.lead("broker-2", read)

    play(scenario, quorum)


@each_quorum
@each_size
def test_offsets_times_and_epochs_are_found(quorum: Quorum, cache_bytes: int) -> None:
    async def scenario(house: House) -> None:
        async def write(leader: Leader) -> None:
            await leader.fill(await leader.partition(segment_bytes=4000), 50)

        async def search(leader: Leader) -> None:
            partition = await leader.partition(segment_bytes=4000)
            await leader.fill(partition, 5, first=50)
            assert await partition.earliest() == (0, 0)
            for wanted, found in [(0, 0), (1, 1), (7000, 7), (23_500, 24), (54_000, 54), (54_001, None)]:
                place = await partition.offset_for_timestamp(wanted, at_once)
                assert (place[0] if place is not None else None) == found, wanted
            assert await partition.max_timestamp_offset(at_once) == (54, 54_000, 1)
            assert await partition.end_of_epoch(LeaderEpoch(0)) == (0, 50)
            assert await partition.end_of_epoch(LeaderEpoch(1)) == (1, 55)

        await house.lead("broker-1", write)
        await house.lead("broker-2", search, cache_bytes)

    play(scenario, quorum)


@each_quorum
@each_size
def test_the_largest_time_after_a_cut_is_found_batch_by_batch(quorum: Quorum, cache_bytes: int) -> None:
    async def scenario(house: House) -> None:
        async def write(leader: Leader) -> None:
            partition = await leader.partition()
            await leader.append(partition, "old", at=900_000)
            await leader.fill(partition, 30, first=1)

        async def search(leader: Leader) -> None:
            partition = await leader.partition()
            assert await partition.max_timestamp_offset(at_once) == (0, 900_000, 0)
            assert await partition.delete_before(Offset(3)) == 3
            assert await partition.max_timestamp_offset(at_once) == (30, 30_000, 0)
            assert await partition.earliest() == (3, 0)
            assert await leader.numbers(partition, 3) == list(range(3, 31))

        await house.lead("broker-1", write)
        await house.lead("broker-2", search, cache_bytes)

    play(scenario, quorum)


@each_quorum
@each_size
def test_a_producer_continues_at_the_next_leader(quorum: Quorum, cache_bytes: int) -> None:
    async def scenario(house: House) -> None:
        async def write(leader: Leader) -> None:
            partition = await leader.partition(segment_bytes=2000)
            for number in range(40):
                produced = await leader.append(partition, f"{number:0100}", producer_id=9, base_sequence=number)
                assert produced.error == ErrorCode.NONE

        async def go_on(leader: Leader) -> None:
            partition = await leader.partition(segment_bytes=2000)
            repeated = await leader.append(partition, f"{39:0100}", producer_id=9, base_sequence=39)
            assert (repeated.error, repeated.base_offset) == (ErrorCode.NONE, 39)
            ahead = await leader.append(partition, "x", producer_id=9, base_sequence=41)
            assert ahead.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert (await leader.append(partition, f"{40:0100}", producer_id=9, base_sequence=40)).base_offset == 40
            assert await leader.numbers(partition) == list(range(41))

        await house.lead("broker-1", write)
        await house.lead("broker-2", go_on, cache_bytes)

    play(scenario, quorum)


@each_quorum
def test_old_segments_are_dropped(quorum: Quorum) -> None:
    async def scenario(house: House) -> None:
        async def write(leader: Leader) -> None:
            await leader.fill(await leader.partition(segment_bytes=1000), 30)

        async def trim(leader: Leader) -> None:
            partition = await leader.partition(segment_bytes=1000, retention_bytes=3000)
            await partition.enforce_retention()
            log = partition.log
            assert log is not None
            assert 0 < log.start_offset < 25
            first = log.start_offset
            assert await leader.numbers(partition, first) == list(range(first, 30))
            assert await partition.earliest() == (first, 0)

        await house.lead("broker-1", write)
        await house.lead("broker-2", trim, TINY)

    play(scenario, quorum)


@pytest.mark.parametrize("quorum", [COPIES, STRIPES], ids=["copies", "stripes"])
@pytest.mark.parametrize("victim", ["bookie-1", "bookie-2", "bookie-3"])
@pytest.mark.parametrize("silent", [False, True], ids=["killed", "power lost"])
def test_everything_is_read_although_a_bookie_dies_meanwhile(quorum: Quorum, victim: str, silent: bool) -> None:
    async def scenario(house: House) -> None:
        async def write(leader: Leader) -> None:
            await leader.fill(await leader.partition(), 100)

        async def read(leader: Leader) -> None:
            partition = await leader.partition()
            assert await leader.numbers(partition, 95) == list(range(95, 100))
            machine = house.cluster.simulation.machine(victim)
            machine.power_off() if silent else machine.kill()
            with trio.fail_after(60):
                assert await leader.numbers(partition, bytes_max=3000) == list(range(100))
            assert (await partition.offset_for_timestamp(50_500, at_once) or ())[0] == 51

        await house.lead("broker-1", write)
        await house.lead("broker-2", read, 5000)

    play(scenario, quorum)


def test_an_entry_that_no_bookie_returns_is_an_error_until_one_does() -> None:  # invariant 4
    async def scenario(house: House) -> None:
        async def write(leader: Leader) -> None:
            await leader.fill(await leader.partition(), 20)

        async def read(leader: Leader) -> None:
            partition = await leader.partition()

            def first_header() -> int:
                segment = partition.segments[0]
                with segment.view() as view:
                    return segment.header(view, segment.ledger.start_entry).base_offset

            for machine in house.cluster.bookies.values():
                machine.kill()
            with pytest.raises(LedgerError):
                await read_from_memory(first_header)
            for machine in house.cluster.bookies.values():
                machine.start()
            await leader.client.world.clock.sleep(10)
            assert await read_from_memory(first_header) == 0
            assert await leader.numbers(partition) == list(range(20))

        await house.lead("broker-1", write)
        await house.lead("broker-2", read, TINY)

    play(scenario)


def test_the_size_of_an_unopened_partition_is_read_from_its_bookies() -> None:
    async def scenario(house: House) -> None:
        sizes: list[int | None] = []

        async def write(leader: Leader) -> None:
            partition = await leader.partition(segment_bytes=4000)
            await leader.fill(partition, 50)
            sizes.append(partition.size_bytes())
            await leader.client.world.clock.sleep(1)

        async def look(leader: Leader) -> None:
            client = leader.client
            await client.create(f"{PARTITIONS}only-called-so", Quorum(1, 1, 1))
            found = await stored_bytes(client.metadata, client.bookies, leader.entries)
            assert [*found.values()] == sizes
            assert [(topic, index) async for topic, index, _ in all_segments(client.metadata)] == [*found]
            for machine in house.cluster.bookies.values():
                machine.kill()
            [sealed] = (await stored_bytes(client.metadata, client.bookies, leader.entries)).values()
            assert sizes[0] is not None
            assert 0 < sealed < sizes[0]

        await house.lead("broker-1", write)
        await house.lead("broker-2", look)

    play(scenario)
