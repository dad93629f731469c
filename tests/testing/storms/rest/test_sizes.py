from __future__ import annotations

from functools import partial
from typing import Any

from gnomon.runtime.timers import Timers
from gnomon.testing.storms.rest.sizes import sizes_of


class Registry:
    """Pretends to be a part of the product, whose objects are entered."""

    __module__ = "gnomon.broker.registry"

    def __init__(self) -> None:
        self.items: dict[str, Any] = {}

    def call(self) -> None:
        """A callback."""


class Slotted:
    __module__ = "gnomon.broker.slotted"
    __slots__ = ("queue", "unset")

    def __init__(self, queue: list[Any]) -> None:
        self.queue = queue


def test_containers_are_counted_by_the_attribute_that_holds_them() -> None:
    registry = Registry()
    registry.items = {"a": [1, 2], "b": [3], "c": Slotted([4, 5, 6])}
    held = sizes_of(registry).held
    assert (held["Registry.items"], held["Registry.items[]"], held["Slotted.queue"]) == (3, 3, 3)


def test_objects_are_reached_through_bound_methods_closures_and_partial_functions() -> None:
    parts = [Registry() for _ in range(3)]
    first, second, third = parts

    def closure() -> Registry:
        return second

    root = Registry()
    root.items = {"method": first.call, "closure": closure, "partial": partial(print, third)}
    assert sizes_of(root).found(Registry) == [root, third, second, first]


def test_the_harness_and_barriers_are_not_entered() -> None:
    root, inner = Registry(), Registry()
    inner.items = {"hidden": [1]}
    root.items = {"barrier": Slotted([inner]), "outside": object()}
    sizes = sizes_of(root, barriers=(Slotted,))
    assert len(sizes.found(Slotted)) == 1
    assert sizes.found(Registry) == [root]
    assert not sizes.found(Timers)
