"""The public surface of the simulation: its names, their docstrings, and the guide with its example."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "docs" / "examples"))

import simulated_counter

from gnomon.runtime.world import Durability
from gnomon.testing import simulation
from gnomon.testing.simulation import Fault, assert_traces_repeat, guided, simulate

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "simulation.md"
EXAMPLE = ROOT / "docs" / "examples" / "simulated_counter.py"
EXAMPLE_LINES_MAX = 50

SURFACE = [(package, name) for package in (simulation, guided) for name in package.__all__]


def callables(package: ModuleType, name: str) -> list[tuple[str, object]]:
    """The function of this name, or the methods of the class, with the names that they are called by."""
    found = getattr(package, name)
    if inspect.isfunction(found):
        return [(name, found)]
    if not inspect.isclass(found):
        return []
    members = inspect.getmembers(found, inspect.isfunction)
    own = [(key, member) for key, member in members if member.__module__.startswith("gnomon.testing.simulation")]
    return [(f"{name}.{key}", member) for key, member in own if not key.startswith("_")]


@pytest.mark.parametrize(("package", "name"), SURFACE, ids=[name for _, name in SURFACE])
def test_every_public_name_is_in_the_guide(package: ModuleType, name: str) -> None:
    assert hasattr(package, name)
    assert f"`{name}" in GUIDE.read_text(encoding="utf-8")


@pytest.mark.parametrize(("package", "name"), SURFACE, ids=[name for _, name in SURFACE])
def test_every_public_class_function_and_method_has_a_docstring(package: ModuleType, name: str) -> None:
    found = getattr(package, name)
    if inspect.isclass(found):
        assert found.__doc__
        assert not found.__doc__.startswith(f"{name}("), "a dataclass or tuple has a docstring of its own"
    assert [key for key, member in callables(package, name) if not inspect.getdoc(member)] == []


@pytest.mark.parametrize(("package", "name"), SURFACE, ids=[name for _, name in SURFACE])
def test_every_public_function_describes_its_arguments(package: ModuleType, name: str) -> None:
    if inspect.isfunction(found := getattr(package, name)):
        text = " ".join((inspect.getdoc(found) or "").split())
        assert [key for key in inspect.signature(found).parameters if key not in text] == []


def test_the_guide_has_the_example_as_it_is() -> None:
    example = EXAMPLE.read_text(encoding="utf-8")
    assert f"```python\n{example}```\n" in GUIDE.read_text(encoding="utf-8")
    assert len(example.splitlines()) <= EXAMPLE_LINES_MAX


def test_the_guide_describes_each_kind_of_fault_and_the_bound_on_trio() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    assert [fault.name for fault in Fault if f"| `{fault.name}` |" not in guide] == []
    bound = next(
        line for line in (ROOT / "pyproject.toml").read_text().splitlines() if '"trio>=' in line and "<" in line
    )
    assert f"`{bound.strip().strip(',').strip(chr(34))}`" in guide


def test_the_example_passes_and_finds_its_planted_mistake() -> None:
    simulated_counter.test_no_acknowledged_addition_is_lost_or_counted_twice()


def test_the_example_does_not_bypass_its_world() -> None:
    simulate(1, simulated_counter.scenario, node_packages=("gnomon", simulated_counter.__name__))


def test_the_error_of_the_planted_mistake_names_the_seed_and_shows_the_trace() -> None:
    async def mistaken(one: simulation.Simulation) -> None:
        await simulated_counter.scenario(one, Durability.NONE)

    with pytest.raises(AssertionError, match="an addition was lost, or counted twice") as caught:
        simulate(0, mistaken)
    assert caught.value.__notes__[0].startswith("seed 0, the last lines of its trace:\n")


def test_the_example_repeats_in_another_process() -> None:
    assert_traces_repeat("simulated_counter", "scenario", range(2))
