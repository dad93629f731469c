"""A name that stands for another disk than before, on the simulated network: what one disk promised no other has."""

from __future__ import annotations

from numbered_entries import contents, entries, fill

from gnomon.bookie.auditor import Auditor, AuditSettings
from gnomon.bookie.cookie import COOKIES
from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ids import BookieId
from gnomon.bookie.ledger import Quorum
from gnomon.testing.ledger_cluster import LedgerClient, LedgerCluster
from gnomon.testing.simulation import Simulation, simulate

WIDE = Quorum(3, 3, 2)


async def replaced(client: LedgerClient, name: BookieId) -> None:
    """Waits until the name of a bookie that is decommissioned stands for a new disk."""
    key = f"{COOKIES}{name}"
    first = await client.metadata.get(key)
    auditor = Auditor(client.metadata, client.bookies, AuditSettings(), "auditor", client.world.logger)
    while (found := await client.metadata.get(key)) is None or found == first:
        await auditor.audit()
        await client.world.clock.sleep(1)
    await client.world.clock.sleep(10)  # whoever was connected to the old one is to the new one


def test_a_writer_that_was_taken_over_is_not_acknowledged_by_a_new_disk_under_the_name_of_one_that_promised() -> None:
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
