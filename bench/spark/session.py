"""A Spark session in a process of its own, as the bench sees it: questions, answers, processor time."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.child import Child
from bench.generator import GeneratorFailed, GeneratorUnavailable
from bench.process import CLOCK_TICKS

START_SECONDS = 300.0
JOB_SECONDS = 900.0
END_SECONDS = 20.0
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


class SparkSessionProcess:
    """The driver program, its JVM and their workers: all processes of one session of the kernel."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def ask(self, job: str, **arguments: object) -> dict[str, Any]:
        """Runs a job of `jobs`, and returns its answer.

        Raises:
            GeneratorFailed: it failed, or did not end.
        """
        answer = self._child.ask({"job": job, **arguments}, JOB_SECONDS)
        if "error" in answer:
            raise GeneratorFailed(f"Spark's job {job!r} failed: {answer['error']}")
        return answer

    def cpu_seconds(self) -> float:
        """The processor time of all its processes so far, also of those that have ended."""
        return sum(seconds for _, seconds in _members(self._child.pid))

    def end(self) -> None:
        """Stops the session, and kills the processes that are left after some time."""
        try:
            self._child.ask({"job": "stop"}, END_SECONDS)
        except GeneratorFailed:
            pass  # it is killed below
        self._child.__exit__(None, None, None)
        deadline = time.monotonic() + END_SECONDS
        while (left := [pid for pid, _ in _members(self._child.pid)]) and time.monotonic() < deadline:
            time.sleep(0.1)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has ended meanwhile


@contextmanager
def spark_session(
    folder: Path, jars: Sequence[str], *, cores: int = 2, configuration: Mapping[str, str] | None = None
) -> Iterator[SparkSessionProcess]:
    """A session for the block, whose files are in `folder`.

    Raises:
        GeneratorUnavailable: this machine has no Java or no PySpark.
        GeneratorFailed: it did not start.
    """
    check_spark()
    given = {
        "spark.master": f"local[{cores}]",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **({"spark.jars": ",".join(jars)} if jars else {}),
        **(configuration or {}),
    }
    session = SparkSessionProcess(Child("spark.driver", {"configuration": given}, folder / f"spark-{cores}.log"))
    try:
        session._child.answer(START_SECONDS)
        yield session
    finally:
        session.end()


def check_spark() -> None:
    """Raises GeneratorUnavailable if this machine has no Java or no PySpark."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise GeneratorUnavailable("no java on the path: Spark needs Java 17")
    for package in ("pyspark", "pyarrow", "deltalake"):
        if importlib.util.find_spec(package) is None:
            raise GeneratorUnavailable(f"no {package}: pip install 'gnomon[lake]'")


def _members(session: int) -> Iterator[tuple[int, float]]:
    """Each process of a session of the kernel, with its processor time and that of its children that have ended."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        if int(after_name[3]) == session and after_name[0] != "Z":
            yield int(path.parent.name), sum(map(int, after_name[11:15])) / CLOCK_TICKS
