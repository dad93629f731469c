"""The records that a format does not fit: counted, or written to a table or a topic of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pyarrow as pa

from gnomon.spark.pipelines.tasks.decoding import DEAD_SCHEMA
from gnomon.spark.pipelines.tasks.letters import as_letters
from gnomon.spark.tables.data_files.data_file import DataFile, FileLayout
from gnomon.spark.tables.data_files.file_writer import FileWriter
from gnomon.spark.writing.sink_options import SinkOptions
from gnomon.spark.writing.staging import StagedTask

if TYPE_CHECKING:
    from gnomon.spark.sink import SinkTask


@dataclass(frozen=True, slots=True)
class DeadTopic:
    """A topic of dead letters, which the pipeline's writer writes."""

    options: SinkOptions
    writer: str
    query: str


DeadPlace: TypeAlias = DeadTopic | FileLayout | None
"""A topic, or the files of a table; None where dead records are only counted."""


class DeadResult(NamedTuple):
    """The dead records of a task."""

    records: int
    first: str | None
    """The place and the reason of the first one."""
    files: tuple[DataFile, ...]
    task: StagedTask | None


class DeadTask:
    """The dead records of one task attempt.

    Args:
        place: see there.
    """

    def __init__(self, place: DeadPlace) -> None:
        self._place = place
        self._files: FileWriter | None = None
        self._sink: SinkTask | None = None
        self._count = 0
        self._first: str | None = None

    def add(self, dead: pa.RecordBatch) -> None:
        """Takes records of DEAD_SCHEMA; raises as `FileWriter.write` and `SinkTask.add`."""
        self._count += dead.num_rows
        if self._first is None:
            self._first = described(dead)
        if isinstance(self._place, DeadTopic):
            self._sink = self._sink or _sink_task(self._place)
            self._sink.add(as_letters(dead))
        elif self._place is not None:
            self._files = self._files or FileWriter(self._place, DEAD_SCHEMA)
            self._files.write(dead)

    def abandon(self) -> None:
        """Removes the files that were written."""
        if self._files is not None:
            self._files.abandon()

    def finish(self) -> DeadResult:
        """The result; raises as `add`."""
        files = () if self._files is None else tuple(self._files.close())
        return DeadResult(self._count, self._first, files, None if self._sink is None else self._sink.finish())


def _sink_task(place: DeadTopic) -> SinkTask:
    """The part of Spark's sink, which alone needs pyspark."""
    from gnomon.spark.sink import SinkTask

    return SinkTask(place.options, place.writer, place.query)


def described(dead: pa.RecordBatch) -> str:
    """The place and the reason of the first record."""
    first = {name: dead.column(name)[0].as_py() for name in dead.schema.names}
    return f"topic {first['topic']!r}, partition {first['partition']}, offset {first['offset']}: {first['reason']}"
