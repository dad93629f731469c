"""The format of Spark: `spark.read.format("gnomon")`; `sink` has the part that writes.

    options = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
    rows = spark.read.format("gnomon").options(**options).load()

The driver plans the read, and its tasks read ranges of partitions as Arrow record batches. `GnomonTasks` hands out
the tasks themselves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
import trio
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from gnomon.client.kafka.errors import RequestRefused
from gnomon.client.kafka.groups import commit_offsets
from gnomon.runtime.world import Unreachable
from gnomon.spark.columns import SCHEMA
from gnomon.spark.offsets import BadOption, Nested, flat, nested
from gnomon.spark.options import SourceOptions
from gnomon.spark.planning import plan
from gnomon.spark.process import cluster_of, each, freeze_imports
from gnomon.spark.reading import batches_of, decoded
from gnomon.spark.sink import GnomonStreamWriter, GnomonWriter
from gnomon.spark.streaming import StreamPlan
from gnomon.spark.task import Task, decode_task, encode_task
from gnomon.spark.writing.row_encoder import check_columns
from gnomon.spark.writing.sink_options import SinkOptions

TASK_COLUMNS = "taskColumns"
"""The option of `GnomonTasks` with the columns to read."""
_HEADERS = "headers"
_TASK_SCHEMA = pa.schema([("task", pa.binary())])
_warn = logging.getLogger(__name__).warning


class GnomonDataSource(DataSource):
    """Topics as tables, with the columns and options of Spark's Kafka connector."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "gnomon"

    def schema(self) -> StructType:
        """All columns; that of the headers only with `includeHeaders`."""
        options = SourceOptions.parse(self.options, streaming=False)
        names = [name for name in SCHEMA.names if options.include_headers or name != _HEADERS]
        return from_arrow_schema(pa.schema([SCHEMA.field(name) for name in names]))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads the columns of `schema`, which are some of SCHEMA."""
        return GnomonReader(SourceOptions.parse(self.options, streaming=False), columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Reads the columns of `schema`, batch by batch."""
        return GnomonStreamReader(SourceOptions.parse(self.options, streaming=True), columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Appends rows to topics."""
        return GnomonWriter(sink_options(self.options, schema, overwrite, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Appends rows to topics, batch by batch."""
        return GnomonStreamWriter(sink_options(self.options, schema, overwrite, streaming=True))


class GnomonTasks(GnomonDataSource):
    """The tasks of a read, one row each, for a function of Arrow batches that reads them itself (`rows_of_tasks`).

    Its rows then reach the function without the JVM. The options are those of the format `gnomon`, and TASK_COLUMNS.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "gnomon-tasks"

    def schema(self) -> StructType:
        """The tasks as bytes."""
        return from_arrow_schema(_TASK_SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Plans a batch read."""
        return _TaskReader(*self._parsed(streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Plans a read batch by batch."""
        return _StreamTaskReader(*self._parsed(streaming=True))

    def _parsed(self, *, streaming: bool) -> tuple[SourceOptions, Sequence[str]]:
        """The options and the columns to read."""
        given = {name.lower(): value for name, value in self.options.items()}
        columns = given.pop(TASK_COLUMNS.lower()).split(",")
        return SourceOptions.parse(given, streaming=streaming), columns


class TaskPartition(InputPartition):
    """One task, as Spark sends it to a worker."""

    def __init__(self, task: Task) -> None:
        super().__init__(task.range)
        self.task = encode_task(task)


class GnomonReader(DataSourceReader):
    """A batch read."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options, self._columns = options, columns

    def partitions(self) -> Sequence[InputPartition]:
        """Plans the tasks, on the driver.

        Raises:
            BadOption, DataLost, RequestRefused, Unreachable: as `plan`.
        """
        cluster, thread = cluster_of(self._options.addresses)
        return list(map(TaskPartition, thread.call(plan, cluster.brokers, self._options, self._columns, _warn)))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task, on a worker; raises as `rows_of`."""
        return rows_of(partition)


class GnomonStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream; Spark keeps it on its driver for the life of a query. Its offsets are those of the Kafka connector.

    All methods except `read` raise as those of `StreamPlan`.
    """

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._cluster, self._thread = cluster_of(options.addresses)
        self._plan = StreamPlan(self._cluster.brokers, options, columns, time.monotonic, _warn)
        self._holding = trio.CancelScope()
        self._thread.soon(self._cluster.background.start_soon, self._keep_held)

    async def _keep_held(self) -> None:
        with self._holding:
            await self._plan.keep_held()

    def stop(self) -> None:
        """Ends the renewals of the hold, which then ends by its lease."""
        self._thread.soon(self._holding.cancel)

    def initialOffset(self) -> Nested:
        """Where a new query starts."""
        return nested(self._thread.call(self._plan.initial))

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxOffsetsPerTrigger`. The plan knows `minOffsetsPerTrigger` by itself: Spark has no limit of both."""
        most = self._options.batch_offsets_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Nested, limit: ReadLimit) -> Nested:
        """Where the batch that begins at `start` ends."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return nested(self._thread.call(self._plan.next_end, flat(start), most))

    def reportLatestOffset(self) -> Nested:
        """The ends of all partitions, for the progress of the query."""
        return nested(self._thread.call(self._plan.ends))

    def prepareForTriggerAvailableNow(self) -> None:
        """Has the query end at the present ends."""
        self._thread.call(self._plan.take_target)

    def partitions(self, start: Nested, end: Nested) -> Sequence[InputPartition]:
        """Plans the tasks of a batch."""
        return list(map(TaskPartition, self._thread.call(self._plan.tasks, flat(start), flat(end))))

    def commit(self, end: Nested) -> None:
        """Shows the offsets of a finished batch as those of a consumer group (`group`); nothing is read from there."""
        if self._options.group is not None:
            try:
                self._thread.call(commit_offsets, self._cluster.brokers, self._options.group, flat(end))
            except (RequestRefused, Unreachable) as error:
                _warn(f"group {self._options.group!r} does not show the offsets of this batch: {error}")

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task, on a worker; raises as `rows_of`."""
        return rows_of(partition)

    def __reduce__(self) -> tuple[Any, ...]:
        """Workers get the reader to call `read` alone."""
        return _WorkerReader, ()


class _WorkerReader(DataSourceStreamReader):
    """The part of a stream's reader that workers use."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return rows_of(partition)


class _TaskReader(GnomonReader):
    """A batch read whose rows are its tasks."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _row_of(partition)


class _StreamTaskReader(GnomonStreamReader):
    """A stream whose rows are its tasks."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _WorkerTaskReader, ()


class _WorkerTaskReader(DataSourceStreamReader):
    """The part of a `_StreamTaskReader` that workers use."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _row_of(partition)


def rows_of(partition: InputPartition) -> Iterator[Any]:
    """The rows of a task; raises as `rows_of_tasks`.

    For a plan without tasks Spark runs one task of its own, which has no rows.
    """
    if isinstance(partition, TaskPartition):
        yield from _rows(partition.task)


def _row_of(partition: InputPartition) -> Iterator[Any]:
    if isinstance(partition, TaskPartition):
        yield pa.record_batch([pa.array([partition.task], pa.binary())], _TASK_SCHEMA)


def rows_of_tasks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of tasks, which are rows of `GnomonTasks`, one task after the other.

    Raises:
        OtherVersion: as `decode_task`.
        UnreadableBatch, WrongRowCount: as `decoded`.
        DataLost, UnreadableEntry, MalformedBatch, RequestRefused, Unreachable: as `batches_of`.
    """
    for batch in batches:
        for task in batch.column(0):
            yield from _rows(task.as_py())


def _rows(encoded: bytes) -> Iterator[pa.RecordBatch]:
    freeze_imports()
    task = decode_task(encoded)
    (brokers, bookies, _), thread = cluster_of(task.addresses)
    with closing(each(thread, batches_of(brokers, bookies, task, _warn))) as parts:
        yield from decoded(task, parts)


def sink_options(given: Mapping[str, str], schema: StructType, overwrite: bool, *, streaming: bool) -> SinkOptions:
    """The options of a sink.

    Raises:
        BadOption: one of them cannot be used, or the rows are to replace others.
        UnknownColumn: the rows have a column that the sink does not know.
    """
    if overwrite:
        raise BadOption("topics are appended to: use mode append (output mode append or update)")
    options = SinkOptions.parse(given, streaming=streaming)
    check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, options.topic)
    return options


def columns_of(schema: StructType) -> list[str]:
    """The names of the columns of a schema.

    Raises:
        BadOption: one of them is none of SCHEMA, or has another type.
    """
    for field in schema.fields:
        if field.name not in SCHEMA.names:
            raise BadOption(f"column {field.name!r}: there are {', '.join(SCHEMA.names)}")
        wanted = from_arrow_schema(pa.schema([SCHEMA.field(field.name)])).fields[0].dataType
        if field.dataType != wanted:
            raise BadOption(
                f"column {field.name!r} has the type {wanted.simpleString()}, not {field.dataType.simpleString()}"
            )
    return [field.name for field in schema.fields]
