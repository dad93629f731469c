"""The sink of gnomon, with the time of each commit of a stream appended to a file."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from gnomon.spark.sink import GnomonStreamWriter
from gnomon.spark.source import GnomonDataSource, sink_options
from gnomon.spark.writing.sink_options import SinkOptions

FORMAT = "gnomon-timed"
COMMITS = "commits"
"""The option with the path of the file."""


class TimedDataSource(GnomonDataSource):
    """The format of gnomon under another name."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The sink of a stream."""
        given = dict(self.options)
        path = Path(given.pop(COMMITS))
        return TimedStreamWriter(sink_options(given, schema, overwrite, streaming=True), path)


class TimedStreamWriter(GnomonStreamWriter):
    """The sink of a stream; a worker of Spark runs its commits."""

    def __init__(self, options: SinkOptions, path: Path) -> None:
        super().__init__(options)
        self._path = path

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """As of the sink; appends the milliseconds that it takes."""
        began = time.monotonic()
        super().commit(messages, batchId)
        with self._path.open("a") as file:
            file.write(f"{(time.monotonic() - began) * 1e3:.3f}\n")
