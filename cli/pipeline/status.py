"""`gnomon pipeline status` and `gnomon pipeline reset`."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from gnomon.cli.output import note, output_option, show_record
from gnomon.cli.pipeline.opened import file_argument, opened


@click.command()
@file_argument
@output_option
def status(file: Path, output: str) -> None:
    """Show the last batch of the pipeline of FILE, and the records that are left to read."""
    with opened(file) as pipeline:
        found = pipeline.status()
        record: dict[str, Any] = {
            "pipeline": pipeline.settings.name,
            "query": found.query,
            "resets": found.generation,
            "last_batch": found.batch,
            "batch_in_table": None if found.table_batch is None else found.table_batch.number,
            "lag": found.lag,
            "partitions": [{**each._asdict(), "records": each.records} for each in found.backlog],
        }
        show_record(record, output)


@click.command()
@file_argument
@click.option("--to-offsets", metavar="OFFSETS", help='earliest, latest, or JSON such as {"orders": {"0": 17}}.')
@click.option(
    "--to-time",
    type=click.DateTime(["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S.%f%z"]),
    help="A time with its offset from UTC, such as 2026-01-31T12:00:00Z.",
)
def reset(file: Path, to_offsets: str | None, to_time: datetime | None) -> None:
    """Have the next run of the pipeline of FILE read from other offsets on.

    The rows that are in the table stay there. The next run takes the place of the query that wrote them.
    """
    if (to_offsets is None) == (to_time is None):
        raise click.UsageError("Give one of --to-offsets and --to-time.")
    starting = {"startingOffsets": to_offsets} if to_offsets is not None else {}
    if to_time is not None:
        starting = {
            "startingTimestamp": str(int(to_time.timestamp() * 1000)),
            "startingOffsetsByTimestampStrategy": "latest",
        }
    with opened(file) as pipeline:
        pipeline.reset(starting)
        note(f"the next run of {pipeline.settings.name!r} starts at {json.dumps(to_offsets or str(to_time))}")
