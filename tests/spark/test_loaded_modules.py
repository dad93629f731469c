"""The pure parts of `spark`: they load neither Trio nor Spark, and have numbered invariants."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module

import pytest


@pytest.mark.parametrize("module", ["columns", "batches", "partitioner"])
def test_a_pure_module_loads_neither_trio_nor_spark(module: str) -> None:
    program = f"import sys, gnomon.spark.{module}; print(sorted(sys.modules.keys() & {{'trio', 'pyspark', 'lmdb'}}))"
    found = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("module", ["columns", "batches", "offsets", "splits", "partitioner", "decisions"])
def test_a_pure_module_has_numbered_invariants(module: str) -> None:
    text = import_module(f"gnomon.spark.{module}").__doc__ or ""
    numbers = [int(found) for found in re.findall(r"^(\d+)\. ", text, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > 1
