"""The counts and bounds of files."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.spark.tables.data_files.file_statistics import TEXT_CHARACTERS_MAX, FileStatistics


def statistics(kind: pa.DataType, *batches: list[Any]) -> dict[str, Any]:
    schema = pa.schema([("x", kind)])
    found = FileStatistics(schema)
    for values in batches:
        found.add(pa.RecordBatch.from_arrays([pa.array(values, kind)], schema=schema))
    members: dict[str, Any] = json.loads(found.text())
    return members


def bounds(kind: pa.DataType, *batches: list[Any]) -> tuple[Any, Any] | None:
    found = statistics(kind, *batches)
    assert set(found["minValues"]) == set(found["maxValues"])
    return (found["minValues"]["x"], found["maxValues"]["x"]) if found["minValues"] else None


def test_rows_and_nulls_are_counted() -> None:  # 3
    found = statistics(pa.int32(), [1, None], [], [None, None])
    assert (found["numRecords"], found["nullCount"]) == (4, {"x": 3})
    assert statistics(pa.list_(pa.int32()), [[1], None])["nullCount"] == {}


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int64(), [2**63 - 1, -(2**63), None], (-(2**63), 2**63 - 1)),
        (pa.float64(), [0.5, -1.5], (-1.5, 0.5)),
        (pa.float64(), [0.5, math.nan], None),
        (pa.float64(), [0.5, math.inf], None),
        (pa.float32(), [None, -math.inf], None),
        (pa.string(), ["b", "a", None, "ü"], ("a", "ü")),
        (pa.string(), ["a", "x" * TEXT_CHARACTERS_MAX], ("a", "x" * TEXT_CHARACTERS_MAX)),
        (pa.string(), ["a", "x" * (TEXT_CHARACTERS_MAX + 1)], None),
        (pa.date32(), [date(2024, 12, 31), date(1, 1, 1)], ("0001-01-01", "2024-12-31")),
        (pa.date32(), [-10_000_000], None),
        (pa.bool_(), [True], None),
        (pa.binary(), [b"x"], None),
        (pa.int64(), [None], None),
        (pa.int64(), [], None),
    ],
)
def test_columns_have_exact_bounds_or_none(kind: pa.DataType, values: list[Any], expected: Any) -> None:  # 1, 2, 3
    assert bounds(kind, values) == expected


@pytest.mark.parametrize(("first", "second"), [([1.0], [math.nan]), ([math.nan], [1.0])])
def test_bounds_stay_lost_in_later_batches(first: list[Any], second: list[Any]) -> None:  # 2
    assert bounds(pa.float64(), first, second, [7.0]) is None


times = st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31, 23, 59, 59, 999_000))


@given(st.lists(st.lists(st.none() | times, min_size=1), min_size=1))
def test_the_bounds_of_times_are_outside_and_less_than_a_millisecond_away(batches: list[list[datetime | None]]) -> None:
    """Invariant 1."""
    known = [time for batch in batches for time in batch if time is not None]
    for zone, suffix in ((None, ""), ("UTC", "Z")):
        found = bounds(pa.timestamp("us", zone), *batches)
        assert (found is None) == (not known)
        if found is not None:
            assert all(text.endswith(suffix) and len(text) == 23 + len(suffix) for text in found)
            lower, upper = (datetime.fromisoformat(text.removesuffix("Z")) for text in found)
            assert lower <= min(known)
            assert upper >= max(known)
            assert (min(known) - lower).total_seconds() < 0.001
            assert (upper - max(known)).total_seconds() < 0.001


def test_a_time_that_json_cannot_have_has_no_bounds() -> None:  # 2
    assert bounds(pa.timestamp("us"), [datetime(9999, 12, 31, 23, 59, 59, 999_001)]) is None
    assert bounds(pa.timestamp("us", "UTC"), [-(2**62), 2**62]) is None
    assert bounds(pa.timestamp("us", "UTC"), [datetime(2024, 1, 1, tzinfo=UTC)]) == ("2024-01-01T00:00:00.000Z",) * 2
