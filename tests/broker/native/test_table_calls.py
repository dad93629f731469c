"""Calls on tables as a peer makes them: repeats, bounds, and a table that is being loaded."""

from __future__ import annotations

from typing import Any, Final

import msgpack
import pytest
import trio
from native_calls import native, play, rpc

from gnomon.broker.native.tables.table_methods import TableMethods
from gnomon.broker.tables import paced_calls
from gnomon.broker.tables.engines.memory_engine import MemoryEngine
from gnomon.broker.tables.hosted_table import HostedTable
from gnomon.client.client import NativeClient
from gnomon.client.errors import BrokerFailed, Compacted, InvalidCall, NotTaken, OutcomeUnknown, Unavailable
from gnomon.client.leaders import TRY_SECONDS
from gnomon.log.tables.changes import TTL_MS_MAX
from gnomon.log.tables.key_entry import unpack_entry
from gnomon.runtime.rpc.client import RpcClient
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker

CONFIGS: Final = {"gnomon.view": "kv", "gnomon.view.engine": "memory"}
WRITER: Final = b"w" * 16


class TablePeer:
    """A peer that numbers its operations by itself."""

    def __init__(self, peer: RpcClient, topic_id: str) -> None:
        self.peer = peer
        self.place = ("settings", topic_id, 0)

    async def write(self, number: int, *then: list[Any], compare: Any = (), otherwise: Any = ()) -> tuple[bool, Any]:
        args = (*self.place, WRITER, number, 0, list(compare), list(then), list(otherwise))
        succeeded, attachment = await self.peer.exchange("table_write", *args)
        return succeeded, msgpack.unpackb(attachment)

    async def ask(self, method: str, *args: Any) -> Any:
        return await self.peer.call(method, *self.place, *args)


async def table_of(broker: EmbeddedBroker, peer: RpcClient) -> TablePeer:
    topic_id, _ = await peer.call("lookup", "settings")
    return TablePeer(peer, topic_id)


async def create(broker: EmbeddedBroker) -> None:
    await (await broker.connect()).create_topic("settings", configs=CONFIGS)


def test_a_repeat_is_answered_as_the_first_copy_at_this_leader_and_from_the_log_at_the_next() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await create(broker)
        then: list[list[Any]] = [["put", b"a", b"1", 0], ["increment", b"n", 7], ["delete", b"a2"], ["delete", b"b"]]
        reads = [["put", b"c", b"2", 0], ["get", b"a"]]
        absent = [b"n", "value", "==", b"0"]
        async with rpc(broker) as peer:
            table = await table_of(broker, peer)
            await table.write(0, ["put", b"a2", b"0", 0])
            first = [
                await table.write(1, *then),
                await table.write(2, ["get", b"a"], compare=[absent], otherwise=then[:1]),
            ]
            assert first == [(True, [1, [2, 7], 3, -1]), (False, [4])]
            read = await table.write(3, *reads)
            assert (read[1][0], unpack_entry(read[1][1]).value) == (5, b"1")
            repeated = [
                await table.write(1, *then),
                await table.write(2, ["get", b"a"], compare=[absent], otherwise=then[:1]),
            ]
            assert repeated == first
            assert await table.write(3, *reads) == read
        await broker.restart()
        async with rpc(broker) as peer:
            table = await table_of(broker, peer)
            repeated = [
                await table.write(1, *then),
                await table.write(2, ["get", b"a"], compare=[absent], otherwise=then[:1]),
            ]
            assert repeated == first
            with pytest.raises(OutcomeUnknown, match="was done at revision 5; what it read is not known any more"):
                await table.write(3, *reads)
            assert await table.ask("table_count", b"", False) == 3

    simulate_broker(scenario)


def test_reads_of_all_tables_share_a_part_of_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paced_calls, "SHARE_SECONDS", 0.0)
    partitions, times = 5, list[float]()

    async def scenario(broker: EmbeddedBroker) -> None:
        kafka = await broker.connect()
        await kafka.create_topic("settings", partitions=partitions, configs=CONFIGS)
        async with rpc(broker) as peer, native(broker) as client:
            assert await client.table("settings").count() == 0  # all are loaded
            topic_id, _ = await peer.call("lookup", "settings")
            scan = MemoryEngine.scan

            def noted(engine: MemoryEngine, *args: Any) -> Any:
                times.append(trio.current_time())
                return scan(engine, *args)

            monkeypatch.setattr(MemoryEngine, "scan", noted)
            async with trio.open_nursery() as nursery:
                for index in range(partitions):
                    args = ("table_scan", "settings", topic_id, index, b"", None, 10, False, False)
                    nursery.start_soon(peer.call, *args)

    simulate_broker(scenario)
    assert len(set(times)) == len(times) == partitions


