"""Cuts the ranges of a read into the ranges of its tasks.

1. The cuts of a range cover it, once and in order; a range without offsets has no task.
2. No task has more than `records_max` offsets. There are at least `tasks_min` tasks, if there are as many offsets; a
   larger range is cut into more of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gnomon.spark.columns import Range


def cut(ranges: Sequence[Range], tasks_min: int = 1, records_max: int | None = None) -> list[Range]:
    """The ranges of the tasks, in the order of `ranges`."""
    some = [each for each in ranges if each.stop > each.start]
    if records_max is not None:
        some = [part for each in some for part in _parts(each, -(-_size(each) // records_max))]
    while len(some) < tasks_min:
        total = sum(map(_size, some))
        shares = [max(1, min(_size(each), -(-_size(each) * tasks_min // (total or 1)))) for each in some]
        if sum(shares) == len(some):
            break  # each offset is a task of its own
        some = [part for each, share in zip(some, shares, strict=True) for part in _parts(each, share)]
    return some


def _size(each: Range) -> int:
    return each.stop - each.start


def _parts(whole: Range, count: int) -> Iterator[Range]:
    """`count` parts of nearly the same size."""
    for at in range(count):
        start, stop = (whole.start + _size(whole) * edge // count for edge in (at, at + 1))
        yield whole._replace(start=start, stop=stop)
