"""Finds the marks of the project's old dialect in module heads and in the first lines of other docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("wire", "runtime", "metadata", "bookie", "log", "client", "spark", "broker", "cli", "testing", "bench")

FREE_RELATIVE = re.compile(r"(What|Who|Whom|Whoever|Whatever|Whose|How|That which|Those (who|which|that)) ", re.I)
"""A first line that begins so has a clause as its subject instead of a noun."""
WHETHER = re.compile(r"Whether ")
"""The usual first word for a flag, and a free relative where it heads a module or a class."""
WORDS = re.compile(
    r"\b(anew|told|tells?|stands?|stirs?|stirred|whoever|whom|but for|of before|hears?|heard|makes? (nothing )?of|"
    r"gone on|so (many|much|long|often|far) (is|are|was|were|after|later|more|as))\b",
    re.I,
)
"""Words of the dialect; CONTRIBUTING.md ("How prose is written") has those to write instead."""
NAMES = re.compile(r"`[^`]*`")
"""Names of the code in a docstring are not judged."""


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str, bool, bool]]:
    """(line, text, whether it is the module's, whether it names a thing) of each docstring, attributes' included."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for at, child in enumerate(body):
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant) and type(child.value.value) is str:
                names = at == 0 and isinstance(node, ast.Module | ast.ClassDef)
                yield child.lineno, child.value.value, isinstance(node, ast.Module) and at == 0, names


def marks(source: str) -> list[str]:
    """`line: the mark` for each mark in a module's head and in the first line of its other docstrings."""
    found = []
    for line, text, whole, names in docstrings(ast.parse(source)):
        text = NAMES.sub("", text)
        first = text.strip().partition("\n")[0]
        for pattern in (FREE_RELATIVE, WHETHER) if names else (FREE_RELATIVE,):
            begin = pattern.match(first)
            if begin is not None:
                found.append(f"{line}: begins with {begin[0].strip()!r}")
        found += [f"{line}: {word[0]!r}" for word in WORDS.finditer(text if whole else first)]
    return found


def product() -> list[Path]:
    """Every file of the product."""
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


if __name__ == "__main__":
    for path in product():
        for mark in marks(path.read_text(encoding="utf-8")):
            print(f"{path.relative_to(ROOT)}:{mark}")
