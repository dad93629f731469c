"""Sessions in processes of their own: the registered format, the settings of a file, a machine without Java."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from pipeline_driver import GNOMON
from toolchains import tool

NO_JAVA = "Spark needs Java 17: install it, or set JAVA_HOME to its folder"
FILE = """
name = "orders"
[source]
bootstrap = "127.0.0.1:1"
topic = "orders"
[format]
kind = "text"
[target]
kind = "parquet"
path = "table"
[spark]
"spark.master" = "local[1]"
spark.sql.session.timeZone = "Asia/Tokyo"
"spark.executorEnv.SHOP" = "orders"
"""
REGISTERING = """
from pyspark.sql import SparkSession
import gnomon.spark

session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
reader = session.read.format("gnomon").option("kafka.bootstrap.servers", "127.0.0.1:1").option("subscribe", "orders")
try:
    print(reader.load().columns)
except Exception as error:
    print("DATA_SOURCE_NOT_FOUND" in str(error))
gnomon.spark.register(session)
print(",".join(reader.load().columns))
"""
OPENING = """
import sys
from gnomon.spark import Pipeline

session = Pipeline.load(sys.argv[1]).session()
print(session.sparkContext.master)
print(session.conf.get("spark.sql.session.timeZone"))
print(session.sparkContext.getConf().get("spark.executorEnv.SHOP"))
"""


@pytest.fixture(autouse=True)
def installed() -> None:
    tool("java", "Spark needs Java 17")
    pytest.importorskip("pyspark", reason="pip install 'gnomon[spark]'")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a pipeline."""
    (tmp_path / "orders.toml").write_text(FILE)
    return tmp_path / "orders.toml"


def lines(program: str, folder: Path, *arguments: object) -> list[str]:
    """The lines that a program prints. Its modules are those of `folder` first."""
    paths = os.pathsep.join([str(folder), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_session_knows_the_format_once_it_is_registered(tmp_path: Path) -> None:
    """A package of this name without a format hides the one in which Spark would find the format by itself."""
    (tmp_path / "pyspark_gnomon").mkdir()
    (tmp_path / "pyspark_gnomon" / "__init__.py").touch()
    found = lines(REGISTERING, tmp_path)
    assert found == ["True", "key,value,topic,partition,offset,timestamp,timestampType"]


def test_the_session_of_a_pipeline_has_the_master_and_the_settings_of_its_file(file: Path) -> None:
    assert lines(OPENING, file.parent, file) == ["local[1]", "Asia/Tokyo", "orders"]


def run(file: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """`gnomon pipeline run` with changed variables of the environment; an empty value removes one."""
    environment = {name: value for name, value in {**os.environ, **variables}.items() if value}
    command = [str(GNOMON), "pipeline", "run", str(file)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("variables", [{"JAVA_HOME": "/nowhere"}, {"JAVA_HOME": "", "PATH": "/nowhere"}])
def test_a_missing_java_is_reported_in_one_sentence(file: Path, variables: dict[str, str]) -> None:
    done = run(file, variables)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"Error: {file}: {NO_JAVA}\n"


def test_a_java_that_cannot_run_spark_is_reported_after_its_own_words(file: Path) -> None:
    java = file.parent / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho too old >&2\nexit 1\n")
    java.chmod(0o755)
    done = run(file, {"JAVA_HOME": str(file.parent)})
    assert (done.returncode, done.stdout) == (2, "")
    first, *_, last = done.stderr.splitlines()
    assert (first, last) == ("too old", f"Error: {file}: {NO_JAVA}")
