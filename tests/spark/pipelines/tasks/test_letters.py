"""Dead letters, and the records that are in them (`spark.pipelines.tasks.letters`)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.spark.pipelines.tasks.decoding import DEAD_SCHEMA, READ_SCHEMA
from gnomon.spark.pipelines.tasks.letters import LETTER_SCHEMA, RecordsRefused, as_letters, records_of_letters

LONG = st.integers(-(1 << 40), 1 << 40)
DEAD = st.fixed_dictionaries(
    {
        "topic": st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
        "partition": st.integers(0, (1 << 31) - 1),
        "offset": st.integers(0, (1 << 63) - 1),
        "timestamp": LONG.map(lambda ms: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)),
        "key": st.none() | st.binary(max_size=5),
        "value": st.none() | st.binary(max_size=5),
        "reason": st.text(max_size=10),
    }
)


def sent(letters: pa.RecordBatch) -> pa.RecordBatch:
    """Letters as they are read from their topic."""
    place = [{"topic": "dead", "partition": 1, "offset": 70 + at, "timestamp": 0} for at in range(letters.num_rows)]
    rows = [{**row, **where} for row, where in zip(letters.to_pylist(), place, strict=True)]
    return pa.RecordBatch.from_pylist(rows, LETTER_SCHEMA)


@given(st.lists(DEAD, max_size=5))
def test_the_records_of_letters_are_those_that_did_not_fit(dead: list[dict[str, Any]]) -> None:  # 2
    found = records_of_letters(sent(as_letters(pa.RecordBatch.from_pylist(dead, DEAD_SCHEMA))))
    assert found.schema == READ_SCHEMA
    assert found.to_pylist() == [{name: each[name] for name in READ_SCHEMA.names} for each in dead]


def without_headers(row: dict[str, Any]) -> None:
    row["headers"] = None


def without_offset(row: dict[str, Any]) -> None:
    row["headers"] = [pair for pair in row["headers"] if pair["key"] != "_offset"]


@pytest.mark.parametrize(("change", "missing"), [(without_headers, "_topic"), (without_offset, "_offset")])
def test_a_record_that_is_no_letter_is_named(change: Callable[[dict[str, Any]], None], missing: str) -> None:
    dead = {"topic": "orders", "partition": 0, "offset": 5, "timestamp": 0, "key": None, "value": b"x", "reason": "r"}
    rows = sent(as_letters(pa.RecordBatch.from_pylist([dead, dead], DEAD_SCHEMA))).to_pylist()
    change(rows[1])
    with pytest.raises(RecordsRefused, match=f"topic 'dead', partition 1, offset 71: .* no header '{missing}'"):
        records_of_letters(pa.RecordBatch.from_pylist(rows, LETTER_SCHEMA))
