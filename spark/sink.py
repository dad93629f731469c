"""The sink of Spark: `df.write.format("gnomon").mode("append")`, and the same of a stream.

    options = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "orders"}
    rows.write.format("gnomon").mode("append").options(**options).save()

Tasks stage their rows in a topic of the writer. The driver proposes them there, and applies the decision: so each row
is in its target once, whatever crashes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.spark.decisions import BatchVerdict
from gnomon.spark.process import cluster_of, freeze_imports
from gnomon.spark.writing.committing import SinkDriver
from gnomon.spark.writing.sink_options import SinkOptions
from gnomon.spark.writing.sink_writer import SinkWriter
from gnomon.spark.writing.staging import StagedTask
from gnomon.spark.writing.writer_topic import WriterTopic

_QUERY_ID = "sql.streaming.queryId"
_warn = logging.getLogger(__name__).warning


@dataclass
class TaskMessage(WriterCommitMessage):
    """The message of one task, as Spark carries it to the driver."""

    task: StagedTask


class GnomonWriter(DataSourceArrowWriter):
    """A batch job that writes; its tasks get a copy of it."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._repeatable = options.writer is not None
        self._writer = options.writer or uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stages the rows of a task attempt, on a worker; raises as `TaskStaging.add`."""
        return staged(self._options, self._writer, self._writer, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Has the rows written; raises as `SinkDriver.commit`."""
        (cluster, *_), thread = cluster_of(self._options.addresses)
        tasks = tasks_of(messages)
        if tasks:
            thread.call(commit, cluster, self._options, self._writer, self._writer, self._options.version or 0, tasks)
            if not self._repeatable:
                thread.call(remove, cluster, self._options, self._writer)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Removes the topic of a writer that nobody will use again, unless something is decided there."""
        if not self._repeatable:
            (cluster, *_), thread = cluster_of(self._options.addresses)
            thread.call(remove_undecided, cluster, self._writer)


class GnomonStreamWriter(DataSourceStreamArrowWriter):
    """A stream that writes; its tasks get a copy of it."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stages the rows of a task attempt, on a worker; raises as `TaskStaging.add`."""
        query = task_context().getLocalProperty(_QUERY_ID)
        assert query is not None, "Spark tells the tasks of a stream its query id"
        return staged(self._options, self._options.writer or query, query, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Has the rows written; raises as `SinkDriver.commit`."""
        tasks = tasks_of(messages)
        if tasks:
            (cluster, *_), thread = cluster_of(self._options.addresses)
            thread.call(commit, cluster, self._options, tasks[0].writer, tasks[0].query, batchId, tasks)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Leaves what was staged, which the next decision cleans up."""


class SinkTask:
    """The rows of one task attempt, on a worker."""

    def __init__(self, options: SinkOptions, writer: str, query: str) -> None:
        freeze_imports()
        self._writer, self._query = writer, query
        (cluster, *_), self._thread = cluster_of(options.addresses)
        self._staging = SinkWriter(cluster, options, writer).task(task_context().partitionId())

    def add(self, rows: pa.RecordBatch) -> None:
        """Stages rows; raises as `TaskStaging.add`."""
        self._thread.call(self._staging.add, rows)

    def finish(self) -> StagedTask:
        """The message about all rows; raises as `TaskStaging.add`."""
        return self._thread.call(self._staging.finish, self._writer, self._query)


def staged(options: SinkOptions, writer: str, query: str, rows: Iterator[pa.RecordBatch]) -> TaskMessage:
    """Stages the rows of a task attempt; raises as `TaskStaging.add`."""
    task = SinkTask(options, writer, query)
    for batch in rows:
        task.add(batch)
    return TaskMessage(task.finish())


def task_context() -> TaskContext:
    """The context of the running task."""
    found = TaskContext.get()
    assert found is not None, "Spark calls `write` in a task"
    return found


def tasks_of(messages: Sequence[WriterCommitMessage | None]) -> list[StagedTask]:
    """The tasks that succeeded, in the order of their partitions."""
    return [each.task for each in messages if isinstance(each, TaskMessage)]


async def commit(
    cluster: KafkaBrokers, options: SinkOptions, writer: str, query: str, batch: int, tasks: Sequence[StagedTask]
) -> BatchVerdict:
    """Has the rows of a batch written; returns and raises as `SinkDriver.commit`."""
    driver = await SinkWriter(cluster, options, writer).driver(_warn)
    return await driver.commit(query, batch, tasks)


async def remove(cluster: KafkaBrokers, options: SinkOptions, writer: str) -> None:
    """Deletes the topic of a writer."""
    await (await SinkWriter(cluster, options, writer).topic()).delete()


async def remove_undecided(cluster: KafkaBrokers, writer: str) -> None:
    """Deletes the topic of a writer that has no decision, if a task has made it."""
    topic = await WriterTopic.find(cluster, writer)
    if topic is None:
        return
    if await SinkDriver(cluster, topic, _warn).is_new():
        await topic.delete()
    else:
        _warn(f"writer {writer!r} has decided rows that may not all be written: its topic stays")
