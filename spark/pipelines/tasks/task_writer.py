"""The work of one task of a pipeline: records or rows in, files of the table and dead records out.

A task attempt names its files by itself. The driver commits those of the attempts that succeeded, so the files of
others are never in the table. Spark hands times over in the zone of its session; they are cast to UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from gnomon.spark.pipelines.settings.settings import FormatSettings, PipelineSettings
from gnomon.spark.pipelines.tasks.dead_letters import DeadPlace, DeadTask, described
from gnomon.spark.pipelines.tasks.decoders import decoder_of
from gnomon.spark.pipelines.tasks.decoding import DATE_COLUMN, READ_SCHEMA, DecodedRecords, RecordDecoding, split
from gnomon.spark.pipelines.tasks.letters import LETTER_SCHEMA, RecordsRefused, records_of_letters
from gnomon.spark.pipelines.tasks.task_result import TaskResult
from gnomon.spark.tables.data_files.data_file import FileLayout
from gnomon.spark.tables.data_files.file_writer import FileWriter


@dataclass(frozen=True, slots=True)
class DecodingPlan:
    """The decoding of records, as the driver sends it to tasks."""

    format: FormatSettings
    place_columns: tuple[str, ...]
    upserts: bool
    dated: bool
    of_letters: bool
    """Whether the records are dead letters, which are decoded with the places of their records."""

    @property
    def read_schema(self) -> pa.Schema:
        """The columns of the source that are read."""
        return LETTER_SCHEMA if self.of_letters else READ_SCHEMA

    def records(self, read: pa.RecordBatch) -> pa.RecordBatch:
        """The records to decode; raises as `records_of_letters`."""
        return records_of_letters(read) if self.of_letters else read.cast(READ_SCHEMA)

    def made(self) -> RecordDecoding:
        """The decoding; raises as `decoder_of` and `RecordDecoding`."""
        form = self.format
        return RecordDecoding(decoder_of(form), form.key, self.place_columns, upserts=self.upserts, dated=self.dated)


def decoding_of(settings: PipelineSettings) -> DecodingPlan:
    """The decoding of a pipeline's records."""
    target = settings.target
    dated = DATE_COLUMN in target.partition_by
    return DecodingPlan(settings.format, target.place_columns, target.upserts, dated, settings.source.of_letters)


@dataclass(frozen=True, slots=True)
class RecordDecoder:
    """Decodes the records of a task into combined rows, for a query or a function over them."""

    plan: DecodingPlan
    stops: bool
    """Whether a record that the format does not fit ends the job."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One batch of `RecordDecoding.combined` for each batch of records.

        Raises:
            RecordsRefused: `stops`, see there.
        """
        decoding = self.plan.made()
        for batch in batches:
            decoded = decoding.decode(self.plan.records(batch))
            if self.stops and decoded.dead.num_rows:
                raise RecordsRefused(described(decoded.dead))
            yield decoding.combined(decoded, dead=not self.stops)


@dataclass(frozen=True, slots=True)
class TaskWriter:
    """Writes the rows of a task.

    Args:
        decoding: that of records; None if the batches are combined rows.
        layout: that of the table's files.
        schema: the columns of the rows.
        time_column: the name of the column with the times of records, if the rows have it.
        dead_letters: the place of dead records.
    """

    decoding: DecodingPlan | None
    layout: FileLayout
    schema: pa.Schema
    file_bytes_max: int
    time_column: str
    dead_letters: DeadPlace

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row, a `TaskResult`."""
        decode = split if self.decoding is None else _decoder(self.decoding)
        writer = FileWriter(self.layout, self.schema, bytes_max=self.file_bytes_max)
        dead = DeadTask(self.dead_letters)
        try:
            result = self._written(batches, decode, writer, dead)
        except BaseException:
            writer.abandon()
            dead.abandon()
            raise
        yield result.encode()

    def _written(
        self,
        batches: Iterator[pa.RecordBatch],
        decode: Callable[[pa.RecordBatch], DecodedRecords],
        writer: FileWriter,
        dead: DeadTask,
    ) -> TaskResult:
        rows = 0
        newest: list[int] = []
        for batch in batches:
            decoded = decode(batch)
            if decoded.rows.num_rows:
                writer.write(decoded.rows.cast(self.schema))
                rows += decoded.rows.num_rows
                newest += newest_ms(decoded.rows, self.time_column)
            if decoded.dead.num_rows:
                dead.add(decoded.dead)
        return TaskResult(tuple(writer.close()), rows, max(newest, default=None), *dead.finish())


def _decoder(plan: DecodingPlan) -> Callable[[pa.RecordBatch], DecodedRecords]:
    decoding = plan.made()
    return lambda read: decoding.decode(plan.records(read))


def newest_ms(rows: pa.RecordBatch, time_column: str) -> list[int]:
    """The newest time of some rows, in milliseconds since 1970; empty if there is none."""
    at = rows.schema.get_field_index(time_column)
    if at < 0 or not pa.types.is_timestamp(rows.schema.field(at).type):
        return []
    newest = pc.max(rows.column(at).cast(pa.int64())).as_py()
    return [] if newest is None else [newest // 1000]
