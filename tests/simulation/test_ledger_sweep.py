"""Replicated ledgers, their clients, and a storm of faults: nothing acknowledged is lost or shown in two versions.

`extent.py` says how the environment widens the sweep; `simulate(seed, LedgerScenario())` replays one of them.
"""

from __future__ import annotations

import pytest
from extent import swept

from gnomon.testing.ledger_scenario import COUNTERS, LedgerScenario
from gnomon.testing.simulation import simulate
from gnomon.testing.sweep import assert_traces_repeat

RARE = (
    "ledger/bounds merged",
    "ledger/claim lost while recovering",
    "ledger/copy put over an orphan",
    "ledger/reader met a shrink",
    "ledger/replaced bookie stands in again",
)
"""Reached once in some ten to fifty seeds."""
RARE_SEEDS_MIN = 500
RAREST = ("ledger/copy refused by a store", "ledger/failed for certain")
"""Reached once in some 100 to 250 seeds."""
RAREST_SEEDS_MIN = 2500
FAILED_ONCE = (2189, 2443, 3770)
"""The scenario waited for readers of what nobody could read; a claim never reached a bookie that was back."""


def test_no_seed_loses_an_acknowledged_entry_or_shows_two_versions_of_one() -> None:
    result = swept(LedgerScenario(), 20, reaches=[counter for counter in COUNTERS if counter not in RARE + RAREST])
    if result.seeds >= RARE_SEEDS_MIN:
        result.coverage.assert_all_counted(RARE)
    if result.seeds >= RAREST_SEEDS_MIN:
        result.coverage.assert_all_counted(RAREST)


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_a_seed_that_failed_once_passes(seed: int) -> None:
    simulate(seed, LedgerScenario())


def test_a_seed_gives_the_same_trace_in_processes_with_different_hash_seeds() -> None:
    assert_traces_repeat("gnomon.testing.ledger_scenario", "LedgerScenario()", range(2))
