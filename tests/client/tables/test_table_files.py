"""Exports of tables to files, and imports; numbers cite the invariants of `table_export` and `table_import`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import trio
from native_calls import native, play

sys.path.insert(0, str(Path(__file__).parent))  # for the module beside these tests: test folders are no packages

from table_on_broker import ENGINES, with_table

from gnomon.bookie.ledgers.catalog import list_ledgers
from gnomon.broker.native.tables import table_admin_methods
from gnomon.broker.tables.hosted_table import HostedTable
from gnomon.broker.tables.snapshots import table_snapshots
from gnomon.broker.tables.snapshots.snapshot_ledgers import SnapshotLedgers
from gnomon.client.client import NativeClient
from gnomon.client.errors import (
    BrokerFailed,
    ImportIncomplete,
    InvalidCall,
    NotATable,
    TableNotEmpty,
    TooLarge,
    Unavailable,
)
from gnomon.client.tables import export_file, table_import
from gnomon.client.tables.listed_table import ListedTable
from gnomon.client.tables.table import Table
from gnomon.log.tables.export_form import ExportDamaged, ExportedPartition, ExportHead, ExportReader
from gnomon.log.tables.snapshot_form import TABLES, decode_part
from gnomon.log.tables.table_digest import TableDigest
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker

KEYS = [b"", b"\0", b"\0\0\xff", b"plain", b"k" * 500, b"\xff", b"\xff" * 500]


async def create(kafka: BrokerClient, name: str, engine: str, partitions: int, **configs: str) -> None:
    given = {"gnomon.view": "kv", "gnomon.view.engine": engine, **configs}
    await kafka.create_topic(name, partitions=partitions, configs=given)


async def contents(table: Table) -> dict[bytes, tuple[bytes, bool]]:
    """The values of all keys, and whether they expire."""
    entries = (await table.scan(limit=10_000)).entries
    return {entry.key: (entry.value, entry.expires_ms is not None) for entry in entries}


def events_of(path: Path) -> list[Any]:
    reader = ExportReader()
    found = list(reader.feed(path.read_bytes()))
    reader.close()
    return found


def hosted(broker: EmbeddedBroker, name: str = "settings", index: int = 0) -> HostedTable:
    node = broker.serving.broker
    view = node.partitions.use(node.topics.find(name), index).view
    assert isinstance(view, HostedTable)
    return view


async def ledgers_of_tables(broker: EmbeddedBroker) -> list[str]:
    return [name for name, _ in await list_ledgers(broker.serving.broker.storage.metadata, TABLES)]


@pytest.mark.parametrize(("engine", "partitions"), [("disk", 3), ("memory", 1)])
def test_an_export_is_imported_into_other_engines_and_partitions(
    tmp_path: Path, engine: str, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_import, "PENDING_BYTES", 2_000)
    path = tmp_path / "settings.kv"

    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        await create(kafka, "settings", engine, partitions)
        table = client.table("settings")
        for number, key in enumerate(KEYS):
            await table.put(key, b"value %d" % number)
        await table.put(b"large", b"\0" * 1_000_000)
        await table.put(b"no value", b"")
        await table.put(b"soon over", b"1", ttl_seconds=30)
        await table.put(b"late over", b"2", ttl_seconds=3_000)
        await table.put(b"deleted", b"3")
        await table.delete(b"deleted")
        for number in range(0, 900, 300):
            puts = [table_import.WriteRecord(b"%d" % each, b"n%03d" % each) for each in range(number, number + 300)]
            by_place: dict[int, list[Any]] = {}
            for put in puts:
                index, _ = await table._partition_of(put.key or b"")
                by_place.setdefault(index, []).append(put)
            for index, records in by_place.items():
                await client.write_batch("settings", records, partition=index)
        before = await contents(table)
        exported = await table.export_to(path)
        assert exported.size_bytes == path.stat().st_size
        statuses = await table.status(digest=True)
        assert [(each.revision, each.keys, each.digest.hex()) for each in exported.partitions] == [
            (each.revision, each.keys, each.digest) for each in statuses
        ]
        await trio.sleep(60)
        for other, count in (("memory", partitions), ("disk", 4)):
            name = f"{other}-{count}"
            await create(kafka, name, other, count)
            copy = client.table(name)
            done = await copy.import_from(path)
            assert (done.topic, done.keys, done.left_out, done.expired) == ("settings", len(before) - 1, 1, 0)
            after = await contents(copy)
            assert after == {key: entry for key, entry in before.items() if key != b"soon over"}
            first, second = await table.get(b"late over"), await copy.get(b"late over")
            assert first is not None
            assert second is not None
            assert first.expires_ms is not None
            assert second.expires_ms is not None
            assert abs(first.expires_ms - second.expires_ms) < 1_000

    play(run)
    assert [each.name for each in tmp_path.iterdir()] == ["settings.kv"]


def test_an_export_has_one_revision_of_a_table_that_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_snapshots, "PAGE_ENTRIES", 3)
    path = tmp_path / "file"

    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        states: list[list[dict[bytes, bytes]]] = [[], []]

        async def put(key: bytes, value: bytes | None) -> None:
            index, _ = await table._partition_of(key)
            if value is None:
                revision = await table.delete(key)
            else:
                revision = await table.put(key, value)
            if revision >= 0:
                last = dict(states[index][-1]) if states[index] else {}
                states[index].append(last | {key: value} if value is not None else last)
                if value is None:
                    del states[index][-1][key]
                assert len(states[index]) == revision + 1

        async def change() -> None:
            for number in range(100_000):
                await put(b"k%d" % (number % 57), None if number % 5 == 4 else b"w%d" % number)
                await trio.sleep(0.002)

        for number in range(100):
            await put(b"k%d" % number, b"v%d" % number)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(change)
            exported = await table.export_to(path, overwrite=True)
            nursery.cancel_scope.cancel()
        revisions = [each.revision for each in exported.partitions]
        head, *events = events_of(path)
        assert head.partitions == 2
        found: list[dict[bytes, bytes]] = []
        for event in events:
            if isinstance(event, ExportedPartition):
                assert event == exported.partitions[len(found)]
                found.append({})
            else:
                found[-1].update({key: packed[32:] for key, packed in event})
        assert found == [states[index][revision] for index, revision in enumerate(revisions)]
        assert sum(revisions) > 100

    with_table(scenario, partitions=2)


def test_a_table_without_records_is_exported_and_imported(tmp_path: Path) -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        exported = await table.export_to(tmp_path / "empty", overwrite=True)
        nothing = ExportedPartition(0, -1, 0, 0, TableDigest().digest())
        assert exported.partitions == [nothing, nothing._replace(partition=1)]
        assert (await table.import_from(tmp_path / "empty")).keys == 0

    with_table(scenario, partitions=2, engines=["disk"])


def test_an_existing_file_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"

    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await table.put(b"a", b"1")
        path.write_bytes(b"mine")
        with pytest.raises(FileExistsError):
            await table.export_to(path)
        path.unlink()
        finish = export_file.NewExportFile.finish

        def late(file: export_file.NewExportFile) -> None:
            path.write_bytes(b"mine")  # somebody else is faster
            finish(file)

        monkeypatch.setattr(export_file.NewExportFile, "finish", late)
        with pytest.raises(FileExistsError):
            await table.export_to(path)
        assert path.read_bytes() == b"mine"
        await table.export_to(path, overwrite=True)
        assert isinstance(events_of(path)[0], ExportHead)
        with pytest.raises(OSError, match="No such file"):
            await table.export_to(tmp_path / "absent" / "file")

    with_table(scenario, engines=["memory"])
    assert list(tmp_path.iterdir()) == [path]


class PartsRead:
    """The number of parts that were read, and an event that is set with the tenth."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.count = 0
        self.tenth = trio.Event()

    def add(self) -> None:
        self.count += 1
        if self.count == 10:
            self.tenth.set()


