"""Planted bugs replace functions of the product: a change of these has to adapt the bugs of `make planted`."""

from __future__ import annotations

import pytest

from planted import PlantedBug
from planted.all_bugs import ALL_BUGS


@pytest.mark.parametrize("bug", ALL_BUGS, ids=lambda bug: bug.name)
def test_the_function_that_a_planted_bug_replaces_exists(bug: PlantedBug) -> None:
    with bug.planted():
        pass
