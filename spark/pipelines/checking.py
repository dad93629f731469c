"""A dry run: what a pipeline would read and write, without a change to anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.bookie_plans import PlannedSize
from gnomon.spark.formats.ddl import ddl_of
from gnomon.spark.formats.decoder import BadFormat
from gnomon.spark.formats.json_inference import inferred_columns
from gnomon.spark.pipelines.status import PipelineStatus
from gnomon.spark.pipelines.tasks.decoding import PLACES, RecordDecoding

RECORDS: Final = 10
"""Records that are decoded for a look."""
INFERRED_RECORDS: Final = 1_000
"""Records that a schema is inferred from."""


class CheckedRecord(NamedTuple):
    """A record as the pipeline decodes it."""

    place: str
    row: dict[str, Any] | None
    reason: str | None
    """Why the format does not fit, if it does not."""


class PipelineCheck(NamedTuple):
    """The report of a dry run."""

    status: PipelineStatus
    sizes: dict[TopicPartition, PlannedSize] | None
    """The records to read, by partition; None if nobody answers for native clients."""
    table: pa.Schema | None
    """The columns of the table; None if it does not exist yet."""
    rows: pa.Schema
    """The columns of the rows."""
    records: list[CheckedRecord]
    inferred: str | None
    """The columns of the records in DDL, if the file has no schema for its JSON."""
    problem: str | None
    """The first reason why a run would fail."""


def inferred_schema(records: pa.Table | None) -> str:
    """The columns of JSON records in DDL.

    Args:
        records: have READ_COLUMNS; None if there are none.

    Raises:
        BadFormat: there are no records, or they have no columns in common.
    """
    if records is None:
        raise BadFormat("format.schema: not given, and the topics have no records that it could be inferred from")
    return ddl_of(inferred_columns(records["value"].to_pylist()))


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
