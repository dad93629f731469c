"""Each option of the format is given to Spark by a test of `tests/with_spark`, whose text is read here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnomon.spark.options import SOURCE_OPTIONS, SOURCE_OPTIONS_WITHOUT_EFFECT
from gnomon.spark.writing.sink_options import SINK_OPTIONS

WITH_SPARK = Path(__file__).parents[1] / "with_spark"
OPTIONS = sorted({*SOURCE_OPTIONS, *SOURCE_OPTIONS_WITHOUT_EFFECT, *SINK_OPTIONS})


def given_names(tree: ast.AST) -> Iterator[str]:
    """The names of keyword arguments, the keys of dictionaries, and the first arguments of `option`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg is not None:
            yield node.arg
        keys = node.keys if isinstance(node, ast.Dict) else []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "option":
            keys = [node.args[0]]
        yield from (key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str))


@pytest.fixture(scope="module")
def tried() -> set[str]:
    paths = WITH_SPARK.glob("*.py")
    return {name for path in paths for name in given_names(ast.parse(path.read_text(encoding="utf-8")))}


@pytest.mark.parametrize("option", OPTIONS)
def test_each_option_is_given_to_spark_by_a_test(tried: set[str], option: str) -> None:
    assert option in tried
