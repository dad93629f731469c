"""The bounds on Trio's version: the core only has a lower one, the simulation needs private names of one version."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `trio_versions`: test folders are no packages

from trio_versions import ROOT, TESTS, dependencies, lowest_trio, pytest_arguments, simulated

PRIVATE_NAMES = ("trio._", "_autojump", "_virtual_base")


def test_the_core_has_only_a_lower_bound_on_trio_and_the_testing_extra_an_upper_one() -> None:
    assert lowest_trio(dependencies()) == "0.25"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (bound,) = [one for one in project["optional-dependencies"]["testing"] if one.startswith("trio")]
    assert "<" in bound


@pytest.mark.parametrize("named", [["trio>=0.25,<0.36"], ["trio==0.35"], ["trio-websocket>=0.9"]])
def test_another_bound_of_the_core_is_refused(named: list[str]) -> None:
    with pytest.raises(AssertionError):
        lowest_trio(named)


def test_private_names_of_trio_are_used_only_by_the_simulation() -> None:
    floors = ("wire", "runtime", "metadata", "bookie", "log", "client", "broker", "cli", "testing")
    users = {
        str(path.relative_to(ROOT))
        for floor in floors
        for path in (ROOT / floor).rglob("*.py")
        if any(name in path.read_text(encoding="utf-8") for name in PRIVATE_NAMES)
    }
    assert users == {"testing/simulation/simulation.py"}


def test_the_tests_of_the_core_exist_and_exclude_the_simulation() -> None:
    arguments = pytest_arguments()
    assert arguments[: len(TESTS)] == list(TESTS)
    assert all((ROOT / name).exists() for name in TESTS)
    ignored = [ROOT / one.removeprefix("--ignore=") for one in arguments[len(TESTS) :]]
    assert ignored
    assert all(map(simulated, ignored))
