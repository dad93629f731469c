"""Shadows of a table in a cluster: they answer stale reads, and the broker of one takes the table over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import trio

from gnomon.broker.tables import table_state
from gnomon.broker.tables.table_replica import BEHIND_SECONDS
from gnomon.client.client import connect
from gnomon.client.errors import InvalidCall, NotATable
from gnomon.client.tables.table import Table
from gnomon.log.tables.operations import PutKey
from gnomon.log.tables.table_entry import TableEntry
from gnomon.testing.simulation.coverage import Coverage
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT, BrokerCluster
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.testing.storms.shadows.shadow_clients import cast_shadow

LEASE_SECONDS = 3.0
ENGINES = ("disk", "memory")

Scenario = Callable[[BrokerCluster, WireCluster, Table, Table], Awaitable[None]]


def with_shadow(engine: str, work: Scenario, brokers: int = 3) -> Coverage:
    """Runs `work` with a table and its shadow, and returns the counters of all events."""

    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, brokers, lease_seconds=LEASE_SECONDS)
        await cluster.start()

        async def client(wire: WireCluster) -> None:
            await create_topic(wire, "settings", {"gnomon.view": "kv", "gnomon.view.engine": engine})
            await cast_shadow(wire, "settings", "copy")
            addresses = ",".join(f"{host}:{NATIVE_PORT}" for host in wire.hosts)
            async with connect(addresses, world=wire.world, name="client") as native:
                await work(cluster, wire, native.table("settings"), native.table("copy"))

        await cluster.run_client("client", client)

    return simulate(1, scenario).coverage


async def fill(table: Table, count: int = 30) -> None:
    for number in range(count):
        await table.put(b"k%d" % (number % 7), b"v%d" % number)


async def shown(wire: WireCluster, shadow: Table, revision: int) -> list[TableEntry]:
    """The entries that the shadow shows once it has a revision."""
    while (page := await shadow.scan(stale=True)).revisions[0] < revision:
        await wire.world.clock.sleep(0.1)
    return list(page.entries)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_shadow_of_a_table_shows_the_entries_of_its_source_to_stale_reads(engine: str) -> None:
    async def scenario(cluster: BrokerCluster, wire: WireCluster, table: Table, shadow: Table) -> None:
        await fill(table)
        entries = await shown(wire, shadow, 29)
        assert entries == (await table.scan()).entries
        entry = await shadow.get(b"k3", stale=True)
        assert entry is not None
        assert replace(entry, age_ms=None) == await table.get(b"k3")
        assert await shadow.count(b"k", stale=True) == 7
        assert cluster.leader("settings", 0) != cluster.leader("copy", 0)

    with_shadow(engine, scenario)


def test_a_stale_read_of_a_shadow_says_how_long_there_was_no_news() -> None:
    async def scenario(cluster: BrokerCluster, wire: WireCluster, table: Table, shadow: Table) -> None:
        await fill(table)
        await shown(wire, shadow, 29)
        await wire.world.clock.sleep(20)
        quiet, page = await shadow.get(b"k3", stale=True), await shadow.scan(stale=True)
        await table.put(b"k3", b"new")
        await shown(wire, shadow, 30)
        after = await shadow.get(b"k3", stale=True)
        assert quiet is not None
        assert after is not None
        assert 20_000 <= (quiet.age_ms or 0) <= page.ages_ms[0] < 25_000
        assert (after.age_ms or 0) < 2_000
        assert (await table.scan()).ages_ms == {}

    with_shadow("memory", scenario)


@pytest.mark.parametrize("brokers", [2, 3])
@pytest.mark.parametrize("engine", ENGINES)
def test_the_broker_of_the_shadow_takes_the_table_over_without_loading_it(engine: str, brokers: int) -> None:
    async def scenario(cluster: BrokerCluster, wire: WireCluster, table: Table, shadow: Table) -> None:
        await fill(table)
        before = (await table.scan()).entries
        await shown(wire, shadow, 29)
        next_leader = cluster.leader("copy", 0)
        cluster.brokers[cluster.leader("settings", 0)].kill()
        killed_at = wire.world.clock.monotonic()
        assert (await table.scan()).entries == before
        assert wire.world.clock.monotonic() - killed_at < LEASE_SECONDS + 1
        assert cluster.leader("settings", 0) == next_leader
        assert await table.put(b"k1", b"after") == 30
        assert (await shown(wire, shadow, 30))[1].value == b"after"
        await fill(table)
        await wire.world.clock.sleep(3)
        await fill(table)
        (status,) = await table.status(digest=True)
        assert (status.revision, status.keys) == (90, 7)

    assert with_shadow(engine, scenario, brokers).counts["log/table_taken_over"] == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_a_stale_read_of_a_shadow_shows_a_batch_as_a_whole(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_state, "APPLIED_AT_ONCE", 1)
    seen: set[int] = set()

    async def scenario(cluster: BrokerCluster, wire: WireCluster, table: Table, shadow: Table) -> None:
        await shown(wire, shadow, -1)

        async def write() -> None:
            for number in range(5):
                await table.txn(then=[PutKey(b"k%02d" % key, b"%d" % number) for key in range(40)])
                await wire.world.clock.sleep(0.2)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            while len(seen) < 200 and not (seen and max(seen) >= 199):
                page = await shadow.scan(stale=True)
                assert len({entry.value for entry in page.entries}) <= 1
                seen.add(page.revisions[0])
                await wire.world.clock.sleep(0.002)

    with_shadow(engine, scenario)
    assert len(seen) > 3


def test_a_replica_is_opened_without_a_reader() -> None:
    async def scenario(cluster: BrokerCluster, wire: WireCluster, table: Table, shadow: Table) -> None:
        await fill(table)
        await wire.world.clock.sleep(5)

    assert with_shadow("disk", scenario).counts["log/table_replica_begun"] == 1


def test_a_shadow_refuses_what_only_its_source_answers() -> None:
    async def scenario(cluster: BrokerCluster, wire: WireCluster, table: Table, shadow: Table) -> None:
        await fill(table)
        with pytest.raises(InvalidCall, match=r"answers stale reads only \(stale=True\): ask the table 'settings'"):
            await shadow.get(b"k1")
        with pytest.raises(InvalidCall, match=r"stale=True"):
            await shadow.count()
        with pytest.raises(InvalidCall, match="shadow"):
            await shadow.put(b"k1", b"v")
        await create_topic(wire, "plain", {})
        await cast_shadow(wire, "plain", "plain-copy")
        async with connect(f"broker-1:{NATIVE_PORT}", world=wire.world, name="other") as other:
            with pytest.raises(NotATable):
                await other.table("plain-copy").get(b"k", stale=True)

    with_shadow("disk", scenario)


def test_one_broker_that_leads_both_answers_for_the_shadow() -> None:
    async def scenario(cluster: BrokerCluster, wire: WireCluster, table: Table, shadow: Table) -> None:
        await fill(table)
        assert await shown(wire, shadow, 29) == (await table.scan()).entries

    assert with_shadow("memory", scenario, brokers=1).counts["log/table_replica_begun"] == 0


def test_a_replica_waits_for_what_its_restarted_shadow_does_not_show_yet() -> None:
    async def scenario(cluster: BrokerCluster, wire: WireCluster, table: Table, shadow: Table) -> None:
        await fill(table)
        await shown(wire, shadow, 29)
        await wire.world.clock.sleep(6)  # it is flushed
        holder = cluster.leader("copy", 0)
        cluster.brokers[holder].kill()
        network = cluster.simulation.network
        for name in (*cluster.ledgers.names, f"broker-{cluster.leader('settings', 0)}"):
            network.block(f"broker-{holder}", name)
            network.block(name, f"broker-{holder}")
        cluster.start_broker(holder)
        await wire.world.clock.sleep(BEHIND_SECONDS / 2)
        network.heal()
        assert [entry.value for entry in await shown(wire, shadow, 29)][1] == b"v29"

    counts = with_shadow("disk", scenario).counts
    assert counts["log/table_replica_waits"] > 0
    assert counts["log/table_discarded"] == 0
