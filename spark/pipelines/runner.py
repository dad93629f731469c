"""Runs a pipeline in Spark: a stream from its topics whose batches go through tasks into the table."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException

from gnomon.client.kafka.errors import RequestRefused
from gnomon.runtime.world import Unreachable
from gnomon.spark.offsets import BadOption, flat, nested
from gnomon.spark.pipelines.backlog import backlog_of, first_offsets
from gnomon.spark.pipelines.batch_commit import BatchCommit
from gnomon.spark.pipelines.checkpoint import Checkpoint
from gnomon.spark.pipelines.frames import RowFrames
from gnomon.spark.pipelines.progress import BatchProgress, CommittedBatch, ProgressMeter
from gnomon.spark.pipelines.run_failed import RunFailed, own_error
from gnomon.spark.pipelines.session import SPARK_ERRORS, jvm_watched
from gnomon.spark.pipelines.settings.section import BadPipeline
from gnomon.spark.pipelines.settings.settings import PipelineSettings
from gnomon.spark.pipelines.status import options_of
from gnomon.spark.process import cluster_of
from gnomon.spark.tables.table import CommitVerdict, LakeTable, TableBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_QUERY_ID: Final = "sql.streaming.queryId"
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
        table: LakeTable,
        commit: BatchCommit,
        committed: Callable[[BatchProgress], None],
    ) -> None:
        self._settings, self._session, self._checkpoint = settings, session, checkpoint
        self._table, self._commit, self._committed = table, commit, committed
        self._frames = RowFrames(settings, session)
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
        options = {**settings.source.options, **self._starting(), **settings.source.ending}
        reading = self._session.readStream.options(**options)
        writing = self._frames.rows(reading).writeStream.foreachBatch(self._batch).queryName(settings.name)
        writing = writing.option("checkpointLocation", str(self._checkpoint.spark_folder))
        if settings.trigger.available_now:
            writing = writing.trigger(availableNow=True)
        elif settings.trigger.every is not None:
            writing = writing.trigger(processingTime=settings.trigger.every)
        try:
            return writing.start()
        except AnalysisException as error:
            raise BadPipeline(f"transform: {str(error).splitlines()[0]}") from error

    def _starting(self) -> Mapping[str, str]:
        """The options that say where the pipeline starts; its offsets are recorded until a batch has ended."""
        checkpoint, source = self._checkpoint, self._settings.source
        if checkpoint.committed() is None:
            options = options_of(source, checkpoint)
            (cluster, *_), thread = cluster_of(options.addresses)
            try:
                checkpoint.begin(nested(thread.call(first_offsets, cluster, options, checkpoint.first())))
            except (BadOption, RequestRefused, Unreachable) as error:
                raise RunFailed(str(error)) from error
        first = checkpoint.generation.first
        return {"startingOffsets": json.dumps(first)} if first else checkpoint.generation.starting or source.starting

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

    def _write(self, frame: DataFrame, batch: TableBatch) -> CommittedBatch:
        if self._commit.is_there(batch):
            if not self._frames.decodes_and_writes_at_once:
                frame.write.format("noop").mode("overwrite").save()  # a query may keep state from batch to batch
            return CommittedBatch(batch.number, CommitVerdict.ALREADY, 0, 0, None, 0)
        return self._commit.commit(batch, *self._frames.write(frame, self._table, self._commit.dead_place(batch.query)))

    def _lag(self, number: int | None) -> int | None:
        """The records that are left after a batch; None for the begin of the pipeline."""
        read = self._checkpoint.first() if number is None else flat(self._checkpoint.offsets(number))
        options = options_of(self._settings.source, self._checkpoint)
        (cluster, *_), thread = cluster_of(options.addresses)
        try:
            backlog = thread.call(backlog_of, cluster, options, read)
        except (RequestRefused, Unreachable):
            return None
        return sum(each.records for each in backlog)
