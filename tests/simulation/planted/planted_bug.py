"""Bugs planted into the product, to find out what the simulation would find.

    @planted("acknowledged before the commit", breaks="bookie.entry_store, invariant 1")
    def _(patch):
        patch.setattr(EntryStore, "add", ...)

1. A bug is a monkeypatch of the product's own code for the length of a `with` block; the product has no trace of it.
2. Each one breaks a promise that a module makes, named by the module and the number of its invariant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from gnomon.testing.faults import Fault

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class PlantedBug:
    """A bug.

    Attributes:
        quick: it is found within a few seeds and belongs to the usual tests.
        faults: a mix made for it, as mean seconds between faults; None where the sweep's own mixes find it.
        unseen: why the sweep does not find it, empty where it does.
    """

    name: str
    breaks: str
    plant: Plant
    quick: bool
    faults: Mapping[Fault, float] | None
    unseen: str

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The product has the bug inside the block."""
        with pytest.MonkeyPatch.context() as patch:
            self.plant(patch)
            yield


BUGS: list[PlantedBug] = []


def planted(
    name: str, *, breaks: str, quick: bool = False, faults: Mapping[Fault, float] | None = None, unseen: str = ""
) -> Callable[[Plant], Plant]:
    """Lists a bug; the function decorated patches the product."""

    def decorate(plant: Plant) -> Plant:
        BUGS.append(PlantedBug(name, breaks, plant, quick, faults, unseen))
        return plant

    return decorate
