"""The Spark session of a pipeline."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

import gnomon.spark
from gnomon.spark.pipelines.settings.section import BadPipeline

_DEFAULTS: Final = {
    "spark.master": "local[*]",
    "spark.pyspark.python": sys.executable,
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Spark's settings unless the pipeline's file has them."""


def opened(name: str, given: Mapping[str, str]) -> SparkSession:
    """A session that knows the format `gnomon`.

    Args:
        given: Spark's settings.

    Raises:
        BadPipeline: there is no Java that Spark could use.
    """
    builder = SparkSession.builder.appName(f"gnomon pipeline {name}")
    for key, value in (_DEFAULTS | dict(given)).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise BadPipeline("Spark needs Java 17: install it, or set JAVA_HOME to its folder") from error
    session.sparkContext.setLogLevel("FATAL")  # the errors of batches are raised
    gnomon.spark.register(session)
    return session
