"""The query of the tests of streams, which copies a topic to Parquet files; also a program, for a test to kill."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def main(source: str, servers: str, topic: str, folder: str, jars: str) -> None:
    """Copies 100 records a batch until it is killed."""
    from local_session import local_session

    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "maxOffsetsPerTrigger": "100"}
    with local_session(jars) as spark:
        copy(spark, source, Path(folder), options, {"processingTime": "100 milliseconds"}).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
