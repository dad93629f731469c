"""A program: a stream that copies a topic to a topic on a cluster of Spark, whose first task attempts are slow."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import gnomon.spark

if TYPE_CHECKING:
    import pyarrow as pa

SLOW_SECONDS = 20.0
"""Longer than the wait for a speculative attempt, and its work."""
CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "500ms",
}


class SlowFirstAttempts:
    """Passes the rows of a task; the first attempt at partition 0 waits in the middle of them.

    Args:
        folder: receives an empty file named after the partition and the number of each attempt that has passed rows.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.attemptNumber()
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            (Path(self._folder) / f"{partition}-{attempt}").touch()
            if (partition, attempt) == (0, 0):
                time.sleep(SLOW_SECONDS)
            yield batch.slice(half)


def main(master: str, servers: str, source: str, target: str, folder: str) -> None:
    """Copies what is there in two batches."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
    for name, value in CONFIGURATION.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    gnomon.spark.register(session)
    brokers = {"kafka.bootstrap.servers": servers}
    reading = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1500"}
    rows = session.readStream.format("gnomon").options(**brokers, **reading).load().select("key", "value", "partition")
    slowed = rows.mapInArrow(SlowFirstAttempts(folder), "key binary, value binary, partition int")
    writer = slowed.writeStream.format("gnomon").options(**brokers, topic=target, batchBytes="256")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
