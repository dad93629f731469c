"""The power of the harness: bugs planted into the product, and the number of seeds that find each.

`make planted` (pytest's `--planted`) prints the table; without it, only the bugs that a few seeds find are run.
"""

from __future__ import annotations

import pytest
from broker_scenario import SCENARIO, scenario_with

from planted import BUGS, PlantedBug
from planted.all_bugs import ALL_BUGS
from planted.hunt import QUICK_SEEDS_MAX, FindAll, found_by_test, found_within
from planted.planted_bug import Scenario


def scenario_of(bug: PlantedBug) -> Scenario:
    return SCENARIO if bug.faults is None else scenario_with(bug.faults)


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.quick], ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_within_a_few_seeds(bug: PlantedBug) -> None:
    assert found_within(bug, scenario_of(bug), QUICK_SEEDS_MAX) is not None


@pytest.mark.parametrize("bug", [bug for bug in ALL_BUGS if bug.found_by], ids=lambda bug: bug.name)
def test_a_planted_bug_that_no_sweep_finds_is_found_by_its_test(bug: PlantedBug) -> None:
    assert found_by_test(bug)


def test_every_planted_bug_is_found(find_all: FindAll) -> None:
    find_all((bug, scenario_of(bug)) for bug in BUGS)
