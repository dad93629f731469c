"""Snapshots of a table, and the records that they let go; numbers cite the invariants of `table_snapshots`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from native_calls import native, play

sys.path.insert(0, str(Path(__file__).parent))  # for the module beside these tests: test folders are no packages

from table_on_broker import ENGINES, FLUSHED_SECONDS, loading_beyond, read_slowly, table_of, with_table

from gnomon.bookie.ledgers.catalog import list_ledgers
from gnomon.broker.tables.snapshots import table_snapshots
from gnomon.broker.tables.snapshots.snapshot_ledgers import SnapshotLedgers
from gnomon.broker.tables.snapshots.table_snapshots import SnapshotFailed
from gnomon.client.client import NativeClient
from gnomon.client.errors import Compacted, Unavailable
from gnomon.client.tables.table import Table
from gnomon.log.tables.snapshot_form import TABLES, SnapshotRecord
from gnomon.log.tables.table_status import TableStatus
from gnomon.runtime.rpc.client import CALL_SECONDS
from gnomon.runtime.settings.settings import TableSettings
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
)

SHORT = {"segment.bytes": "1000", "retention.bytes": "1", "file.delete.delay.ms": "0"}
"""A log of which retention keeps as little as it can."""
TABLES_STORE = Path("/data/tables")


async def delete_records(client: BrokerClient, before: int) -> Any:
    partition = DeleteRecordsPartition(partition_index=0, offset=before)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="settings", partitions=[partition])], timeout_ms=1000
    )
    return (await client.ask(request, 2)).topics[0].partitions[0]


async def state(table: Table) -> TableStatus:
    (found,) = await table.status(digest=True)
    return found


def entries_of(found: TableStatus) -> tuple[int, int, str | None]:
    return found.revision, found.keys, found.digest


async def fill(table: Table, count: int = 40) -> None:
    for number in range(count):
        await table.put(b"k%d" % (number % 11), b"v%d" % number, ttl_seconds=3_000 if number % 3 else None)
    await table.delete(b"k5")


def events(broker: EmbeddedBroker, name: str) -> list[dict[str, object]]:
    return [fields for event, fields in broker.events if event == name]


def forget_store(broker: EmbeddedBroker) -> None:
    """Deletes the store of the tables of a broker that is down."""
    shutil.rmtree(broker.machine.disk.real(TABLES_STORE), ignore_errors=True)


async def restarted_without_store(broker: EmbeddedBroker) -> None:
    broker.machine.kill()
    forget_store(broker)
    await broker.start()


async def ledgers_of_tables(broker: EmbeddedBroker) -> list[str]:
    return [name for name, _ in await list_ledgers(broker.serving.broker.storage.metadata, TABLES)]


def test_a_table_is_whole_after_its_log_was_trimmed_to_the_snapshot() -> None:  # 3
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await fill(table)
        before, page = await state(table), await table.scan()
        await table.snapshot()
        assert (await delete_records(kafka, before.revision + 1)).error_code == ErrorCode.NONE
        for _ in range(2):
            await restarted_without_store(broker)
            found = await state(table)
            assert (found.log_start, found.snapshot_revision) == (before.revision + 1, before.revision)
            assert entries_of(found) == entries_of(before)
            assert (await table.scan()).entries == page.entries
        assert len(events(broker, "table_restored")) == 2
        assert await table.put(b"new", b"1") == before.revision + 1
        await restarted_without_store(broker)
        assert (await state(table)).keys == before.keys + 1

    with_table(scenario)


def test_a_table_whose_log_is_trimmed_while_it_is_loaded_begins_again_with_the_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_slowly(monkeypatch)

    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await fill(table)
        await trio.sleep(FLUSHED_SECONDS)
        broker.machine.kill()
        older = broker.machine.disk.image(TABLES_STORE)
        await broker.start()
        await fill(table)
        await table.snapshot()
        before = await state(table)
        broker.machine.kill()
        broker.machine.disk.put_back(TABLES_STORE, older)
        await broker.start()
        found: list[TableStatus] = []

        async def look() -> None:
            found.append(await state(table))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            await loading_beyond(broker, 50)
            other = await broker.connect()
            other.topic_ids = kafka.topic_ids
            assert (await delete_records(other, before.snapshot_revision + 1)).error_code == ErrorCode.NONE
        (reason,) = [str(fields["reason"]) for fields in events(broker, "table_not_loaded")]
        assert reason.startswith("the log was trimmed to offset 82, and ")
        assert len(events(broker, "table_restored")) == 1
        assert [entries_of(each) for each in found] == [entries_of(before)]

    with_table(scenario, engines=["disk"])


def test_no_record_after_the_newest_snapshot_is_deleted() -> None:  # 3
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await fill(table)
        answer = await delete_records(kafka, 5)
        assert answer.error_code == ErrorCode.POLICY_VIOLATION
        await table.snapshot()
        await table.put(b"after", b"it")
        assert (await delete_records(kafka, 42)).error_code == ErrorCode.POLICY_VIOLATION
        assert (await delete_records(kafka, 41)).error_code == ErrorCode.NONE

    with_table(scenario)


def test_retention_waits_for_a_snapshot_and_has_one_taken() -> None:  # 1
    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        for engine in ENGINES:
            configs = {"gnomon.view": "kv", "gnomon.view.engine": engine, **SHORT}
            await (await broker.connect()).create_topic(engine, configs=configs)
            table = client.table(engine)
            for _ in range(4):
                await fill(table)
                await trio.sleep(2.5)
            before = await state(table)
            assert before.log_start > 80
            assert before.snapshot_revision + 1 >= before.log_start
            await restarted_without_store(broker)
            assert entries_of(await state(table)) == entries_of(before)

    play(run, kafka={"log.retention.check.interval.ms": "1000"})


def test_a_table_that_nobody_uses_is_loaded_for_the_snapshot_that_retention_waits_for() -> None:  # 1
    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        await kafka.create_topic("settings", configs={"gnomon.view": "kv", **SHORT})
        await fill(client.table("settings"), 60)
        await broker.restart()
        await trio.sleep(5)
        broker_ = broker.serving.broker
        log = broker_.partitions.use(broker_.topics.find("settings"), 0).log
        assert log is not None
        assert log.start_offset > 20

    play(run, kafka={"log.retention.check.interval.ms": "1000", "log.segment.bytes": "1000"})


def test_a_snapshot_is_taken_once_the_log_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:  # 1
    monkeypatch.setattr(table_snapshots, "GROWN_BYTES_MIN", 2_000)

    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await fill(table, 10)
        await trio.sleep(30)
        await table.put(b"k", b"v")
        assert (await state(table)).snapshot_revision == -1
        await fill(table, 40)
        await trio.sleep(30)
        await table.put(b"k", b"w")
        await trio.sleep(1)
        assert (await state(table)).snapshot_revision > 11
        assert len(await ledgers_of_tables(broker)) == 1

    with_table(scenario)


@pytest.mark.parametrize("entries", [1, 3])
def test_a_snapshot_has_one_revision_while_the_table_goes_on(
    monkeypatch: pytest.MonkeyPatch, entries: int
) -> None:  # 2
    monkeypatch.setattr(table_snapshots, "PAGE_ENTRIES", entries)

    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await fill(table)
        before = await state(table)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(table.snapshot)
            await trio.sleep(0.02)
            for number in range(30):
                await table.put(b"k%d" % (number % 13), b"meanwhile")
                await table.delete(b"k%d" % (number % 7))
        view = table_of(broker)
        record = view.snapshots.newest.record
        assert record is not None
        assert (record.revision, record.keys, record.digest.hex()) == entries_of(before)
        after = await state(table)
        assert after.revision > before.revision + 30
        await restarted_without_store(broker)
        assert entries_of(await state(table)) == entries_of(after)

    with_table(scenario)


def test_the_digest_is_the_same_for_both_engines() -> None:
    digests = []

    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await fill(table)
        digests.append(entries_of(await state(table)))

    with_table(scenario)
    assert digests[0] == digests[1]


def test_the_snapshot_before_goes_and_so_do_ledgers_that_no_record_names() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await fill(table)
        view = table_of(broker)
        left_over = await view.snapshots.newest.ledgers.create(7)  # as of a crash
        await table.snapshot()
        (first,) = await ledgers_of_tables(broker)
        assert first.endswith("/40")
        assert left_over.name != first
        await table.put(b"k", b"v")
        await table.snapshot()
        (second,) = await ledgers_of_tables(broker)
        assert second.endswith("/41")

    with_table(scenario)


def test_the_ledger_of_a_crash_at_the_same_revision_is_replaced() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await fill(table)
        view = table_of(broker)
        await view.snapshots.newest.ledgers.create(40)
        await table.snapshot()
        await restarted_without_store(broker)
        assert (await state(table)).snapshot_revision == 40

    with_table(scenario)


def test_a_snapshot_is_named_only_after_its_ledger_is_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    name, sealed = SnapshotLedgers.name, []

    async def looking(ledgers: SnapshotLedgers, record: SnapshotRecord) -> bool:
        metadata = ledgers._storage.metadata
        sealed.extend(found.sealed for each, found in await list_ledgers(metadata, TABLES) if each == record.ledger)
        return await name(ledgers, record)

    monkeypatch.setattr(SnapshotLedgers, "name", looking)

    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await fill(table)
        await table.snapshot()

    with_table(scenario)
    assert sealed == [True, True]


def test_the_snapshot_of_a_table_that_ends_meanwhile_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:  # 2
    monkeypatch.setattr(table_snapshots, "PAGE_ENTRIES", 1)

    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await fill(table)
        view = table_of(broker)
        refused = []

        async def take() -> None:
            with pytest.raises(SnapshotFailed) as failed:
                await view.snapshots.take()
            refused.append(str(failed.value))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            await trio.sleep(0.02)
            view.ended()
        assert refused == ["the table was loaded again, or its partition was released"]
        assert broker.serving.broker.tables.counts.snapshots_failed == 1
        assert await ledgers_of_tables(broker) == []
        assert (await state(table)).snapshot_revision == -1

    with_table(scenario)


def test_snapshots_go_with_their_topic() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await fill(table)
        await table.snapshot()
        await kafka.ask(DeleteTopicsRequest(topic_names=["settings"], timeout_ms=1000), 4)
        assert await ledgers_of_tables(broker) == []
        assert (await broker.serving.broker.storage.metadata.range(TABLES)).items == ()

    with_table(scenario)


def test_a_damaged_snapshot_is_not_used_while_the_log_or_the_store_can_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await fill(table)
        monkeypatch.setattr(table_snapshots.TableDigest, "digest", lambda self: b"other than what is stored" * 2)
        await table.snapshot()
        monkeypatch.undo()
        before = await state(table)
        await restarted_without_store(broker)
        assert entries_of(await state(table)) == entries_of(before)
        assert len(events(broker, "table_snapshot_rejected")) == 1
        await table.snapshot()  # takes the place of the damaged one
        await restarted_without_store(broker)
        assert entries_of(await state(table)) == entries_of(before)
        assert len(events(broker, "table_snapshot_rejected")) == 1

    with_table(scenario)


def test_a_table_that_has_lost_records_says_so_and_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await fill(table)
        monkeypatch.setattr(table_snapshots.TableDigest, "digest", lambda self: b"other than what is stored" * 2)
        await table.snapshot()
        monkeypatch.undo()
        assert (await delete_records(kafka, 20)).error_code == ErrorCode.NONE
        await restarted_without_store(broker)
        with pytest.raises(Unavailable, match="the log begins at offset 20, and no snapshot has what was before"):
            await table.get(b"k1")

    with_table(scenario)


def test_a_watch_from_below_the_start_of_the_log_is_compacted() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await fill(table)
        await table.snapshot()
        await delete_records(kafka, 20)
        with pytest.raises(Compacted) as refused:
            async with table.watch(revision=3) as changes:
                await changes.__anext__()
        assert refused.value.first == 20
        async with table.watch(revision=20) as changes:
            assert (await changes.__anext__()).revision == 20

    with_table(scenario)


def test_a_snapshot_larger_than_the_memory_of_tables_is_refused_with_the_numbers() -> None:
    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        await kafka.create_topic("settings", configs={"gnomon.view": "kv", "gnomon.view.engine": "memory"})
        table = client.table("settings")
        await fill(table)
        await table.snapshot()
        await delete_records(kafka, 41)
        await broker.restart()
        broker.serving.broker.tables.memory.bytes_max = 100
        async with native(broker) as other:
            with pytest.raises(Unavailable, match=r"would exceed the 100 of table\.memory_bytes_max"):
                await other.table("settings").get(b"k1")

    play(run, table=TableSettings())


def test_numbered_operations_are_in_the_snapshot() -> None:
    def known(broker: EmbeddedBroker) -> list[tuple[bytes, int]]:
        view = table_of(broker)
        clients = view.state.operations._clients
        return [(writer, number) for writer, client in clients.items() for number in client.done]

    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        assert await table.increment(b"n") == 1
        done = known(broker)
        assert len(done) == 1
        await table.snapshot()
        await delete_records(kafka, 1)
        await restarted_without_store(broker)
        assert await table.count() == 1
        assert known(broker) == done

    with_table(scenario)


def test_a_snapshot_that_takes_longer_than_a_call_may_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_snapshots, "PAGE_ENTRIES", 1)

    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        await kafka.create_topic("settings", configs={"gnomon.view": "kv"})
        table = client.table("settings")
        for number in range(40):
            await table.put(b"k%d" % number, b"v")
        began = trio.current_time()
        await table.snapshot()
        assert (await state(table)).snapshot_revision == 39
        assert trio.current_time() - began > 2 * CALL_SECONDS
        assert events(broker, "table_snapshot_failed") == []

    play(run, table=TableSettings(snapshot_bytes_per_second=50))
