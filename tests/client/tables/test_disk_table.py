"""A table on disk through kills, older copies, damage and a full disk; its store is a cache of its log."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import lmdb
import pytest
import trio
from native_calls import play

sys.path.insert(0, str(Path(__file__).parent))  # for the module beside these tests: test folders are no packages

from table_on_broker import FLUSHED_SECONDS, loading_beyond, read_slowly, table_of, with_table

from gnomon.broker.tables import kept_batches, table_log, table_state
from gnomon.broker.tables.batch_entries import BatchEntries
from gnomon.broker.tables.stored.store_forms import RowDamaged
from gnomon.client.client import NativeClient
from gnomon.client.errors import Unavailable
from gnomon.client.tables.table import Table
from gnomon.log.tables.changes import KeyChange
from gnomon.log.tables.operation_id import OperationId
from gnomon.runtime.settings.settings import TableSettings
from gnomon.runtime.world import DiskFull
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker
from gnomon.wire.kafka.messages.topics import DeleteTopicsRequest
from gnomon.wire.kafka.records import Record, build_batch

STORES = tuple(Path("/data") / folder for folder in ("bookie", "metadata", "tables"))
ON_DISK = {"gnomon.view": "kv"}

Scenario = Callable[[EmbeddedBroker, BrokerClient, Table], Awaitable[None]]


def on_disk(scenario: Scenario) -> None:
    with_table(scenario, engines=["disk"])


async def filled(table: Table, count: int = 20) -> None:
    for number in range(count):
        await table.put(b"k%d" % (number % 7), b"v%d" % number, ttl_seconds=1_000 if number % 2 else None)
    await table.delete(b"k3")
    await trio.sleep(FLUSHED_SECONDS)


def last_loaded(broker: EmbeddedBroker) -> object:
    """The revision from which on the table was read from its log when it was loaded last."""
    return [fields["first"] for event, fields in broker.events if event == "table_loaded"][-1]


def discards(broker: EmbeddedBroker) -> list[str]:
    return [str(fields["reason"]) for event, fields in broker.events if event == "table_discarded"]


async def began_again_with(broker: EmbeddedBroker, images: dict[Path, bytes]) -> None:
    """The broker is killed, and starts again with copies of some stores."""
    broker.machine.kill()
    for path, image in images.items():
        broker.machine.disk.put_back(path, image)
    await broker.start()


async def images(broker: EmbeddedBroker, *paths: Path) -> dict[Path, bytes]:
    """Copies of stores of the broker, which is killed for that and started again."""
    broker.machine.kill()
    found = {path: broker.machine.disk.image(path) for path in paths}
    await broker.start()
    return found


@pytest.mark.parametrize("power_lost", [False, True])
def test_a_table_goes_on_from_what_was_flushed(power_lost: bool) -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await filled(table)
        assert last_loaded(broker) == 0
        await table.put(b"late", b"not flushed")
        before = (await table.scan()).entries
        await broker.restart(power_lost=power_lost)
        assert (await table.scan()).entries == before
        assert (last_loaded(broker), discards(broker)) == (21, [])
        assert await table.increment(b"n") == 1

    on_disk(scenario)


def test_numbered_operations_are_known_from_the_store() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        assert await table.increment(b"n") == 1
        before = operations_of(broker)
        assert len(before) == 1
        await trio.sleep(FLUSHED_SECONDS)
        await broker.restart()
        assert (await table.count(), last_loaded(broker)) == (1, 1)
        assert operations_of(broker) == before

    on_disk(scenario)


def operations_of(broker: EmbeddedBroker) -> list[OperationId]:
    view = table_of(broker)
    return [operation for operation, _ in view.state.operations.below(view.state.applied)]


def test_a_store_that_is_deleted_is_made_again() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await filled(table)
        before = (await table.scan()).entries
        broker.machine.kill()
        shutil.rmtree(broker.machine.disk.real(STORES[2]))
        await broker.start()
        assert (await table.scan()).entries == before
        assert (last_loaded(broker), discards(broker)) == (0, [])

    on_disk(scenario)


def test_an_older_copy_of_the_store_is_gone_on_from() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await filled(table)
        older = await images(broker, STORES[2])
        await filled(table)
        before = (await table.scan()).entries
        await began_again_with(broker, older)
        assert (await table.scan()).entries == before
        assert (last_loaded(broker), discards(broker)) == (21, [])

    on_disk(scenario)


def test_a_store_that_is_ahead_of_its_log_is_discarded() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await filled(table)
        before = (await table.scan()).entries
        older = await images(broker, *STORES[:2])
        await filled(table)
        await began_again_with(broker, older)
        assert (await table.scan()).entries == before
        (reason,) = discards(broker)
        assert reason == "it has applied the log to offset 42, and the log ends at 21"

    on_disk(scenario)


def test_a_store_of_another_life_of_the_log_is_discarded() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await filled(table)
        older = await images(broker, *STORES[:2])
        await filled(table)
        store = await images(broker, STORES[2])
        await began_again_with(broker, older)
        client = await broker.connect()
        client.topic_ids = kafka.topic_ids
        for number in range(30):
            batch = build_batch([Record(key=b"other", value=b"life %d" % number)], base_timestamp=1)
            assert (await client.produce("settings", batch)).error_code == 0
        await began_again_with(broker, store)
        entry = await table.get(b"other")
        assert entry is not None
        assert (entry.value, entry.version) == (b"life 29", 30)
        assert discards(broker)[-1] == "the log has another batch before offset 42 than the one that was applied"

    on_disk(scenario)


def test_a_damaged_entry_of_the_store_is_restored_from_the_log() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await filled(table)
        before = (await table.scan()).entries
        await broker.restart()
        assert (await table.scan(limit=1)).entries == before[:1]
        for database in ("entries", "operations", "tables"):
            broker.machine.disk.flip_bit(STORES[2], database)
            assert (await table.scan()).entries == before
            await broker.restart()
            assert (await table.scan()).entries == before
        assert any("is damaged" in reason for reason in discards(broker))

    on_disk(scenario)


def test_a_loading_ends_once_damage_is_found_in_the_table_and_the_next_one_begins_with_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_slowly(monkeypatch)

    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await filled(table)
        for number in range(20):
            await table.put(b"after the flush %d" % number, b"v")
        before = (await table.scan()).entries
        await broker.restart()
        found = []

        async def look() -> None:
            found.extend((await table.scan()).entries)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            view = await loading_beyond(broker, 30)
            view.discard(RowDamaged("found by the test"))
        assert [fields["reason"] for name, fields in broker.events if name == "table_not_loaded"] == [
            "the table was let go while it was loaded"
        ]
        assert (found, last_loaded(broker), discards(broker)) == (before, 0, ["found by the test"])

    on_disk(scenario)


def test_a_damaged_file_of_the_store_is_set_aside_and_made_again() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await filled(table)
        before = (await table.scan()).entries
        broker.machine.kill()
        file = broker.machine.disk.real(STORES[2]) / "data.mdb"
        file.write_bytes(b"garbage" * 10_000)
        await broker.start()
        assert (await table.scan()).entries == before
        (event,) = [fields for name, fields in broker.events if name == "tables_set_aside"]
        assert "cannot open the store at" in str(event["reason"])
        assert (file.parent.with_name("tables.damaged") / "data.mdb").read_bytes().startswith(b"garbage")
        await trio.sleep(FLUSHED_SECONDS)
        await broker.restart()
        assert (await table.scan()).entries == before
        assert last_loaded(broker) == 21

    on_disk(scenario)


def test_a_store_in_which_a_damaged_page_was_found_is_set_aside_at_the_next_start() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await filled(table)
        before = (await table.scan()).entries
        environment = broker.serving.broker.tables.store.environment
        assert environment is not None

        with pytest.MonkeyPatch.context() as patch:
            sound = environment.read
            transactions = iter([DamagedTransaction()])
            patch.setattr(environment, "read", lambda: next(transactions, None) or sound())
            assert (await table.get(b"k1")) is not None
        assert (await table.scan()).entries == before
        assert any("a page of the store of tables is damaged" in reason for reason in discards(broker))
        await broker.restart()
        assert (await table.scan()).entries == before
        assert [name for name, _ in broker.events if name == "tables_set_aside"] == ["tables_set_aside"]
        await broker.restart()
        assert (await table.scan()).entries == before
        assert [name for name, _ in broker.events if name == "tables_set_aside"] == ["tables_set_aside"]

    on_disk(scenario)


class DamagedTransaction:
    def __enter__(self) -> DamagedTransaction:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def get(self, key: bytes, db: object) -> bytes:
        raise lmdb.CorruptedError("by the test")

    def cursor(self, db: object) -> object:
        raise lmdb.CorruptedError("by the test")


def test_the_table_of_a_new_topic_of_the_same_name_is_empty() -> None:
    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        for _ in range(2):
            await kafka.create_topic("settings", configs=ON_DISK)
            table = client.table("settings")
            assert (await table.scan()).entries == []
            await filled(table)
            await kafka.ask(DeleteTopicsRequest(topic_names=["settings"], timeout_ms=1000), 4)
        await trio.sleep(1)
        store = broker.serving.broker.tables.store.environment
        assert store is not None
        with store.read() as transaction:
            assert [transaction.stat(store.databases[name])["entries"] for name in ("entries", "expiries")] == [0, 0]

    play(run)


def test_a_table_without_room_on_disk_refuses_with_the_bytes_and_goes_on_once_there_is_room() -> None:
    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        await kafka.create_topic("settings", configs=ON_DISK)
        table = client.table("settings")
        await table.put(b"a", b"1")
        environment = broker.serving.broker.tables.store.environment
        assert environment is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(environment, "commit", no_room)
            put = await put_until_refused(table)
            assert 15 < put < 25  # as many as `table.behind_bytes_max` allows
            assert (await table.get(b"a")) is not None  # nothing is in the log that the table lacks
            batch = build_batch([Record(key=b"kafka", value=b"goes on")], base_timestamp=1)
            assert (await kafka.produce("settings", batch)).error_code == 0
            with pytest.raises(Unavailable, match=r"lacks \d+ bytes of changes, .* no room by the test"):
                await table.get(b"a")
            tables = broker.serving.broker.tables
            assert (tables.live, tables.behind) == (0, 1)
            assert tables.warning() == "1 tables cannot flush or take a snapshot, one because: no room by the test"
        await trio.sleep(FLUSHED_SECONDS)
        entry = await table.get(b"kafka")
        assert entry is not None
        assert entry.value == b"goes on"
        assert await table.count() == put + 2
        assert (tables.live, tables.behind, tables.warning()) == (1, 0, None)
        assert tables.counts.flushes > 0

    play(run, table=TableSettings(flush_bytes=100_000, behind_bytes_max=1 << 20))


async def put_until_refused(table: Table) -> int:
    for number in range(1_000):
        try:
            await table.put(b"%d" % number, bytes(50_000))
        except Unavailable:
            return number
    raise AssertionError("nothing was refused")


async def no_room(operation: object) -> None:
    raise DiskFull("no room by the test")


@pytest.mark.parametrize("engine", ["disk", "memory"])
def test_keys_of_kafka_producers_expire_without_a_native_call(engine: str) -> None:
    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        await kafka.create_topic("settings", configs={"gnomon.view": "kv", "gnomon.view.engine": engine})
        now_ms = broker.client_world.clock.wall_ms()
        for ttl_ms in (b"2000", b"4000"):
            record = Record(key=ttl_ms, value=b"v", headers=(("gnomon.ttl.ms", ttl_ms),))
            batch = build_batch([record], base_timestamp=now_ms)
            assert (await kafka.produce("settings", batch)).error_code == 0
        log = broker.serving.broker.partitions.use(broker.serving.broker.topics.find("settings"), 0).log
        await trio.sleep(3)
        assert log is not None
        assert log.high_watermark == 3
        await broker.restart()
        other = await broker.connect()
        other.topic_ids = kafka.topic_ids
        await other.fetch("settings", 0)  # opens the partition
        await trio.sleep(2)
        log = broker.serving.broker.partitions.use(broker.serving.broker.topics.find("settings"), 0).log
        assert log is not None
        assert log.high_watermark == 4

    play(run)


def test_long_batches_that_came_during_the_loading_are_applied_in_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_slowly(monkeypatch)
    sizes, add = [0], BatchEntries.add

    def noting(entries: BatchEntries, changes: Sequence[KeyChange]) -> None:
        sizes.append(len(changes))
        add(entries, changes)

    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        for number in range(20):
            await table.put(b"first", b"%d" % number)
        await broker.restart()
        producer = await broker.connect()
        producer.topic_ids = kafka.topic_ids
        assert (await producer.fetch("settings", 0)).error_code == 0  # opens the partition, which loads the table
        await loading_beyond(broker, 5)
        monkeypatch.setattr(BatchEntries, "add", noting)
        for number in range(3):
            records = [Record(n, key=b"%d %d" % (number, n), value=b"v") for n in range(2_000)]
            assert (await producer.produce("settings", build_batch(records, base_timestamp=1))).error_code == 0
        assert not table_of(broker).is_live, "nothing came during the loading"
        assert await table.count() == 1 + 3 * 2_000
        assert max(sizes) <= table_log.RECORDS_AT_ONCE_MAX
        monkeypatch.setattr(BatchEntries, "add", add)

    with_table(scenario)


@pytest.mark.parametrize("kept_bytes", [240_000, 320_000])
def test_a_table_that_cannot_keep_up_while_it_is_loaded_reads_the_rest_from_its_log(
    monkeypatch: pytest.MonkeyPatch, kept_bytes: int
) -> None:
    monkeypatch.setattr(kept_batches, "KEPT_BYTES_MAX", kept_bytes)
    monkeypatch.setattr(table_state, "APPLIED_AT_ONCE", 1)
    monkeypatch.setattr(table_log, "READ_BYTES", 1)

    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        for engine in ("disk", "memory"):
            await (await broker.connect()).create_topic(engine, configs={**ON_DISK, "gnomon.view.engine": engine})
            for number in range(30):
                await client.table(engine).put(b"first", b"%d" % number)
            await broker.restart()
            producers = [await broker.connect() for _ in range(8)]

            async def produce(number: int, topic: str = engine, producers: list[BrokerClient] = producers) -> None:
                for round_number in range(60):
                    records = [Record(n, key=b"%d %d %d" % (number, round_number, n), value=b"v") for n in range(4)]
                    batch = build_batch(records, base_timestamp=1)
                    assert (await producers[number].produce(topic, batch)).error_code == 0

            async with trio.open_nursery() as nursery:
                for number in range(8):
                    nursery.start_soon(produce, number)
            assert await client.table(engine).count() == 1 + 8 * 60 * 4

    play(run)
