"""The ranges of tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gnomon.spark.columns import Range
from gnomon.spark.splits import cut

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
