"""A package of the extra `spark` that is not installed is named, with the command that installs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gnomon.spark

PROGRAM = """
import sys
sys.modules["pyarrow"] = None
from gnomon import spark
spark.register(None)
"""


def test_a_missing_package_is_named_with_its_extra() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], stderr=subprocess.PIPE, text=True)
    last = ran.stderr.strip().splitlines()[-1]
    assert last == (
        "ModuleNotFoundError: Spark's format 'gnomon' needs the package pyarrow, which is not installed: pip install"
        " 'gnomon[spark]'"
    )


def test_a_missing_package_of_pipelines_is_named_with_its_extra() -> None:
    program = 'import sys; sys.modules["pyarrow"] = None; from gnomon.spark import Pipeline'
    ran = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    assert ran.stderr.strip().splitlines()[-1] == (
        "ModuleNotFoundError: pipelines need the package pyarrow, which is not installed: pip install 'gnomon[lake]'"
    )


def test_the_package_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError, match="'Pipelines'"):
        gnomon.spark.Pipelines  # noqa: B018 - the look-up is the test