def test_calls_wait_for_a_second_for_a_table_that_is_being_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        await kafka.create_topic("settings", configs=CONFIGS)
        await client.table("settings").put(b"a", b"1")
        caught_up = HostedTable._caught_up

        async def slow(table: HostedTable, log: Any) -> bool:
            await trio.sleep(0.1)
            return False

        monkeypatch.setattr(HostedTable, "_caught_up", slow)
        await broker.restart()
        async with rpc(broker) as peer:
            table = await table_of(broker, peer)
            for call in (table.ask("table_get", b"a", True), table.write(0, ["put", b"a", b"2", 0])):
                began = trio.current_time()
                with pytest.raises(
                    (Unavailable, NotTaken), match="the table is being loaded: applied to offset 0 of 1"
                ):
                    await call
                assert 0.5 < trio.current_time() - began < 1.2
            began = trio.current_time()
            with pytest.raises(Unavailable, match="the table is being loaded"):
                await client.table("settings").get(b"a")
            assert TRY_SECONDS - 2 < trio.current_time() - began < TRY_SECONDS + 2
            monkeypatch.setattr(HostedTable, "_caught_up", caught_up)
            found = await client.table("settings").get(b"a")
            assert found is not None
            assert found.value == b"1"

    play(scenario)


def test_a_broker_that_has_no_tables_is_asked_whether_it_is_older(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        await kafka.create_topic("settings")
        table = client.table("settings")
        for call in (table.get(b"a"), table.put(b"a", b"1"), table.watch(revision=0).__anext__()):
            with pytest.raises(BrokerFailed, match=r"has no method 'table_.*: is the caller a newer gnomon\?"):
                await call

    monkeypatch.setattr(TableMethods, "methods", lambda methods: {})
    play(scenario)


LONG: Final = b"k" * 501
OPERATIONS: Final[dict[str, tuple[list[list[Any]], str]]] = {
    "a key of 501 bytes": ([["get", LONG]], "the key has 501 bytes: 500 are allowed"),
    "a key that is written twice": ([["put", b"a", b"", 0], ["delete", b"a"]], "writes a key once"),
    "1,001 operations": ([["get", b"a"]] * 1_001, "at most 1000 operations, not 1001"),
    "a negative time to live": ([["put", b"a", b"", -1]], "a time to live is 1 to"),
    "a time to live that is too long": ([["put", b"a", b"", TTL_MS_MAX + 1]], "a time to live is 1 to"),
    "an increment beyond 64 bits": ([["increment", b"a", 1 << 63]], "an increment is a number of 64 bits"),
    "an operation that is none": ([["append", b"a"]], "is no operation"),
}
READS: Final[dict[str, tuple[str, list[Any], str]]] = {
    "a limit of 0": ("table_scan", [b"", None, 0, False, False], "1 to 10000 entries at a time, not 0"),
    "a limit of 10,001": ("table_scan", [b"", None, 10_001, False, False], "1 to 10000 entries at a time, not 10001"),
    "a prefix of 501 bytes": ("table_count", [LONG, False], "501 bytes"),
    "a key of 501 bytes": ("table_get", [LONG, False], "501 bytes"),
}


def test_a_broker_refuses_what_no_table_takes_with_the_reason() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await create(broker)
        async with rpc(broker) as peer:
            table = await table_of(broker, peer)
            for operations, text in OPERATIONS.values():
                with pytest.raises(InvalidCall, match=text):
                    await table.write(0, *operations)
            with pytest.raises(InvalidCall, match="at most 1000 operations and comparisons, not 1001"):
                await table.write(0, *[["get", b"a"]] * 501, compare=[[b"a", "version", "==", 0]] * 500)
            for method, args, text in READS.values():
                with pytest.raises(InvalidCall, match=text):
                    await table.ask(method, *args)
            assert await table.ask("table_count", b"", False) == 0

    simulate_broker(scenario)


def test_a_watch_from_a_revision_before_the_start_of_the_log_names_the_first_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await create(broker)
        async with native(broker) as client:
            table = client.table("settings")
            for number in range(4):
                await table.put(b"a", b"%d" % number)
            (led,) = broker.serving.broker.partitions.with_own_log()
            assert led.partition.log is not None
            monkeypatch.setattr(led.partition.log, "start_offset", 2)
            with pytest.raises(Compacted, match="the log begins at revision 2") as compacted:
                await table.watch(revision=1).__anext__()
            assert compacted.value.first == 2
            assert (await table.watch(revision=2).__anext__()).revision == 2

    simulate_broker(scenario)
