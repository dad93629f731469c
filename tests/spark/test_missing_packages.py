"""The packages of the extras `spark` and `lake`; one that is not installed is named, with the command for it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import gnomon.spark

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OF_LAKE = ("formats", "pipelines", "tables")
"""The folders of `spark` that may need the extra `lake`."""
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


def packages(requirements: list[str]) -> set[str]:
    """The names that modules import."""
    return {re.split(r"[^a-z0-9-]", requirement)[0].replace("-", "_") for requirement in requirements}


def imported(module: Path) -> Iterator[str]:
    """The packages that a module imports, also those for types alone."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        yield from (name.partition(".")[0] for name in names)


def test_the_extras_have_the_packages_of_the_format_and_of_tables() -> None:
    spark, lake = (PROJECT["optional-dependencies"][name] for name in ("spark", "lake"))
    assert packages(spark) == {"pyspark", "pyarrow", "numpy"}
    assert {"pyspark>=4.2,<5", "pyarrow>=18"} <= set(spark)
    assert "gnomon[spark]" in lake
    assert packages(lake) == {"gnomon", "deltalake", "fastavro", "matplotlib", "pandas", "pyiceberg"}


def test_every_package_that_spark_imports_is_in_its_extra() -> None:
    extras = PROJECT["optional-dependencies"]
    of_format = packages([*PROJECT["dependencies"], *extras["spark"]]) | {"gnomon", "py4j"}  # py4j is part of pyspark
    of_lake = of_format | packages(extras["lake"])
    missing = {
        f"{module.relative_to(ROOT)}: {name}"
        for module in (ROOT / "spark").rglob("*.py")
        for name in imported(module)
        if name not in sys.stdlib_module_names
        and name not in (of_lake if module.relative_to(ROOT).parts[1] in OF_LAKE else of_format)
    }
    assert missing == set()
