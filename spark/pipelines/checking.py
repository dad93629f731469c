"""A dry run: what a pipeline would read and write, without a change to anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from gnomon.spark.pipelines.status import PipelineStatus
from gnomon.spark.pipelines.tasks.decoding import PLACES, RecordDecoding

RECORDS: int = 10
"""Records that are decoded for a look."""


class CheckedRecord(NamedTuple):
    """A record as the pipeline decodes it."""

    place: str
    row: dict[str, Any] | None
    reason: str | None
    """Why the format does not fit, if it does not."""


class PipelineCheck(NamedTuple):
    """The report of a dry run."""

    status: PipelineStatus
    table: pa.Schema | None
    """The columns of the table; None if it does not exist yet."""
    rows: pa.Schema
    """The columns of the rows."""
    records: list[CheckedRecord]
    problem: str | None
    """The first reason why a run would fail."""


def checked_records(decoding: RecordDecoding, records: pa.Table | None) -> Iterator[CheckedRecord]:
    """The records as the pipeline decodes them.

    Args:
        records: have READ_COLUMNS; None if there are none.
    """
    for batch in [] if records is None else records.to_batches():
        for row in range(batch.num_rows):
            one = batch.slice(row, 1)
            decoded = decoding.decode(one)
            topic, partition, offset = (one.column(name)[0].as_py() for name in PLACES[:3])
            place = f"{topic}-{partition} offset {offset}"
            if decoded.dead.num_rows:
                yield CheckedRecord(place, None, decoded.dead.column("reason")[0].as_py())
            else:
                yield CheckedRecord(place, decoded.rows.to_pylist()[0], None)
