"""Watches of a table on one broker; numbers cite the invariants of `table_watch`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from native_calls import native, play

from gnomon.broker.native.tables.table_methods import PROGRESS_SECONDS
from gnomon.broker.tables.watches.table_watches import KEPT_BYTES
from gnomon.client.client import NativeClient
from gnomon.client.errors import BrokerUnreachable, Compacted, InvalidCall, NotATable
from gnomon.client.leaders import TRY_SECONDS
from gnomon.client.tables import table_watch
from gnomon.client.tables.table import Table
from gnomon.client.tables.table_partition import TablePartition
from gnomon.client.tables.table_watch import AHEAD_EVENTS, TableEvent, TableWatch
from gnomon.log.tables.operations import DeleteKey, PutKey
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker
from gnomon.wire.kafka.records import Record, build_batch

sys.path.insert(0, str(Path(__file__).parent))  # for the module beside these tests: test folders are no packages

from table_on_broker import with_table


async def next_events(watch: TableWatch, count: int) -> list[tuple[str, bytes, bytes | None, int]]:
    with trio.fail_after(60):
        found = [await watch.__anext__() for _ in range(count)]
    return [(event.kind, event.key, event.value, event.revision) for event in found]


async def nothing_follows(watch: TableWatch) -> None:
    with trio.move_on_after(3):
        pytest.fail(f"unexpected {await watch.__anext__()}")


def test_a_watch_shows_the_present_values_and_then_every_change() -> None:  # 2
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await table.put(b"b", b"1")
        await table.put(b"a", b"2")
        async with table.watch() as watch:
            assert await next_events(watch, 2) == [("current", b"a", b"2", 1), ("current", b"b", b"1", 0)]
            await table.put(b"a", b"3")
            await table.delete(b"b")
            await table.put(b"c", b"4", ttl_seconds=0.5)
            assert await next_events(watch, 4) == [
                ("put", b"a", b"3", 2),
                ("delete", b"b", None, 3),
                ("put", b"c", b"4", 4),
                ("expired", b"c", None, 5),
            ]
            await nothing_follows(watch)

    with_table(scenario)


def test_changes_between_the_pages_of_present_values_are_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:  # 2
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        keys = [b"%d" % number for number in range(5)]
        written = {key: [await table.put(key, b"")] for key in keys}
        scan = TablePartition.scan

        async def changed_after(partition: TablePartition, *args: Any, **named: Any) -> Any:
            page = await scan(partition, *args, **named)
            for key in keys[:1], keys[-1:]:
                written[key[0]].append(await table.put(key[0], b""))
            return page

        monkeypatch.setattr(TablePartition, "scan", changed_after)
        async with table.watch() as watch:
            with trio.fail_after(60):
                while len(written[keys[0]]) < 6:  # noqa: ASYNC110 - a page makes no event
                    await trio.sleep(0.1)
                last = await table.put(b"last", b"")
                shown: dict[bytes, list[int]] = {}
                while (event := await watch.__anext__()).revision < last:
                    shown.setdefault(event.key, []).append(event.revision)
        assert shown == {**written, keys[-1]: written[keys[-1]][-2:]}

    monkeypatch.setattr(table_watch, "PAGE_ENTRIES", 1)
    with_table(scenario, engines=["disk"])


def test_a_watch_shows_the_keys_with_its_prefix_only() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        async with table.watch(b"a\xff", initial=False) as watch:
            await trio.sleep(1)
            await table.txn(then=[PutKey(key, key) for key in (b"a", b"a\xff", b"a\xff\xff", b"b")])
            assert await next_events(watch, 2) == [
                ("put", b"a\xff", b"a\xff", 1),
                ("put", b"a\xff\xff", b"a\xff\xff", 2),
            ]
            await nothing_follows(watch)

    with_table(scenario)


def test_a_watch_from_a_revision_shows_what_was_changed_since() -> None:  # 1
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        for number in range(5):
            await table.put(b"a", b"%d" % number)
        async with table.watch(b"a", revision=3) as watch:
            assert await next_events(watch, 2) == [("put", b"a", b"3", 3), ("put", b"a", b"4", 4)]
            await nothing_follows(watch)
        with pytest.raises(InvalidCall, match="revision 6 is in the future: the next one is 5"):
            await table.watch(revision=6).__anext__()
        await table.txn(then=[PutKey(b"a%d" % number, b"") for number in (5, 6, 7)])
        async with table.watch(b"a", revision=6) as watch:
            assert await next_events(watch, 2) == [("put", b"a6", b"", 6), ("put", b"a7", b"", 7)]
        with pytest.raises(InvalidCall):
            table.watch(revision=-1)

    with_table(scenario)


def test_records_of_kafka_producers_are_changes_too() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        async with table.watch(revision=0) as watch:
            batch = build_batch([Record(0, 0, b"a", b"1"), Record(1, 0, b"a", None)], base_timestamp=1)
            await kafka.produce("settings", batch)
            assert await next_events(watch, 2) == [("put", b"a", b"1", 0), ("delete", b"a", None, 1)]

    with_table(scenario)


def test_a_watch_goes_on_after_its_broker_was_killed() -> None:  # 1
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await table.put(b"a", b"0")
        async with table.watch() as watch:
            assert await next_events(watch, 1) == [("current", b"a", b"0", 0)]
            for number in range(1, 6):
                await table.put(b"a", b"%d" % number)
                if number % 2:
                    await broker.restart()
            assert await next_events(watch, 5) == [("put", b"a", b"%d" % number, number) for number in range(1, 6)]
            await nothing_follows(watch)

    with_table(scenario)


def test_a_watch_without_changes_for_long_goes_on_after_its_broker_was_killed() -> None:  # 1
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        async with table.watch() as watch:
            await trio.sleep(2 * TRY_SECONDS)
            await broker.restart()
            await trio.sleep(5)
            await table.put(b"a", b"1")
            assert await next_events(watch, 1) == [("put", b"a", b"1", 0)]
            broker.machine.kill()
            began = trio.current_time()
            with pytest.raises(BrokerUnreachable):
                await watch.__anext__()
            assert trio.current_time() - began < TRY_SECONDS + 5

    with_table(scenario)


def test_a_slow_reader_gets_everything_later_and_costs_its_broker_no_memory() -> None:  # 3
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        count = 8 * AHEAD_EVENTS
        async with table.watch(revision=0) as watch:
            for first in range(0, count, 500):
                records = [Record(delta, 0, b"%d" % (first + delta), bytes(500)) for delta in range(500)]
                assert (await kafka.produce("settings", build_batch(records, base_timestamp=1))).error_code == 0
            await trio.sleep(5)
            (led,) = broker.serving.broker.partitions.with_own_log()
            watches: Any = led.partition.view.watches  # type: ignore[union-attr]
            (watching,) = watches._watches
            assert watching.position < count // 2
            assert watches._kept_bytes <= KEPT_BYTES
            assert [event[3] for event in await next_events(watch, count)] == list(range(count))

    with_table(scenario)


def test_a_thousand_watches_on_a_connection_follow_their_keys() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        watches = [table.watch(b"key %04d" % number, initial=False) for number in range(1_000)]
        await trio.sleep(2)
        await table.txn(then=[PutKey(b"key %04d" % number, b"%d" % number) for number in range(1_000)])
        await table.txn(then=[DeleteKey(b"key 0007")])
        with trio.fail_after(PROGRESS_SECONDS / 2):
            for number, watch in enumerate(watches):
                assert await next_events(watch, 1) == [("put", b"key %04d" % number, b"%d" % number, number)]
        assert await next_events(watches[7], 1) == [("delete", b"key 0007", None, 1_000)]
        for watch in watches:
            watch.close()
        await trio.sleep(1)
        assert len(broker.serving.broker.partitions.with_own_log()[0].partition.view.watches) == 0  # type: ignore[union-attr]

    with_table(scenario)


def test_a_watch_of_several_partitions_shows_each_partitions_changes_in_order() -> None:  # 1
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        async with table.watch(revision={0: 0, 1: 0, 2: 0}) as watch:
            for number in range(30):
                await table.put(b"key %d" % (number % 10), b"%d" % number)
            with trio.fail_after(60):
                events: list[TableEvent] = [await watch.__anext__() for _ in range(30)]
        for partition in range(3):
            revisions = [event.revision for event in events if event.partition == partition]
            assert revisions == list(range(len(revisions)))
        assert sorted(int(event.value or b"") for event in events) == list(range(30))
        with pytest.raises(InvalidCall, match="a revision of each of the partitions 0 to 2"):
            await table.watch(revision=0).__anext__()

    with_table(scenario, partitions=3)


def test_a_watch_that_is_closed_or_whose_client_is_closed_ends() -> None:  # 4
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        watch = table.watch()
        watch.close()
        with pytest.raises(StopAsyncIteration):
            await watch.__anext__()
        async with native(broker, "other") as client:
            late = client.table("settings").watch()
        with pytest.raises(StopAsyncIteration):
            await late.__anext__()

    with_table(scenario)


def test_an_ordinary_topic_cannot_be_watched() -> None:
    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        await kafka.create_topic("orders")
        with pytest.raises(NotATable):
            await client.table("orders").watch().__anext__()
        assert Compacted(7).first == 7

    play(run)
