"""A partition that is read without a broker (numbers: invariants of `partition_reader`)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
import trio
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ledgers.ledgers import Ledgers, connect_ledgers
from gnomon.bookie.record import ledger_key
from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.log.chains import PARTITIONS, ledgers_prefix
from gnomon.log.entry import NO_ABORT, EntryKind, LeaderEpoch, Offset, UnknownEntry, pack_header
from gnomon.log.partition_reader import NoSuchPartition, OffsetNotInLog, PartitionReader, open_partition
from gnomon.log.segment_record import NotASegment
from gnomon.log.topic import topic_key
from gnomon.log.topic_name import InvalidTopicName
from gnomon.metadata.client import Delete, Put
from gnomon.testing.daemon import Daemon
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.log_checker import LogHistory
from gnomon.testing.storms.kafka.log_clients import SimulatedProducer
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.testing.storms.ledgers.ledger_cluster import METADATA, METADATA_PORT
from gnomon.testing.storms.processes.ledger_processes import LedgerProcesses
from gnomon.wire.kafka.records import iterate_records

PROGRAM = Path(__file__).parent / "read_without_broker.py"
RECORDS = 2000
ADDRESS = f"{METADATA}:{METADATA_PORT}"
CONFIRMED_SECONDS = 0.1
"""After this time without an append every bookie knows that all records are confirmed."""
SEGMENTS = {"segment.bytes": "600", "retention.ms": "-1"}


def produce(address: str) -> None:
    """Writes 2000 records to partition 1 of the topic `orders`, which it creates."""
    admin = AdminClient({"bootstrap.servers": address})
    topic = NewTopic("orders", num_partitions=2, config={"segment.bytes": "20000"})
    for created in admin.create_topics([topic]).values():
        created.result()
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "batch.num.messages": 10})
    for number in range(RECORDS):
        producer.produce("orders", f"record {number}".encode(), partition=1)
    assert producer.flush(30) == 0


def test_a_program_of_thirty_lines_reads_a_partition_with_one_of_three_bookies_down(tmp_path: Path) -> None:
    assert len(PROGRAM.read_text().splitlines()) <= 30
    with LedgerProcesses(tmp_path / "c") as cluster:
        at = ("--metadata", cluster.metadata, "--kafka-port", 0, "--native-port", 0, "--admin-port", 0)
        broker = Daemon(["broker", "--id", "1", *at], tmp_path / "broker.log").wait_ready()
        try:
            produce(broker.ready["kafka"])
            while len(printed(cluster.metadata)) < RECORDS:
                pass  # a broker sends the last add confirmed to the bookies some time after the last add
            assert broker.stop() == 0
        finally:
            broker.kill()
        cluster.daemons["bookie-2"].kill()
        assert printed(cluster.metadata) == [f"{number} record {number}" for number in range(RECORDS)]


def printed(metadata: str) -> list[str]:
    """The lines that the program prints."""
    command = [sys.executable, PROGRAM, metadata, "orders", "1"]
    read = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert read.stderr == ""
    return read.stdout.splitlines()


class Written:
    """A cluster with the topic `orders` of one partition, and its shadow `copy`."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.cluster = BrokerCluster(simulation, 2)

    async def start(self) -> None:
        await self.cluster.start()
        await self.cluster.run_client("admin", self._create)

    @staticmethod
    async def _create(client: WireCluster) -> None:
        await create_topic(client, "orders", SEGMENTS)
        await create_topic(client, "copy", {SHADOW_SOURCE: "orders"})
        await create_topic(client, "unused", {})

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

    def stop_brokers(self) -> None:
        for machine in self.cluster.brokers.values():
            machine.kill()

    async def read(self, work: Callable[[Ledgers], Awaitable[None]]) -> None:
        async def client(kafka: WireCluster) -> None:
            async with connect_ledgers(ADDRESS, world=kafka.world) as ledgers:
                await work(ledgers)

        await self.cluster.run_client(f"reader-{self.simulation.clock.monotonic()}", client)


