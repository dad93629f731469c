"""The sizes of all containers that a node reaches, by the attribute that holds them; and the objects that it reaches.

    sizes = sizes_of(serving)
    sizes.held["FetchSessions._sessions"]      # the number of items, of all containers under this name
    sizes.found(KafkaConnection)               # the objects of a class

The search follows attributes, items, and what callbacks carry: bound methods, closures, partial functions. So a node
cannot keep anything out of sight except in the variables of its tasks. It does not enter the world (clock, network,
disk), nor the objects of BARRIERS.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any, TypeVar

T = TypeVar("T")

CONTAINERS = (dict, list, set, frozenset, deque)
GROWING = (dict, list, set, deque)
"""The containers that are counted."""
PACKAGE = "gnomon."
OUTSIDE = ("gnomon.testing.",)
"""Modules whose objects are not entered: the simulated world, and the harness."""


class Sizes:
    """Made by `sizes_of`."""

    def __init__(self) -> None:
        self.held: Counter[str] = Counter()
        """The items of all containers by `Class.attribute`, or `Class.attribute[]` for containers in that container."""
        self._objects: defaultdict[type, list[Any]] = defaultdict(list)

    def found(self, kind: type[T]) -> list[T]:
        """The objects of exactly this class."""
        return self._objects.get(kind, [])

    def add(self, value: Any, where: str) -> None:
        """Counts an object that was reached by the attribute `where`."""
        if isinstance(value, GROWING):
            self.held[where] += len(value)
        else:
            self._objects[type(value)].append(value)


def sizes_of(root: Any, barriers: tuple[type, ...] = ()) -> Sizes:
    """The sizes below an object; objects of `barriers` are counted, and not entered."""
    sizes, seen = Sizes(), {id(root): root}
    stack = [(root, type(root).__name__)]
    while stack:
        value, where = stack.pop()
        sizes.add(value, where)
        if isinstance(value, barriers):
            continue
        for child, place in _children(value, where):
            if id(child) not in seen and _is_entered(child):
                seen[id(child)] = child  # kept, so that its id stays its own
                stack.append((child, place))
    return sizes


def _is_entered(value: Any) -> bool:
    if isinstance(value, (*CONTAINERS, tuple, MethodType, FunctionType, functools.partial)):
        return True
    module = type(value).__module__
    return module.startswith(PACKAGE) and not module.startswith(OUTSIDE)


def _children(value: Any, where: str) -> Iterator[tuple[Any, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key, f"{where}[]"
            yield item, f"{where}[]"
    elif isinstance(value, (*CONTAINERS, tuple)):
        for item in value:
            yield item, f"{where}[]"
    elif isinstance(value, MethodType):
        yield value.__self__, where
    elif isinstance(value, functools.partial):
        for item in (value.func, *value.args, *value.keywords.values()):
            yield item, where
    elif isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            try:
                yield cell.cell_contents, where
            except ValueError:  # not bound yet
                continue
    else:
        yield from _attributes(value)


def _attributes(value: Any) -> Iterator[tuple[Any, str]]:
    kind = type(value)
    for name, item in list(getattr(value, "__dict__", {}).items()):
        yield item, f"{kind.__name__}.{name}"
    for owner in kind.__mro__:
        slots = owner.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                yield getattr(value, name), f"{kind.__name__}.{name}"
