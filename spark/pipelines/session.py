"""The Spark session of a pipeline."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from gnomon.spark.pipelines.run_failed import RunFailed
from gnomon.spark.pipelines.settings.section import BadPipeline
from gnomon.spark.source import GnomonDataSource

SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
"""The errors that Spark raises; those of its own code have no class of PySpark's."""
_DEFAULTS: Final = {
    "spark.master": "local[*]",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Spark's settings unless the pipeline's file has them."""
_END_SECONDS: Final = 5.0
"""A JVM whose connections are gone ends within this time."""
_GATEWAY_PORT: Final = "PYSPARK_GATEWAY_PORT"
"""The variable by which a JVM (`spark-submit`) names its port to the Python that it starts."""
_NO_JAVA: Final = "Spark needs Java 17: install it, or set JAVA_HOME to its folder"
_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""They print errors that are raised, too."""


def opened(name: str, given: Mapping[str, str]) -> SparkSession:
    """A session that knows the format `gnomon`.

    Args:
        given: Spark's settings.

    Raises:
        BadPipeline: there is no Java that Spark could use.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers need the same packages
    for logger in _LOGGERS:
        logging.getLogger(logger).disabled = True
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")  # which is not used
    if _starts_a_jvm() and _java() is None:
        raise BadPipeline(_NO_JAVA)  # Spark's own script would add lines of its shell
    builder = SparkSession.builder.appName(f"gnomon pipeline {name}")
    for key, value in (_DEFAULTS | dict(given)).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise BadPipeline(_NO_JAVA) from error
    session.sparkContext.setLogLevel("FATAL")  # the errors of batches are raised
    session.dataSource.register(GnomonDataSource)
    return session


def _starts_a_jvm() -> bool:
    """Whether a session starts a JVM: there is none of this process, and none that has started this process."""
    return SparkContext._gateway is None and _GATEWAY_PORT not in os.environ


def _java() -> str | None:
    """The program that Spark starts, if there is one."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin" if home else None)


@contextmanager
def jvm_watched(session: SparkSession) -> Iterator[None]:
    """Names the end of the session's JVM, which PySpark reports as lost connections.

    Raises:
        RunFailed: the JVM has ended.
    """
    try:
        yield
    except (Py4JError, ConnectionError) as error:
        status = None if isinstance(error, Py4JJavaError) else _exit_status(session)
        if status is None:
            raise
        raise RunFailed(
            f"Spark's JVM has ended with status {status}. -9 is SIGKILL, which the kernel sends where memory is short"
            " (spark.driver.memory). The next run continues with the batch"
        ) from error


def _exit_status(session: SparkSession) -> int | None:
    """The exit status of the JVM; None if it runs, or was not started by this process."""
    process: subprocess.Popen[bytes] | None = getattr(session.sparkContext._gateway, "proc", None)
    try:
        return None if process is None else process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        return None
