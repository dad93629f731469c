"""The message of one task of a pipeline to the driver."""

from __future__ import annotations

import pickle
from typing import Final, NamedTuple

import pyarrow as pa

from gnomon.spark.tables.data_files.data_file import DataFile
from gnomon.spark.writing.staging import StagedTask

RESULT_SCHEMA: Final = pa.schema([("result", pa.binary())])
RESULT_DDL: Final = "result binary"


class TaskResult(NamedTuple):
    """The rows that a task attempt has written, and the records that it could not decode."""

    files: tuple[DataFile, ...]
    rows: int
    newest_ms: int | None
    """The newest time of a row; None if no row has one."""
    dead: int
    first_dead: str | None
    """The place and the reason of a dead record."""
    dead_files: tuple[DataFile, ...]
    dead_task: StagedTask | None
    """The dead records, staged for their topic."""

    def encode(self) -> pa.RecordBatch:
        """The one row that Spark carries to the driver, as it carries its own messages: pickled."""
        return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(self)], pa.binary())], schema=RESULT_SCHEMA)


def decode_result(data: bytes) -> TaskResult:
    """Undoes `TaskResult.encode`."""
    found = pickle.loads(data)
    assert isinstance(found, TaskResult), "tasks send nothing else"
    return found
