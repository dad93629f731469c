"""The results of a run, as tables for the reader and JSON for the record."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.reports.goal import GoalStatus, Verdict
from bench.reports.summary import Failed, Measured, Spread, Summary
from bench.scenario import Column, Scenario
from bench.stage import Scale

SIDE_FIGURES = ("megabytes_per_s", "p50_ms", "p99_ms", "broker_cpu_us", "generator_cpu_us")
STATUS_STYLE = {GoalStatus.REACHED: "green", GoalStatus.MISSED: "red", GoalStatus.UNKNOWN: "yellow"}


def number(value: float) -> str:
    """Three significant digits, or all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """One run: its parameters, all its outcomes, and the verdicts on the goals."""

    scenarios: Sequence[Scenario]
    systems: Sequence[str]
    rounds: int
    scale: Scale
    summary: Summary
    verdicts: Sequence[Verdict]
    ended_at: datetime = dataclasses.field(default_factory=lambda: datetime.now(UTC))

    def show(self, console: Console) -> None:
        console.print(self._figures_table())
        console.print(self._goals_table())

    def _figures_table(self) -> Table:
        table = Table(title=f"{self.rounds} rounds of {self.scale.seconds:g} s, servers one at a time")
        for heading in ("scenario", "figure", "system"):
            table.add_column(heading)
        for heading in ("minimum", "median", "maximum", "unit", "MB/s", "p50 ms", "p99 ms", "broker µs", "load µs"):
            table.add_column(heading, justify="right")
        for scenario in self.scenarios:
            for column in scenario.columns:
                for system in self.shown_systems(scenario, column):
                    row = self._figures_row(scenario, column, system)
                    table.add_row(scenario.title, column.label, system, *row)
            table.add_section()
        return table

    def shown_systems(self, scenario: Scenario, column: Column) -> list[str]:
        """The systems of a scenario, without those that have no such figure."""
        systems = [name for name in self.systems if name in scenario.systems]
        return [name for name in systems if not self.summary.lacks(scenario.name, name, column.figure)]

    def _figures_row(self, scenario: Scenario, column: Column, system: str) -> list[str]:
        spread = self.summary.spread(scenario.name, system, column.figure)
        if spread is None:
            trouble = self.summary.trouble(scenario.name, system)
            kind = "[bold red]failed[/]" if isinstance(trouble, Failed) else "[yellow]skipped[/]"
            return [kind, "", ""]
        sides = [self.summary.spread(scenario.name, system, side) for side in SIDE_FIGURES]
        first = column is scenario.columns[0]
        medians = [number(side.median) if side and side.median and first else "" for side in sides]
        ends = (number(spread.minimum), number(spread.maximum))
        return [ends[0], f"[bold]{number(spread.median)}[/]", ends[1], column.unit, *medians]

    def troubles(self) -> list[str]:
        """A line for each reason why a system has no figures, with the scenarios it concerns."""
        concerned: dict[tuple[str, str, str], list[str]] = {}
        for scenario in self.scenarios:
            for system in (name for name in self.systems if name in scenario.systems):
                if trouble := self.summary.trouble(scenario.name, system):
                    kind = "FAILED" if isinstance(trouble, Failed) else "SKIPPED"
                    concerned.setdefault((kind, system, trouble.reason), []).append(scenario.name)
        return [
            f"{kind} {system}: {reason} ({', '.join(names)})" for (kind, system, reason), names in concerned.items()
        ]

    def _goals_table(self) -> Table:
        titles = {scenario.name: scenario.title for scenario in self.scenarios}
        table = Table(title="goals (ratios of medians in this run)")
        for heading in ("goal", "ratio", "bound", "measured", ""):
            table.add_column(heading)
        for verdict in self.verdicts:
            goal = verdict.goal
            measured = "–" if verdict.measured is None else f"{number(verdict.measured)}{'×' if goal.peer else ''}"
            status = f"[{STATUS_STYLE[verdict.status]}]{verdict.status.value}[/]"
            table.add_row(titles.get(goal.scenario, goal.scenario), goal.expression, goal.bound_text, measured, status)
        return table

    def as_json(self) -> dict[str, Any]:
        return {
            "ended_at": self.ended_at.isoformat(timespec="seconds"),
            "machine": {
                "gnomon": importlib.metadata.version("gnomon"),
                "processors": os.cpu_count(),
                "system": platform.system(),
                "python": platform.python_version(),
            },
            "rounds": self.rounds,
            "scale": dataclasses.asdict(self.scale),
            "scenarios": [self._scenario_json(scenario) for scenario in self.scenarios],
            "goals": [
                dataclasses.asdict(verdict.goal)
                | {"expression": verdict.goal.expression, "measured": verdict.measured, "status": verdict.status.value}
                for verdict in self.verdicts
            ],
        }

    def _scenario_json(self, scenario: Scenario) -> dict[str, Any]:
        systems = {name: self._system_json(scenario, name) for name in self.systems if name in scenario.systems}
        return {"name": scenario.name, "title": scenario.title, "systems": systems}

    def _system_json(self, scenario: Scenario, system: str) -> dict[str, Any]:
        outcomes = self.summary.outcomes.get((scenario.name, system), [])
        runs: list[dict[str, Any]] = [
            dict(outcome.figures) if isinstance(outcome, Measured) else {type(outcome).__name__.lower(): outcome.reason}
            for outcome in outcomes
        ]
        spreads: dict[str, Spread | None] = {
            figure: self.summary.spread(scenario.name, system, figure)
            for figure in dict.fromkeys([*(column.figure for column in scenario.columns), *SIDE_FIGURES])
        }
        return {
            "runs": runs,
            "spreads": {figure: dataclasses.asdict(spread) for figure, spread in spreads.items() if spread},
        }

    def write_json(self, folder: Path) -> Path:
        """Writes into `folder`, named by the time the run ended."""
        path = folder / f"{self.ended_at:%Y%m%dT%H%M%SZ}.json"
        path.write_text(json.dumps(self.as_json(), indent=2, ensure_ascii=False) + "\n")
        return path
