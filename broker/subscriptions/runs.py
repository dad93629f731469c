"""A set of offsets, stored as runs [first, end). Pure.

1. Runs are in order, no run is empty, and there is a gap between any two.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class Runs:
    """A set of offsets, to which runs are added and from which runs are removed."""

    __slots__ = ("_ends", "_firsts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._firsts, self._ends, strict=True)))

    @property
    def first(self) -> int:
        """The lowest offset; the set must not be empty."""
        return self._firsts[0]

    def count(self) -> int:
        """The number of offsets."""
        return sum(self._ends) - sum(self._firsts)

    def within(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """The runs of the set within [first, end), in order; the set must not change during the iteration."""
        at = bisect_right(self._ends, first)
        while at < len(self._firsts) and self._firsts[at] < end:
            yield max(first, self._firsts[at]), min(end, self._ends[at])
            at += 1

    def add(self, first: int, end: int) -> None:
        """Adds a run, which may overlap runs of the set."""
        low, high = bisect_left(self._ends, first), bisect_right(self._firsts, end)
        if low < high:
            first, end = min(first, self._firsts[low]), max(end, self._ends[high - 1])
        self._firsts[low:high], self._ends[low:high] = [first], [end]

    def remove(self, first: int, end: int) -> list[tuple[int, int]]:
        """Removes a run; returns its runs that were in the set."""
        low, high = bisect_right(self._ends, first), bisect_left(self._firsts, end)
        if low >= high or first >= end:
            return []
        taken = list(zip(self._firsts[low:high], self._ends[low:high], strict=True))
        left = []
        if taken[0][0] < first:
            left.append((taken[0][0], first))
            taken[0] = (first, taken[0][1])
        if taken[-1][1] > end:
            left.append((end, taken[-1][1]))
            taken[-1] = (taken[-1][0], end)
        self._firsts[low:high] = [run[0] for run in left]
        self._ends[low:high] = [run[1] for run in left]
        return taken
