"""The installed wheel: Spark finds the format by itself, and the format names a package that is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numbered_topic import NumberedTopic

ROOT = Path(__file__).parents[2]
READING = """
import sys
from pyspark.sql import SparkSession
import gnomon
assert gnomon.__file__.startswith(sys.argv[1]), gnomon.__file__
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
options = {"kafka.bootstrap.servers": sys.argv[2], "subscribe": "orders"}
print("rows:", spark.read.format("gnomon").options(**options).load().count())
"""
MISSING = """
import sys
sys.modules["pyarrow"] = None
import pyspark_gnomon
print(pyspark_gnomon.DefaultSource.name())
pyspark_gnomon.DefaultSource({})
"""


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel, without its dependencies."""
    dist, site = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "build", "-q", "--outdir", str(dist), str(ROOT)]
    subprocess.run(build, check=True)
    (wheel,) = dist.glob("gnomon-*.whl")
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True)
    return site


def run(site: Path, program: str, *args: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", program, *args]
    return subprocess.run(command, env=environment, cwd=site, capture_output=True, text=True)


def test_the_format_needs_no_registration(installed: Path, orders: NumberedTopic) -> None:
    ran = run(installed, READING, str(installed), orders.servers)
    assert ran.stdout.strip().endswith("rows: 3000"), ran.stderr


def test_a_missing_package_breaks_only_the_format(installed: Path) -> None:
    ran = run(installed, MISSING)
    assert ran.stdout.split() == ["gnomon"]
    assert "needs the package pyarrow, which is not installed: pip install 'gnomon[spark]'" in ran.stderr
