"""The power of the harness: bugs planted into the product, and how many seeds the sweep takes to find each.

`make planted` (pytest's `--planted`) prints the table; without it only the bugs run that a few seeds find.
"""

from __future__ import annotations

import os
import time

import pytest
from broker_scenario import SCENARIO, scenario_with

from gnomon.testing.sweep import seeds_to_find

from planted import BUGS, PlantedBug
from planted.ledgers import LEDGER_BUGS, LedgerBug

SEEDS_MAX = int(os.environ.get("SEEDS", "500"))
UNSEEN_SEEDS_MAX = 50
QUICK_SEEDS_MAX = 40
"""They take below ten today; where the product changes, its seeds tell other stories."""


def found_within(bug: PlantedBug, seeds: int) -> tuple[int, Exception] | None:
    """See `seeds_to_find`."""
    scenario = SCENARIO if bug.faults is None else scenario_with(bug.faults)
    with bug.planted():
        found = seeds_to_find(scenario, range(seeds))
    return found and (found[0], still_fitting(found[1]))


def still_fitting(error: Exception) -> Exception:
    """The error that a planted bug was found by; one that does not fit the product any more fails by itself."""
    assert not isinstance(cause_of(error), TypeError | AttributeError | NameError), f"the patch failed: {error!r}"
    return error


def cause_of(error: BaseException) -> BaseException:
    """What the harness said first."""
    if isinstance(error, BaseExceptionGroup):
        return cause_of(error.exceptions[0])
    return error if error.__cause__ is None else cause_of(error.__cause__)


def report(error: BaseException) -> str:
    """The heart of it, in one line."""
    cause = cause_of(error)
    text = str(cause).partition("\n")[0]
    return text[:110] if text else type(cause).__name__


@pytest.mark.parametrize("bug", [*BUGS, *LEDGER_BUGS], ids=lambda bug: bug.name)
def test_what_a_planted_bug_replaces_is_there(bug: PlantedBug | LedgerBug) -> None:
    with bug.planted():
        pass


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.quick], ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_within_a_few_seeds(bug: PlantedBug) -> None:
    assert found_within(bug, QUICK_SEEDS_MAX) is not None


def test_every_planted_bug_is_found(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    if not request.config.getoption("--planted"):
        pytest.skip("asked for with --planted: it takes minutes")
    missed = []
    with capsys.disabled():
        print(f"\n{'seeds':>5}  {'seconds':>7}  bug, the invariant that it breaks, and what was reported")
        for bug in BUGS:
            started = time.perf_counter()
            found = found_within(bug, UNSEEN_SEEDS_MAX if bug.unseen else SEEDS_MAX)
            seeds, said = (found[0], report(found[1])) if found else ("none", bug.unseen or "nothing")
            took = time.perf_counter() - started
            print(f"{seeds:>5}  {took:7.1f}  {bug.name} ({bug.breaks})\n{'':16}{said}", flush=True)
            if found is None and not bug.unseen:
                missed.append(bug.name)
    assert not missed, f"not found within {SEEDS_MAX} seeds: {', '.join(missed)}"
