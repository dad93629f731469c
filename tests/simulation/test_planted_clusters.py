"""The power of the harness over whole clusters: bugs planted into the product, and the seeds that find each.

`--planted` prints the table; without it, only the bugs that a few seeds find are run.
"""

from __future__ import annotations

import pytest
from broker_scenario import Scenario

from gnomon.testing.simulation.sweeps import sweep

from planted.clusters import CLUSTER_BUGS, GROUPS, GROUPS_UNHEARD
from planted.hunt import QUICK_SEEDS_MAX, FindAll, found_within
from planted.planted_bug import ScenarioBug


@pytest.mark.parametrize("bug", [bug for bug in CLUSTER_BUGS if bug.quick], ids=lambda bug: bug.name)
def test_a_bug_planted_in_a_cluster_is_found_within_a_few_seeds(bug: ScenarioBug) -> None:
    assert found_within(bug, bug.scenario, QUICK_SEEDS_MAX) is not None


def test_every_bug_planted_in_clusters_is_found(find_all: FindAll) -> None:
    find_all((bug, bug.scenario) for bug in CLUSTER_BUGS)


@pytest.mark.parametrize("scenario", [GROUPS, GROUPS_UNHEARD], ids=["cut off", "late events"])
def test_the_faults_for_bugs_of_coordinators_find_none_without_a_planted_one(scenario: Scenario) -> None:
    assert sweep(scenario, range(2)).seeds == 2
