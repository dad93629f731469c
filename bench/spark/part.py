"""The parts of the bench with Spark: name, measurement, the text and the columns of its section on the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.spark.parts.beside import beside
from bench.spark.parts.codec import codec
from bench.spark.parts.lake import lake
from bench.spark.parts.micro_batch import micro_batch
from bench.spark.parts.reads import read_cluster, read_cores, read_standalone
from bench.spark.parts.sink import sink
from bench.spark.trial import PartRun


@dataclass(frozen=True, slots=True)
class FigureColumn:
    """A figure of a part; without `drawn` it is in the table alone."""

    figure: str
    heading: str
    drawn: bool = False
    more: bool = False
    """Whether more of it is better."""


@dataclass(frozen=True, slots=True)
class SparkPart:
    """One part, and one section of the page."""

    name: str
    title: str
    text: str
    columns: tuple[FigureColumn, ...]
    measure: Callable[[PartRun], None]


RATE = FigureColumn("rate", "rows/s", drawn=True, more=True)
SPARK_CPU = FigureColumn("spark_us", "Spark's CPU, µs a row", drawn=True)
BROKERS_CPU = FigureColumn("brokers_us", "brokers' CPU, µs a row", drawn=True)
BOOKIES_CPU = FigureColumn("bookies_us", "bookies' CPU, µs a row")
COSTS = (RATE, SPARK_CPU, BROKERS_CPU, BOOKIES_CPU)

PARTS = (
    SparkPart(
        "read-cluster",
        "Reading a cluster",
        """Two brokers and three bookies (E = 3, Qw = 3, Qa = 2, synced); every record has three copies. A batch job
reads the whole topic, in one task for each partition, and its rows go nowhere (`noop`). *Value only*:
gnomon reads the schema `value binary`, the connector's rows are narrowed by `select`. 1 KB: a quarter of
the rows.""",
        COSTS,
        read_cluster,
    ),
    SparkPart(
        "read-standalone",
        "Reading a standalone node",
        """One process is broker and bookie. It names no bookies, so that gnomon reads through the broker.""",
        COSTS[:3],
        read_standalone,
    ),
    SparkPart(
        "cores",
        "One core and two",
        """The read of all columns from the cluster by a Spark with one core and by one with two. The brokers and
bookies run on the same two processors, so that the second core of Spark is never free for it alone.""",
        COSTS,
        read_cores,
    ),
    SparkPart(
        "codec",
        "Decoding and encoding alone",
        """Record batches of 64 KiB to Arrow columns (all except the headers), and back, in one thread without Spark; a
row has a key of some six bytes. Rows per second of processor time. One record a batch: a tenth of the rows.""",
        (FigureColumn("rate", "rows/s of one core", drawn=True, more=True), FigureColumn("row_us", "µs a row")),
        codec,
    ),
    SparkPart(
        "sink",
        "Writing to a topic",
        """A batch job of four tasks writes rows with keys, which are in Spark's memory before, into four partitions.
gnomon's sink writes each row once: its tasks stage the rows in a topic, and the driver then sends them. The
connector's writer writes them at least once.""",
        COSTS,
        sink,
    ),
    SparkPart(
        "micro-batch",
        "A stream of 2,000 rows a second",
        """A stream copies a topic that gets 2,000 rows a second to another topic, one batch after the other. *Batch*:
Spark's `triggerExecution`. *Commit*: the call `commit()` of gnomon's sink, with decision and delivery.
Checkpoint without symbolic links: Spark's `FileSystemBasedCheckpointFileManager`; the default one starts a
program for each file.""",
        (
            FigureColumn("p50_ms", "batch p50, ms", drawn=True),
            FigureColumn("longest_ms", "longest"),
            FigureColumn("commit_ms", "commit p50, ms", drawn=True),
            FigureColumn("longest_commit_ms", "longest "),
            FigureColumn("batch_rows", "rows a batch"),
            FigureColumn("batches", "batches"),
        ),
        micro_batch,
    ),
    SparkPart(
        "table",
        "From a topic to a table",
        """JSON values of some 100 bytes with five columns, from the cluster into a new table, as a stream that ends at
the present end (`availableNow`), with its checkpoint. gnomon's pipeline writes Delta. Spark's own way is
the connector, `from_json` and Spark's writer of the format in the name of the case.""",
        COSTS,
        lake,
    ),
    SparkPart(
        "beside",
        "Other producers beside a job",
        """One producer sends requests to a broker of the cluster on schedule, and waits for their answers, while a job
reads a topic of the same brokers again and again. A job that reads no topic shows the part of the
processors alone: Spark, brokers and bookies share them here.""",
        (
            FigureColumn("p50_ms", "produce p50, ms"),
            FigureColumn("p99_ms", "p99", drawn=True),
            FigureColumn("longest_ms", "longest"),
            FigureColumn("requests", "requests"),
        ),
        beside,
    ),
)
