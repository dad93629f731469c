"""The tables of documents that show the paths through the code: each step with its functions, by file."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
ARCHITECTURE = DOCS / "ARCHITECTURE.md"
SPARK_PATHS = DOCS / "spark-paths.md"
TABLE_PATHS = DOCS / "table-paths.md"
HEAD = "| step | functions, by file |"


def steps(title: str | None = None, page: Path = ARCHITECTURE) -> list[tuple[str, str]]:
    """(file, function) of every step of the tables in the section of this title, or in all sections."""
    text = page.read_text(encoding="utf-8")
    if title is not None:
        text = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    found, inside = [], False
    for line in text.splitlines():
        inside = line == HEAD or (inside and line.startswith("|"))
        if inside:
            functions = line.rpartition(" | ")[2]
            for path, names in re.findall(r"`([a-z_/]+\.py)`: ((?:`[A-Za-z_.]+`(?:, )?)+)", functions):
                found += [(path, name) for name in re.findall(r"`([A-Za-z_.]+)`", names)]
    return found
