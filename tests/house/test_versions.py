"""The bounds on dependencies: wide for every user, and one Trio for the simulation, which needs its private names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `versions`: test folders are no packages

from versions import EXTRAS, ROOT, TESTS, lowest, pytest_arguments, requirements, simulated

from gnomon.testing.simulation.simulation import TRIO_VERSION

PRIVATE_NAMES = ("trio._", "_autojump", "_virtual_base")


def test_dependencies_are_bounded_from_below_alone() -> None:
    assert [lowest(bound) for bound in requirements(*EXTRAS)]


@pytest.mark.parametrize("bound", ["trio>=0.25,<0.36", "trio==0.35", "starlette~=0.45", "click"])
def test_another_bound_is_refused(bound: str) -> None:
    with pytest.raises(AssertionError, match="bounded from below alone"):
        lowest(bound)


def test_only_the_simulation_bounds_trio_from_above() -> None:
    assert lowest(requirements()[0]) == "trio==0.25"
    extra = requirements("simulation")[len(requirements()) :]
    major, minor = TRIO_VERSION.split(".")
    assert extra == ["gnomon[testing]", f"trio>={TRIO_VERSION},<{major}.{int(minor) + 1}"]


def test_private_names_of_trio_are_used_only_by_the_simulation() -> None:
    floors = ("wire", "runtime", "metadata", "bookie", "log", "client", "spark", "broker", "cli", "testing")
    users = {
        str(path.relative_to(ROOT))
        for floor in floors
        for path in (ROOT / floor).rglob("*.py")
        if any(name in path.read_text(encoding="utf-8") for name in PRIVATE_NAMES)
    }
    assert users == {"testing/simulation/simulation.py"}


def test_the_tests_of_the_versions_exist_and_exclude_the_simulation() -> None:
    arguments = pytest_arguments()
    assert "tests/testing/test_kafka_broker.py" in arguments
    assert set(TESTS) <= set(arguments)
    ignored = [one.removeprefix("--ignore=") for one in arguments if one.startswith("--ignore=")]
    assert ignored
    for name in (*ignored, *TESTS):
        assert (ROOT / name).exists()
    assert all(simulated(ROOT / name) for name in ignored)
