"""JSON values of a topic into a table: a pipeline of gnomon, and Spark's own connector, `from_json` and writer."""

from __future__ import annotations

import itertools
import shutil
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.generator import Figures, GeneratorFailed, GeneratorUnavailable
from bench.spark.cost import costed
from bench.spark.jars import connector_jars, delta_jars
from bench.spark.parts.reads import BEST_OPTIONS
from bench.spark.server import SparkServer, cluster
from bench.spark.session import DELTA, SparkSessionProcess, spark_session
from bench.spark.topic import DOCUMENT_DDL, SparkTopic, documents
from bench.spark.trial import PartRun, Trial

SYSTEM, DEFAULTS, BEST = "gnomon, pipeline to Delta", "Spark's own, defaults", "Spark's own, best options"
OPTIONS: dict[str, dict[str, str]] = {DEFAULTS: {}, BEST: BEST_OPTIONS}
TO_DELTA, TO_PARQUET = "both write Delta", "Spark's own writes Parquet"
PROBE_ROWS = 1
_numbers = itertools.count()


def lake(run: PartRun) -> None:
    """A cluster. Spark's own writer writes Delta if it is here and works with this Spark, and else Parquet."""
    with ExitStack() as opened:
        jars, form, configuration = connector_jars(run.workspace.cache), "delta", DELTA
        try:
            jars += delta_jars(run.workspace.cache)
        except GeneratorUnavailable as reason:
            run.announce(f"Delta's writer for Spark is missing, so Spark writes Parquet: {reason}")
            form, configuration = "parquet", {}
        server = opened.enter_context(cluster(run.workspace))
        session = opened.enter_context(spark_session(run.folder, jars, configuration=configuration))
        topic = SparkTopic.create(server, "documents")
        topic.fill(documents(run.scale.rows))
        if form == "delta":
            form = _working(run, session, server)
        case = TO_DELTA if form == "delta" else TO_PARQUET
        trials = [Trial(case, SYSTEM, partial(_pipeline, run, session, topic))]
        for name in OPTIONS:
            work = partial(_parsed, run, session, topic, run.scale.rows, name, form)
            trials.append(Trial(case, name, work))
        run.measure(trials)


def _working(run: PartRun, session: SparkSessionProcess, server: SparkServer) -> str:
    """The format that Spark's own writer can write here: a Delta writer for an older Spark may fail."""
    probe = SparkTopic.create(server, "probe")
    probe.fill(documents(PROBE_ROWS))
    try:
        _parsed(run, session, probe, PROBE_ROWS, DEFAULTS, "delta")
    except GeneratorFailed as failure:
        run.announce(f"Delta's writer does not work with this Spark, so Spark writes Parquet: {failure}")
        return "parquet"
    return "delta"


def _pipeline(run: PartRun, session: SparkSessionProcess, topic: SparkTopic) -> Figures:
    folder = _folder(run)
    settings = {
        "name": folder.name,
        "checkpoint": "checkpoint",
        "source": {"bootstrap": topic.server.bootstrap, "topic": topic.name},
        "format": {"kind": "json", "schema": DOCUMENT_DDL},
        "target": {"kind": "delta", "path": "table"},
        "trigger": {"available_now": True},
    }
    job = partial(session.ask, "pipeline", settings=settings, folder=str(folder))
    figures = costed(session, topic.server, run.scale.rows, job)
    return _checked(session, folder, "delta", run.scale.rows, figures)


def _parsed(
    run: PartRun, session: SparkSessionProcess, topic: SparkTopic, rows: int, system: str, form: str
) -> Figures:
    folder = _folder(run)
    place = {"kafka.bootstrap.servers": topic.server.bootstrap, "subscribe": topic.name}
    options = {**place, "startingOffsets": "earliest", **OPTIONS[system]}
    given = {"options": options, "ddl": DOCUMENT_DDL, "format": form, "folder": str(folder)}
    figures = costed(session, topic.server, rows, partial(session.ask, "parsed", **given))
    return _checked(session, folder, form, rows, figures)


def _folder(run: PartRun) -> Path:
    folder = run.folder / f"lake-{next(_numbers)}"
    folder.mkdir()
    return folder


def _checked(session: SparkSessionProcess, folder: Path, form: str, rows: int, figures: Figures) -> Figures:
    found = session.ask("table_rows", format=form, folder=str(folder))["rows"]
    if found != rows:
        raise GeneratorFailed(f"the table has {found} rows instead of {rows}")
    shutil.rmtree(folder)
    return figures
