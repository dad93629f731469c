"""Cuts the ranges of a read into the ranges of its tasks.

1. The cuts of a range cover it, once and in order; a range without offsets has no task.
2. No task has more than `records_max` offsets. There are at least `tasks_min` tasks, if there are as many offsets; a
   larger range is cut into more of them.
3. `cut_by_bytes` makes tasks of at most `bytes_max` bytes, if the bytes of each planned run are spread evenly over its
   offsets; the bytes of one offset may exceed it. The cuts cover the range as in 1.

A plan has offsets only of the ends of its runs, so cuts inside a run are estimates. They are cuts between offsets all
the same, and a record belongs to the task whose range has its offset: no estimate loses or doubles one. The task finds
its first entry by a search (`log/plans/planned_read.py`). A batch that a cut goes through is read by both tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from gnomon.log.plans.read_plan import PlannedSegment
from gnomon.spark.columns import Range

TASK_BYTES_MAX: Final = 256 << 20


class _PlannedBytes(NamedTuple):
    """The part of a range that one planned segment has."""

    start: int
    stop: int
    size_bytes: int


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


def cut_by_bytes(whole: Range, segments: Sequence[PlannedSegment], bytes_max: int = TASK_BYTES_MAX) -> list[Range]:
    """The ranges of the tasks.

    Args:
        segments: the plan of the range, or of a larger one.
    """
    runs = list(_runs(whole, segments))
    total = sum(run.size_bytes for run in runs)
    count = max(1, -(-total // bytes_max))
    edges = [whole.start, *(_offset_at(runs, total, number, count) for number in range(1, count)), whole.stop]
    return [whole._replace(start=start, stop=stop) for start, stop in pairwise(edges) if start < stop]


def _runs(whole: Range, segments: Sequence[PlannedSegment]) -> Iterator[_PlannedBytes]:
    """The runs with bytes, in order."""
    for segment in segments:
        start, stop = max(whole.start, segment.base_offset), min(segment.next_offset, whole.stop)
        if start < stop and segment.size_bytes > 0:
            yield _PlannedBytes(start, stop, segment.size_bytes)


def _offset_at(runs: Sequence[_PlannedBytes], total: int, number: int, count: int) -> int:
    """The offset before which `number` of `count` equal parts of the bytes are."""
    left = total * number  # all bytes here are multiplied by `count`
    for run in runs:
        if left <= run.size_bytes * count:
            return run.start + left * (run.stop - run.start) // (run.size_bytes * count)
        left -= run.size_bytes * count
    return runs[-1].stop


def _size(each: Range) -> int:
    return each.stop - each.start


def _parts(whole: Range, count: int) -> Iterator[Range]:
    """`count` parts of nearly the same size."""
    for at in range(count):
        start, stop = (whole.start + _size(whole) * edge // count for edge in (at, at + 1))
        yield whole._replace(start=start, stop=stop)
