"""The file map: every file of the product with the first line of its docstring. `make map` prints it."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("wire", "runtime", "metadata", "bookie", "log", "client", "spark", "broker", "cli", "testing", "bench")


def file_map() -> str:
    """The map as text, folders from the bottom floor up."""
    lines = []
    for folder in FOLDERS:
        for init in sorted((ROOT / folder).rglob("__init__.py")):
            lines += ["", f"{init.parent.relative_to(ROOT)}/  {head(init)}"]
            lines += [f"  {path.name:30}{head(path)}" for path in sorted(init.parent.glob("*.py")) if path != init]
    return "\n".join(lines[1:])


def head(path: Path) -> str:
    """The first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


if __name__ == "__main__":
    print(file_map())
