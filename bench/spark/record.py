"""The measurements in one file by part, case and system; a part that is measured again replaces its figures."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.fanout.record import machine
from bench.reports.summary import Failed, Measured, Outcome, Skipped, Summary

FILE = "spark-figures.json"


def scenario(part: str, case: str) -> str:
    """The name of a case among those of all parts."""
    return f"{part}: {case}"


class SparkRecord:
    """All parts of a folder's file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._parts: dict[str, dict[str, Any]] = json.loads(self._path.read_text()) if self._path.exists() else {}
        self._begun: dict[str, dict[str, Any]] = {}

    def begin(self, part: str, amounts: str) -> None:
        """Has the next outcome of a part replace all earlier ones: the ratios of its systems are those of one run."""
        begun = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
        self._begun[part] = {"begun": begun, "machine": machine(), "amounts": amounts, "load": 0.0, "cases": {}}

    def add(self, part: str, case: str, system: str, outcome: Outcome) -> None:
        """Adds an outcome, and writes the file."""
        if part in self._begun:
            self._parts[part] = self._begun.pop(part)
        found = self._parts[part]
        found["load"] = max(found["load"], os.getloadavg()[0])
        found["cases"].setdefault(case, {}).setdefault(system, []).append(_as_json(outcome))
        self._path.write_text(json.dumps(self._parts, indent=1) + "\n")

    def has(self, part: str) -> bool:
        """Whether the part was measured."""
        return bool(self._parts.get(part, {}).get("cases"))

    def cases(self, part: str) -> Iterator[tuple[str, list[str]]]:
        """Each case with its systems, in the order of the measurement."""
        for case, systems in self._parts[part]["cases"].items():
            yield case, list(systems)

    def summary(self) -> Summary:
        """All outcomes; the scenarios are those of `scenario`."""
        found = Summary()
        for part, content in self._parts.items():
            for case, systems in content["cases"].items():
                for system, outcomes in systems.items():
                    for outcome in outcomes:
                        found.add(scenario(part, case), system, _outcome(outcome))
        return found

    def circumstances(self, part: str) -> str:
        """A sentence with the time of a part's measurement, the machine and its load."""
        found = self._parts[part]
        return (
            f"Measured {found['begun']} UTC on {found['machine']}; {found['amounts']}; load average up to"
            f" {found['load']:.1f}."
        )


def _as_json(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Measured):
        return {figure: float(f"{value:.6g}") for figure, value in outcome.figures.items()}
    return {type(outcome).__name__.lower(): outcome.reason}


def _outcome(found: dict[str, Any]) -> Outcome:
    if "failed" in found:
        return Failed(found["failed"])
    return Skipped(found["skipped"]) if "skipped" in found else Measured(found)
