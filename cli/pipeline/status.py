"""`gnomon pipeline status` and `gnomon pipeline reset`."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnomon.cli.output import note, output_option, show_record
from gnomon.cli.pipeline.bounds import TIME, starting_at
from gnomon.cli.pipeline.files import state
from gnomon.cli.pipeline.opened import file_argument, opened

if TYPE_CHECKING:
    from gnomon.spark.pipelines.pipeline import Pipeline
    from gnomon.spark.pipelines.status import PipelineStatus


@click.command()
@file_argument
@output_option
def status(file: Path, output: str) -> None:
    """Show the last batch of the pipeline of FILE, and the records or files that are left to read."""
    with opened(file) as pipeline:
        from gnomon.spark.pipelines.files.file_pipeline import FilePipeline

        if isinstance(pipeline, FilePipeline):
            record = state(pipeline, pipeline.status())
        else:
            record = _state(pipeline, pipeline.status())
        show_record(record, output)


def _state(pipeline: Pipeline, found: PipelineStatus) -> dict[str, Any]:
    return {
        "pipeline": pipeline.settings.name,
        "query": found.query,
        "resets": found.generation,
        "last_batch": found.batch,
        "batch_in_table": None if found.table_batch is None else found.table_batch.number,
        "lag": found.lag,
        "partitions": [{**each._asdict(), "records": each.records} for each in found.backlog],
    }


@click.command()
@file_argument
@click.option("--to-offsets", metavar="OFFSETS", help='earliest, latest, or JSON such as {"orders": {"0": 17}}.')
@click.option(
    "--to-time",
    type=TIME,
    help="A time with its offset from UTC, such as 2026-01-31T12:00:00Z.",
)
def reset(file: Path, to_offsets: str | None, to_time: datetime | None) -> None:
    """Have the next run of the pipeline of FILE read from other offsets on; a pipeline of files begins again.

    The rows that are in the target stay there. The next run takes the place of the query that wrote them.
    """
    with opened(file) as pipeline:
        from gnomon.spark.pipelines.files.file_pipeline import FilePipeline

        if not isinstance(pipeline, FilePipeline):
            if (to_offsets is None) == (to_time is None):
                raise click.UsageError("Give one of --to-offsets and --to-time.")
            pipeline.reset(starting_at(to_offsets, to_time))
            note(f"the next run of {pipeline.settings.name!r} starts at {json.dumps(to_offsets or str(to_time))}")
            return
        if to_offsets is not None or to_time is not None:
            raise click.UsageError("--to-offsets and --to-time are for topics: files are read from the first one on.")
        pipeline.reset()
        note(f"the next run of {pipeline.settings.name!r} starts at the first file, and writes all rows again")
