"""The reports of a running pipeline: a line for each batch, metrics for Prometheus, and a picture at the end."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from gnomon.cli.exit import Exit, Failure
from gnomon.cli.output import note

if TYPE_CHECKING:
    from gnomon.spark.pipelines.progress import BatchProgress

    Report = Callable[[BatchProgress], None]

_CLEAR_LINE = "\r\x1b[2K"


class ReportPlaces(NamedTuple):
    """The reports that a run gives, and their places."""

    json: bool
    """Whether the lines are JSON on standard output."""
    metrics_port: int | None
    metrics_file: Path | None
    picture: Path | None


@contextmanager
def reported(pipeline: str, places: ReportPlaces) -> Iterator[Report]:
    """The function that reports each batch of a run; the picture is written at the end, also after an error.

    Raises:
        Failure: a place cannot be used.
        ModuleNotFoundError: a package is missing.
    """
    reports = [_metrics(pipeline, places.metrics_port, places.metrics_file)]
    with _lines(as_json=places.json) as line, _picture(pipeline, places.picture) as picture:
        reports += [line, picture]

        def report(progress: BatchProgress) -> None:
            for each in reports:
                each(progress)

        yield report


@contextmanager
def _lines(*, as_json: bool) -> Iterator[Report]:
    """Lines of JSON or text; on a terminal, one line of text that each batch replaces."""
    if as_json:
        yield lambda progress: click.echo(json.dumps(progress._asdict()))
        return
    if not sys.stderr.isatty():
        yield lambda progress: note(progress.line())
        return

    def replaced(progress: BatchProgress) -> None:
        text = progress.line()[: shutil.get_terminal_size().columns - 1]
        with suppress(OSError):
            click.echo(f"{_CLEAR_LINE}{text}", err=True, nl=False)

    try:
        yield replaced
    finally:
        note("")


def _metrics(pipeline: str, port: int | None, file: Path | None) -> Report:
    if port is None and file is None:
        return lambda progress: None
    from gnomon.spark.pipelines.pipeline_metrics import PipelineMetrics

    metrics = PipelineMetrics(pipeline)
    if file is not None:
        try:
            metrics.write(file)
        except OSError as error:
            raise Failure(f"--metrics-file {file}: cannot be written: {error.strerror}", Exit.USAGE) from None
    if port is not None:
        try:
            metrics.serve(port)
        except OSError as error:
            raise Failure(f"--metrics-port {port}: {error.strerror}: choose another port", Exit.CONFLICT) from None

    def report(progress: BatchProgress) -> None:
        metrics.add(progress, time.time())
        if file is not None:
            try:
                metrics.write(file)
            except OSError as error:  # the rows are in the table: the run goes on
                note(f"--metrics-file {file}: cannot be written: {error.strerror}")

    return report


@contextmanager
def _picture(pipeline: str, path: Path | None) -> Iterator[Report]:
    if path is None:
        yield lambda progress: None
        return
    from gnomon.spark.pipelines.progress_picture import SUFFIXES, EndedBatch, draw_progress

    if path.suffix not in SUFFIXES:
        raise Failure(f"--picture {path}: expected a name that ends in {' or '.join(SUFFIXES)}", Exit.USAGE)
    if not path.absolute().parent.is_dir():
        raise Failure(f"--picture {path}: its folder does not exist: create it", Exit.USAGE)
    began, batches = time.monotonic(), list[EndedBatch]()
    try:
        yield lambda progress: batches.append(EndedBatch(time.monotonic() - began, progress))
    finally:
        try:
            draw_progress(pipeline, batches, time.monotonic() - began, path)
        except OSError as error:  # an error of the run, if there is one, matters more
            note(f"--picture {path}: cannot be written: {error.strerror}")
