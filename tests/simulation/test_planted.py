"""The power of the harness: bugs planted into the product, and the number of seeds that find each.

`make planted` (pytest's `--planted`) prints the table; without it, only the bugs that a few seeds find are run.
"""

from __future__ import annotations

import pytest
from broker_scenario import SCENARIO, scenario_with

from planted import BUGS, PlantedBug
from planted.at_rest import COPIES_BUGS, REST_BUGS
from planted.churn import CHURN_BUGS
from planted.clusters import CLUSTER_BUGS
from planted.groups import GROUP_BUGS
from planted.hunt import QUICK_SEEDS_MAX, FindAll, found_by_test, found_within
from planted.latencies import LATENCY_BUGS
from planted.ledgers import LEDGER_BUGS
from planted.logs import LOG_BUGS
from planted.older_copies import OLDER_COPY_BUGS
from planted.plans import PLAN_BUGS
from planted.planted_bug import Scenario
from planted.shadows import SHADOW_BUGS
from planted.sinks import SINK_BUGS
from planted.subscriptions import SUBSCRIPTION_BUGS

ALL_BUGS: list[PlantedBug] = [
    *(*BUGS, *LEDGER_BUGS, *OLDER_COPY_BUGS, *CLUSTER_BUGS, *SHADOW_BUGS, *SUBSCRIPTION_BUGS),
    *(*REST_BUGS, *COPIES_BUGS, *LATENCY_BUGS, *GROUP_BUGS, *LOG_BUGS, *CHURN_BUGS, *PLAN_BUGS, *SINK_BUGS),
]


def scenario_of(bug: PlantedBug) -> Scenario:
    return SCENARIO if bug.faults is None else scenario_with(bug.faults)


@pytest.mark.parametrize("bug", ALL_BUGS, ids=lambda bug: bug.name)
def test_the_function_that_a_planted_bug_replaces_exists(bug: PlantedBug) -> None:
    with bug.planted():
        pass


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.quick], ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_within_a_few_seeds(bug: PlantedBug) -> None:
    assert found_within(bug, scenario_of(bug), QUICK_SEEDS_MAX) is not None


@pytest.mark.parametrize("bug", [bug for bug in ALL_BUGS if bug.found_by], ids=lambda bug: bug.name)
def test_a_planted_bug_that_no_sweep_finds_is_found_by_its_test(bug: PlantedBug) -> None:
    assert found_by_test(bug)


def test_every_planted_bug_is_found(find_all: FindAll) -> None:
    find_all((bug, scenario_of(bug)) for bug in BUGS)