def play(scenario: Callable[[Written], Awaitable[None]]) -> None:
    async def run(simulation: Simulation) -> None:
        written = Written(simulation)
        await written.start()
        await scenario(written)

    simulate(3, run)


async def values(reader: PartitionReader, offset: int | None = None, follow_seconds: float = 0.0) -> list[int]:
    """The offsets of the records that are read; asserts that the value of each record is its offset."""
    found: list[int] = []
    at = None if offset is None else Offset(offset)
    async with aclosing(reader.batches(at, follow_seconds=follow_seconds)) as batches:
        async for batch in batches:
            assert batch.next_offset <= batch.last_stable_offset == batch.high_watermark
            for record in iterate_records(memoryview(batch.records), 1 << 20):
                assert int(record.value or b"") == batch.base_offset + record.offset_delta
                found.append(batch.base_offset + record.offset_delta)
    return found


async def opened(ledgers: Ledgers, topic: str = "orders", partition: int = 0) -> PartitionReader:
    return await open_partition(ledgers.metadata, ledgers.bookies, topic, partition)


def test_a_reader_claims_and_changes_nothing_and_reads_a_shadow_from_its_source() -> None:  # 1, 4
    async def scenario(written: Written) -> None:
        await written.produce(0, 40)

        async def read(ledgers: Ledgers) -> None:
            before = await ledgers.metadata.range("")
            for topic in ("orders", "public/default/orders", "copy"):
                reader = await opened(ledgers, topic)
                assert reader.topic.name == "orders"
                assert (reader.start_offset, reader.high_watermark, reader.last_stable_offset) == (0, 40, 40)
                assert await values(reader) == list(range(40))
            ledgers_of = ledger_key(PARTITIONS)
            after = await ledgers.metadata.range("")
            assert [one for one in after.items if one.key.startswith(ledgers_of)] == [
                one for one in before.items if one.key.startswith(ledgers_of)
            ]

        await written.read(read)
        await written.produce(40, 43)

    play(scenario)


def test_the_log_of_stopped_brokers_is_read_from_any_offset_also_while_a_bookie_is_down() -> None:  # 2
    async def scenario(written: Written) -> None:
        await written.produce(0, 40)
        written.stop_brokers()
        written.simulation.machine("bookie-2").power_off()

        async def read(ledgers: Ledgers) -> None:
            reader = await opened(ledgers)
            for offset in range(41):
                found = await values(reader, offset)
                assert found[-1:] == [39][: len(found)]
                assert [number for number in found if number >= offset] == list(range(offset, 40))

        await written.read(read)

    play(scenario)


def test_a_follower_gets_each_record_once_and_ends_when_none_comes_in_time() -> None:  # 2
    async def scenario(written: Written) -> None:
        await written.produce(0, 5)
        found: list[int] = []

        async def follow(ledgers: Ledgers) -> None:
            found.extend(await values(await opened(ledgers), 0, follow_seconds=3.0))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(written.read, follow)
            for first in range(5, 60, 11):
                await written.simulation.clock.sleep(1.0)
                await written.produce(first, first + 11)
            ended = written.simulation.clock.monotonic()
        assert found == list(range(60))
        assert 2.9 < written.simulation.clock.monotonic() - ended < 4.0

    play(scenario)


def test_a_follower_of_an_unused_partition_gets_its_first_record() -> None:
    async def scenario(written: Written) -> None:
        found: list[int] = []

        async def follow(ledgers: Ledgers) -> None:
            reader = await opened(ledgers)
            assert (reader.start_offset, reader.high_watermark, await values(reader)) == (0, 0, [])
            found.extend(await values(reader, 0, follow_seconds=2.0))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(written.read, follow)
            await written.simulation.clock.sleep(1.0)
            await written.produce(0, 2)
        assert found == [0, 1]

    play(scenario)


