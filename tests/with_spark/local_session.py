"""A Spark session for tests: local, quick to start, without pages and progress bars."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

import gnomon.spark

CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@contextmanager
def local_session(jars: str) -> Iterator[SparkSession]:
    """Two local threads; `jars` are paths, separated by commas."""
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")  # before the JVM starts
    builder = SparkSession.builder.master("local[2]")
    for name, value in {**CONFIGURATION, **({"spark.jars": jars} if jars else {})}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    gnomon.spark.register(session)
    try:
        yield session
    finally:
        session.stop()
