"""The work of one task of a pipeline of files: stages the rows of its parts of files, each part for itself.

Spark packs parts of several files into a task, in an order of its own. Each part has a message of its own, so that the
driver can write the parts in the order of the files.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from gnomon.spark.sink import SinkTask, task_context
from gnomon.spark.writing.sink_options import SinkOptions
from gnomon.spark.writing.staging import StagedTask

FILE_COLUMN: Final = "_file"
START_COLUMN: Final = "_start"
PART_DDL: Final = "part binary"
_PART_SCHEMA: Final = pa.schema([("part", pa.binary())])


class PartResult(NamedTuple):
    """The rows of a part of a file, staged for their topic."""

    file: str | int
    """Its URI, or its number in the batch."""
    start: int
    """The place of the part in the file, in bytes."""
    rows: int
    task: StagedTask

    def encode(self) -> pa.RecordBatch:
        """The one row that Spark carries to the driver, as it carries its own messages: pickled."""
        return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(self)], pa.binary())], schema=_PART_SCHEMA)


def decode_part(data: bytes) -> PartResult:
    """Undoes `PartResult.encode`."""
    found = pickle.loads(data)
    assert isinstance(found, PartResult), "tasks send nothing else"
    return found


@dataclass(frozen=True, slots=True)
class PartWriter:
    """Stages the rows of a task.

    Args:
        writer: the name of the pipeline.
        query: the id of its query.
    """

    options: SinkOptions
    writer: str
    query: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row for each part of a file, a `PartResult`; raises as `SinkTask.add`."""
        present: tuple[str | int, int] | None = None
        sink: SinkTask | None = None
        rows = 0
        for place, part in parts_of(batches):
            if sink is None or place != present:
                if sink is not None and present is not None:
                    yield PartResult(*present, rows, sink.finish()).encode()
                present, sink, rows = place, SinkTask(self.options, self.writer, self.query), 0
            sink.add(part)
            rows += part.num_rows
        if sink is not None and present is not None:
            yield PartResult(*present, rows, sink.finish()).encode()


def parts_of(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[tuple[str | int, int], pa.RecordBatch]]:
    """The batches, divided where another part of a file begins, without the columns of places.

    Rows without these columns are those of the file with the number of the task.
    """
    for batch in batches:
        if FILE_COLUMN not in batch.schema.names:
            yield (task_context().partitionId(), 0), batch
            continue
        files, starts = batch.column(FILE_COLUMN), batch.column(START_COLUMN)
        rows = batch.drop_columns([FILE_COLUMN, START_COLUMN])
        bounds = [*_beginnings(files, starts), batch.num_rows]
        for start, stop in pairwise(bounds):
            yield (files[start].as_py(), starts[start].as_py()), rows.slice(start, stop - start)


def _beginnings(files: pa.Array, starts: pa.Array) -> list[int]:
    """The rows that are the first ones of a part."""
    if not len(files):
        return []
    differs = pc.or_(pc.not_equal(files[1:], files[:-1]), pc.not_equal(starts[1:], starts[:-1]))
    return [0, *(row + 1 for row in pc.indices_nonzero(differs).to_pylist())]
