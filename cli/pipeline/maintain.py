"""`gnomon pipeline maintain`."""

from __future__ import annotations

from pathlib import Path

import click

from gnomon.cli.exit import Exit, Failure
from gnomon.cli.output import note
from gnomon.cli.pipeline.opened import file_argument, opened


@click.command()
@file_argument
def maintain(file: Path) -> None:
    """Merge small files of the table of FILE, and remove unused ones, as far as its kind allows."""
    with opened(file) as pipeline:
        from gnomon.spark.pipelines.files.file_pipeline import FilePipeline

        if isinstance(pipeline, FilePipeline):
            raise Failure(f"{file}: a topic needs no maintenance: this is for tables", Exit.USAGE)
        note(pipeline.table().maintain())
