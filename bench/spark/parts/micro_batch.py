"""A stream that copies 2,000 rows a second from one topic to another: the time of its batches and of their commits."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

from bench.generator import Figures
from bench.spark.jars import connector_jars
from bench.spark.parts.reads import BEST_OPTIONS
from bench.spark.server import CLUSTER, STANDALONE, SparkServer, cluster, standalone
from bench.spark.session import SparkSessionProcess, spark_session
from bench.spark.topic import SparkTopic
from bench.spark.trial import PartRun, Trial
from bench.workspace import Workspace

SYSTEM, PLAIN_FILES, CONNECTOR = "gnomon", "gnomon, checkpoint without symbolic links", "connector"
ROWS_PER_SECOND = 2_000
CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
FILES = {"spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS}
"""Spark's default one starts a program for each file of the checkpoint."""
TIMED_SINK = "gnomon-timed"
_numbers = itertools.count()

Opened = Callable[[Workspace], AbstractContextManager[SparkServer]]


def micro_batch(run: PartRun) -> None:
    """A cluster, then a standalone node."""
    servers: list[tuple[str, Opened]] = [(CLUSTER, cluster), (STANDALONE, standalone)]
    for case, opened in servers:
        with ExitStack() as parts:
            jars = connector_jars(run.workspace.cache)
            server = parts.enter_context(opened(run.workspace))
            session = parts.enter_context(spark_session(run.folder, jars))
            copied = partial(_copied, run, session, server)
            run.measure([Trial(case, system, partial(copied, system)) for system in (SYSTEM, PLAIN_FILES, CONNECTOR)])


def _copied(run: PartRun, session: SparkSessionProcess, server: SparkServer, system: str) -> Figures:
    source, target = SparkTopic.create(server, "feed"), SparkTopic.create(server, "copy")
    folder = run.folder / f"stream-{next(_numbers)}"
    folder.mkdir()
    with source.fed(folder, ROWS_PER_SECOND):
        figures = _streamed(session, source, target, folder, system, run.scale.seconds)
    source.delete()
    target.delete()
    return figures


def _streamed(
    session: SparkSessionProcess, source: SparkTopic, target: SparkTopic, folder: Path, system: str, seconds: float
) -> Figures:
    place = {"kafka.bootstrap.servers": source.server.bootstrap}
    commits, is_gnomon = folder / "commits", system != CONNECTOR
    written = {**place, "topic": target.name, "checkpointLocation": str(folder / "checkpoint")}
    answer = session.ask(
        "stream",
        source="gnomon" if is_gnomon else "kafka",
        sink=TIMED_SINK if is_gnomon else "kafka",
        read_options={
            **place,
            "subscribe": source.name,
            "startingOffsets": "earliest",
            **({} if is_gnomon else BEST_OPTIONS),
        },
        write_options={**written, **({"commits": str(commits), "writer": target.name} if is_gnomon else {})},
        seconds=seconds,
        configuration=FILES if system == PLAIN_FILES else {},
    )
    return {**answer, **dict(_commits(commits))}


def _commits(path: Path) -> Iterator[tuple[str, float]]:
    """The times of the commits, without the first ones; only gnomon's sink has any."""
    if path.exists():
        times_ms = [float(line) for line in path.read_text().splitlines()][2:]
        if times_ms:
            yield "commit_ms", statistics.median(times_ms)
            yield "longest_commit_ms", max(times_ms)
