"""Runs a pipeline in Spark: a stream from its topics whose batches go through tasks into the table.

Where the rows are neither queried nor replaced, one task reads records, decodes them and writes files. Otherwise a
first step decodes them into rows, which Spark hands to the query or the function, and the result to the tasks that
write files. Dead records pass the query by: they are a branch of their own, which reads the topics once more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.window import Window

from gnomon.client.kafka.errors import RequestRefused
from gnomon.runtime.world import Unreachable
from gnomon.spark.offsets import flat
from gnomon.spark.pipelines.backlog import backlog_of
from gnomon.spark.pipelines.batch_commit import BatchCommit
from gnomon.spark.pipelines.checkpoint import Checkpoint
from gnomon.spark.pipelines.progress import BatchProgress, CommittedBatch, ProgressMeter
from gnomon.spark.pipelines.run_failed import own_error
from gnomon.spark.pipelines.session import SPARK_ERRORS, jvm_watched
from gnomon.spark.pipelines.settings.section import BadPipeline
from gnomon.spark.pipelines.settings.settings import AS_IS, PipelineSettings, TransformSettings
from gnomon.spark.pipelines.status import options_of
from gnomon.spark.pipelines.tasks.decoding import DEAD_COLUMN, DELETED_COLUMN, KEY_COLUMN, READ_SCHEMA, without_deleted
from gnomon.spark.pipelines.tasks.spark_schema import arrow_schema
from gnomon.spark.pipelines.tasks.task_result import RESULT_DDL, decode_result
from gnomon.spark.pipelines.tasks.task_writer import RecordDecoder, TaskWriter, decoding_of
from gnomon.spark.process import cluster_of
from gnomon.spark.tables.table import CommitVerdict, Table, TableBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_VIEW: Final = "records"
_QUERY_ID: Final = "sql.streaming.queryId"
_NEWEST: Final = "_newest"
_WAIT_SECONDS: Final = 0.2


class _StopAsked(Exception):
    """The pipeline is to end between two batches."""


class Runner:
    """One run of a pipeline.

    Args:
        committed: is called with each batch.
    """

    def __init__(
        self,
        settings: PipelineSettings,
        session: SparkSession,
        checkpoint: Checkpoint,
        table: Table,
        commit: BatchCommit,
        committed: Callable[[BatchProgress], None],
    ) -> None:
        self._settings, self._session, self._checkpoint = settings, session, checkpoint
        self._table, self._commit, self._committed = table, commit, committed
        self._decoding = decoding_of(settings)
        self._meter: ProgressMeter | None = None
        self._failure: Exception | None = None
        self._stopping = False

    def run(self) -> None:
        """Runs until the trigger says so, the run is stopped, or a batch fails.

        Raises:
            RecordsRefused, PipelineFenced, BadTable: as `BatchCommit.commit`.
            BadPipeline: the query or its result cannot be used.
            RunFailed: the topics cannot be read, or the JVM has ended.
            PySparkException, Py4JJavaError: any other error of Spark.
        """
        self._commit.recover()
        try:
            with jvm_watched(self._session):
                query = self._started()
                while not query.awaitTermination(_WAIT_SECONDS):
                    if self._stopping and not query.status["isTriggerActive"]:
                        query.stop()
        except SPARK_ERRORS as error:
            self._failure = self._failure or own_error(error) or error
        if self._failure is not None and not isinstance(self._failure, _StopAsked):
            raise self._failure

    def stop(self) -> None:
        """Ends the run after the present batch; may be called in a signal handler."""
        self._stopping = True

    def _started(self) -> StreamingQuery:
        settings = self._settings
        writing = self._rows().writeStream.foreachBatch(self._batch).queryName(settings.name)
        writing = writing.option("checkpointLocation", str(self._checkpoint.spark_folder))
        if settings.trigger.available_now:
            writing = writing.trigger(availableNow=True)
        elif settings.trigger.every is not None:
            writing = writing.trigger(processingTime=settings.trigger.every)
        try:
            return writing.start()
        except AnalysisException as error:
            raise BadPipeline(f"transform: {str(error).splitlines()[0]}") from error

    def _rows(self) -> DataFrame:
        """The records as they are read, or combined rows."""
        source = self._settings.source
        starting = self._checkpoint.generation.starting or source.starting
        columns = from_arrow_schema(READ_SCHEMA)
        reading = self._session.readStream.format("gnomon").options(**source.options, **starting).schema(columns)
        records = reading.load()
        return records if self._decodes_and_writes_at_once else self._queried(records)

    @property
    def _decodes_and_writes_at_once(self) -> bool:
        return self._settings.transform == AS_IS and not self._settings.target.upserts

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

    def _batch(self, frame: DataFrame, number: int) -> None:
        try:
            if self._stopping:
                raise _StopAsked
            began = time.monotonic()
            self._meter = self._meter or ProgressMeter(began, self._lag(number - 1 if number else None))
            query = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
            assert query is not None, "Spark tells the batches of a stream its query id"
            done = self._write(frame, TableBatch(query, number))
            now, wall_ms = time.monotonic(), time.time_ns() // 1_000_000
            self._committed(self._meter.after(done, began, now, wall_ms, self._lag(number)))
        except Exception as error:
            self._failure = (own_error(error) or error) if isinstance(error, SPARK_ERRORS) else error
            raise

    def _lag(self, number: int | None) -> int | None:
        """The records that are left after a batch; None for the begin of the pipeline."""
        read = None if number is None else flat(self._checkpoint.offsets(number))
        options = options_of(self._settings.source, self._checkpoint)
        (cluster, _), thread = cluster_of(options.addresses)
        try:
            backlog = thread.call(backlog_of, cluster, options, read)
        except (RequestRefused, Unreachable):
            return None
        return sum(each.records for each in backlog)

    def _write(self, frame: DataFrame, batch: TableBatch) -> CommittedBatch:
        at_once, upserts = self._decodes_and_writes_at_once, self._settings.target.upserts
        if self._commit.is_there(batch):
            if not at_once:
                frame.write.format("noop").mode("overwrite").save()  # a query may keep state from batch to batch
            return CommittedBatch(batch.number, CommitVerdict.ALREADY, 0, 0, None, 0)
        schema = self._decoding.made().schema if at_once else rows_schema(frame)
        if upserts:
            frame = newest(frame, self._settings.target.place_columns)
        columns = without_deleted(schema) if upserts else schema
        writer = TaskWriter(
            self._decoding if at_once else None,
            self._table.prepare(columns),
            schema,
            self._settings.target.file_bytes_max,
            self._settings.target.place_columns[-1],
            self._commit.dead_place(batch.query),
        )
        found = frame.mapInArrow(writer, RESULT_DDL).collect()
        return self._commit.commit(batch, columns, [decode_result(bytes(row[0])) for row in found])


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


def rows_schema(combined: DataFrame) -> pa.Schema:
    """The columns of combined rows without that of dead records."""
    return arrow_schema(combined.drop(DEAD_COLUMN).schema.jsonValue())


def newest(combined: DataFrame, place_columns: Sequence[str]) -> DataFrame:
    """The newest row of each key, and all dead records."""
    _, partition, offset, _ = place_columns
    dead = F.col(DEAD_COLUMN)
    keys = [F.col(KEY_COLUMN), *(dead[name] for name in ("topic", "partition", "offset"))]
    order = Window.partitionBy(*keys).orderBy(F.col(offset).desc(), F.col(partition).desc())
    return combined.withColumn(_NEWEST, F.row_number().over(order)).where(F.col(_NEWEST) == 1).drop(_NEWEST)
