"""The ranges of tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.record import Fragment, LedgerRecord, Quorum
from gnomon.log.entry import Offset
from gnomon.log.plans.read_plan import PlannedSegment
from gnomon.spark.columns import Range
from gnomon.spark.splits import TASK_BYTES_MAX, cut, cut_by_bytes

sizes = st.lists(st.integers(0, 60), max_size=5)


@given(sizes, st.integers(1, 80), st.none() | st.integers(1, 70))
def test_tasks_cover_each_range_once_within_the_bounds(
    given_sizes: list[int], tasks_min: int, most: int | None
) -> None:
    ranges = [Range("orders", number, 7, 7 + size) for number, size in enumerate(given_sizes)]
    tasks = cut(ranges, tasks_min, most)
    for each in ranges:
        offsets = [at for task in tasks if task.partition == each.partition for at in range(task.start, task.stop)]
        assert offsets == list(range(each.start, each.stop))
    assert all(0 < task.stop - task.start <= (most or 60) for task in tasks)
    assert len(tasks) >= min(tasks_min, sum(given_sizes))
    assert tasks == sorted(tasks)


@given(sizes)
def test_without_options_there_is_one_task_for_each_range_with_offsets(given_sizes: list[int]) -> None:
    ranges = [Range("orders", number, 0, size) for number, size in enumerate(given_sizes)]
    assert cut(ranges) == [each for each in ranges if each.stop]


def test_a_larger_range_is_cut_into_more_tasks() -> None:
    tasks = cut([Range("orders", 0, 0, 900), Range("orders", 1, 0, 100)], 10)
    assert [task.partition for task in tasks] == [0] * 9 + [1]


RECORD = LedgerRecord(Quorum(), (Fragment(EntryId(0), SessionId(1), (BookieId("bookie-1"),)),))
runs = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 5_000)), min_size=1, max_size=6)
"""Offsets and bytes of the planned runs."""


def planned(given_runs: list[tuple[int, int]], first: int) -> list[PlannedSegment]:
    """The plan of a range that begins at `first`, 5 offsets after the start of its first segment."""
    found, base, end = [], first - 5, first
    for offsets, size_bytes in given_runs:
        end += offsets
        places = EntryId(0), EntryId(9)
        found.append(PlannedSegment(Offset(base), LedgerId(7), RECORD, *places, Offset(end), size_bytes))
        base = end
    return found


def bytes_of(task: Range, segments: list[PlannedSegment], first: int) -> tuple[float, float]:
    """The bytes of a task, and those of its largest offset, if the bytes of a run are spread evenly."""
    total, largest = 0.0, 0.0
    for segment in segments:
        start = max(segment.base_offset, first)
        offsets = min(task.stop, segment.next_offset) - max(task.start, start)
        if offsets > 0:
            each = segment.size_bytes / (segment.next_offset - start)
            total, largest = total + offsets * each, max(largest, each)
    return total, largest


@given(runs, st.integers(5, 1 << 50), st.integers(1, 9_000))
def test_tasks_with_a_plan_cover_the_range_once_within_the_bytes(
    given_runs: list[tuple[int, int]], first: int, most: int
) -> None:  # 1, 3
    segments = planned(given_runs, first)
    whole = Range("orders", 4, first, segments[-1].next_offset)
    tasks = cut_by_bytes(whole, segments, most)
    assert [tasks[0].start, *(task.stop for task in tasks)] == [*(task.start for task in tasks), whole.stop]
    assert tasks[0].start == whole.start
    assert all(task.start < task.stop and task[:2] == whole[:2] for task in tasks)
    for task in tasks:
        size, largest = bytes_of(task, segments, first)
        assert size <= most + largest + 1e-6
    total = sum(size for _, size in given_runs)
    assert len(tasks) <= max(1, -(-total // most)), "no task is smaller than it has to be"


@given(runs, st.integers(0, 400), st.integers(0, 400), st.integers(1, 9_000))
def test_a_part_of_a_planned_range_is_covered_once(
    given_runs: list[tuple[int, int]], skipped: int, left: int, most: int
) -> None:  # 1, 3
    segments = planned(given_runs, 5)
    end = segments[-1].next_offset
    whole = Range("orders", 4, min(5 + skipped, end), max(end - left, 5))
    tasks = cut_by_bytes(whole, segments, most)
    assert [at for task in tasks for at in range(task.start, task.stop)] == list(range(whole.start, whole.stop))


def test_a_planned_range_below_the_limit_is_one_task_and_a_larger_one_is_cut_evenly() -> None:  # 3
    whole = Range("orders", 0, 0, 1_000)
    size = TASK_BYTES_MAX
    assert cut_by_bytes(whole, planned([(500, size // 2), (500, size // 2)], 5), size) == [whole]
    uneven = [
        each._replace(base_offset=Offset(each.base_offset - 5), next_offset=Offset(each.next_offset - 5))
        for each in planned([(500, 3 * size), (500, size)], 5)
    ]
    assert [task.stop for task in cut_by_bytes(whole, uneven)] == [166, 333, 500, 1_000]
