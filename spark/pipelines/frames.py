"""The data frames of a pipeline: records as Spark reads them, their rows, and the files that tasks write of these.

Where the rows are neither queried nor replaced, Spark hands the tasks of the read to one function, which reads records,
decodes them and writes files: the records never pass the JVM. Otherwise a first step decodes them into rows, which
Spark hands to the query or the function, and the result to the tasks that write files. Dead records pass the query by:
they are a branch of their own, which reads the topics once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.window import Window

from gnomon.spark.pipelines.settings.section import BadPipeline
from gnomon.spark.pipelines.settings.settings import AS_IS, PipelineSettings, TransformSettings
from gnomon.spark.pipelines.tasks.dead_letters import DeadPlace
from gnomon.spark.pipelines.tasks.decoding import DEAD_COLUMN, DELETED_COLUMN, KEY_COLUMN, without_deleted
from gnomon.spark.pipelines.tasks.spark_schema import arrow_schema
from gnomon.spark.pipelines.tasks.task_result import RESULT_DDL, TaskResult, decode_result
from gnomon.spark.pipelines.tasks.task_writer import RecordDecoder, TaskWriter, decoding_of
from gnomon.spark.source import TASK_COLUMNS, GnomonDataSource, GnomonTasks, rows_of_tasks
from gnomon.spark.tables.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

_VIEW: Final = "records"
_NEWEST: Final = "_newest"


class WrittenRows(NamedTuple):
    """The rows that tasks have written to files."""

    columns: pa.Schema
    results: list[TaskResult]


@dataclass(frozen=True, slots=True)
class _TasksWriter:
    """A writer of records that reads them from the tasks that it is given."""

    writer: TaskWriter

    def __call__(self, tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.writer(rows_of_tasks(tasks))


class RowFrames:
    """The data frames of one pipeline in a session."""

    def __init__(self, settings: PipelineSettings, session: SparkSession) -> None:
        self._settings, self._session = settings, session
        self._decoding = decoding_of(settings)

    def rows(self, reading: DataFrameReader | DataStreamReader) -> DataFrame:
        """The rows of records, or the tasks of the read where these decode and write at once.

        Args:
            reading: the session's reader of a stream or a batch, with the options of the format `gnomon`.

        Raises:
            BadPipeline: the query or its result cannot be used.
        """
        read_schema = self._decoding.read_schema
        if self.decodes_and_writes_at_once:
            self._session.dataSource.register(GnomonTasks)
            return reading.format(GnomonTasks.name()).option(TASK_COLUMNS, ",".join(read_schema.names)).load()
        records = reading.format(GnomonDataSource.name()).schema(from_arrow_schema(read_schema)).load()
        return self._queried(records)

    @property
    def decodes_and_writes_at_once(self) -> bool:
        """Whether `rows` are tasks."""
        return self._settings.transform == AS_IS and not self._settings.target.upserts

    def write(self, frame: DataFrame, table: LakeTable, dead_letters: DeadPlace) -> WrittenRows:
        """Has tasks write the files of some rows, which are not in the table yet.

        Args:
            frame: some of `rows`.
            dead_letters: the place of dead records.

        Raises:
            BadTable: as `LakeTable.prepare`.
        """
        at_once, target = self.decodes_and_writes_at_once, self._settings.target
        schema = self._decoding.made().schema if at_once else _rows_schema(frame)
        if target.upserts:
            frame = newest(frame, target.place_columns)
        columns = without_deleted(schema) if target.upserts else schema
        writer = TaskWriter(
            self._decoding if at_once else None,
            table.prepare(columns),
            schema,
            target.file_bytes_max,
            target.place_columns[-1],
            dead_letters,
        )
        found = frame.mapInArrow(_TasksWriter(writer) if at_once else writer, RESULT_DDL).collect()
        return WrittenRows(columns, [decode_result(bytes(row[0])) for row in found])

    def _queried(self, records: DataFrame) -> DataFrame:
        """Combined rows: the result of the query, and dead records."""
        stops = self._settings.errors.on_error == "stop"
        schema = self._decoding.made().combined_schema(dead=not stops)
        combined = records.mapInArrow(RecordDecoder(self._decoding, stops), from_arrow_schema(schema))
        if self._settings.transform == AS_IS:
            return combined
        rows = combined.where(F.col(DEAD_COLUMN).isNull()).drop(DEAD_COLUMN)
        result = transformed(rows, self._settings.transform)
        self._check_columns(result.columns)
        dead_type = combined.schema[DEAD_COLUMN].dataType
        result = result.withColumn(DEAD_COLUMN, F.lit(None).cast(dead_type))
        if stops:
            return result
        nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in result.schema.fields[:-1]]
        return result.unionByName(combined.where(F.col(DEAD_COLUMN).isNotNull()).select(*nulls, DEAD_COLUMN))

    def _check_columns(self, found: Sequence[str]) -> None:
        """Checks the columns of a query's result; raises BadPipeline."""
        if DEAD_COLUMN in found:
            raise BadPipeline(f"transform: no column of the result may have the name {DEAD_COLUMN}")
        target = self._settings.target
        needed = [KEY_COLUMN, DELETED_COLUMN, *target.place_columns[1:3]] if target.upserts else []
        missing = [name for name in needed if name not in found]
        if missing:
            raise BadPipeline(f"transform: the result lacks {', '.join(missing)}, which an upsert needs")


def transformed(rows: DataFrame, transform: TransformSettings) -> DataFrame:
    """The result of a query over the view `records`, or of a function of the rows.

    Raises:
        BadPipeline: Spark refuses the query, or the function cannot be imported, fails or returns no data frame.
    """
    if transform.sql is not None:
        try:
            for column, delay in transform.watermark:
                rows = rows.withWatermark(column, delay)
            rows.createOrReplaceTempView(_VIEW)
            return rows.sparkSession.sql(transform.sql)
        except PySparkException as error:
            raise BadPipeline(f"transform.sql: {str(error).splitlines()[0]}") from error
    assert transform.function is not None
    module, name = transform.function.split(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise BadPipeline(f"transform.function = {transform.function!r}: {error}") from error
    try:
        result: Any = found(rows)
    except Exception as error:
        raise BadPipeline(f"transform.function = {transform.function!r} failed: {error!r}") from error
    if not hasattr(result, "writeStream"):
        raise BadPipeline(
            f"transform.function = {transform.function!r} returned {type(result).__name__}, no data frame"
        )
    frame: DataFrame = result
    return frame


def result_schema(session: SparkSession, rows: pa.Schema, transform: TransformSettings) -> pa.Schema:
    """The columns of the result of a query or a function; raises as `transformed`."""
    none = session.createDataFrame(rows.empty_table())
    return arrow_schema(transformed(none, transform).schema.jsonValue())


def _rows_schema(combined: DataFrame) -> pa.Schema:
    """The columns of combined rows without that of dead records."""
    return arrow_schema(combined.drop(DEAD_COLUMN).schema.jsonValue())


def newest(combined: DataFrame, place_columns: Sequence[str]) -> DataFrame:
    """The newest row of each key, and all dead records."""
    _, partition, offset, _ = place_columns
    dead = F.col(DEAD_COLUMN)
    keys = [F.col(KEY_COLUMN), *(dead[name] for name in ("topic", "partition", "offset"))]
    order = Window.partitionBy(*keys).orderBy(F.col(offset).desc(), F.col(partition).desc())
    return combined.withColumn(_NEWEST, F.row_number().over(order)).where(F.col(_NEWEST) == 1).drop(_NEWEST)
