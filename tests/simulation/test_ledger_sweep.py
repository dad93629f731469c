"""Replicated ledgers, their clients, and a storm of faults: nothing acknowledged is lost or shown in two versions.

`extent.py` says how the environment widens the sweep; `simulate(seed, LedgerScenario())` replays one of them.
"""

from __future__ import annotations

from extent import swept

from gnomon.testing.ledger_scenario import COUNTERS, LedgerScenario
from gnomon.testing.sweep import assert_traces_repeat

RARE = (
    "ledger/bounds merged",
    "ledger/claim lost while recovering",
    "ledger/copy put over an orphan",
    "ledger/copy refused by a store",
    "ledger/failed for certain",
    "ledger/reader met a shrink",
    "ledger/replaced bookie stands in again",
)
"""Reached once in some ten to fifty seeds."""
RARE_SEEDS_MIN = 500


def test_no_seed_loses_an_acknowledged_entry_or_shows_two_versions_of_one() -> None:
    result = swept(LedgerScenario(), 45)
    rare = () if result.seeds >= RARE_SEEDS_MIN else RARE
    result.coverage.assert_all_counted(counter for counter in COUNTERS if counter not in rare)


def test_a_seed_gives_the_same_trace_in_processes_with_different_hash_seeds() -> None:
    assert_traces_repeat("gnomon.testing.ledger_scenario", "LedgerScenario()", range(4))
