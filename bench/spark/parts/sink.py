"""Writes of a batch job into the partitions of a topic: each row once by gnomon, at least once by the connector."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from bench.generator import Figures, GeneratorUnavailable
from bench.reports.summary import Skipped
from bench.spark.cost import costed
from bench.spark.jars import connector_jars
from bench.spark.scale import PARTITIONS
from bench.spark.server import CLUSTER, STANDALONE, SparkServer, cluster, kafka, standalone
from bench.spark.session import SparkSessionProcess, spark_session
from bench.spark.topic import SparkTopic
from bench.spark.trial import PartRun, Trial

SYSTEM = "gnomon"
PLAIN, LZ4, ON_KAFKA = "connector, defaults", "connector, lz4", "connector, defaults, on Apache Kafka"
OPTIONS: dict[str, dict[str, str]] = {
    SYSTEM: {},
    PLAIN: {},
    LZ4: {"kafka.compression.type": "lz4"},
    ON_KAFKA: {},
}
"""gnomon's sink compresses with lz4 unless it is configured otherwise, the connector's does not compress."""


def sink(run: PartRun) -> None:
    """A standalone node and a cluster; Apache Kafka beside the standalone node."""
    with ExitStack() as opened:
        jars = connector_jars(run.workspace.cache)
        own: tuple[str, ...] = (SYSTEM, PLAIN, LZ4)
        servers = [(STANDALONE, opened.enter_context(standalone(run.workspace)), own)]
        servers.append((CLUSTER, opened.enter_context(cluster(run.workspace)), own))
        try:
            servers.append((STANDALONE, opened.enter_context(kafka(run.workspace)), (ON_KAFKA,)))
        except GeneratorUnavailable as reason:
            run.note(STANDALONE, ON_KAFKA, Skipped(str(reason)))
        session = opened.enter_context(spark_session(run.folder, jars))
        session.ask("prepare", rows=run.scale.rows, partitions=PARTITIONS)
        run.measure(
            [
                Trial(case, system, partial(_write, session, server, run.scale.rows, system))
                for case, server, systems in servers
                for system in systems
            ]
        )


def _write(session: SparkSessionProcess, server: SparkServer, rows: int, system: str) -> Figures:
    topic = SparkTopic.create(server, "sink")
    options = {"kafka.bootstrap.servers": server.bootstrap, "topic": topic.name, **OPTIONS[system]}
    given = {"format": "gnomon" if system == SYSTEM else "kafka", "options": options}
    figures = costed(session, server, rows, partial(session.ask, "write", **given))
    topic.check(rows)
    topic.delete()
    return figures
