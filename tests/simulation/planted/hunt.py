"""Searches planted bugs: counts the seeds that it takes to find each, and reports the finding."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from gnomon.testing.simulation.sweeps import seeds_to_find

from planted.planted_bug import PlantedBug, Scenario

FindAll = Callable[[Iterable[tuple[PlantedBug, Scenario]]], None]

ROOT = Path(__file__).parents[3]
SEEDS_MAX = int(os.environ.get("SEEDS", "500"))
QUICK_SEEDS_MAX = 40
"""A bound with a reserve: now fewer than ten seeds find each bug; a change of the product changes that number."""


def found_within(bug: PlantedBug, scenario: Scenario, seeds: int) -> tuple[int, str] | None:
    """The number of seeds until one fails, and its failure; None if none fails."""
    with bug.planted():
        found = seeds_to_find(scenario, range(seeds))
    return found and (found[0], _report(_still_fitting(found[1])))


def found_by_test(bug: PlantedBug) -> bool:
    """Whether the test in `found_by` passes without the bug and fails with it."""
    assert _ended(bug.found_by) is pytest.ExitCode.OK
    with bug.planted():
        return _ended(bug.found_by) is pytest.ExitCode.TESTS_FAILED


def _ended(test: str) -> int:
    with redirect_stdout(StringIO()):
        return pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), str(ROOT / test)])


def find_all(bugs: Iterable[tuple[PlantedBug, Scenario]]) -> None:
    """Prints the number of seeds that find each bug.

    Raises:
        AssertionError: a bug was not found.
    """
    missed = []
    print(f"\n{'seeds':>6}  {'seconds':>7}  bug, the invariant that it breaks, and what was reported")
    for bug, scenario in bugs:
        started = time.perf_counter()
        if bug.found_by:
            found = found_by_test(bug) and ("a test", bug.found_by)
        else:
            found = found_within(bug, scenario, SEEDS_MAX)
        seeds, said = found or ("none", "nothing")
        took = time.perf_counter() - started
        print(f"{seeds:>6}  {took:7.1f}  {bug.name} ({bug.breaks})\n{'':17}{said}", flush=True)
        if not found:
            missed.append(bug.name)
    assert not missed, f"not found within {SEEDS_MAX} seeds or by its test: {', '.join(missed)}"


def _still_fitting(error: Exception) -> Exception:
    """The error by which a planted bug was found; fails if the patch does not fit the product any more."""
    assert not isinstance(_cause_of(error), TypeError | AttributeError | NameError), f"the patch failed: {error!r}"
    return error


def _cause_of(error: BaseException) -> BaseException:
    """The first cause of an error."""
    if isinstance(error, BaseExceptionGroup):
        return _cause_of(error.exceptions[0])
    return error if error.__cause__ is None else _cause_of(error.__cause__)


def _report(error: BaseException) -> str:
    """The first line of the cause, for the table."""
    cause = _cause_of(error)
    text = str(cause).partition("\n")[0]
    return text[:110] if text else type(cause).__name__
