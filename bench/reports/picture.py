"""The picture of a run: a panel for each figure, a bar for each system, with its number and its spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.generator import GeneratorUnavailable
from bench.reports.report import Report, number
from bench.reports.summary import Failed, Spread
from bench.scenario import Column, Scenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "gnomon": "#d97706",
    "cluster": "#059669",
    "floor": "#a3a3a3",
    "kafka": "#2563eb",
    "kafka-synced": "#1e3a8a",
    "etcd": "#0891b2",
    "redis": "#dc2626",
    "nats": "#7c3aed",
}
PANELS_PER_ROW = 4


@dataclass(frozen=True, slots=True)
class Bar:
    """One system in a panel; without a spread it has the word for its absence."""

    name: str
    colour: str
    spread: Spread | None
    absence: str


def draw(report: Report, path: Path) -> None:
    """Writes a PNG. Raises GeneratorUnavailable without matplotlib."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise GeneratorUnavailable("no matplotlib: the picture needs gnomon's dev extra") from None
    panels = [(scenario, column) for scenario in report.scenarios for column in scenario.columns]
    rows = -(-len(panels) // PANELS_PER_ROW)
    figure, axes = pyplot.subplots(rows, PANELS_PER_ROW, figsize=(18, 2.9 * rows), squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis, (scenario, column) in zip(axes.flat, panels, strict=False):
        _panel(axis, report, scenario, column)
    figure.suptitle(f"median of {report.rounds} rounds; lines: minimum to maximum", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _panel(axis: Axes, report: Report, scenario: Scenario, column: Column) -> None:
    bars = []
    for system in report.shown_systems(scenario, column):
        spread = report.summary.spread(scenario.name, system, column.figure)
        word = "failed" if isinstance(report.summary.trouble(scenario.name, system), Failed) else "skipped"
        bars.append(Bar(system, COLOURS[system], spread, word))
    better = "more" if column.more else "less"
    paint(axis, bars, f"{scenario.title}: {column.label}\n{column.unit}, {better} is better")


def paint(axis: Axes, bars: Sequence[Bar], title: str) -> None:
    """Paints the bars of a panel."""
    for position, bar in enumerate(bars):
        if bar.spread is None:
            axis.text(0, position, f" {bar.absence}", va="center", fontsize=8, color="#b91c1c")
            continue
        spread = bar.spread
        axis.barh(position, spread.median, color=bar.colour)
        axis.plot([spread.minimum, spread.maximum], [position, position], color="black", linewidth=1)
        axis.text(max(spread.maximum, spread.median), position, f" {number(spread.median)}", va="center", fontsize=8)
    axis.set_yticks(range(len(bars)), [bar.name for bar in bars], fontsize=8)
    axis.invert_yaxis()
    axis.margins(x=0.22)
    axis.set_xlim(left=0)
    axis.tick_params(axis="x", labelsize=7)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_title(title, fontsize=8.5)
