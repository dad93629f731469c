"""The power of the harness over replicated ledgers: bugs planted into the product, and how many seeds find each.

`--planted` prints the table; without it only the bugs run that a few seeds find.
"""

from __future__ import annotations

import os
import time

import pytest
from test_planted import report, still_fitting

from gnomon.testing.simulation import simulate

from planted.ledgers import LEDGER_BUGS, LedgerBug

SEEDS_MAX = int(os.environ.get("SEEDS", "500"))
UNSEEN_SEEDS_MAX = 50
QUICK_SEEDS_MAX = 40


def seeds_to_find(bug: LedgerBug, seeds: int) -> tuple[int, str] | None:
    """How many seeds it takes until one fails, and how it failed; None where none does."""
    with bug.planted():
        for seed in range(seeds):
            try:
                simulate(seed, bug.scenario)
            except Exception as error:
                return seed + 1, report(still_fitting(error))
    return None


@pytest.mark.parametrize("bug", [bug for bug in LEDGER_BUGS if bug.quick], ids=lambda bug: bug.name)
def test_a_bug_planted_in_ledgers_is_found_within_a_few_seeds(bug: LedgerBug) -> None:
    assert seeds_to_find(bug, QUICK_SEEDS_MAX) is not None


def test_every_bug_planted_in_ledgers_is_found(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    if not request.config.getoption("--planted"):
        pytest.skip("asked for with --planted: it takes minutes")
    missed = []
    with capsys.disabled():
        print(f"\n{'seeds':>5}  {'seconds':>7}  bug, the invariant that it breaks, and what was reported")
        for bug in LEDGER_BUGS:
            started = time.perf_counter()
            found = seeds_to_find(bug, UNSEEN_SEEDS_MAX if bug.unseen else SEEDS_MAX)
            seeds, said = found or ("none", bug.unseen or "nothing")
            took = time.perf_counter() - started
            print(f"{seeds:>5}  {took:7.1f}  {bug.name} ({bug.breaks})\n{'':16}{said}", flush=True)
            if found is None and not bug.unseen:
                missed.append(bug.name)
    assert not missed, f"not found within {SEEDS_MAX} seeds: {', '.join(missed)}"
