"""The source of Spark: `spark.read.format("gnomon")`.

    options = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
    rows = spark.read.format("gnomon").options(**options).load()

The driver plans the read, and its tasks read ranges of partitions as Arrow record batches.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from gnomon.spark.columns import SCHEMA
from gnomon.spark.offsets import BadOption
from gnomon.spark.options import SourceOptions
from gnomon.spark.planning import Task, plan
from gnomon.spark.process import cluster_of, each
from gnomon.spark.reading import read

_HEADERS = "headers"
_log = logging.getLogger(__name__)


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


class TaskPartition(InputPartition):
    """One task, as Spark sends it to a worker."""

    def __init__(self, task: Task) -> None:
        super().__init__(task.range)
        self.task = task


class GnomonReader(DataSourceReader):
    """A batch read."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options, self._columns = options, columns

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks; called on the driver.

        Raises:
            BadOption, DataLost, RequestRefused, Unreachable: as `plan`.
        """
        cluster, thread = cluster_of(self._options.addresses)
        return list(map(TaskPartition, thread.call(plan, cluster, self._options, self._columns, _log.warning)))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task; called on a worker. Raises as `reading.read`."""
        assert isinstance(partition, TaskPartition), "Spark hands back the partitions of this reader"
        cluster, thread = cluster_of(partition.task.addresses)
        return each(thread, read(cluster, partition.task))


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
