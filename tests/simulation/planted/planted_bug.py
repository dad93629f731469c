"""Bugs planted into the product, to find out what the simulation would find.

    @planted("acknowledged before the commit", breaks="bookie.entry_store, invariant 1")
    def _(patch):
        patch.setattr(EntryStore, "add", ...)

1. A bug is a monkeypatch of the product's own code for the length of a `with` block; the product has no trace of it.
2. Each one breaks a promise that a module makes, named by the module and the number of its invariant.
3. What it replaces is there and is called in the same way: otherwise the planting fails, not the bug.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Parameter, getattr_static, iscoroutinefunction, signature
from typing import Any

import pytest

from gnomon.testing.faults import Fault

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class PlantedBug:
    """A bug.

    Attributes:
        quick: it is found within a few seeds and belongs to the usual tests.
        faults: a mix made for it, as mean seconds between faults; None where the sweep's own mixes find it.
        found_by: the test that finds it where the sweep cannot, as pytest names it.
    """

    name: str
    breaks: str
    plant: Plant
    quick: bool
    faults: Mapping[Fault, float] | None
    found_by: str

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The product has the bug inside the block."""
        with _FittingPatch.context() as patch:
            self.plant(patch)
            yield


ANY_ARITY = -1


class _FittingPatch(pytest.MonkeyPatch):
    """Replaces functions by functions that take as many arguments, and are awaited as they are."""

    def setattr(self, target: Any, name: Any, *value: Any, **options: Any) -> None:
        if value and not isinstance(target, str):
            before, after = _function(getattr_static(target, name, None)), _function(value[0])
            if callable(before) and _arity(after) != ANY_ARITY:
                fits = (_arity(before), iscoroutinefunction(before)) == (_arity(after), iscoroutinefunction(after))
                assert fits, f"{target.__name__}.{name} is called in another way than what is planted in its place"
        super().setattr(target, name, *value, **options)


def _function(member: Any) -> Any:
    """What a class method or static method is made of."""
    return getattr(member, "__func__", member)


def _arity(function: Any) -> int:
    """How many arguments may be given by position."""
    kinds = [parameter.kind for parameter in signature(function).parameters.values()]
    if Parameter.VAR_POSITIONAL in kinds:
        return ANY_ARITY
    return kinds.count(Parameter.POSITIONAL_ONLY) + kinds.count(Parameter.POSITIONAL_OR_KEYWORD)


BUGS: list[PlantedBug] = []


def planted(
    name: str, *, breaks: str, quick: bool = False, faults: Mapping[Fault, float] | None = None, found_by: str = ""
) -> Callable[[Plant], Plant]:
    """Lists a bug; the function decorated patches the product."""

    def decorate(plant: Plant) -> Plant:
        BUGS.append(PlantedBug(name, breaks, plant, quick, faults, found_by))
        return plant

    return decorate
