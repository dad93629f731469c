"""`python -m bench.fanout`: measures the cost of many readers of one topic, and the effect of its shadows, which are
topics that show the same records."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType

import click
from rich.console import Console

from bench.fanout import consumers, delay, produce, storage, subscriptions
from bench.fanout.goals import (
    STORAGE_CASE,
    consumers_case,
    delay_case,
    fan_case,
    subscriptions_case,
    verdicts,
)
from bench.fanout.page import write_page
from bench.fanout.picture import draw
from bench.fanout.record import RunRecord
from bench.fanout.scale import QUICK, FanoutScale
from bench.generator import GeneratorFailed, Generators, GeneratorUnavailable
from bench.reports.report import number
from bench.workspace import Workspace

PARTS = ("storage", "subscriptions", "consumers", "delay", "produce")
ROUNDS = 3
SHOWN = {
    "storage": ("shadow_bytes", "message_bytes", "position_bytes"),
    "subscriptions": ("connected_s", "mean_ms", "p99_ms", "broker_cpu_us", "subscription_bytes", "produce_wait_ms"),
    "consumers": ("p50_ms", "p99_ms", "broker_cpu_percent", "source_cpu_percent"),
    "delay": ("delay_p50_ms", "delay_p99_ms", "rate"),
    "produce": ("rate", "paced_cpu_us", "full_cpu_us"),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement; a run may give figures of several names."""

    part: str
    name: str
    measure: Callable[[], Iterator[tuple[str, dict[str, float]]]]


def one(part: str, name: str, measure: Callable[[], dict[str, float]]) -> Case:
    """A case whose run gives only its own figures."""

    def run() -> Iterator[tuple[str, dict[str, float]]]:
        yield name, measure()

    return Case(part, name, run)


def cases(workspace: Workspace, scale: FanoutScale) -> list[Case]:
    """All measurements, in the order of a round."""

    def fans() -> Iterator[tuple[str, dict[str, float]]]:
        for shadows, figures in produce.measure(workspace, scale, Generators.build(workspace.cache)):
            yield fan_case(shadows), figures

    found = [one("storage", STORAGE_CASE, partial(storage.measure, workspace, scale))]
    for count in scale.subscriptions:
        for shadows in scale.spreads:
            run = partial(subscriptions.measure, workspace, scale, count, shadows)
            found.append(one("subscriptions", subscriptions_case(count, shadows), run))
    for shadows in (0, scale.consumer_shadows):
        name = consumers_case(scale.consumers, shadows)
        found.append(one("consumers", name, partial(consumers.measure, workspace, scale, shadows)))
    found += [one("delay", delay_case(rate), partial(delay.measure, workspace, scale, rate)) for rate in scale.rates]
    return [*found, Case("produce", f"{scale.fans} shadows", fans)]


def end_on_sigterm(number: int, frame: FrameType | None) -> None:
    """Unwinds like Ctrl-C, so that every process is stopped."""
    sys.exit(128 + number)


def numbers(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    try:
        return None if value is None else tuple(int(each) for each in value.split(","))
    except ValueError:
        raise click.BadParameter("give whole numbers with commas between them") from None


@click.command()
@click.option("--only", multiple=True, type=click.Choice(PARTS), help="Repeatable.")
@click.option("--rounds", type=click.IntRange(min=1), default=ROUNDS, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=2), help="How long each load runs. [10; quick 3]")
@click.option("--subscriptions", "counts", callback=numbers, help="How many. [1000,10000,40000,100000]")
@click.option("--shadows", "spreads", callback=numbers, help="How many subscriptions are spread over. [0,1,4]")
@click.option("--into", default="bench/results", show_default=True, help="The folder of figures, page and pictures.")
@click.option("--quick", is_flag=True, help="Tries out the machinery; the figures say little.")
@click.option("--page", is_flag=True, help="Measures nothing: writes the page and the pictures anew.")
def main(
    only: tuple[str, ...],
    rounds: int,
    seconds: float | None,
    counts: tuple[int, ...] | None,
    spreads: tuple[int, ...] | None,
    into: str,
    quick: bool,
    page: bool,
) -> None:
    """Measures fan-out on real processes of this machine, each part on a fleet of its own.

    Figures go into fanout.json, where a repeated case replaces its earlier figures; fanout.md and its pictures are made
    from all figures there. Exits with 1 if a measurement failed; missed goals fail nothing.
    """
    signal.signal(signal.SIGTERM, end_on_sigterm)
    usual = QUICK if quick else FanoutScale()
    scale = replace(
        usual,
        seconds=seconds or usual.seconds,
        subscriptions=counts or usual.subscriptions,
        spreads=usual.spreads if spreads is None else spreads,
    )
    folder = Path(into)
    folder.mkdir(parents=True, exist_ok=True)
    record, progress = RunRecord(folder), Console(stderr=True)
    failed = [] if page else measure(record, scale, only or PARTS, rounds, progress)
    write_page(record, folder)
    try:
        draw(record, folder)
    except GeneratorUnavailable as reason:
        progress.print(f"SKIPPED pictures: {reason}")
    for verdict in verdicts(record, FanoutScale()):
        if verdict.measured is not None:
            told = f"{number(verdict.measured)} {verdict.unit} ≤ {verdict.bound:g} {verdict.unit}"
            progress.print(f"{verdict.word:<8} {verdict.case}: {verdict.what} {told}", highlight=False, soft_wrap=True)
    progress.print(f"written: {folder}/fanout.md", highlight=False)
    for line in failed:
        progress.print(line, style="bold red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(1 if failed else 0)


def measure(record: RunRecord, scale: FanoutScale, parts: tuple[str, ...], rounds: int, progress: Console) -> list[str]:
    """Runs all rounds; returns the failures, in words."""
    workspace, failed, begun = Workspace.make(), [], set()
    try:
        for round_number in range(rounds):
            for case in (case for case in cases(workspace, scale) if case.part in parts):
                head = f"round {round_number + 1}/{rounds}  {case.part:<14}"
                try:
                    for name, figures in case.measure():
                        record.add(case.part, name, figures, first=(case.part, name) not in begun)
                        begun.add((case.part, name))
                        told = ", ".join(f"{figure} {number(figures[figure])}" for figure in SHOWN[case.part])
                        progress.print(f"{head}{name}: {told}", highlight=False, soft_wrap=True)
                except (GeneratorFailed, GeneratorUnavailable, OSError) as failure:
                    failed.append(f"FAILED {case.part} {case.name}: {failure}")
                    progress.print(failed[-1], markup=False, highlight=False, soft_wrap=True)
                for each in workspace.scratch.glob("fleet-*/"):
                    shutil.rmtree(each)
    finally:
        workspace.remove()
    return failed


if __name__ == "__main__":
    main()