def export_in_parts(monkeypatch: pytest.MonkeyPatch) -> PartsRead:
    """From now on the parts of a snapshot have one entry, and those that are read are counted."""
    monkeypatch.setattr(table_snapshots, "PAGE_ENTRIES", 1)
    read, payloads = PartsRead(), SnapshotLedgers.payloads

    async def counted(ledgers: SnapshotLedgers, record: Any, at_once: int) -> Any:
        async with aclosing(payloads(ledgers, record, at_once)) as found:
            async for payload in found:
                read.add()
                yield payload

    monkeypatch.setattr(SnapshotLedgers, "payloads", counted)
    return read


async def fill(table: Table, count: int = 40) -> None:
    for number in range(count):
        await table.put(b"%03d" % number, b"v" * 40_000)


def test_an_export_goes_on_after_its_broker_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # 2
    read = export_in_parts(monkeypatch)
    path = tmp_path / "file"

    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await fill(table)
        read.restart()
        async with trio.open_nursery() as nursery:

            async def export() -> None:
                await table.export_to(path, overwrite=True)

            nursery.start_soon(export)
            await read.tenth.wait()
            await broker.restart()
        assert read.count > 45
        head, found, *parts = events_of(path)
        assert (head.topic, found.keys, len(parts)) == ("settings", 40, 40)

    with_table(scenario)


