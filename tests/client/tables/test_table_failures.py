"""Tables while their broker, its disk or its memory fails."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from native_calls import native

from gnomon.client.errors import BrokerUnreachable, CompareFailed, OutcomeUnknown
from gnomon.client.leaders import REACH_SECONDS, TRY_SECONDS
from gnomon.client.tables.table import Table
from gnomon.log.tables.operations import PutKey
from gnomon.testing.storms.kafka.embedded_broker import HOST, BrokerClient, EmbeddedBroker

sys.path.insert(0, str(Path(__file__).parent))  # for the module beside these tests: test folders are no packages

from table_on_broker import log_of, with_table


async def value_of(table: Table, key: bytes, *, stale: bool = False) -> bytes | None:
    entry = await table.get(key, stale=stale)
    return None if entry is None else entry.value


def test_a_write_that_has_returned_is_shown_at_once_and_is_there_after_the_power_was_lost() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        for number in range(5):
            await table.put(b"a", b"%d" % number)
            assert await value_of(table, b"a", stale=True) == b"%d" % number
            await broker.restart(power_lost=True)
            assert await value_of(table, b"a") == b"%d" % number

    with_table(scenario)


@pytest.mark.parametrize("power_lost", [False, True])
def test_increments_whose_answers_were_lost_with_their_broker_are_counted_once(power_lost: bool) -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        totals: list[int] = []

        async def count() -> None:
            totals.append(await table.increment(b"n"))

        await count()
        async with trio.open_nursery() as nursery:
            broker.simulation.network.block(HOST, "clients")
            for _ in range(20):
                nursery.start_soon(count)
                await trio.sleep(0.001)
            await broker.restart(power_lost=power_lost)
            broker.simulation.network.heal()
        assert sorted(totals) == list(range(1, 22))

    with_table(scenario)


def test_a_failed_append_takes_its_state_with_it_and_the_numbered_repeat_settles_it() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        first = await table.put(b"a", b"0")
        found: list[int] = []

        async def put() -> None:
            found.append(await table.put(b"a", b"1", revision=first))

        async def lose() -> None:
            async with native(broker, "other") as other:
                with pytest.raises(CompareFailed):
                    await other.table("settings").compare_and_set(b"a", expected=b"0", value=b"2")

        broker.machine.disk.conditions.full = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(put)
            await trio.sleep(0.01)
            nursery.start_soon(lose)
            await trio.sleep(5)
            assert found == []
            assert await value_of(table, b"a") == b"0"
            broker.machine.disk.conditions.full = False
        assert found == [1]
        assert await log_of(kafka) == [[(b"a", b"0")], [(b"a", b"1")]]

    with_table(scenario)


def test_without_room_writes_fail_with_an_unknown_outcome_after_30_seconds_and_reads_go_on() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await table.put(b"a", b"0")
        broker.machine.disk.conditions.full = True
        began = trio.current_time()
        with pytest.raises(OutcomeUnknown, match="may have been done"):
            await table.increment(b"n")
        assert TRY_SECONDS - 1 < trio.current_time() - began < TRY_SECONDS + 2
        assert await value_of(table, b"a") == b"0"
        assert (await table.scan()).keys == [b"a"]
        broker.machine.disk.conditions.full = False
        assert await table.put(b"b", b"1") > 0
        log = await log_of(kafka)
        assert log[-1] == [(b"b", b"1")]
        assert log[1:-1] in ([], [[(b"n", b"1")]])

    with_table(scenario)


def test_a_call_that_was_never_sent_says_so() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        assert await table.count() == 0
        broker.machine.kill()
        await trio.sleep(1)
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: table.put(b"a", b"1"),
            lambda: table.get(b"a"),
            lambda: table.txn(then=[PutKey(b"a", b"1")]),
        ]
        for call in calls:
            began = trio.current_time()
            with pytest.raises(BrokerUnreachable):
                await call()
            assert trio.current_time() - began < REACH_SECONDS + 3
        await broker.start()
        assert await table.put(b"a", b"2", revision=-1) == 0

    with_table(scenario)


def test_an_expired_value_is_there_until_its_deletion_is_durable() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await table.put(b"a", b"1", ttl_seconds=1)
        broker.machine.disk.conditions.full = True
        await trio.sleep(5)
        assert await value_of(table, b"a") == b"1"
        broker.machine.disk.conditions.full = False
        await trio.sleep(5)
        assert await value_of(table, b"a") is None
        assert await log_of(kafka) == [[(b"a", b"1")], [(b"a", None)]]

    with_table(scenario)


@pytest.mark.parametrize("fails_first", ["deletion", "put"])
def test_a_key_expires_after_a_failed_append_though_nobody_but_a_watch_uses_the_table(fails_first: str) -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, table: Table) -> None:
        await table.put(b"leader", b"one", ttl_seconds=40)
        async with table.watch(b"leader") as watch:
            assert (await watch.__anext__()).kind == "current"
            if fails_first == "deletion":
                await trio.sleep(39)
                broker.machine.disk.conditions.full = True
                await trio.sleep(5)
            else:
                broker.machine.disk.conditions.full = True
                with pytest.raises(OutcomeUnknown):
                    await table.put(b"other", b"1")
                await trio.sleep(3)
            broker.machine.disk.conditions.full = False
            with trio.fail_after(15):
                assert (await watch.__anext__()).kind == "expired"

    with_table(scenario)
