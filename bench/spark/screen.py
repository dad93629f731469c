"""The tables of a run with Spark on standard output."""

from __future__ import annotations

from collections.abc import Collection

from rich.console import Console
from rich.table import Table

from bench.reports.report import STATUS_STYLE, number
from bench.spark.goals import WORDS, bound_text, subject, verdicts
from bench.spark.page import spread_text
from bench.spark.part import PARTS, SparkPart
from bench.spark.record import SparkRecord, scenario

WIDTH = 180
"""Columns the tables need; a narrower window or a pipe gets long lines rather than broken words."""


def show(record: SparkRecord, names: Collection[str]) -> None:
    """Prints the figures and the goals of some parts."""
    console = Console()
    console = console if console.width >= WIDTH else Console(width=WIDTH)
    for part in PARTS:
        if part.name in names and record.has(part.name):
            console.print(_figures(record, part))
    console.print(_goals(record, names))


def _figures(record: SparkRecord, part: SparkPart) -> Table:
    table, summary = Table(title=f"{part.title}: median (minimum–maximum)"), record.summary()
    for heading in ("case", "system"):
        table.add_column(heading)
    for column in part.columns:
        table.add_column(column.heading, justify="right")
    for case, systems in record.cases(part.name):
        for system in systems:
            spreads = [summary.spread(scenario(part.name, case), system, column.figure) for column in part.columns]
            table.add_row(case, system, *map(spread_text, spreads))
        table.add_section()
    return table


def _goals(record: SparkRecord, names: Collection[str]) -> Table:
    table = Table(title="goals (ratios of medians in one run)")
    for heading in ("case", "goal", "bound", "measured", ""):
        table.add_column(heading)
    for verdict in verdicts(record):
        goal = verdict.goal
        if goal.scenario.partition(":")[0] in names:
            measured = "–" if verdict.measured is None else number(verdict.measured) + ("×" if goal.peer else "")
            word = f"[{STATUS_STYLE[verdict.status]}]{WORDS[verdict.status]}[/]"
            table.add_row(goal.scenario, subject(goal), bound_text(goal), measured, word)
    return table
