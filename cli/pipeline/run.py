"""`gnomon pipeline run`."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType

import click

from gnomon.cli.pipeline.opened import file_argument, opened
from gnomon.cli.pipeline.run_report import ReportPlaces, reported

LINES = ("text", "json")
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@file_argument
@click.option("--output", type=click.Choice(LINES), default="text", show_default=True, help="Format of the lines.")
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    help="Answer Prometheus' scrapes of http://127.0.0.1:PORT/metrics.",
    metavar="PORT",
)
@click.option(
    "--metrics-file", type=_FILE, help="Write the same metrics to a file after each batch, for node_exporter."
)
@click.option(
    "--picture", type=_FILE, help="Draw rows per second and lag over time at the end of the run, as .png or .svg."
)
def run(file: Path, output: str, metrics_port: int | None, metrics_file: Path | None, picture: Path | None) -> None:
    """Run the pipeline of FILE, with a line for each batch. A SIGTERM ends it after the present batch.

    On a terminal, each line replaces the one before.
    """
    places = ReportPlaces(output == "json", metrics_port, metrics_file, picture)
    with opened(file) as pipeline, reported(pipeline.settings.name, places) as report:
        runner = pipeline.runner(pipeline.session(), report)

        def stop(_number: int, _frame: FrameType | None) -> None:
            runner.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        runner.run()
