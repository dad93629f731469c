"""Bugs planted into the product, to measure which bugs the simulation finds.

    @planted("acknowledged before the commit", breaks="bookie.entry_store, invariant 1")
    def _(patch):
        patch.setattr(EntryStore, "add", ...)

1. A bug is a monkeypatch of the product's code for the duration of a `with` block; the product has no hooks for it.
2. Each bug breaks a promise of a module, named by the module and the number of its invariant.
3. The replaced function exists and has the same parameters: otherwise the planting fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Parameter, getattr_static, iscoroutinefunction, signature
from typing import Any

import pytest

from gnomon.testing.simulation.faults import Fault
from gnomon.testing.simulation.simulation import Simulation

Plant = Callable[[pytest.MonkeyPatch], None]
Scenario = Callable[[Simulation], Awaitable[object]]


@dataclass(frozen=True)
class PlantedBug:
    """A planted bug.

    Attributes:
        quick: whether it is found within a few seeds and belongs to the usual tests.
        faults: a mix for this bug, as mean seconds between faults; None if the sweep's own mixes find it.
        found_by: the pytest id of the test that finds it, if no sweep does.
    """

    name: str
    breaks: str
    plant: Plant
    quick: bool
    faults: Mapping[Fault, float] | None
    found_by: str

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Plants the bug in the product during the block."""
        with _FittingPatch.context() as patch:
            self.plant(patch)
            yield


ANY_ARITY = -1


class _FittingPatch(pytest.MonkeyPatch):
    """A monkeypatch that replaces functions only by functions with as many arguments, async only by async ones."""

    def setattr(self, target: Any, name: Any, *value: Any, **options: Any) -> None:
        if value and not isinstance(target, str):
            before, after = _function(getattr_static(target, name, None)), _function(value[0])
            if callable(before) and _arity(after) != ANY_ARITY:
                fits = (_arity(before), iscoroutinefunction(before)) == (_arity(after), iscoroutinefunction(after))
                assert fits, f"{target.__name__}.{name} is called in another way than the planted function"
        super().setattr(target, name, *value, **options)


def _function(member: Any) -> Any:
    """The function of a class method or static method."""
    return getattr(member, "__func__", member)


def _arity(function: Any) -> int:
    """The number of positional arguments."""
    kinds = [parameter.kind for parameter in signature(function).parameters.values()]
    if Parameter.VAR_POSITIONAL in kinds:
        return ANY_ARITY
    return kinds.count(Parameter.POSITIONAL_ONLY) + kinds.count(Parameter.POSITIONAL_OR_KEYWORD)


BUGS: list[PlantedBug] = []


def planted(
    name: str, *, breaks: str, quick: bool = False, faults: Mapping[Fault, float] | None = None, found_by: str = ""
) -> Callable[[Plant], Plant]:
    """Lists a bug; the decorated function patches the product."""

    def decorate(plant: Plant) -> Plant:
        BUGS.append(PlantedBug(name, breaks, plant, quick, faults, found_by))
        return plant

    return decorate


@dataclass(frozen=True)
class ScenarioBug(PlantedBug):
    """A bug, and the scenario that looks for it."""

    scenario: Scenario


class ScenarioBugs(list[ScenarioBug]):
    """The bugs of one kind.

    Args:
        scenario: looks for the bugs that name no scenario of their own.
    """

    def __init__(self, scenario: Scenario) -> None:
        super().__init__()
        self._scenario = scenario

    def planted(
        self, name: str, *, breaks: str, quick: bool = False, found_by: str = "", scenario: Scenario | None = None
    ) -> Callable[[Plant], Plant]:
        """Lists a bug; the decorated function patches the product."""

        def decorate(plant: Plant) -> Plant:
            self.append(ScenarioBug(name, breaks, plant, quick, None, found_by, scenario or self._scenario))
            return plant

        return decorate
