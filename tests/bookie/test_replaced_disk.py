"""Bookie names that get a new disk, on the simulated network: the new disk lacks the promises of the old one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from audits import auditor_of
from numbered_entries import contents, entries, fill
from with_cluster import with_cluster

from gnomon.bookie.errors import LedgerError, LedgerExists, LedgerFenced
from gnomon.bookie.ids import BookieId, EntryId
from gnomon.bookie.ledgers.catalog import OpenMode, Quorum, create_ledger, open_ledger
from gnomon.bookie.node import BookieNodeSettings, run_bookie
from gnomon.bookie.registration import BOOKIES, COOKIES, DRAINING, BookieRegistration
from gnomon.bookie.registry import RegisteredBookies
from gnomon.bookie.repair.auditor import AuditSettings
from gnomon.metadata.client import Delete, Operation, Put
from gnomon.metadata.remote import RemoteMetadata
from gnomon.testing.simulation.machine import Node
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.ledgers.ledger_cluster import (
    BOOKIE_PORT,
    DATA,
    MAP_BYTES,
    METADATA,
    METADATA_PORT,
    LedgerClient,
    LedgerCluster,
)

WIDE = Quorum(3, 3, 2)


def bookie_node(host: str, name: BookieId) -> Node:
    """A node that runs a bookie once, on a machine of its own."""

    async def node(world: SimulatedWorld) -> None:
        settings = BookieNodeSettings(name, DATA, host="", port=BOOKIE_PORT, advertised_host=host, map_bytes=MAP_BYTES)
        async with trio.open_nursery() as nursery:
            metadata = RemoteMetadata(world, [(METADATA, METADATA_PORT)])
            nursery.start_soon(metadata.run)
            await run_bookie(world, metadata, settings, world.logger, ready=lambda _: None, stop=trio.Event())
            nursery.cancel_scope.cancel()

    return node


async def replaced(client: LedgerClient, name: BookieId) -> None:
    """Waits until the name of a decommissioned bookie belongs to a new disk."""
    key = f"{COOKIES}{name}"
    first = await client.metadata.get(key)
    auditor = auditor_of(client, AuditSettings())
    while (found := await client.metadata.get(key)) is None or found == first:
        await auditor.audit()
        await client.world.clock.sleep(1)
    await client.world.clock.sleep(10)  # clients of the old bookie connect to the new one


def test_a_fenced_writer_gets_no_acknowledgement_from_a_new_disk_under_the_name_of_a_fenced_one() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=4)
        network = simulation.network
        await cluster.start()
        failed: list[LedgerError] = []

        async def write(client: LedgerClient) -> None:
            ledger = await client.create("ledger", WIDE)
            await fill(ledger, 1)
            away, leaves, stays = (BookieId(name) for name in ledger.record.fragments[0].bookies)
            for one, other in (("writer", away), ("auditor", stays)):
                network.block(one, other)
                network.block(other, one)
            await cluster.decommission(leaves)
            await cluster.run_client("auditor", lambda other: replaced(other, leaves))
            try:
                await ledger.add([b"nobody can read this"])
            except LedgerError as error:
                failed.append(error)
            network.heal()

        async def read(client: LedgerClient) -> None:
            assert await contents(await client.claim("ledger")) == entries(1)

        await cluster.run_client("writer", write)
        await cluster.run_client("reader", read)
        assert failed, "an entry was acknowledged that is not in the ledger"

    simulate(1, scenario)


@pytest.mark.parametrize("seed", range(5))
def test_a_bookie_whose_name_moved_to_another_machine_ends_and_keeps_the_new_registration(
    seed: int,
) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=3)
        await cluster.start()
        name, network = BookieId("x"), simulation.network
        old, new = (simulation.machine(host) for host in ("old", "new"))

        async def registered_at(client: LedgerClient) -> str | None:
            found = await client.metadata.get(f"{BOOKIES}{name}")
            return None if found is None else BookieRegistration.decode(found.value).host

        async def work(client: LedgerClient) -> None:
            clock = client.world.clock
            auditor = auditor_of(client, AuditSettings())
            old.start(bookie_node("old", name))
            while await registered_at(client) != "old":
                await clock.sleep(0.1)
            for one, other in (("old", METADATA), (METADATA, "old")):
                network.block(one, other)
            await client.metadata.txn((), [Put(f"{DRAINING}{name}", b"")])
            await auditor.audit()
            new.start(bookie_node("new", name))
            await clock.sleep(10 + seed)  # the lease of the old bookie ends
            revision = (await client.metadata.range(BOOKIES)).revision
            await client.metadata.compact(revision)  # the old bookie cannot watch its dismissal any more
            network.heal()
            while old.running:
                assert await registered_at(client) == "new"
                await clock.sleep(0.05)
            await clock.sleep(10)
            assert await registered_at(client) == "new"

        with trio.fail_after(600):
            await cluster.run_client("client", work)

    simulate(seed, scenario)


def test_no_ledger_is_created_on_a_draining_bookie_or_on_a_replaced_disk() -> None:
    async def work(client: LedgerClient) -> None:
        metadata = client.metadata

        async def refused(change: Sequence[Operation], back: Sequence[Operation]) -> None:
            await metadata.txn((), change)
            with pytest.raises(LedgerExists):
                await create_ledger(metadata, late, "ledger", quorum=WIDE)
            await metadata.txn((), back)

        async with trio.open_nursery() as nursery:
            late = RegisteredBookies(client.world, metadata, client.world.logger, nursery)
            await late.load()  # it receives no later changes
            for name in ("bookie-1", "bookie-2", "bookie-3"):
                await refused([Put(f"{DRAINING}{name}", b"")], [Delete(f"{DRAINING}{name}")])
            await create_ledger(metadata, late, "taken", quorum=WIDE)
            cookie = await metadata.get(f"{COOKIES}bookie-1")
            assert cookie is not None
            await metadata.txn((), [Delete(cookie.key)])
            await refused([Put(cookie.key, b"another disk")], [])
            nursery.cancel_scope.cancel()

    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=3)
        await cluster.start()
        await cluster.run_client("client", work)

    simulate(1, scenario)


def test_a_claim_and_an_ensemble_change_use_no_draining_bookie() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        await fill(ledger, 1)
        named = ledger.record.bookies
        (spare,) = (name for name in cluster.names if name not in named)
        async with trio.open_nursery() as nursery:
            late = RegisteredBookies(client.world, client.metadata, client.world.logger, nursery)
            await late.load()
            await client.metadata.txn((), [Put(f"{DRAINING}{spare}", b"")])
            with pytest.raises(LedgerFenced):
                await ledger.change_ensemble(EntryId(1), (spare, *named[1:]))
            cluster.bookies[named[0]].kill()
            with pytest.raises(LedgerFenced):
                await open_ledger(client.metadata, late, "ledger", mode=OpenMode.O_APPEND)
            nursery.cancel_scope.cancel()
        again = await client.claim("ledger")
        assert again.record.bookies == named

    with_cluster(work)


def test_a_dismissed_bookie_is_no_member_until_it_registers_another_disk() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        name = cluster.names[0]
        first = client.bookies.get(name)
        await cluster.decommission(name)
        auditor = auditor_of(client, AuditSettings())
        while name in client.bookies.available():
            await client.bookies.changed()
        await auditor.audit()
        while client.bookies.get(name) is first:
            assert name not in client.bookies.known()
            await client.bookies.changed()
        assert name in client.bookies.known()

    with_cluster(work)