def test_an_unknown_topic_or_partition_and_an_offset_outside_of_the_log_are_errors_that_name_them() -> None:
    async def scenario(written: Written) -> None:
        await written.produce(0, 3)

        async def read(ledgers: Ledgers) -> None:
            with pytest.raises(NoSuchPartition, match="there is no topic 'missing'"):
                await opened(ledgers, "missing")
            with pytest.raises(InvalidTopicName, match="topic name 'a/b'"):
                await opened(ledgers, "a/b")
            for topic in ("orders", "copy"):
                with pytest.raises(NoSuchPartition, match=f"'{topic}' has 1 partitions.*there is no partition 1"):
                    await opened(ledgers, topic, 1)
            with pytest.raises(NoSuchPartition, match="there is no partition -1"):
                await opened(ledgers, "orders", -1)
            reader = await opened(ledgers)
            for offset in (-1, 4):
                with pytest.raises(OffsetNotInLog, match=f"'orders' has no offset {offset}: its log is from 0 to 3"):
                    await values(reader, offset)
            source = await ledgers.metadata.get(topic_key("orders"))
            assert source is not None
            await ledgers.metadata.txn([], [Delete(topic_key("orders"))])
            with pytest.raises(NoSuchPartition, match="'copy' is a shadow of 'orders', which was deleted"):
                await opened(ledgers, "copy")
            with pytest.raises(NoSuchPartition, match="'orders' was deleted while it was read"):
                await values(reader, 3, follow_seconds=1.0) or await reader.refresh()
            await ledgers.metadata.txn([], [Put(source.key, source.value)])

        written.stop_brokers()
        await written.read(read)

    play(scenario)


def test_an_unknown_entry_and_a_ledger_that_is_no_segment_are_errors_that_name_them() -> None:  # 3
    async def scenario(written: Written) -> None:
        await written.produce(0, 3)
        leader = written.cluster.serving[written.cluster.leader("orders", 0)].broker
        topic = leader.topics.find("orders")
        partition = leader.partitions.use(topic, 0)
        newer = pack_header(EntryKind.MARKER, LeaderEpoch(0), Offset(3), Offset(4), Offset(4), 0, 0, NO_ABORT)
        entry = await partition.segments[-1].ledger.add((newer,))
        await written.simulation.clock.sleep(CONFIRMED_SECONDS)

        async def read(ledgers: Ledgers) -> None:
            with pytest.raises(UnknownEntry, match=rf"entry {entry} of ledger 'topics/.* is of kind 3 \(MARKER\)"):
                await opened(ledgers)
            stray = ledger_key(ledgers_prefix(topic.id, 0) + "backup")
            await ledgers.metadata.txn([], [Put(stray, b"")])
            with pytest.raises(NotASegment, match="backup' is no segment of a partition"):
                await opened(ledgers)

        await written.read(read)

    play(scenario)


def test_records_deleted_before_a_read_are_an_error_that_names_the_log_start_offset() -> None:
    async def scenario(written: Written) -> None:
        await written.produce(0, 40)

        async def read(ledgers: Ledgers) -> None:
            reader = await open_partition(ledgers.metadata, ledgers.bookies, "orders", 0, cache_bytes_max=1)
            leader = written.cluster.serving[written.cluster.leader("orders", 0)].broker
            partition = leader.partitions.use(leader.topics.find("orders"), 0)
            await partition.delete_before(Offset(30))
            for machine in written.cluster.ledgers.bookies.values():
                machine.kill()
                machine.start()
            await written.simulation.clock.sleep(30)
            with pytest.raises(OffsetNotInLog, match="'orders' has no offset 0: its log is from 30 to 40"):
                await values(reader, 0)
            assert [number for number in await values(reader) if number >= 30] == list(range(30, 40))

        await written.read(read)

    play(scenario)


def test_too_few_bookies_are_an_error_and_not_an_end_of_the_log() -> None:  # 3
    async def scenario(written: Written) -> None:
        await written.produce(0, 40)

        async def read(ledgers: Ledgers) -> None:
            reader = await opened(ledgers)
            for machine in written.cluster.ledgers.bookies.values():
                machine.power_off()
            with pytest.raises(LedgerError):
                await values(reader)

        await written.read(read)

    play(scenario)
