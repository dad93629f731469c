"""The parts of `spark` that tasks import first load neither Trio nor Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["columns", "batches", "partitioner"])
def test_a_pure_module_loads_neither_trio_nor_spark(module: str) -> None:
    program = f"import sys, gnomon.spark.{module}; print(sorted(sys.modules.keys() & {{'trio', 'pyspark', 'lmdb'}}))"
    found = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert found.stdout.strip() == "[]"
