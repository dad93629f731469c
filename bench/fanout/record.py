"""The measurements in one file: when a case is measured again, the new figures replace its earlier ones."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.reports.summary import Spread

FILE = "fanout.json"


class RunRecord:
    """Runs by part ("subscriptions") and case ("10000 subscriptions, 4 shadows")."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._parts: dict[str, dict[str, Any]] = json.loads(self._path.read_text()) if self._path.exists() else {}

    def add(self, part: str, case: str, figures: dict[str, float], *, first: bool) -> None:
        """Adds a run; the `first` one of a case replaces earlier runs."""
        cases = self._parts.setdefault(part, {})
        if first or case not in cases:
            cases[case] = {"begun": f"{datetime.now(UTC):%Y-%m-%d %H:%M}", "machine": machine(), "runs": []}
        load = os.getloadavg()[0]
        cases[case]["runs"].append({**{name: float(f"{value:.6g}") for name, value in figures.items()}, "load": load})
        self._path.write_text(json.dumps(self._parts, indent=1, sort_keys=True) + "\n")

    def runs(self, part: str, case: str) -> int:
        """The number of runs of a case."""
        return len(self._parts.get(part, {}).get(case, {}).get("runs", []))

    def has(self, part: str) -> bool:
        """Whether a part has any measurement."""
        return part in self._parts

    def spread(self, part: str, case: str, figure: str) -> Spread | None:
        """Minimum, median and maximum; None if it was not measured."""
        runs = self._parts.get(part, {}).get(case, {}).get("runs", [])
        values = [run[figure] for run in runs if figure in run]
        return Spread.of(values) if values else None

    def median(self, part: str, case: str, figure: str) -> float | None:
        """The median alone."""
        spread = self.spread(part, case, figure)
        return None if spread is None else spread.median

    def told(self, part: str) -> tuple[str, str, float]:
        """The time of a part's last measurement, the machine, and the highest load of its runs."""
        cases = self._parts[part].values()
        load = max(run["load"] for case in cases for run in case["runs"])
        newest = max(cases, key=lambda case: str(case["begun"]))
        return newest["begun"], newest["machine"], load


def machine() -> str:
    """The machine, in a few words."""
    return f"{os.cpu_count()} processors, {platform.system()}, Python {platform.python_version()}"
