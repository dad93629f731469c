"""The driver's part of dead letters: a table of their own, or a topic with a writer of Spark's sink."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.spark.pipelines.batch_commit import PipelineFenced
from gnomon.spark.pipelines.tasks.dead_letters import DeadPlace, DeadTopic
from gnomon.spark.pipelines.tasks.decoding import DEAD_SCHEMA
from gnomon.spark.pipelines.tasks.task_result import TaskResult
from gnomon.spark.process import cluster_of
from gnomon.spark.sink import commit
from gnomon.spark.tables.table import CommitVerdict, LakeTable, TableBatch
from gnomon.spark.writing.committing import WriterFenced
from gnomon.spark.writing.sink_options import SinkOptions
from gnomon.spark.writing.targets import find_targets


class DeadTable:
    """A table of dead letters."""

    def __init__(self, table: LakeTable) -> None:
        self._table = table

    def check(self) -> None:
        """See `DeadLetters`."""
        self._table.check(DEAD_SCHEMA)

    def recover(self) -> None:
        """See `DeadLetters`."""
        self._table.recover()

    def place(self, query: str) -> DeadPlace:
        """See `DeadLetters`."""
        return self._table.prepare(DEAD_SCHEMA)

    def commit(self, batch: TableBatch, results: Sequence[TaskResult]) -> None:
        """See `DeadLetters`."""
        files = [file for result in results for file in result.dead_files]
        if self._table.commit(batch, DEAD_SCHEMA, files) is CommitVerdict.FENCED:
            raise PipelineFenced("FENCED: the table of dead letters was last written by another query of the pipeline")


class DeadTopicWriter:
    """A topic of dead letters, with a writer of Spark's sink."""

    def __init__(self, options: SinkOptions, writer: str) -> None:
        self._options, self._writer = options, writer

    def check(self) -> None:
        """See `DeadLetters`."""
        (cluster, *_), thread = cluster_of(self._options.addresses)
        assert self._options.topic is not None, "the settings name it"
        thread.call(find_targets, cluster, [self._options.topic])

    def recover(self) -> None:
        """See `DeadLetters`: a batch that runs again has its letters sent."""

    def place(self, query: str) -> DeadPlace:
        """See `DeadLetters`."""
        return DeadTopic(self._options, self._writer, query)

    def commit(self, batch: TableBatch, results: Sequence[TaskResult]) -> None:
        """See `DeadLetters`."""
        tasks = [result.dead_task for result in results if result.dead_task is not None]
        (cluster, *_), thread = cluster_of(self._options.addresses)
        try:
            thread.call(commit, cluster, self._options, self._writer, batch.query, batch.number, tasks)
        except WriterFenced:
            raise PipelineFenced(
                f"FENCED: another query of the pipeline wrote the dead letters last (gnomon sink show {self._writer});"
                " `gnomon pipeline reset` takes over"
            ) from None
