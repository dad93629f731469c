"""The pages of promises name tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs"
PAGES = {DOCS / "spark-tests.md": 200, DOCS / "conditional-writes-tests.md": 70, DOCS / "tables-tests.md": 80}
"""Each page, with the number of tests that it names at least."""


@cache
def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_names_tests_that_exist(page: Path) -> None:
    named = set(re.findall(r"`([\w/]+\.py)::(\w+)`", page.read_text(encoding="utf-8")))
    assert len(named) > PAGES[page]
    missing = [f"{path}::{name}" for path, name in named if name not in functions_of(TESTS / path)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.parametrize("mark", ["NONE", "NOT BUILT", "(tried)"])
def test_no_row_of_the_page_lacks_its_test(mark: str, page: Path) -> None:
    assert mark not in page.read_text(encoding="utf-8")
