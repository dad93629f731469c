"""The query of the tests of streams, which copies a topic to Parquet files; also a program, for a test to kill."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

WAIT_SECONDS = 120

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


def copy(
    spark: SparkSession, source: str, folder: Path, options: Mapping[str, str], trigger: Mapping[str, Any]
) -> StreamingQuery:
    """Starts the query, which begins at the earliest offsets; its table and its checkpoint are in `folder`."""
    rows = spark.readStream.format(source).options(**{"startingOffsets": "earliest", **options}).load()
    writer = rows.select("value", "partition", "offset").writeStream.format("parquet")
    checkpoint = str(folder / "checkpoint")
    return writer.option("checkpointLocation", checkpoint).trigger(**trigger).start(str(folder / "table"))


def copy_to_topic(
    spark: SparkSession, servers: str, topic: str, target: str, folder: Path, *, limit: int = 10_000, **options: str
) -> StreamingQuery:
    """Starts a query that copies a topic to another one, both by gnomon's format; `options` are the sink's."""
    brokers = {"kafka.bootstrap.servers": servers}
    reader = spark.readStream.format("gnomon").options(
        **brokers, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=limit
    )
    rows = reader.load().select("key", "value", "partition")
    writer = rows.writeStream.format("gnomon").options(**brokers, topic=target, **options)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def batches_in(folder: Path) -> int:
    """The finished batches of a query."""
    return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))


def wait_for_batches(folder: Path, more: int) -> None:
    """Waits until the query in `folder` has finished that many batches."""
    start, deadline = batches_in(folder), time.monotonic() + WAIT_SECONDS
    while batches_in(folder) < start + more:
        assert time.monotonic() < deadline, "the driver does not get on"
        time.sleep(0.05)


def main(target: str, *names: str) -> None:
    """Copies 100 records a batch until it is killed; `target` is `files` or `topic`."""
    from local_session import local_session

    if target == "files":
        source, servers, topic, folder, jars = names
        options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "maxOffsetsPerTrigger": "100"}
        with local_session(jars) as spark:
            copy(spark, source, Path(folder), options, {"processingTime": "100 milliseconds"}).awaitTermination()
    else:
        servers, topic, copied, folder = names
        with local_session("") as spark:
            copy_to_topic(spark, servers, topic, copied, Path(folder), limit=100).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
