"""The prose of docstrings, as far as a machine can check it (CONTRIBUTING.md, "How prose is written")."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `prose`: test folders are no packages

from prose import ROOT, marks, product


def test_docstrings_are_plain() -> None:
    found = {str(path.relative_to(ROOT)): marks(path.read_text(encoding="utf-8")) for path in product()}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("source", "mark"),
    [
        ('"""What a broker tells."""', "1: begins with 'What'"),
        ('"""Whether a disk is known."""', "1: begins with 'Whether'"),
        ('"""A log.\n\nIt is opened anew."""', "1: 'anew'"),
        ('class Log:\n    """Those that wait."""', "2: begins with 'Those that'"),
        ('def log():\n    """Whoever appends waits."""', "2: begins with 'Whoever'"),
        ('LIMIT = 1\n"""How many there are."""', "2: begins with 'How'"),
    ],
)
def test_a_mark_is_found(source: str, mark: str) -> None:
    assert mark in marks(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""A log that can `tell` its readers."""',
        'class Log:\n    open: bool\n    """Whether it is open."""',
        'def log():\n    """Opens a log.\n\n    What is told here is below the first line.\n    """',
        'name = "What is told"',
    ],
)
def test_plain_docstrings_and_other_text_have_no_mark(source: str) -> None:
    assert marks(source) == []
