"""Bugs whose only trace is the state that is left after a storm: in the metadata, stores, memory and copies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from broker_scenario import CLUSTER_SCENARIO, QUOTAS_SCENARIO, SCENARIO

from gnomon.bookie import record
from gnomon.bookie.ids import ENTRY_MAX
from gnomon.bookie.ledgers import claim
from gnomon.bookie.ledgers.appender import Appender
from gnomon.bookie.ledgers.entry_cache import EntryCache
from gnomon.bookie.ledgers.writer import LedgerWriter
from gnomon.bookie.remote import RemoteBookie
from gnomon.bookie.repair import repair
from gnomon.bookie.repair.auditor import AuditSettings
from gnomon.bookie.storage import removal
from gnomon.bookie.storage.entry_store import EntryStore
from gnomon.bookie.storage.stored_ledgers import StoredLedgers
from gnomon.broker.kafka.connections.request_memory import RequestMemory
from gnomon.broker.placement.placement import Placement
from gnomon.broker.topics import topic_admin
from gnomon.metadata.client import DeletePrefix
from gnomon.testing.simulation.disk.simulated_disk import DiskConditions
from gnomon.testing.simulation.faults import Fault, FaultMix
from gnomon.testing.simulation.network.simulated_network import NetworkConditions
from gnomon.testing.storms.ledgers.ledger_clients import Habits
from gnomon.testing.storms.rest.ledgers_at_rest import LedgersAtRest

from planted.ledgers import NARROW
from planted.planted_bug import ScenarioBugs

REST_BUGS = ScenarioBugs(CLUSTER_SCENARIO)
COPIES_BUGS = ScenarioBugs(CLUSTER_SCENARIO)
REGAINED = replace(
    NARROW,
    names=8,
    older=0.0,
    habits=Habits(5, 10, 0.02, claim=0.05, linger=0.0, shrink=0.0, seal=0.0, delete=0.0, read=0.0),
    mix=FaultMix(
        {Fault.RESET: 0.2, Fault.PARTITION: 0.5, Fault.ONE_WAY_PARTITION: 1.0, Fault.KILL: 3.0},
        NetworkConditions(latency_seconds_mean=0.002),
        DiskConditions(sync_seconds_mean=0.002),
    ),
    audit=AuditSettings(grace_seconds=10.0, interval_seconds=0.1, lease_seconds=2.0),
)
"""Many ledgers on three bookies: their writers use lost bookies again, and die while the metadata does not answer."""

# --- the audit at rest ---

audited = REST_BUGS.planted
CLUSTERS = "tests/bookie/test_cluster.py"


@audited(
    "a ledger's promise stays after its deletion", breaks="bookie.storage.removal 3", scenario=SCENARIO, quick=True
)
def promise_stays(patch: pytest.MonkeyPatch) -> None:
    remove_mark = removal.remove_mark

    def remembered(transaction: Any, entries: Any, states: Any, ledger: Any, forget: bool) -> bool:
        return remove_mark(transaction, entries, states, ledger, False)

    patch.setattr(removal, "remove_mark", remembered)


@audited("a bookie remembers deleted ledgers that peers ask for", breaks="bookie.storage.stored_ledgers 1", quick=True)
def deleted_ledgers_remembered(patch: pytest.MonkeyPatch) -> None:
    def owned(stored: Any, ledgers: Any, as_of: Any) -> None:
        stored._owned, stored._owned_as_of = ledgers, as_of

    patch.setattr(StoredLedgers, "owned", owned)


@audited("a topic's segments of positions stay", breaks="log.topic, keys of a topic", scenario=QUOTAS_SCENARIO)
def positions_stay(patch: pytest.MonkeyPatch) -> None:
    before = topic_admin.deletion_of_subscriptions

    def incomplete(topic_id: Any, source_id: Any = None) -> Any:
        return tuple(
            each
            for each in before(topic_id, source_id)
            if not (isinstance(each, DeletePrefix) and each.prefix.startswith("ledgers/"))
        )

    patch.setattr(topic_admin, "deletion_of_subscriptions", incomplete)


@audited(
    "memory of a request is not given back whole", breaks="broker.kafka.connections.connection 2", scenario=SCENARIO
)
def memory_kept(patch: pytest.MonkeyPatch) -> None:
    give_back = RequestMemory.give_back
    patch.setattr(RequestMemory, "give_back", lambda memory, count: give_back(memory, count - count % 2))


@audited("leaders of deleted topics are remembered", breaks="broker.placement.leadership, forget")
def leaders_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Placement, "forget", lambda placement, topic: None)


@audited("an entry stays in the cache after its last use", breaks="bookie.ledgers.entry_cache 2")
def entry_pinned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EntryCache, "release", lambda cache, key: None)


@audited(
    "a dismissed bookie is told last adds confirmed for ever",
    breaks="bookie.remote, retire",
    found_by="tests/bookie/test_explicit_lacs.py::test_a_dismissed_bookie_gets_no_lac_and_leaves_no_timer",
)
def dismissed_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RemoteBookie, "retire", lambda bookie: None)


@audited(
    "a writer that ended remembers the bookies that it had lost",
    breaks="bookie.ledgers.writer, ended",
    found_by=f"{CLUSTERS}::test_a_writer_that_ended_keeps_no_lost_bookie[sealed]",
)
def lost_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LedgerWriter, "ended", lambda writer: None)


@audited(
    "a bookie that was away keeps the entries of a ledger that was shrunk",
    breaks="bookie.storage.garbage, collect",
    scenario=LedgersAtRest(),
    quick=True,
)
def shrunk_entries_stay(patch: pytest.MonkeyPatch) -> None:
    shrink = EntryStore.shrink

    async def of_deleted(store: Any, ledger: Any, end: Any) -> None:
        if end == ENTRY_MAX:
            await shrink(store, ledger, end)

    patch.setattr(EntryStore, "shrink", of_deleted)


@audited(
    "a collection marks deleted ledgers, and does not remove them",
    breaks="bookie.storage.garbage 3",
    scenario=LedgersAtRest(),
    quick=True,
)
def marked_ledgers_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoredLedgers, "given_up", lambda stored: [])


# --- copies at rest ---

copied = COPIES_BUGS.planted
REPORTS = "tests/bookie/test_missing_report.py"
STAYS = "test_a_report_stays_while_a_bookie_lacks_an_entry_above_the_last_add_confirmed_that_another_has[told]"


async def whole(*_asked: object) -> bool:
    """Answers that nothing is missing."""
    return True


@copied("a seal does not report the copies that are missing", breaks="bookie.ledgers.appender 5")
def seal_without_report(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Appender, "copies_may_be_missing", property(lambda appender: False))


@copied(
    "a claim does not notice that a bookie lacks entries", breaks="bookie.ledgers.claim, is_complete", scenario=REGAINED
)
def lack_unnoticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(claim, "have_entries", whole)


@copied(
    "a claim looks only for the newest entry of each bookie",
    breaks="bookie.ledgers.copies, have_entries",
    scenario=REGAINED,
)
def lack_within_unnoticed(patch: pytest.MonkeyPatch) -> None:
    have_entries = claim.have_entries

    async def have_newest(bookies: Any, ledger: Any, of: Any, entries: range, seconds: float) -> bool:
        return await have_entries(bookies, ledger, of, entries[-1:], seconds)

    patch.setattr(claim, "have_entries", have_newest)


@copied(
    "a replaced bookie's copies are not reported",
    breaks="bookie.ledgers.ledger, change_ensemble",
    found_by=f"{REPORTS}::test_a_change_of_the_ensemble_reports_the_fragment_that_it_closes",
)
def replacement_unreported(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(record, "closes_entries", lambda record, first_entry: False)


@copied(
    "a report is settled by the last add confirmed alone",
    breaks="bookie.repair.repair 7",
    found_by=f"{REPORTS}::{STAYS}",
)
def settled_by_lac(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(repair, "have_entries", whole)


@copied("a report is settled and nothing was copied", breaks="bookie.repair.auditor 3", quick=True)
def settled_without_copies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(repair.LedgerRepair, "fill_gaps", whole)
