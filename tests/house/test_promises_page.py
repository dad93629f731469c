"""The page of promises names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "spark-tests.md"
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE.read_text(encoding="utf-8"))))


@cache
def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_page_names_tests_that_exist() -> None:
    assert len(NAMED) > 200
    missing = [f"{path}::{name}" for path, name in NAMED if name not in functions_of(TESTS / path)]
    assert missing == []


@pytest.mark.parametrize("mark", ["NONE", "NOT BUILT", "(tried)"])
def test_no_row_of_the_page_lacks_its_test(mark: str) -> None:
    assert mark not in PAGE.read_text(encoding="utf-8")
