"""The picture of a run: rows per second and lag over time, in two panels over one time axis.

The axis begins with the first batch: the start of Spark before it would be the widest part of a short run.

1. The rows of a batch are spread evenly over its duration, so that the area below the rate is the number of rows.
2. The rate has a step for each batch if each is wide enough to be seen. Otherwise it has STEPS_MAX equal steps.
3. Up to POINTS_MAX batches, each has a point of its own in the lag. Beyond, the line has the highest lag of each step.
   Batches whose lag is unknown are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gnomon.spark.pipelines.progress import BatchProgress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES: Final = (".png", ".svg")
STEPS_MAX: Final = 150
"""More steps cannot be distinguished at the width of the picture."""
POINTS_MAX: Final = 60
GAP_SECONDS: Final = 2.0
"""A shorter gap before a batch belongs to the batch: Spark plans the batch in it."""
_RATE_COLOUR, _LAG_COLOUR = "#059669", "#2563eb"
_UNITS: Final = ((3 * 86_400, 86_400, "days"), (3 * 3_600, 3_600, "hours"), (180, 60, "minutes"), (0, 1, "seconds"))
"""From so many seconds on, the time axis counts in a unit of so many seconds."""


class EndedBatch(NamedTuple):
    """A batch on the time axis."""

    at_seconds: float
    """Its end, by the same clock as the end of the run."""
    progress: BatchProgress


def draw_progress(name: str, batches: Sequence[EndedBatch], run_seconds: float, path: Path) -> None:
    """Writes the picture of a run.

    Args:
        name: of the pipeline.
        batches: in their order.
        run_seconds: the end of the run, after its last batch.
        path: ends in one of SUFFIXES.

    Raises:
        OSError: the file cannot be written.
    """
    start = batches[0].at_seconds - batches[0].progress.seconds if batches else 0.0
    batches = [each._replace(at_seconds=each.at_seconds - start) for each in batches]
    length = max(run_seconds - start, 1e-3)
    unit, label = next((unit, label) for least, unit, label in _UNITS if length >= least)
    figure = Figure(figsize=(10, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    figure.suptitle(_title(name, batches, length / unit, label), fontsize=12)
    if batches:
        edges = step_edges(batches, length)
        above.stairs(rates(batches, edges), edges / unit, fill=True, color=_RATE_COLOUR, alpha=0.75)
    above.set_ylabel("rows per second")
    _draw_lag(below, batches, _equal_edges(length), unit)
    below.set_ylabel("lag (records)")
    below.yaxis.set_major_locator(MaxNLocator(integer=True))
    below.set_xlabel(f"time since the first batch began ({label})")
    for axes in (above, below):
        _plain(axes)
    above.set_xlim(0, length / unit)
    figure.savefig(path, dpi=110)


def step_edges(batches: Sequence[EndedBatch], run_seconds: float) -> Any:
    """The seconds at which the rate may change, in order (invariant 2)."""
    steps = list(_steps(batches))
    if min(end - begin for begin, end, _ in steps) < run_seconds / (2 * STEPS_MAX):
        return _equal_edges(run_seconds)
    return np.unique([at for begin, end, _ in steps for at in (begin, end)])


def _equal_edges(run_seconds: float) -> Any:
    return np.linspace(0.0, run_seconds, STEPS_MAX + 1)


def rates(batches: Sequence[EndedBatch], edges: Any) -> Any:
    """The rows per second of each step between two edges, which are in seconds (invariants 1 and 2)."""
    total = np.zeros(len(edges))
    for begin, end, rows in _steps(batches):
        total += rows * np.clip((edges - begin) / (end - begin), 0.0, 1.0)
    return np.diff(total) / np.diff(edges)


def _steps(batches: Sequence[EndedBatch]) -> Iterator[tuple[float, float, int]]:
    """The begin, the end and the rows of each batch."""
    before = 0.0
    for batch in batches:
        end = max(batch.at_seconds, before + 1e-3)
        begin = min(max(end - batch.progress.seconds, before), end - 1e-3)
        yield before if begin - before < GAP_SECONDS else begin, end, batch.progress.rows
        before = end


def lags(batches: Sequence[EndedBatch], edges: Any) -> list[tuple[float, int]]:
    """The time in seconds and the highest lag of each step that has one (invariant 3)."""
    highest: dict[int, tuple[float, int]] = {}
    for batch in batches:
        lag = batch.progress.lag
        if lag is None:
            continue
        step = int(np.searchsorted(edges, batch.at_seconds))
        if step not in highest or lag > highest[step][1]:
            highest[step] = (batch.at_seconds, lag)
    return [highest[step] for step in sorted(highest)]


def _draw_lag(axes: Axes, batches: Sequence[EndedBatch], edges: Any, unit: int) -> None:
    if len(batches) <= POINTS_MAX:
        found = [(each.at_seconds, each.progress.lag) for each in batches if each.progress.lag is not None]
    else:
        found = lags(batches, edges)
    marker = "o" if len(found) <= POINTS_MAX else ""
    times, values = [at / unit for at, _ in found], [lag for _, lag in found]
    axes.plot(times, values, color=_LAG_COLOUR, marker=marker, markersize=4, linewidth=1.5, clip_on=False)
    if not found:
        axes.text(0.5, 0.5, "no lag is known", transform=axes.transAxes, ha="center", va="center", color="#737373")


def _plain(axes: Axes) -> None:
    """Numbers with all their digits, from 0 on."""
    axes.set_ylim(bottom=0)
    if axes.get_ylim()[1] <= 1:
        axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:,.10g}"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)


def _title(name: str, batches: Sequence[EndedBatch], length: float, label: str) -> str:
    rows, errors = (sum(getattr(each.progress, field) for each in batches) for field in ("rows", "errors"))
    if not batches:
        return f"{name}: no batch ended"
    many = "1 batch" if len(batches) == 1 else f"{len(batches):,} batches"
    wrong = "" if not errors else f", {errors:,} records did not fit"
    return f"{name}: {rows:,} rows in {many}, {length:,.1f} {label}{wrong}"
