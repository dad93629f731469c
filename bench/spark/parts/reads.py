"""Reads of a whole topic whose rows go nowhere: from bookies, through brokers, and by Spark's own connector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial

from bench.generator import Figures, GeneratorFailed, GeneratorUnavailable
from bench.reports.summary import Skipped
from bench.spark.cost import costed
from bench.spark.jars import connector_jars
from bench.spark.scale import LARGE_BYTES, SMALL_BYTES
from bench.spark.server import SparkServer, cluster, kafka, standalone
from bench.spark.session import SparkSessionProcess, spark_session
from bench.spark.topic import SparkTopic, noise
from bench.spark.trial import PartRun, Trial
from bench.workspace import Workspace

BOOKIES, BROKERS = "gnomon, from bookies", "gnomon, through brokers"
DEFAULTS, BEST = "connector, defaults", "connector, best options"
ON_KAFKA = " on Apache Kafka"
BEST_OPTIONS = {"kafka.fetch.max.wait.ms": "10", "kafka.max.poll.records": "10000"}
GNOMON = {BOOKIES: {"via": "bookies"}, BROKERS: {"via": "brokers"}}
CONNECTOR: dict[str, dict[str, str]] = {DEFAULTS: {}, BEST: BEST_OPTIONS}
ALL, VALUE, LARGE = "100 B, all columns", "100 B, value only", "1 KB, all columns"
ONE_CORE, TWO_CORES = "local[1]", "local[2]"

Table = dict[str, object]
Opened = Callable[[Workspace], AbstractContextManager[SparkServer]]


def read_cluster(run: PartRun) -> None:
    """A cluster of two brokers and three bookies."""
    _read(run, cluster, (BOOKIES, BROKERS), (ALL, VALUE, LARGE))


def read_standalone(run: PartRun) -> None:
    """A standalone node, which names no bookies."""
    _read(run, standalone, (BROKERS,), (ALL, VALUE))


def read_cores(run: PartRun) -> None:
    """A cluster, read by Spark with one core and with two."""
    with ExitStack() as opened:
        jars = connector_jars(run.workspace.cache)
        server = opened.enter_context(cluster(run.workspace))
        topic = filled(run, server, ALL)
        trials = []
        for cores, case in ((1, ONE_CORE), (2, TWO_CORES)):
            session = opened.enter_context(spark_session(run.folder, jars, cores=cores))
            trials += [
                _trial(session, topic, run.scale.rows, case, system, table(topic, system)) for system in (BOOKIES, BEST)
            ]
        run.measure(trials)


def table(topic: SparkTopic, system: str, value_only: bool = False) -> Table:
    """The arguments of a job that reads a topic."""
    place = {"kafka.bootstrap.servers": topic.server.bootstrap, "subscribe": topic.name}
    if system in GNOMON:
        narrowed = {"schema": "value binary"} if value_only else {}
        return {"format": "gnomon", "options": {**place, **GNOMON[system]}, **narrowed}
    options = CONNECTOR[system.removesuffix(ON_KAFKA)]
    narrowed = {"select": "value"} if value_only else {}
    return {"format": "kafka", "options": {**place, "startingOffsets": "earliest", **options}, **narrowed}


def filled(run: PartRun, server: SparkServer, case: str) -> SparkTopic:
    """A topic with the rows of a case."""
    rows, value_bytes = _amounts(run, case)
    topic = SparkTopic.create(server, "rows")
    topic.fill(noise(rows, value_bytes))
    return topic


def _amounts(run: PartRun, case: str) -> tuple[int, int]:
    return (run.scale.large_rows, LARGE_BYTES) if case == LARGE else (run.scale.rows, SMALL_BYTES)


def _read(run: PartRun, own: Opened, systems: Sequence[str], cases: Sequence[str]) -> None:
    with ExitStack() as opened:
        jars = connector_jars(run.workspace.cache)
        servers = {"": opened.enter_context(own(run.workspace))}
        try:
            servers[ON_KAFKA] = opened.enter_context(kafka(run.workspace))
        except GeneratorUnavailable as reason:
            for case in cases:
                run.note(case, BEST + ON_KAFKA, Skipped(str(reason)))
        session = opened.enter_context(spark_session(run.folder, jars))
        topics = {
            (suffix, large): filled(run, server, LARGE if large else ALL)
            for suffix, server in servers.items()
            for large in {case == LARGE: None for case in cases}
        }
        trials = []
        for case in cases:
            for suffix in servers:
                named = [*(() if suffix else systems), *CONNECTOR]
                topic = topics[suffix, case == LARGE]
                for system in (name + suffix for name in named):
                    given = table(topic, system, value_only=case == VALUE)
                    trials.append(_trial(session, topic, _amounts(run, case)[0], case, system, given))
        run.measure(trials)


def _trial(session: SparkSessionProcess, topic: SparkTopic, rows: int, case: str, system: str, given: Table) -> Trial:
    counted = _counted(session, rows, given)

    def read() -> Figures:
        next(counted, None)
        return costed(session, topic.server, rows, partial(session.ask, "read", **given))

    return Trial(case, system, read)


def _counted(session: SparkSessionProcess, rows: int, given: Table) -> Iterator[None]:
    """Counts the rows once, at the first step."""
    found = session.ask("count", **given)["rows"]
    if found != rows:
        raise GeneratorFailed(f"{found} rows were read instead of {rows}")
    yield
