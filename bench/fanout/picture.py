"""The pictures of a fan-out's figures, one for each part of the bench (`subscriptions`, `consumers`, …)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.fanout.goals import CONNECTED_SECONDS, MEAN_MS, consumers_case, delay_case, fan_case, subscriptions_case
from bench.fanout.record import RunRecord
from bench.fanout.scale import FanoutScale
from bench.generator import GeneratorUnavailable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#d97706", "#2563eb", "#059669", "#7c3aed", "#a3a3a3")
GOAL_COLOUR = "#b91c1c"


def draw(record: RunRecord, folder: Path) -> None:
    """Writes an SVG for each part that was measured. Raises GeneratorUnavailable without matplotlib."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise GeneratorUnavailable("no matplotlib: the pictures need gnomon's dev extra") from None
    matplotlib.rcParams["svg.hashsalt"] = "gnomon"
    for part, panels, paint in (
        ("subscriptions", 5, _subscriptions),
        ("consumers", 2, _consumers),
        ("delay", 2, _delay),
        ("produce", 2, _produce),
    ):
        if record.has(part):
            figure, axes = pyplot.subplots(1, panels, figsize=(3.6 * panels, 3.2), squeeze=False)
            paint(list(axes.flat), record, FanoutScale())
            for axis in axes.flat:
                axis.spines[["top", "right"]].set_visible(False)
                axis.tick_params(labelsize=7)
            figure.tight_layout()
            figure.savefig(folder / f"fanout-{part}.svg", metadata={"Date": None})
            pyplot.close(figure)


def _line(
    axis: Axes, record: RunRecord, part: str, cases: Sequence[tuple[float, str]], figure: str, colour: str, label: str
) -> None:
    found = [(x, spread) for x, case in cases if (spread := record.spread(part, case, figure)) is not None]
    if found:
        places, spreads = [x for x, _ in found], [spread for _, spread in found]
        medians = [spread.median for spread in spreads]
        below = [spread.median - spread.minimum for spread in spreads]
        above = [spread.maximum - spread.median for spread in spreads]
        axis.errorbar(
            places, medians, yerr=[below, above], color=colour, marker="o", markersize=3, capsize=2, label=label
        )


def _subscriptions(axes: list[Axes], record: RunRecord, scale: FanoutScale) -> None:
    bounds: list[tuple[str, str, Callable[[int], float | None]]] = [
        ("connected_s", "all connected, s", CONNECTED_SECONDS.get),
        ("mean_ms", "mean delivery, ms", MEAN_MS.get),
        ("broker_cpu_us", "broker CPU a delivery, µs", lambda _: 15.0),
        ("subscription_bytes", "memory a subscription, B", lambda _: 4096.0),
        ("produce_wait_ms", "longest produce, ms", lambda _: 50.0),
    ]
    for axis, (figure, title, bound) in zip(axes, bounds, strict=True):
        for shadows, colour in zip(scale.spreads, COLOURS, strict=False):
            cases = [(float(count), subscriptions_case(count, shadows)) for count in scale.subscriptions]
            _line(axis, record, "subscriptions", cases, figure, colour, f"{shadows} shadows")
        goals = [(count, limit) for count in scale.subscriptions if (limit := bound(count)) is not None]
        axis.plot(
            [count for count, _ in goals], [limit for _, limit in goals], color=GOAL_COLOUR, linestyle=":", label="goal"
        )
        axis.set(xscale="log", yscale="log", xlabel="subscriptions")
        axis.set_title(title, fontsize=9)
    axes[0].legend(fontsize=7)


def _consumers(axes: list[Axes], record: RunRecord, scale: FanoutScale) -> None:
    kinds = [(0, "all on the source"), (scale.consumer_shadows, f"source + {scale.consumer_shadows} shadows")]
    panels = (
        ({"p50_ms": "p50", "p99_ms": "p99"}, "delivery, ms"),
        ({"broker_cpu_percent": "all brokers", "source_cpu_percent": "source's broker"}, "CPU, % of a processor"),
    )
    for axis, (figures, title) in zip(axes, panels, strict=True):
        for row, (figure, label) in enumerate(figures.items()):
            medians = [
                record.median("consumers", consumers_case(scale.consumers, kind), figure) or 0 for kind, _ in kinds
            ]
            axis.bar([place + row * 0.4 for place in (0, 1)], medians, width=0.38, color=COLOURS[row], label=label)
        axis.set_xticks([0.2, 1.2], [name for _, name in kinds])
        axis.set_title(f"{scale.consumers:,} Kafka consumers: {title}", fontsize=9)
        axis.legend(fontsize=7)


def _delay(axes: list[Axes], record: RunRecord, scale: FanoutScale) -> None:
    names = [delay_case(rate) for rate in scale.rates]
    panels = (
        ({"delay_p50_ms": "p50", "delay_p99_ms": "p99"}, "delay source → shadow, ms"),
        ({"source_p50_ms": "source p50", "shadow_p50_ms": "shadow p50"}, "from the producer, ms"),
    )
    for axis, (figures, title) in zip(axes, panels, strict=True):
        for row, (figure, label) in enumerate(figures.items()):
            medians = [record.median("delay", name, figure) or 0 for name in names]
            places = [place + row * 0.4 for place in range(len(names))]
            bars = axis.bar(places, medians, width=0.38, color=COLOURS[row], label=label)
            axis.bar_label(bars, fmt="%.2g", fontsize=7)
        axis.set_xticks([place + 0.2 for place in range(len(names))], names)
        axis.set_title(title, fontsize=9)
        axis.legend(fontsize=7)


def _produce(axes: list[Axes], record: RunRecord, scale: FanoutScale) -> None:
    cases = [(float(shadows), fan_case(shadows)) for shadows in scale.fans]
    _line(axes[0], record, "produce", cases, "paced_cpu_us", COLOURS[0], "steady")
    _line(axes[0], record, "produce", cases, "full_cpu_us", COLOURS[1], "full")
    alone = record.median("produce", fan_case(0), "paced_cpu_us")
    if alone is not None:
        axes[0].plot(
            scale.fans,
            [alone * (1 + 0.03 * shadows) for shadows in scale.fans],
            color=GOAL_COLOUR,
            linestyle=":",
            label="goal",
        )
    _line(axes[1], record, "produce", cases, "rate", COLOURS[1], "full")
    for axis, title in zip(axes, ("source's broker, µs a message", "messages a second"), strict=True):
        axis.set_title(title, fontsize=9)
        axis.set(xlabel="shadows")
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=7)
