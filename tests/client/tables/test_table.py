"""Tables of the native client on one broker."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from inspect import isfunction, signature
from pathlib import Path
from typing import Any

import pytest
import trio
from native_calls import native, play

import gnomon
from gnomon.broker.native.tables import table_methods
from gnomon.client.client import NativeClient
from gnomon.client.errors import (
    CompareFailed,
    CrossPartition,
    InvalidCall,
    InvalidRecords,
    NoSuchTopic,
    NotATable,
    TooLarge,
)
from gnomon.client.tables.blocking_table import BlockingTable
from gnomon.client.tables.compared import Compared
from gnomon.client.tables.table import Table
from gnomon.log.tables.changes import TTL
from gnomon.log.tables.operations import DeleteKey, GetKey, IncrementKey, PutKey
from gnomon.log.tables.table_entry import TableEntry
from gnomon.runtime.settings.settings import TableSettings
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.partitioner import partition_of
from gnomon.wire.kafka.records import Record, build_batch

sys.path.insert(0, str(Path(__file__).parent))  # for the module beside these tests: test folders are no packages

from table_on_broker import log_of, with_table


def entry(key: bytes, value: bytes, revision: int, create_revision: int, version: int, **fields: Any) -> TableEntry:
    return TableEntry(key, value, revision, create_revision, version, **{"expires_ms": None, "partition": 0, **fields})


async def produced(kafka: BrokerClient, *records: Record, partition: int = 0, **fields: Any) -> Any:
    numbered = [record._replace(offset_delta=delta) for delta, record in enumerate(records)]
    batch = build_batch(numbered, **{"base_timestamp": 1_000, **fields})
    return await kafka.produce("settings", batch, partition=partition)


def test_a_value_is_read_as_it_was_put() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        assert await table.get(b"colour") is None
        assert await table.put(b"colour", b"green") == 0
        assert await table.put(b"colour", b"blue") == 1
        assert await table.put(b"", b"\0") == 2
        assert await table.get(b"colour") == entry(b"colour", b"blue", 1, 0, 2)
        assert await table.get(b"") == entry(b"", b"\0", 2, 2, 1)
        assert await table.delete(b"colour") == 3
        assert await table.delete(b"colour") == -1
        assert await table.get(b"colour", stale=True) is None
        await trio.sleep(10)
        stale = await table.get(b"", stale=True)
        assert stale is not None
        assert stale.age_ms == 0  # no other broker may have written
        assert await table.put(b"colour", b"red") == 4
        assert await table.get(b"colour") == entry(b"colour", b"red", 4, 4, 1)

    with_table(scenario)


def test_the_log_has_the_effects_and_nothing_else() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await table.put(b"a", b"1")
        with pytest.raises(CompareFailed):
            await table.compare_and_set(b"a", expected=b"other", value=b"lost")
        await table.delete(b"absent")
        await table.delete(b"a")
        assert await log_of(kafka) == [[(b"a", b"1")], [(b"a", None)]]

    with_table(scenario)


def test_a_write_at_another_revision_is_refused_with_the_present_entry() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        assert await table.put(b"a", b"1", revision=-1) == 0
        with pytest.raises(CompareFailed, match="has revision 0 in table 'settings'") as refused:
            await table.put(b"a", b"2", revision=-1)
        assert refused.value.current == entry(b"a", b"1", 0, 0, 1)
        assert await table.put(b"a", b"2", revision=0) == 1
        with pytest.raises(CompareFailed):
            await table.delete(b"a", revision=0)
        assert await table.delete(b"a", revision=1) == 2
        with pytest.raises(CompareFailed, match="is absent") as refused:
            await table.put(b"a", b"2", revision=1)
        assert refused.value.current is None

    with_table(scenario)


def test_compare_and_set_looks_at_the_value() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        assert await table.compare_and_set(b"a", expected=None, value=b"1") == 0
        assert await table.compare_and_set(b"a", expected=b"1", value=b"2") == 1
        with pytest.raises(CompareFailed) as refused:
            await table.compare_and_set(b"a", expected=b"1", value=b"3")
        assert refused.value.current == entry(b"a", b"2", 1, 0, 2)

    with_table(scenario)


def test_of_many_that_create_a_key_at_once_one_succeeds() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        won: list[int] = []
        lost: list[TableEntry | None] = []

        async def create(number: int) -> None:
            async with native(broker, f"creator {number}") as client:
                try:
                    await client.table("settings").put(b"leader", b"%d" % number, revision=-1)
                except CompareFailed as refused:
                    lost.append(refused.current)
                else:
                    won.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(create, number)
        (winner,) = won
        assert lost == [entry(b"leader", b"%d" % winner, 0, 0, 1)] * 19

    with_table(scenario)


def test_increments_of_many_clients_are_all_counted() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        totals: list[int] = []

        async def count(number: int) -> None:
            async with native(broker, f"counter {number}") as client:
                totals.extend([await client.table("settings").increment(b"n") for _ in range(10)])

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(count, number)
        assert sorted(totals) == list(range(1, 51))
        assert await table.increment(b"n", by=-50) == 0
        await table.put(b"text", b"x")
        with pytest.raises(InvalidCall, match="is no decimal number of 64 bits"):
            await table.increment(b"text")

    with_table(scenario)


def test_each_field_is_compared_by_each_operator() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await table.put(b"before", b"")
        await table.put(b"a", b"l")
        await table.put(b"a", b"m")
        present: list[tuple[Compared, list[Any]]] = [  # of each the operands below, equal and above
            (table.value(b"a"), [b"l", b"m", b"n"]),
            (table.version(b"a"), [1, 2, 3]),
            (table.revision(b"a"), [1, 2, 3]),
            (table.create_revision(b"a"), [0, 1, 2]),
        ]
        absent: list[tuple[Compared, list[Any]]] = [
            (table.version(b"absent"), [-1, 0, 1]),
            (table.revision(b"absent"), [-2, -1, 0]),
            (table.create_revision(b"absent"), [-2, -1, 0]),
        ]
        for field, operands in (*present, *absent):
            for operand, holds in zip(operands, ("!=>", "==", "!=<"), strict=True):
                for operator, comparison in (
                    ("==", field == operand),
                    ("!=", field != operand),
                    ("<", field < operand),
                    (">", field > operand),
                ):
                    done = await table.txn(compare=[comparison])
                    assert done.succeeded == (operator in holds), comparison
        for comparison, succeeded in (
            (table.value(b"absent") == None, True),  # noqa: E711 - a comparison of a transaction
            (table.value(b"a") == None, False),  # noqa: E711 - a comparison of a transaction
            (table.value(b"a") != None, True),  # noqa: E711 - a comparison of a transaction
            (table.value(b"absent") < b"x", False),
            (table.value(b"absent") > b"", False),
        ):
            assert (await table.txn(compare=[comparison])).succeeded is succeeded

    with_table(scenario)


def test_a_transaction_does_one_of_its_branches_in_one_batch() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await table.put(b"a", b"1")
        done = await table.txn(
            compare=[table.value(b"a") == b"1", table.version(b"b") == 0, table.revision(b"a") < 1],
            then=[PutKey(b"b", b"2"), GetKey(b"a"), GetKey(b"b"), IncrementKey(b"n", 7), DeleteKey(b"a")],
            otherwise=[GetKey(b"a")],
        )
        assert done.succeeded
        assert done.revision == 3
        assert done.answers == [1, entry(b"a", b"1", 0, 0, 1), entry(b"b", b"2", 1, 1, 1), 7, 3]
        assert await log_of(kafka) == [[(b"a", b"1")], [(b"b", b"2"), (b"n", b"7"), (b"a", None)]]
        done = await table.txn(
            compare=[table.create_revision(b"b") != 1],
            then=[PutKey(b"c", b"3")],
            otherwise=[GetKey(b"c"), GetKey(b"b")],
        )
        assert (done.succeeded, done.revision) == (False, -1)
        assert done.answers == [None, entry(b"b", b"2", 1, 1, 1)]

    with_table(scenario)


def test_a_transaction_of_1000_parts_is_done_as_a_whole() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        keys = [b"key %03d" % number for number in range(500)]
        for _ in range(2):
            done = await table.txn(
                compare=[table.version(key) < 2 for key in keys], then=[PutKey(key, b"of " + key) for key in keys]
            )
            assert done.succeeded
        assert done.revision == 999
        assert await table.count() == 500
        found = await table.get(keys[-1])
        assert found == entry(keys[-1], b"of key 499", 999, 499, 2)

    with_table(scenario)


def test_records_of_kafka_producers_are_values_of_the_same_table() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await table.put(b"a", b"1")
        answer = await produced(kafka, Record(key=b"a", value=b"2"), Record(key=b"b", value=b"3"), Record(key=b"a"))
        assert answer.error_code == ErrorCode.NONE
        assert await table.get(b"a") is None
        assert await table.get(b"b") == entry(b"b", b"3", 2, 2, 1)
        with pytest.raises(CompareFailed):
            await table.put(b"a", b"4", revision=0)

    with_table(scenario)


def test_nobody_reads_half_of_a_long_batch() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        keys = [b"%04d" % number for number in range(3_500)]
        batches = [[Record(key=key, value=b"%d" % number) for key in keys] for number in range(4)]
        assert (await produced(kafka, *batches[0])).error_code == ErrorCode.NONE
        shown = [{each.value for each in (await table.scan(limit=10_000)).entries}]

        async def read() -> None:
            while shown[-1] != {b"3"}:
                shown.append({each.value for each in (await table.scan(limit=10_000, stale=True)).entries})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            for batch in batches[1:]:
                assert (await produced(kafka, *batch)).error_code == ErrorCode.NONE
        assert [len(values) for values in shown] == [1] * len(shown)

    with_table(scenario)


def test_a_producer_is_refused_what_no_table_takes() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        for record, text in (
            (Record(value=b"1"), "has no key"),
            (Record(key=b"k" * 501, value=b"1"), "has 501 bytes"),
            (Record(key=b"k", value=b"1", headers=((TTL, b"soon"),)), "from 1 to"),
        ):
            answer = await produced(kafka, Record(key=b"a", value=b"0"), record)
            assert answer.error_code == ErrorCode.INVALID_RECORD
            assert text in answer.error_message
        assert await table.count() == 0

    with_table(scenario)


def test_the_reason_of_a_refused_batch_is_logged_once_in_a_minute() -> None:
    def reasons(broker: EmbeddedBroker) -> list[Any]:
        return [dict(fields)["reason"] for event, fields in broker.events if event == "batch_refused"]

    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        for _ in range(3):
            await produced(kafka, Record(value=b"1"))
        await produced(kafka, *[Record(key=b"a", value=b"0")] * 600, Record(value=b"1"))
        assert reasons(broker) == ["record 0 has no key: each record of a table has one"]
        await trio.sleep(60)
        await produced(kafka, *[Record(key=b"a", value=b"0")] * 600, Record(value=b"1"))
        assert [reason.partition(" has")[0] for reason in reasons(broker)] == ["record 0", "record 600"]

    with_table(scenario)


def test_keys_lie_where_kafkas_default_partitioner_puts_them() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        keys = [b"key %d" % number for number in range(40)]
        for key in keys:
            await table.put(key, b"of " + key)
        for key in keys:
            found = await table.get(key)
            assert found is not None
            assert (found.value, found.partition) == (b"of " + key, partition_of(key, 3))
        assert await table.count(b"key ") == 40
        assert await table.count(b"key 1") == 11
        wrong = (partition_of(b"key 0", 3) + 1) % 3
        answer = await produced(kafka, Record(key=b"key 0", value=b"1"), partition=wrong)
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert "partitioner=murmur2_random" in answer.error_message
        with pytest.raises(CrossPartition, match="the keys lie in partitions"):
            await table.txn(then=[PutKey(key, b"") for key in keys])
        pages, after = [], None
        while True:
            page = await table.scan(b"key ", after=after, limit=7)
            assert len(page.entries) <= 7
            assert set(page.revisions) == {0, 1, 2}
            pages += page.keys
            if (after := page.after) is None:
                break
        assert pages == sorted(keys)
        assert (await table.scan(b"key 1", keys_only=True)).keys == sorted(key for key in keys if key < b"key 2")[1:]

    with_table(scenario, partitions=3)


def test_a_page_names_the_revision_of_each_partition_that_it_shows() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        assert (await table.scan()).revisions == {0: -1, 1: -1, 2: -1}
        keys = [
            next(key for number in range(99) if partition_of(key := b"%d" % number, 3) == index) for index in (1, 2)
        ]
        await table.put(keys[0], b"")
        for _ in range(2):
            await table.put(keys[1], b"")
        page = await table.scan(b"none")
        assert (page.entries, page.after, page.revisions) == ([], None, {0: -1, 1: 0, 2: 1})

    with_table(scenario, partitions=3)


def test_pages_that_end_early_leave_out_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        keys = [b"%02d" % number for number in range(40)]
        for key in keys:  # those of partition 0 have long values, so that its pages end first
            await table.put(key, bytes(300 if partition_of(key, 3) == 0 else 1))
        found, after = [], None
        while True:
            page = await table.scan(after=after)
            found += page.keys
            if (after := page.after) is None:
                break
        assert found == keys

    monkeypatch.setattr(table_methods, "SCAN_BYTES_MAX", 600)
    with_table(scenario, partitions=3)


ANY_BYTES = (
    b"",
    b"\0",
    b"\0\0",
    b"a",
    b"a\0",
    b"a\xff",
    b"a\xff\xff",
    b"b",
    b"\xff",
    b"\xff" * 499,
    b"\xff" * 500,
    b"\0" * 500,
)


def test_keys_have_any_bytes_and_prefixes_end_anywhere() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        async with table.watch() as watch:
            await trio.sleep(1)
            for number, key in enumerate(ANY_BYTES):
                assert await table.put(key, key + b"\0\xff") == number
            for _ in range(2):
                for number, key in enumerate(ANY_BYTES):
                    assert await table.get(key) == entry(key, key + b"\0\xff", number, number, 1)
                    found = sorted(each for each in ANY_BYTES if each.startswith(key))
                    assert (await table.scan(key)).keys == found
                    assert await table.count(key) == len(found)
                    after = [each for each in sorted(ANY_BYTES) if each > key]
                    assert (await table.scan(after=key)).keys == after
                await broker.restart()
            for number, key in enumerate(ANY_BYTES):
                event = await watch.__anext__()
                assert (event.key, event.revision) == (key, number)

    with_table(scenario)


def test_a_value_is_gone_when_its_time_to_live_is_over_and_not_before() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await table.put(b"a", b"1", ttl_seconds=2.5)
        await table.put(b"b", b"1", ttl_seconds=2.5)
        await table.put(b"b", b"2")
        expires_ms = [(await table.get(key) or entry(b"", b"", 0, 0, 0)).expires_ms for key in (b"a", b"b")]
        assert abs((expires_ms[0] or 0) - broker.client_world.clock.wall_ms() - 2_500) < 50
        assert expires_ms[1] is None
        await trio.sleep(2.4)
        assert await table.get(b"a") is not None
        await trio.sleep(0.6)
        assert await table.get(b"a") is None
        assert await table.get(b"b") == entry(b"b", b"2", 2, 1, 2)
        assert await table.increment(b"after") == 1
        found = await table.get(b"after")
        assert found is not None
        assert found.revision == 4

    with_table(scenario)


def test_each_key_lives_at_least_as_long_as_its_time_to_live_and_at_most_a_second_longer() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        due: dict[bytes, float] = {}
        async with table.watch() as watch:
            await trio.sleep(1)
            for number in range(30):
                key, ttl_seconds = b"%d" % number, 0.05 + 0.13 * number
                await table.put(key, b"", ttl_seconds=ttl_seconds)
                due[key] = trio.current_time() + ttl_seconds
            with trio.fail_after(60):
                while due:
                    event = await watch.__anext__()
                    if event.kind == "expired":
                        assert -0.01 < trio.current_time() - due.pop(event.key) < 1

    with_table(scenario)


def test_the_header_of_a_producer_is_the_time_to_live_from_the_time_of_its_record_on() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        now_ms = broker.client_world.clock.wall_ms()
        header = ((TTL, b"2500"),)
        await produced(kafka, Record(key=b"a", value=b"1", headers=header), base_timestamp=now_ms)
        await produced(kafka, Record(key=b"b", value=b"1", headers=header), base_timestamp=now_ms - 2_000)
        await trio.sleep(0.4)
        assert (await table.scan()).keys == [b"a", b"b"]
        await trio.sleep(1)
        assert (await table.scan()).keys == [b"a"]
        await trio.sleep(2)
        assert (await table.scan()).keys == []

    with_table(scenario)


def test_a_table_is_the_same_after_its_broker_was_killed() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await table.put(b"a", b"1", ttl_seconds=100)
        await produced(kafka, Record(key=b"b", value=b"2"), Record(key=b"a", value=b"3"))
        await table.delete(b"b")
        await table.increment(b"n", 5)
        before = (await table.scan()).entries
        await broker.restart()
        assert (await table.scan()).entries == before
        assert await table.increment(b"n") == 6

    with_table(scenario)


def test_what_no_table_takes_is_refused_before_it_is_sent() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        refused: list[Callable[[], Awaitable[object]]] = [
            lambda: table.put(b"k" * 501, b""),
            lambda: table.put("text", b""),  # type: ignore[arg-type]
            lambda: table.put(b"a", "text"),  # type: ignore[arg-type]
            lambda: table.put(b"a", b"", ttl_seconds=0),
            lambda: table.put(b"a", b"", ttl_seconds="1"),  # type: ignore[arg-type]
            lambda: table.put(b"a", b"", revision=-2),
            lambda: table.increment(b"a", 1 << 63),
            lambda: table.scan(limit=0),
            lambda: table.scan(limit=10_001),
            lambda: table.txn(),
            lambda: table.txn(then=[PutKey(b"a", b""), DeleteKey(b"a")]),
            lambda: table.txn(then=[GetKey(b"a")] * 1_001),
            lambda: table.txn(compare=[True]),  # type: ignore[list-item]
            lambda: table.txn(compare=[table.value(b"a") == 1]),
            lambda: table.txn(compare=[table.version(b"a") == b"1"]),
            lambda: table.txn(then=["put"]),  # type: ignore[list-item]
        ]
        for call in refused:
            with pytest.raises(InvalidCall):
                await call()
        assert await table.count() == 0

    with_table(scenario)


def test_a_value_that_the_topic_does_not_take_is_too_large() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        with pytest.raises(TooLarge, match=r"max\.message\.bytes allows 10000"):
            await table.put(b"a", bytes(10_000))
        assert await table.put(b"a", bytes(9_000)) == 0

    with_table(scenario, configs={"max.message.bytes": "10000"})


def test_a_write_beyond_the_memory_of_tables_is_refused_and_deletions_are_not() -> None:
    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        await kafka.create_topic("settings", configs={"gnomon.view": "kv", "gnomon.view.engine": "memory"})
        table = client.table("settings")
        for number in range(3):
            await table.put(b"%d" % number, bytes(2_500))
        with pytest.raises(InvalidRecords, match=r"would exceed the 10000 of table\.memory_bytes_max"):
            await table.put(b"3", bytes(2_500))
        answer = await produced(kafka, Record(key=b"3", value=bytes(2_500)))
        assert answer.error_code == ErrorCode.POLICY_VIOLATION
        assert "would exceed the 10000 of table.memory_bytes_max" in answer.error_message
        assert (await table.scan()).keys == [b"0", b"1", b"2"]
        assert (await produced(kafka, Record(key=b"0"))).error_code == ErrorCode.NONE
        await table.delete(b"1")
        await table.put(b"3", bytes(2_500))
        assert broker.serving.broker.tables.memory.bytes_used < 10_000

    play(run, table=TableSettings(memory_bytes_max=10_000))


def test_an_ordinary_topic_is_no_table() -> None:
    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        await kafka.create_topic("orders")
        for call in (client.table("orders").get(b"a"), client.table("orders").put(b"a", b"1")):
            with pytest.raises(NotATable, match=r"tables are created with gnomon\.view=kv"):
                await call
        with pytest.raises(NoSuchTopic):
            await client.table("absent").get(b"a")
        assert gnomon.NotATable is NotATable

    play(run)


def test_subscriptions_read_the_history_of_a_table() -> None:
    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        await kafka.create_topic("settings", configs={"gnomon.view": "kv"})
        table = client.table("settings")
        await table.txn(then=[PutKey(b"a", b"1"), PutKey(b"b", b"2")])
        await table.delete(b"a")
        consumer = await client.subscribe("settings", "audit", initial_position="earliest")
        messages = [await consumer.receive() for _ in range(3)]
        found = [(message.offset, message.key, message.value) for message in messages]
        assert found == [(0, b"a", b"1"), (1, b"b", b"2"), (2, b"a", None)]

    play(run)


def test_a_blocking_table_has_the_same_calls() -> None:
    def calls(kind: type) -> dict[str, list[str]]:
        return {
            name: list(signature(call).parameters)
            for name, call in vars(kind).items()
            if isfunction(call) and name[0] != "_"
        }

    assert calls(BlockingTable) == calls(Table)
    assert len(calls(Table)) == 17
