"""Replicated ledgers, their clients, and a storm of faults: no acknowledged entry is lost or has two versions.

After each storm all ledgers are deleted, and the state at rest is judged. `extent.py` explains how the environment
widens the sweep; `simulate(seed, LedgersAtRest())` replays one seed.
"""

from __future__ import annotations

import pytest
from extent import swept

from gnomon.testing.simulation.simulation import simulate
from gnomon.testing.simulation.sweeps import assert_traces_repeat
from gnomon.testing.storms.ledgers.ledger_scenario import COUNTERS, LedgerScenario
from gnomon.testing.storms.rest.ledgers_at_rest import LedgersAtRest

RARE = (
    "ledger/bounds merged",
    "ledger/claim lost while recovering",
    "ledger/copy put over an orphan",
    "ledger/given up: close",
    "ledger/given up: seal",
    "ledger/ledger claimed for a repair",
    "ledger/reader met a shrink",
    "ledger/replaced bookie stands in again",
)
"""Counters that are reached once in some ten to fifty seeds."""
RARE_SEEDS_MIN = 500
RAREST = ("ledger/copy refused by a store", "ledger/failed for certain")
"""Counters that are reached once in some 100 to 250 seeds."""
RAREST_SEEDS_MIN = 2500
FAILED_ONCE = (2189, 2443, 3770)
"""In these seeds the scenario waited for an unreadable ledger, or a claim never reached a bookie that had returned."""


def test_no_seed_loses_an_acknowledged_entry_or_shows_two_versions_of_one() -> None:
    result = swept(LedgersAtRest(), 20, reaches=[counter for counter in COUNTERS if counter not in RARE + RAREST])
    if result.seeds >= RARE_SEEDS_MIN:
        result.coverage.assert_all_counted(RARE)
    if result.seeds >= RAREST_SEEDS_MIN:
        result.coverage.assert_all_counted(RAREST)


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_a_seed_that_failed_once_passes(seed: int) -> None:
    simulate(seed, LedgerScenario())


def test_a_seed_gives_the_same_trace_in_processes_with_different_hash_seeds() -> None:
    assert_traces_repeat("gnomon.testing.storms.ledgers.ledger_scenario", "LedgerScenario()", range(2))
