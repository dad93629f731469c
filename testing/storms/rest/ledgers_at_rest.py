"""Judges the state that a storm over ledgers leaves: deletes all ledgers, and looks at what metadata and bookies keep.

1. The clients of the storm stop. Within REST_SECONDS, in which the bookies collect, there is no finding about a store:
   the ledgers that the storm has shrunk and deleted are removed.
2. A janitor deletes every ledger, and is the auditor from then on: it settles the reports of missing entries and the
   older copies that the storm has left, also where the storm had no auditors. Within REST_SECONDS there is no finding
   about the metadata or a store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from unittest.mock import patch

import trio

from gnomon.bookie.ids import BookieId
from gnomon.bookie.ledgers.catalog import delete_ledger
from gnomon.bookie.record import LEDGERS
from gnomon.bookie.repair.auditor import Auditor, AuditSettings
from gnomon.bookie.storage import removal
from gnomon.metadata.client import Delete
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.ledgers.ledger_clients import REFUSALS
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster
from gnomon.testing.storms.ledgers.ledger_scenario import CHUNK_ENTRIES, LedgerScenario
from gnomon.testing.storms.ledgers.ledger_verdict import END
from gnomon.testing.storms.rest.finding import StateFinding
from gnomon.testing.storms.rest.metadata_audit import audit_metadata
from gnomon.testing.storms.rest.rest import JANITOR, REST_SECONDS, none_within
from gnomon.testing.storms.rest.roll import Roll, roll_call
from gnomon.testing.storms.rest.store_audit import audit_store

AUDIT = AuditSettings(grace_seconds=2.0, interval_seconds=1.0, lease_seconds=2.0)
RETRY_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class LedgersAtRest:
    """A storm over ledgers whose state at rest is judged, too; for `simulate` and `sweep`."""

    scenario: LedgerScenario = field(default_factory=LedgerScenario)

    async def __call__(self, simulation: Simulation) -> int:
        """Runs the scenario, brings its nodes to rest, and judges them.

        Raises:
            AssertionError: the scenario or the judges have findings.
        """
        with roll_call(simulation) as roll, patch.object(removal, "CHUNK_ENTRIES", CHUNK_ENTRIES):
            entries = await self.scenario(simulation)
            for name, machine in simulation.machines.items():
                if name not in roll.machines:
                    machine.kill()
            await none_within(simulation, REST_SECONDS, lambda: _of_stores(roll), "stores at rest")
            simulation.machine(JANITOR).start(LedgerCluster.client_node(_clean))
            await none_within(simulation, REST_SECONDS, lambda: _without_ledgers(roll), "state without ledgers")
        return entries


def _of_stores(roll: Roll) -> Iterator[StateFinding]:
    facts, stores = roll.facts(), roll.stores()
    if len(stores) < facts.bookies:
        yield StateFinding("nodes", f"{len(stores)} of {facts.bookies} bookies serve")
    for store in stores:
        yield from audit_store(store, facts)


def _without_ledgers(roll: Roll) -> Iterator[StateFinding]:
    facts = roll.facts()
    for ledger in facts.ledgers:
        yield StateFinding(f"ledger {ledger}", f"ledger {ledger} is not deleted")
    yield from audit_metadata(roll.state(), facts)
    yield from _of_stores(roll)


async def _clean(client: LedgerClient) -> None:
    """Deletes every ledger, and audits from then on."""
    while True:
        with suppress(*REFUSALS):
            found = (await client.metadata.range(LEDGERS)).items
            if not found:
                await client.metadata.txn((), (Delete(END),))
                break
            for item in found:
                await delete_ledger(client.metadata, client.bookies, item.key.removeprefix(LEDGERS))
        await client.world.clock.sleep(RETRY_SECONDS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Auditor(client.metadata, client.bookies, AUDIT, BookieId(JANITOR), client.world.logger).run)
