"""Tables whose broker is cut off from the metadata service, replaced, or short of bookies."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio

from gnomon.broker.native.tables.table_methods import PROGRESS_SECONDS
from gnomon.client.errors import CompareFailed, Unavailable
from gnomon.client.tables.table import Table

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside this test: test folders are no packages

from table_on_cluster import TableOnCluster, with_table_on_cluster

ANSWERED_SECONDS = 1.2
"""A broker refuses a read that it cannot confirm within a second."""


def test_without_the_metadata_service_reads_and_refusals_wait_while_writes_and_stale_reads_go_on() -> None:
    async def scenario(on: TableOnCluster) -> None:
        async with on.client() as client, on.peer(on.leader) as peer:
            table = client.table("settings")
            first = await table.put(b"a", b"0")
            topic_id, _ = await peer.call("lookup", "settings")
            on.cut_off(*on.cluster.brokers)
            second = await table.put(b"a", b"1", revision=first)
            entry = await table.get(b"a", stale=True)
            assert entry is not None
            assert (entry.value, entry.revision) == (b"1", second)
            with pytest.raises(CompareFailed):
                await table.put(b"a", b"2", revision=first)
            for method, *args in (
                ("table_get", b"a", False),
                ("table_scan", b"", None, 9, False, False),
                ("table_count", b"", False),
            ):
                began = trio.current_time()
                with pytest.raises(Unavailable, match="does not know whether it still leads"):
                    await peer.call(method, "settings", topic_id, 0, *args)
                assert trio.current_time() - began < ANSWERED_SECONDS
            answered: list[object] = []

            async def refused() -> None:
                with pytest.raises(CompareFailed) as error:
                    await table.compare_and_set(b"a", expected=b"0", value=b"2")
                answered.append(error.value.current and error.value.current.value)

            async def read() -> None:
                found = await table.get(b"a")
                answered.append(found and found.value)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(refused)
                nursery.start_soon(read)
                await trio.sleep(5)
                assert answered == []
                on.bring_back()
            assert answered == [b"1", b"1"]

    with_table_on_cluster(scenario)


def test_reads_that_arrive_together_share_the_question_whether_their_broker_leads() -> None:
    async def scenario(on: TableOnCluster) -> None:
        async with on.client() as client:
            table = client.table("settings")
            await table.put(b"a", b"0")
            with on.cluster.counting[on.leader].measure() as cost:
                async with trio.open_nursery() as nursery:
                    for _ in range(100):
                        nursery.start_soon(table.get, b"a")
            assert 1 <= cost.reads <= 3
            with on.cluster.counting[on.leader].measure() as cost:
                await table.get(b"a", stale=True)
            assert cost.reads == 0

    with_table_on_cluster(scenario)


async def replaced(on: TableOnCluster) -> None:
    """Cuts the leader off from the metadata service; returns when the other broker leads."""
    old = on.leader
    new = next(number for number in on.cluster.brokers if number != old)
    on.cut_off(old)
    while on.cluster.leader_by(new, "settings", 0) != new:  # noqa: ASYNC110 - the simulation has no event for it
        await trio.sleep(0.1)


async def value_of(table: Table, key: bytes, *, stale: bool = False) -> bytes | None:
    entry = await table.get(key, stale=stale)
    return None if entry is None else entry.value


def test_a_leader_that_was_replaced_shows_old_values_to_stale_reads_alone() -> None:
    async def scenario(on: TableOnCluster) -> None:
        async with on.client("before") as before, on.client("after") as after:
            table, other = before.table("settings"), after.table("settings")
            await table.put(b"a", b"old")
            await replaced(on)
            await other.put(b"a", b"new")
            assert await value_of(table, b"a", stale=True) == b"old"
            assert await value_of(table, b"a") == b"new"

    with_table_on_cluster(scenario)


def test_a_client_that_asks_the_replaced_leader_first_finds_the_next_one() -> None:
    async def scenario(on: TableOnCluster) -> None:
        old = on.leader
        async with on.client(first=old) as client:
            table = client.table("settings")
            await table.put(b"a", b"old")
            await replaced(on)
            began = trio.current_time()
            assert await value_of(table, b"a") == b"old"
            assert trio.current_time() - began < 2 * ANSWERED_SECONDS
            assert on.cluster.leader_by(old, "settings", 0) == old, "the first one does not know it"

    with_table_on_cluster(scenario)


def test_a_watch_at_a_replaced_leader_goes_on_at_the_next_one_though_nobody_uses_the_first() -> None:
    async def scenario(on: TableOnCluster) -> None:
        old = on.leader
        async with (
            on.client("before", first=old) as before,
            on.client("after", first=3 - old) as after,
            before.table("settings").watch() as watch,
        ):
            await trio.sleep(1)
            await replaced(on)
            for value in (b"1", b"2"):
                await after.table("settings").put(b"a", value)
            with trio.fail_after(PROGRESS_SECONDS + 2 * ANSWERED_SECONDS):
                assert [(await watch.__anext__()).value for _ in range(2)] == [b"1", b"2"]

    with_table_on_cluster(scenario)


def test_a_watch_goes_on_while_no_broker_knows_whether_it_leads() -> None:
    async def scenario(on: TableOnCluster) -> None:
        async with on.client("watch") as watching, on.client("write") as writing:
            table = writing.table("settings")
            await table.put(b"a", b"0")
            async with watching.table("settings").watch(initial=False, revision=1) as watch:
                await trio.sleep(1)
                on.cut_off(*on.cluster.brokers)
                for value in (b"1", b"2", b"3"):
                    await trio.sleep(60)
                    await table.put(b"a", value)
                    with trio.fail_after(2 * ANSWERED_SECONDS):
                        assert (await watch.__anext__()).value == value
                on.bring_back()
                await trio.sleep(20)
                await table.put(b"a", b"4")
                assert (await watch.__anext__()).value == b"4"

    with_table_on_cluster(scenario)


def test_a_stale_read_says_how_long_ago_its_leader_knew_that_nothing_newer_was_there() -> None:
    async def scenario(on: TableOnCluster) -> None:
        async with on.client() as client:
            table = client.table("settings")
            await table.put(b"a", b"old")
            began = trio.current_time()
            await replaced(on)
            waited_ms = int((trio.current_time() - began) * 1_000)
            old = await table.get(b"a", stale=True)
            assert old is not None
            assert (old.age_ms or 0) >= waited_ms > 1_000
            assert await value_of(table, b"a") == b"old"  # of the next leader, which has confirmed it
            new = await table.get(b"a", stale=True)
            assert new is not None
            assert (new.age_ms or 0) < 100

    with_table_on_cluster(scenario)


def test_the_first_read_of_a_table_may_be_a_stale_one() -> None:
    async def scenario(on: TableOnCluster) -> None:
        async with on.client() as client:
            table = client.table("settings")
            assert await table.get(b"a", stale=True) is None
            assert (await table.scan(stale=True)).ages_ms[0] < 10_000
            await table.put(b"a", b"1")
            on.cluster.brokers[on.leader].kill()
            first = await table.get(b"a", stale=True)
            assert first is not None
            assert (first.age_ms or 0) < 1_000

    with_table_on_cluster(scenario)


def test_a_write_at_a_fenced_leader_is_done_once_by_the_next_one_and_its_watches_go_on_there() -> None:
    async def scenario(on: TableOnCluster) -> None:
        async with on.client("before") as before, on.client("after") as after:
            table, other = before.table("settings"), after.table("settings")
            async with table.watch() as watch:
                await trio.sleep(1)
                assert await table.increment(b"n") == 1
                events = [await watch.__anext__()]
                await replaced(on)
                assert await other.increment(b"n") == 2
                assert await table.increment(b"n") == 3
                with trio.fail_after(60):
                    events += [await watch.__anext__() for _ in range(2)]
            assert [(event.kind, event.value) for event in events] == [("put", b"%d" % total) for total in (1, 2, 3)]

    with_table_on_cluster(scenario)


def test_increments_whose_answers_were_lost_with_their_leader_are_done_once_by_the_next_one() -> None:
    async def scenario(on: TableOnCluster) -> None:
        async with on.client() as client:
            table = client.table("settings")
            totals = [await table.increment(b"n")]

            async def count() -> None:
                totals.append(await table.increment(b"n"))

            old = on.leader
            async with trio.open_nursery() as nursery:
                on.cluster.simulation.network.block(f"broker-{old}", "client")
                for _ in range(10):
                    nursery.start_soon(count)
                await trio.sleep(0.5)
                on.cluster.brokers[old].kill()
            assert sorted(totals) == list(range(1, 12))

    with_table_on_cluster(scenario)


def test_reads_go_on_in_a_cluster_whose_bookies_have_no_room() -> None:
    async def scenario(on: TableOnCluster) -> None:
        async with on.client() as client, on.client("writer") as writer:
            table = client.table("settings")
            await table.put(b"a", b"0")
            for bookie in on.cluster.ledgers.bookies.values():
                bookie.disk.conditions.full = True
            async with trio.open_nursery() as nursery:
                nursery.start_soon(writer.table("settings").put, b"a", b"1")
                for _ in range(3):
                    await trio.sleep(2)
                    assert await value_of(table, b"a") == b"0"
                for bookie in on.cluster.ledgers.bookies.values():
                    bookie.disk.conditions.full = False
            assert await value_of(table, b"a") == b"1"

    with_table_on_cluster(scenario)
