"""Writes the page of Spark's figures from the measurements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.reports.goal import GoalStatus, Verdict
from bench.reports.report import number
from bench.reports.summary import Failed, Spread, Summary
from bench.spark.goals import WORDS, bound_text, subject, verdicts
from bench.spark.part import PARTS, SparkPart
from bench.spark.record import SparkRecord, scenario

FILE = "spark-figures.md"
NOTES = "spark-figures-notes.md"
"""Written by hand, next to the figures: the reasons for missed goals."""
INTRODUCTION = """# Spark, measured

    make bench-spark                                      # everything
    make bench-spark ONLY="read-cluster sink" ROUNDS=3    # some of it
    make bench-spark INTO=docs                            # also writes this page and its pictures again

`python -m bench.spark` makes this page from [spark-figures.json](spark-figures.json), which has every run. Figures are
medians, followed by minimum and maximum. *Connector* is Spark's own `format("kafka")`, with its defaults and with its
best options (`kafka.fetch.max.wait.ms=10`, `kafka.max.poll.records=10000`), which reads the same topic of the same
brokers. Spark is `local[2]` unless the part says otherwise, in one JVM for all systems of a part. The systems take
turns, each round begins with another one, and the rounds that warm up do not count. All servers of a part run at the
same time on one machine and share its processors with Spark; those that are not asked are idle. So CPU a row is
steadier than rows a second. CPU of Spark is that of driver, JVM and Python workers together.
"""


def write_page(record: SparkRecord, folder: Path) -> None:
    """Writes the page of all parts that were measured."""
    summary, notes = record.summary(), folder / NOTES
    sections = [INTRODUCTION, *_goals(verdicts(record)), notes.read_text() if notes.exists() else ""]
    for part in PARTS:
        if record.has(part.name):
            sections += [
                f"## {part.title}\n\n{part.text}\n",
                "\n".join(_table(record, summary, part)) + "\n",
                f"![{part.title}]({picture_file(part)})\n" if (folder / picture_file(part)).exists() else "",
                "\n".join([*_troubles(record, summary, part), record.circumstances(part.name)]) + "\n",
            ]
    (folder / FILE).write_text("\n".join(section for section in sections if section))


def picture_file(part: SparkPart) -> str:
    """The name of the picture of a part."""
    return f"spark-figures-{part.name}.png"


def spread_text(spread: Spread | None) -> str:
    """The median, with minimum and maximum if they differ."""
    if spread is None:
        return "–"
    ends = f" ({number(spread.minimum)}–{number(spread.maximum)})"
    return number(spread.median) + ("" if spread.minimum == spread.maximum else ends)


def _goals(found: list[Verdict]) -> Iterator[str]:
    counts = [sum(verdict.status is status for verdict in found) for status in GoalStatus]
    words = ", ".join(f"{count} {WORDS[status]}" for status, count in zip(GoalStatus, counts, strict=True) if count)
    if found:
        yield f"## Goals\n\n{words}.\n"
        yield "\n".join([*_header("goal", "case", "bound", "measured", ""), *map(_goal, found)]) + "\n"


def _goal(verdict: Verdict) -> str:
    word = WORDS[verdict.status] if verdict.status is GoalStatus.REACHED else f"**{WORDS[verdict.status]}**"
    goal = verdict.goal
    unit = "×" if goal.peer else f" {goal.unit}"
    measured = "–" if verdict.measured is None else f"{number(verdict.measured)}{unit}"
    return _row(subject(goal), goal.scenario, bound_text(goal), measured, word)


def _table(record: SparkRecord, summary: Summary, part: SparkPart) -> Iterator[str]:
    yield from _header("case", "system", *(column.heading for column in part.columns), "runs")
    for case, systems in record.cases(part.name):
        name = scenario(part.name, case)
        for system in systems:
            spreads = [summary.spread(name, system, column.figure) for column in part.columns]
            runs = len(summary.outcomes[name, system]) if any(spreads) else 0
            yield _row(case, system, *map(spread_text, spreads), str(runs))


def _troubles(record: SparkRecord, summary: Summary, part: SparkPart) -> Iterator[str]:
    for case, systems in record.cases(part.name):
        for system in systems:
            if trouble := summary.trouble(scenario(part.name, case), system):
                word = "Failed" if isinstance(trouble, Failed) else "Not measured"
                yield f"{word}: {case}, {system}: {' '.join(trouble.reason.split())}\n"


def _header(*cells: str) -> list[str]:
    return [_row(*cells), "|" + "---|" * len(cells)]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
