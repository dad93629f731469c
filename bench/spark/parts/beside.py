"""Another producer's waits while a job of Spark reads a topic of the same brokers and bookies."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from bench.fanout.stamp import quantile
from bench.generator import Figures, GeneratorFailed
from bench.spark.jars import connector_jars
from bench.spark.parts.reads import ALL, BEST, BOOKIES, BROKERS, filled, table
from bench.spark.server import cluster
from bench.spark.session import SparkSessionProcess, spark_session
from bench.spark.topic import SparkTopic
from bench.spark.trial import PartRun, Trial

CASE = "200 requests a second of one record of 100 B"
NO_JOB, NO_TOPIC = "no job", "a job that reads no topic"
REQUESTS_PER_SECOND = 200
SETTLE_SECONDS = 1.0
STOP_SECONDS = 30.0
PROBE_PARTITIONS = 64
"""With this many, the leader of any partition of the read topic leads one of the other."""


def beside(run: PartRun) -> None:
    """A cluster; the other producer writes to a broker that leads partitions of the topic that is read."""
    with ExitStack() as opened:
        jars = connector_jars(run.workspace.cache)
        server = opened.enter_context(cluster(run.workspace))
        session = opened.enter_context(spark_session(run.folder, jars))
        topic = filled(run, server, ALL)
        other = SparkTopic.create(server, "others", PROBE_PARTITIONS)
        partition = other.leaders().index(topic.leaders()[0])
        jobs: dict[str, Callable[[], object]] = {
            NO_JOB: partial(time.sleep, run.scale.seconds),
            NO_TOPIC: partial(_repeat, session, run.scale.seconds, "spin", {}),
        }
        for system in (BOOKIES, BROKERS, BEST):
            jobs[system] = partial(_repeat, session, run.scale.seconds, "read", table(topic, system))
        run.measure([Trial(CASE, name, partial(_waits, run, other, partition, job)) for name, job in jobs.items()])


def _repeat(session: SparkSessionProcess, seconds: float, again: str, arguments: dict[str, object]) -> None:
    session.ask("repeat", seconds=seconds, again=again, arguments=arguments)


def _waits(run: PartRun, topic: SparkTopic, partition: int, job: Callable[[], object]) -> Figures:
    with topic.pacer(run.folder, partition, 1, REQUESTS_PER_SECOND) as pacer:
        time.sleep(SETTLE_SECONDS)
        began = time.monotonic()
        job()
        ended = time.monotonic()
        waits = pacer.ask("stop", STOP_SECONDS)["waits"]
    during = sorted(wait for at, wait in waits if began <= at < ended)
    if not during:
        raise GeneratorFailed("nothing was produced while the job ran")
    return {
        "p50_ms": quantile(during, 0.5) * 1e3,
        "p99_ms": quantile(during, 0.99) * 1e3,
        "longest_ms": during[-1] * 1e3,
        "requests": float(len(during)),
    }
