"""The jobs of a Spark session under measurement, and the time of each; `driver` runs them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

import gnomon.spark
from bench.spark.timed_sink import TimedDataSource
from gnomon.spark.pipelines.pipeline import Pipeline

Answer = dict[str, Any]
START_BATCHES = 2
"""Batches at the start of a query that do not count: they make its workers."""
SPIN_ROWS = 20_000_000
WAIT_SECONDS = 600
START_SECONDS = 300
LOOK_SECONDS = 0.2
VALUE = "substring(concat(md5(string(id)), md5(string(id + 1)), md5(string(id + 2)), md5(string(id + 3))), 1, 100)"
"""Values of 100 bytes, which codecs make half as large."""


def started(configuration: Mapping[str, str]) -> SparkSession:
    """A session that knows gnomon's format."""
    builder = SparkSession.builder
    for name, value in configuration.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    gnomon.spark.register(session)
    session.dataSource.register(TimedDataSource)
    return session


def stop(session: SparkSession) -> Answer:
    """Ends the session."""
    session.stop()
    return {}


def read(session: SparkSession, **table: Any) -> Answer:
    """Reads a topic, and does nothing with its rows."""
    began = time.monotonic()
    _rows(session, **table).write.format("noop").mode("overwrite").save()
    return {"seconds": time.monotonic() - began}


def count(session: SparkSession, **table: Any) -> Answer:
    """The number of rows of a topic."""
    return {"rows": _rows(session, **table).selectExpr("count(value)").first()[0]}


def _rows(
    session: SparkSession, format: str, options: Mapping[str, str], schema: str | None = None, select: str = "*"
) -> DataFrame:
    reader = session.read.format(format).options(**options)
    return (reader.schema(schema) if schema else reader).load().selectExpr(select)


def spin(session: SparkSession) -> Answer:
    """Keeps the processors busy without any topic."""
    began = time.monotonic()
    session.range(0, SPIN_ROWS, 1, 2).selectExpr("sum(hash(id, md5(string(id))))").collect()
    return {"seconds": time.monotonic() - began}


def repeat(session: SparkSession, seconds: float, again: str, arguments: Mapping[str, Any]) -> Answer:
    """Runs a job again and again until `seconds` have passed."""
    began, runs = time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        globals()[again](session, **arguments)
        runs += 1
    return {"seconds": passed, "runs": runs}


def prepare(session: SparkSession, rows: int, partitions: int) -> Answer:
    """Makes rows with keys in the memory of Spark, so that a later write does not compute them."""
    frame = session.range(0, rows, 1, partitions).selectExpr("string(id) as key", f"{VALUE} as value")
    frame.cache().createOrReplaceTempView("prepared")
    return {"rows": frame.count()}


def write(session: SparkSession, format: str, options: Mapping[str, str]) -> Answer:
    """Writes the prepared rows to a topic."""
    frame = session.table("prepared")
    began = time.monotonic()
    frame.write.format(format).options(**options).mode("append").save()
    return {"seconds": time.monotonic() - began}


def stream(
    session: SparkSession,
    source: str,
    sink: str,
    read_options: Mapping[str, str],
    write_options: Mapping[str, str],
    seconds: float,
    configuration: Mapping[str, str],
) -> Answer:
    """Copies new rows of a topic to another one for some time, batch after batch; returns the times of the batches."""
    for name, value in configuration.items():
        session.conf.set(name, value)
    try:
        rows = session.readStream.format(source).options(**read_options).load().selectExpr("key", "value")
        query = rows.writeStream.format(sink).options(**write_options).start()
        _await_batches(query)
        query.awaitTermination(seconds)
        progress, found, doing = _batches(query), len(query.recentProgress), query.status["message"]
        query.stop()
    finally:
        for name in configuration:
            session.conf.unset(name)
    batches = [each.durationMs["triggerExecution"] for each in progress]
    if not batches:
        raise RuntimeError(f"the stream finished only {found} batches, and then: {doing}")
    return {
        "batches": len(batches),
        "p50_ms": statistics.median(batches),
        "longest_ms": max(batches),
        "batch_rows": statistics.median(each.numInputRows for each in progress),
    }


def _batches(query: StreamingQuery) -> Sequence[StreamingQueryProgress]:
    """The finished batches with rows, without the first ones."""
    return [each for each in query.recentProgress if each.numInputRows][START_BATCHES:]


def _await_batches(query: StreamingQuery) -> None:
    """Waits for the first batch that counts, or for the end of the query."""
    deadline = time.monotonic() + START_SECONDS
    while not _batches(query) and time.monotonic() < deadline and not query.awaitTermination(LOOK_SECONDS):
        pass


def pipeline(session: SparkSession, settings: Mapping[str, Any], folder: str) -> Answer:
    """Runs a pipeline of gnomon to the present end of its topic."""
    began = time.monotonic()
    Pipeline.of(settings, folder).run(session)
    return {"seconds": time.monotonic() - began}


def parsed(session: SparkSession, options: Mapping[str, str], ddl: str, format: str, folder: str) -> Answer:
    """Writes a table from JSON values by Spark's own means alone: connector, `from_json`, writer."""
    began = time.monotonic()
    records = session.readStream.format("kafka").options(**options).load()
    rows = records.selectExpr(f"from_json(string(value), '{ddl}') as row", "topic", "partition", "offset", "timestamp")
    writer = rows.selectExpr("row.*", "topic", "partition", "offset", "timestamp").writeStream.format(format)
    places = {"checkpointLocation": str(Path(folder, "checkpoint"))}
    query = writer.options(**places).trigger(availableNow=True).start(str(Path(folder, "table")))
    if not query.awaitTermination(WAIT_SECONDS):
        raise RuntimeError("the stream did not end")
    return {"seconds": time.monotonic() - began}


def table_rows(session: SparkSession, format: str, folder: str) -> Answer:
    """The number of rows of a table, as a reader that is neither Spark nor gnomon counts them."""
    if format == "delta":
        from deltalake import DeltaTable

        return {"rows": DeltaTable(str(Path(folder, "table"))).to_pyarrow_dataset().count_rows()}
    return {"rows": session.read.parquet(str(Path(folder, "table"))).count()}
