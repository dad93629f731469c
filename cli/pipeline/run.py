"""`gnomon pipeline run`."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from gnomon.cli.output import note
from gnomon.cli.pipeline.opened import file_argument, opened

if TYPE_CHECKING:
    from gnomon.spark.pipelines.progress import BatchProgress

LINES = ("text", "json")


@click.command()
@file_argument
@click.option("--output", type=click.Choice(LINES), default="text", show_default=True, help="Format of the lines.")
def run(file: Path, output: str) -> None:
    """Run the pipeline of FILE, with a line for each batch. A SIGTERM ends it after the present batch."""
    with opened(file) as pipeline:
        runner = pipeline.runner(pipeline.session(), _json if output == "json" else _text)

        def stop(_number: int, _frame: FrameType | None) -> None:
            runner.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        runner.run()


def _text(progress: BatchProgress) -> None:
    note(progress.line())


def _json(progress: BatchProgress) -> None:
    click.echo(json.dumps(progress._asdict()))
