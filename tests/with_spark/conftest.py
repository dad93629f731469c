"""The source in Spark itself, with `--spark` (`make test-spark`): a JVM of 200 MB and some 15 s for its first query.

Tests that need no JVM are in tests/spark. One session serves all tests.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gnomon.testing import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if collection_path.name.startswith("test_") and not config.getoption("--spark") else None


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session of two local threads that knows the format."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17, and there is no java on the path")
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")  # before the JVM starts
    pyspark = pytest.importorskip("pyspark.sql", reason="pip install 'gnomon[spark]'")
    builder = pyspark.SparkSession.builder.master("local[2]")
    for name, value in CONFIGURATION.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    from gnomon.spark.source import GnomonDataSource

    session.dataSource.register(GnomonDataSource)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running
