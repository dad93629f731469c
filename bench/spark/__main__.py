"""`python -m bench.spark`: measures Spark with gnomon's format beside Spark's own Kafka connector."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

import click
from rich.console import Console

from bench.generator import GeneratorUnavailable
from bench.spark.page import FILE, write_page
from bench.spark.part import PARTS, SparkPart
from bench.spark.picture import draw
from bench.spark.record import SparkRecord
from bench.spark.scale import SparkScale
from bench.spark.screen import show
from bench.spark.trial import FAILURES, PartRun
from bench.workspace import Workspace

USUAL = SparkScale()
NAMES = tuple(part.name for part in PARTS)


def end_on_sigterm(number: int, frame: FrameType | None) -> None:
    """Unwinds like Ctrl-C, so that every process is stopped."""
    sys.exit(128 + number)


@click.command()
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="Repeatable.")
@click.option("--rounds", type=click.IntRange(min=1), default=USUAL.rounds, show_default=True)
@click.option("--rows", type=click.IntRange(min=100), default=USUAL.rows, show_default=True, help="Of each topic.")
@click.option("--warm-ups", type=click.IntRange(min=0), default=USUAL.warm_ups, show_default=True)
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=USUAL.seconds, show_default=True, help="Of each stream."
)
@click.option("--into", default="bench/results", show_default=True, help="The folder of figures, page and pictures.")
@click.option("--page", is_flag=True, help="Measures nothing: writes the page and the pictures anew.")
def main(only: tuple[str, ...], rounds: int, rows: int, warm_ups: int, seconds: float, into: str, page: bool) -> None:
    """Measures Spark on real processes of this machine, each part on servers of its own.

    Figures go into spark-figures.json, where a part that is measured again replaces its earlier figures; the page and
    its pictures are made from all figures there. Exits with 1 if a measurement failed; skipped ones and missed goals
    are shown, and fail nothing.
    """
    signal.signal(signal.SIGTERM, end_on_sigterm)
    folder, chosen = Path(into), only or NAMES
    folder.mkdir(parents=True, exist_ok=True)
    record, progress = SparkRecord(folder), Console(stderr=True)
    scale = SparkScale(rows, rounds, warm_ups, seconds)
    failed = False
    for part in PARTS:
        if part.name in chosen and not page:
            failed |= measure(part, record, scale, progress)
    try:
        draw(record, folder)
    except GeneratorUnavailable as reason:
        progress.print(f"SKIPPED pictures: {reason}")
    write_page(record, folder)
    show(record, chosen)
    progress.print(f"written: {folder / FILE}", highlight=False)
    sys.exit(1 if failed else 0)


def measure(part: SparkPart, record: SparkRecord, scale: SparkScale, progress: Console) -> bool:
    """Measures a part; returns whether anything failed. A part that cannot be measured keeps its earlier figures."""

    def announce(line: str) -> None:
        progress.print(line, markup=False, highlight=False, soft_wrap=True)

    workspace = Workspace.make()
    record.begin(part.name, f"{scale.rows:,} rows, {scale.rounds} rounds after {scale.warm_ups} warm-ups")
    run = PartRun(part.name, workspace, scale, record, announce)
    try:
        part.measure(run)
    except GeneratorUnavailable as reason:
        announce(f"SKIPPED {part.name}: {reason}")
    except FAILURES as failure:
        announce(f"FAILED {part.name}: {failure}")
        return True
    finally:
        workspace.remove()
    return run.failed


if __name__ == "__main__":
    main()
