"""The number of rows of a range (numbers: invariants of `row_count`)."""

from __future__ import annotations

import re

import pytest

from gnomon.spark.columns import Range
from gnomon.spark.row_count import RowCount, WrongRowCount
from gnomon.wire.kafka.records import Record, build_batch


def batch(base: int, deltas: range, *, control: bool = False) -> memoryview:
    records = [Record(delta, 0, None, b"value") for delta in deltas]
    return memoryview(build_batch(records, base_timestamp=0, base_offset=base, control=control))


def accepted(wanted: Range, *batches: memoryview) -> list[int]:
    """The numbers of rows that pass."""
    found = []
    for rows in range(100):
        count = RowCount(wanted)
        for each in batches:
            count.batch(each)
        count.rows(rows // 2)
        count.rows(rows - rows // 2)
        try:
            count.check()
        except WrongRowCount:
            continue
        found.append(rows)
    return found


WHOLE = Range("orders", 2, 0, 50)


def test_batches_announce_their_records_in_the_range() -> None:  # 1
    dense = [batch(0, range(10)), batch(10, range(5))]
    assert accepted(WHOLE, *dense) == [15]
    assert accepted(WHOLE._replace(start=3, stop=12), *dense) == [9]
    assert accepted(WHOLE._replace(start=10), *dense) == [5]
    assert accepted(WHOLE) == [0]


def test_a_batch_with_gaps_that_the_range_cuts_is_known_within_bounds() -> None:  # 1
    sparse = batch(0, range(0, 10, 3))  # offsets 0, 3, 6, 9
    assert accepted(WHOLE, sparse) == [4]
    assert accepted(WHOLE._replace(start=1), sparse) == [3, 4]
    assert accepted(WHOLE._replace(start=8), sparse) == [0, 1, 2]


def test_a_control_batch_announces_nothing() -> None:  # 2
    assert accepted(WHOLE, batch(0, range(1), control=True), batch(1, range(4))) == [4]


def test_another_number_is_an_error_that_names_the_range() -> None:  # 3
    count = RowCount(WHOLE)
    count.batch(batch(0, range(10)))
    text = "topic 'orders', partition 2, offsets 0 to 49: 0 rows were decoded, the headers of the batches announce 10"
    with pytest.raises(WrongRowCount, match=re.escape(text)):
        count.check()
    count = RowCount(WHOLE._replace(start=8))
    count.batch(batch(0, range(0, 10, 3)))
    count.rows(3)
    with pytest.raises(WrongRowCount, match="3 rows were decoded, the headers of the batches announce 0 to 2"):
        count.check()
