"""The pictures of Spark's figures: one for each part, a panel for each case and figure, a bar for each system."""

from __future__ import annotations

from pathlib import Path

from bench.generator import GeneratorUnavailable
from bench.reports.picture import Bar, paint
from bench.reports.summary import Failed, Summary
from bench.spark.page import picture_file
from bench.spark.part import PARTS, SparkPart
from bench.spark.record import SparkRecord, scenario

OWN_COLOURS, PEER_COLOURS = ("#d97706", "#059669"), ("#1e3a8a", "#2563eb", "#6d28d9", "#a78bfa")
PANEL_INCHES = (5.4, 0.36)
"""The width of a panel, and the height that each bar adds."""


def draw(record: SparkRecord, folder: Path) -> None:
    """Writes a PNG for each part that was measured. Raises GeneratorUnavailable without matplotlib."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise GeneratorUnavailable("no matplotlib: the pictures need gnomon's dev extra") from None
    summary = record.summary()
    for part in PARTS:
        if not record.has(part.name):
            continue
        cases, columns = list(record.cases(part.name)), [column for column in part.columns if column.drawn]
        height = sum(1.2 + PANEL_INCHES[1] * len(systems) for _, systems in cases)
        size = (PANEL_INCHES[0] * len(columns), height)
        figure, axes = pyplot.subplots(len(cases), len(columns), figsize=size, squeeze=False)
        for row, (case, systems) in zip(axes, cases, strict=True):
            for axis, column in zip(row, columns, strict=True):
                better = "more" if column.more else "less"
                bars = _bars(summary, part, case, systems, column.figure)
                paint(axis, bars, f"{case}\n{column.heading}, {better} is better")
        figure.tight_layout()
        figure.savefig(folder / picture_file(part), dpi=90, metadata={"Software": None})
        pyplot.close(figure)


def _bars(summary: Summary, part: SparkPart, case: str, systems: list[str], figure: str) -> list[Bar]:
    name, bars = scenario(part.name, case), []
    own = [system for system in systems if system.startswith("gnomon")]
    peers = [system for system in systems if system not in own]
    for system in systems:
        colours, at = (OWN_COLOURS, own.index(system)) if system in own else (PEER_COLOURS, peers.index(system))
        trouble = summary.trouble(name, system)
        word = "–" if trouble is None else "failed" if isinstance(trouble, Failed) else "skipped"
        bars.append(Bar(system, colours[at % len(colours)], summary.spread(name, system, figure), word))
    return bars