def test_an_export_without_a_broker_fails_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = export_in_parts(monkeypatch)

    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await fill(table)
        async with trio.open_nursery() as nursery:

            async def export() -> None:
                with pytest.raises(Unavailable, match=r"partition 0 could not be exported, in .* no broker answers"):
                    await table.export_to(tmp_path / "file")

            nursery.start_soon(export)
            await read.tenth.wait()
            broker.machine.kill()
        await broker.start()

    with_table(scenario, engines=["disk"])
    assert list(tmp_path.iterdir()) == []


def test_a_slow_reader_gets_its_snapshot_although_newer_ones_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    read = export_in_parts(monkeypatch)

    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await fill(table)
        await table.snapshot()
        partition = (await table._all())[0]
        before = read.count
        async with partition.parts() as items:
            revision, keys, _, digest = await anext(items)
            await trio.sleep(5)
            assert (revision, keys) == (39, 40)
            assert read.count < before + 20, "the broker reads no further than the client has room"
            for number in range(3):
                await table.put(b"new", b"%d" % number)
                await table.snapshot()
            assert [name.rpartition("/")[2] for name in await ledgers_of_tables(broker)] == ["39", "42"]
            found = TableDigest()
            async for part in items:
                found.add(decode_part(part)[0])
            assert found.digest() == digest
        await table.put(b"new", b"once more")
        await table.snapshot()
        assert [name.rpartition("/")[2] for name in await ledgers_of_tables(broker)] == ["43"]

    with_table(scenario, engines=["disk"])


def test_an_export_begins_again_when_its_snapshot_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # 2
    read = export_in_parts(monkeypatch)

    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await fill(table)
        ledgers = hosted(broker).snapshots.newest.ledgers
        began = []
        load = SnapshotLedgers.payloads

        async def replaced(self: SnapshotLedgers, record: Any, at_once: int) -> Any:
            began.append(record.revision)
            async with aclosing(load(self, record, at_once)) as found:
                async for number, payload in numbered(found):
                    if number == 7 and len(began) == 1:
                        await table.put(b"000", b"meanwhile")
                        ledgers._read.clear()  # as a new leader, which does not know the reader
                        await table.snapshot()
                        raise table_admin_methods.SnapshotDamaged("the ledger does not exist")
                    yield payload

        monkeypatch.setattr(SnapshotLedgers, "payloads", replaced)
        await table.export_to(tmp_path / "file")
        assert began == [39, 40]
        _, found, first, *_ = events_of(tmp_path / "file")
        assert (found.revision, first[0][1][32:]) == (40, b"meanwhile")

    with_table(scenario, engines=["disk"])
    assert read.count > 45


async def numbered(items: Any) -> Any:
    number = 0
    async for item in items:
        yield number, item
        number += 1


