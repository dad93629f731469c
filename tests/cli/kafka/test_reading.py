from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gnomon.cli.kafka.reading import ReadingBounds, newest


class Placed(NamedTuple):
    at_partition: int
    at_offset: int
    time: int = 0

    def partition(self) -> int:
        return self.at_partition

    def offset(self) -> int:
        return self.at_offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self.time


def test_no_record_at_the_end_or_after_it_belongs_to_the_reading() -> None:
    """Invariants 1 and 2."""
    bounds = ReadingBounds({0: 3, 1: 1})
    assert [bounds.belongs(Placed(0, offset)) for offset in (0, 2, 3, 4)] == [True, True, False, False]
    assert not bounds.complete
    assert bounds.belongs(Placed(1, 0))
    assert bounds.complete


def test_the_end_of_the_log_completes_a_partition_only_at_its_end_or_later() -> None:
    """Invariant 2."""
    bounds = ReadingBounds({0: 5})
    bounds.log_ends(Placed(0, 4))
    assert not bounds.complete
    bounds.log_ends(Placed(0, 5))
    assert bounds.complete


def test_a_reading_without_bounds_is_never_complete() -> None:
    bounds = ReadingBounds(None)
    bounds.log_ends(Placed(0, 5))
    assert bounds.belongs(Placed(9, 9))
    assert (bounds.endless, bounds.complete) == (True, False)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9))), st.integers(1, 9))
def test_the_newest_records_are_the_last_of_each_partition_in_its_order(
    drawn: list[tuple[int, int]], count: int
) -> None:
    """Invariant 3."""
    counts = [0, 0, 0]
    records = []
    for partition, time in drawn:
        records.append(Placed(partition, counts[partition], time))
        counts[partition] += 1
    kept = newest(records, count)
    assert len(kept) == min(count, len(records))
    for partition in range(3):
        offsets = [record.at_offset for record in kept if record.at_partition == partition]
        assert offsets == list(range(counts[partition] - len(offsets), counts[partition]))
