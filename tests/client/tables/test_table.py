"""Tables of the native client on one broker."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from native_calls import native, play

import gnomon
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


def test_a_value_is_gone_when_its_time_to_live_is_over_and_not_before() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await table.put(b"a", b"1", ttl_seconds=2.5)
        await table.put(b"b", b"1", ttl_seconds=2.5)
        await table.put(b"b", b"2")
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