def test_a_damaged_snapshot_is_not_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # 1
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await table.put(b"a", b"1")
        monkeypatch.setattr(table_snapshots.TableDigest, "digest", lambda self: b"other than what is stored" * 2)
        await table.snapshot()
        monkeypatch.undo()
        with pytest.raises(BrokerFailed, match="the snapshot of partition 0 at revision 0 is damaged: it has 1 keys"):
            await table.export_to(tmp_path / "file")
        await table.put(b"a", b"2")
        await table.export_to(tmp_path / "file")

    with_table(scenario, engines=["memory"])


# --- imports ------------------------------------------------------------------------------------------------------


def test_a_table_with_keys_takes_no_import(tmp_path: Path) -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await table.put(b"a", b"1")
        await table.put(b"b", b"2")
        await table.export_to(tmp_path / "file", overwrite=True)
        with pytest.raises(TableNotEmpty, match="table 'settings' has 2 keys") as refused:
            await table.import_from(tmp_path / "file")
        assert refused.value.keys == 2
        await table.delete(b"a")
        await table.delete(b"b")
        assert (await table.import_from(tmp_path / "file")).keys == 2

    with_table(scenario)


def test_nothing_of_a_damaged_file_is_imported(tmp_path: Path) -> None:  # 1
    path = tmp_path / "file"

    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        for name in ("settings", "copy"):
            await create(kafka, name, "memory", 1)
        await kafka.create_topic("plain")
        table, copy = client.table("settings"), client.table("copy")
        for number in range(2_000):
            await client.write("settings", b"v" * 100, key=b"%05d" % number)
        await table.export_to(path)
        whole = path.read_bytes()
        for data in (whole[:-1], whole[:-50_000], whole[:-10] + b"\0" + whole[-9:], b"nothing of the kind", b""):
            path.write_bytes(data)
            with pytest.raises(ExportDamaged):
                await copy.import_from(path)
        assert (await copy.status())[0].revision == -1
        path.write_bytes(whole)
        with pytest.raises(NotATable):
            await client.table("plain").import_from(path)
        with pytest.raises(FileNotFoundError):
            await copy.import_from(tmp_path / "absent")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(table_import, "ENTRY_BYTES_MAX", 100)
            with pytest.raises(InvalidCall, match="the value of the key b'00000' has 132 bytes"):
                await copy.import_from(path)
        assert (await copy.import_from(path)).keys == 2_000

    play(run)


def test_few_bytes_wait_for_their_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # 2
    monkeypatch.setattr(table_import, "PENDING_BYTES", 100_000)
    monkeypatch.setattr(table_import, "BATCH_BYTES", 1_000_000)
    sizes, write = [], table_import._Import._write

    async def sized(self: Any, index: int, records: Any) -> None:
        sizes.append(len(records))
        await write(self, index, records)

    monkeypatch.setattr(table_import._Import, "_write", sized)

    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        await create(kafka, "settings", "memory", 1)
        await create(kafka, "copy", "memory", 5)
        await fill(client.table("settings"))
        await client.table("settings").export_to(tmp_path / "file")
        await client.table("copy").import_from(tmp_path / "file")

    play(run)
    assert sum(sizes) == 40
    assert max(sizes) <= 3, "three records have more than 100,000 bytes"


async def imported_into(client: NativeClient, name: str, path: Path) -> Exception | None:
    try:
        await client.table(name).import_from(path)
    except Exception as error:
        return error
    return None


def test_an_import_that_fails_half_way_says_so(tmp_path: Path) -> None:  # 3
    path = tmp_path / "file"

    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        await create(kafka, "settings", "disk", 1)
        await create(kafka, "small", "disk", 1, **{"max.message.bytes": "20000"})
        await create(kafka, "smaller", "disk", 1, **{"max.message.bytes": "1500"})
        table = client.table("settings")
        for number in range(100):
            await table.put(b"%03d" % number, b"v" * (19_000 if number == 50 else 1_000))
        await table.export_to(path)
        assert await imported_into(client, "small", path) is None, "batches are as small as the topic wants them"
        await table.put(b"000", b"v" * 19_000)
        await table.export_to(path, overwrite=True)
        failed = await imported_into(client, "smaller", path)
        assert isinstance(failed, TooLarge), "the first batch was refused"
        await table.put(b"000", b"v")
        await table.export_to(path, overwrite=True)
        failed = await imported_into(client, "smaller", path)
        assert isinstance(failed, ImportIncomplete)
        assert isinstance(failed.__cause__, TooLarge)
        assert str(failed).startswith("table 'smaller' has a part of the file: delete the topic before")
        assert isinstance(await imported_into(client, "smaller", path), TableNotEmpty)

    play(run)


