"""The power of the harness over tables: bugs planted there, and the seeds or the test that finds each.

`--planted` prints the table; without it, only the bugs that a few seeds find are run.
"""

from __future__ import annotations

import pytest

from planted.hunt import QUICK_SEEDS_MAX, FindAll, found_within
from planted.planted_bug import ScenarioBug
from planted.stored_tables import STORED_TABLE_BUGS
from planted.tables import TABLE_BUGS

BUGS = (*TABLE_BUGS, *STORED_TABLE_BUGS)


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.quick], ids=lambda bug: bug.name)
def test_a_bug_planted_in_tables_is_found_within_a_few_seeds(bug: ScenarioBug) -> None:
    assert found_within(bug, bug.scenario, QUICK_SEEDS_MAX) is not None


def test_every_bug_planted_in_tables_is_found(find_all: FindAll) -> None:
    find_all((bug, bug.scenario) for bug in BUGS)
