"""The power of the judges after storms: bugs that no other check of a storm finds, and the seeds to find them.

`--planted` prints the table; without it, only the bugs that a few seeds find are run.
"""

from __future__ import annotations

import pytest

from planted.at_rest import COPIES_BUGS, REST_BUGS
from planted.hunt import QUICK_SEEDS_MAX, FindAll, found_within
from planted.latencies import LATENCY_BUGS
from planted.planted_bug import ScenarioBug

JUDGE_BUGS = [*REST_BUGS, *COPIES_BUGS, *LATENCY_BUGS]


@pytest.mark.parametrize("bug", [bug for bug in JUDGE_BUGS if bug.quick], ids=lambda bug: bug.name)
def test_a_bug_that_only_a_judge_sees_is_found_within_a_few_seeds(bug: ScenarioBug) -> None:
    assert found_within(bug, bug.scenario, QUICK_SEEDS_MAX) is not None


def test_every_bug_that_only_a_judge_sees_is_found(find_all: FindAll) -> None:
    find_all((bug, bug.scenario) for bug in JUDGE_BUGS)