def test_a_file_that_changes_after_it_was_checked_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # 1
    path = tmp_path / "file"
    rewind = export_file.ExportFile.rewind

    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        for name in ("settings", "copy"):
            await create(kafka, name, "memory", 1)
        await fill(client.table("settings"))
        await client.table("settings").export_to(path)

        def changed(file: export_file.ExportFile) -> None:
            rewind(file)
            with path.open("r+b") as opened:
                opened.truncate(700_000)

        monkeypatch.setattr(export_file.ExportFile, "rewind", changed)
        with pytest.raises(ImportIncomplete, match="the file was changed, or can be read no more: the file is cut off"):
            await client.table("copy").import_from(path)

    play(run)


def test_an_import_goes_on_after_its_broker_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    written, write = [], table_import._Import._write

    async def counted(self: Any, index: int, records: Any) -> None:
        await write(self, index, records)
        written.append(index)
        if len(written) == 4:
            half.set()

    half = trio.Event()
    monkeypatch.setattr(table_import._Import, "_write", counted)

    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        for name in ("settings", "copy"):
            await create(kafka, name, "disk", 2)
        table, copy = client.table("settings"), client.table("copy")
        await fill(table)
        await table.export_to(path)
        async with trio.open_nursery() as nursery:

            async def import_() -> None:
                assert (await copy.import_from(path)).keys == 40

            nursery.start_soon(import_)
            await half.wait()
            await broker.restart()
        assert len(written) > 7
        assert await contents(copy) == await contents(table)

    play(run)


def test_a_table_that_differs_from_the_file_in_the_end_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # 4
    path = tmp_path / "file"

    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        changes: Sequence[tuple[bytes, bytes]] = [(b"more", b"1"), (b"a", b"other"), (b"over", b"other")]
        await create(kafka, "settings", "memory", 1)
        table = client.table("settings")
        await table.put(b"a", b"1")
        await table.put(b"over", b"2", ttl_seconds=60)
        await table.export_to(path)
        compare = table_import._Import.compare
        for number, (key, value) in enumerate(changes):
            copy = client.table(f"copy{number}")
            await create(kafka, copy.topic, "memory", 1)

            async def changed(self: Any, copy: Table = copy, key: bytes = key, value: bytes = value) -> int:
                await copy.put(key, value, ttl_seconds=60 if key == b"over" else None)
                return await compare(self)

            monkeypatch.setattr(table_import._Import, "compare", changed)
            failed = await imported_into(client, copy.topic, path)
            assert isinstance(failed, ImportIncomplete)
            assert "it was written to meanwhile" in str(failed)

        async def later(self: Any) -> int:
            await trio.sleep(61)
            return await compare(self)

        monkeypatch.setattr(table_import._Import, "compare", later)
        await create(kafka, "copy", "memory", 1)
        done = await client.table("copy").import_from(path)
        assert (done.keys, done.left_out, done.expired) == (2, 0, 1)

    play(run)


# --- lists --------------------------------------------------------------------------------------------------------


def test_tables_are_listed_in_order_over_several_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_admin_methods, "TABLES_MAX", 2)
    monkeypatch.setattr(table_admin_methods, "TOPICS_PER_TURN", 3)

    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        assert await client.tables() == []
        names = [f"table-{number}" for number in (4, 1, 7, 0, 5, 9, 3)]
        for number, name in enumerate(names):
            await create(kafka, name, ENGINES[number % 2], number + 1)
            await kafka.create_topic(f"plain-{number}")
        listed = [ListedTable(name, ENGINES[number % 2], number + 1) for number, name in enumerate(names)]
        assert await client.tables() == sorted(listed, key=lambda each: each.name)
        async with native(broker, "other") as other:
            assert len(await other.tables()) == 7

    play(run)
