"""`gnomon pipeline replay`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnomon.cli.exit import Exit, Failure
from gnomon.cli.output import output_option, show_record
from gnomon.cli.pipeline.bounds import TIME, milliseconds, starting_at
from gnomon.cli.pipeline.opened import file_argument, opened

if TYPE_CHECKING:
    from gnomon.spark.pipelines.pipeline import Pipeline
    from gnomon.spark.pipelines.progress import BatchProgress


@click.command()
@file_argument
@click.option("--letters", is_flag=True, help="Replay errors.dead_letter_topic up to its end, each letter once.")
@click.option("--into", metavar="TABLE", help="Write the rows of a range into a new table: a path, or an Iceberg name.")
@click.option("--replace", is_flag=True, help="Replace the rows that the table has of a range.")
@click.option("--from-offsets", metavar="OFFSETS", help="Begin of the range, as for reset; earliest by default.")
@click.option("--from-time", type=TIME, help="Begin of the range.")
@click.option("--to-offsets", metavar="OFFSETS", help="End of the range, which is not read; latest by default.")
@click.option("--to-time", type=TIME, help="End of the range: the first record that is not older.")
@output_option
def replay(
    file: Path,
    letters: bool,
    into: str | None,
    replace: bool,
    from_offsets: str | None,
    from_time: datetime | None,
    to_offsets: str | None,
    to_time: datetime | None,
    output: str,
) -> None:
    """Read records of the pipeline of FILE once more: a range of offsets or times, or dead letters."""
    if letters + (into is not None) + replace != 1:
        raise click.UsageError("Give one of --letters, --into and --replace.")
    options = _range_options(from_offsets, from_time, to_offsets, to_time)
    if letters and options:
        raise click.UsageError("Dead letters are replayed up to the end: no --from-… or --to-….")
    with opened(file) as pipeline:
        from gnomon.spark.pipelines.files.file_pipeline import FilePipeline

        if isinstance(pipeline, FilePipeline):
            raise Failure(f"{file}: `gnomon pipeline reset` reads all files once more: this is for topics", Exit.USAGE)
        show_record(_replayed_letters(pipeline) if letters else _replayed_range(pipeline, options, into), output)


def _replayed_letters(pipeline: Pipeline) -> dict[str, Any]:
    batches: list[BatchProgress] = []
    pipeline.letters().run(committed=batches.append)
    rows, errors = sum(each.rows for each in batches), sum(each.errors for each in batches)
    return {"pipeline": pipeline.settings.name, "rows": rows, "errors": errors}


def _replayed_range(pipeline: Pipeline, bounds: dict[str, str], into: str | None) -> dict[str, Any]:
    done = pipeline.replay(bounds, into)
    return {
        "pipeline": pipeline.settings.name,
        "rows": done.rows,
        "errors": done.errors,
        "ranges": [each._asdict() for each in done.ranges],
    }


def _range_options(
    from_offsets: str | None, from_time: datetime | None, to_offsets: str | None, to_time: datetime | None
) -> dict[str, str]:
    """The options of the format `gnomon` for a range.

    Raises:
        UsageError: a bound is given twice.
    """
    if None not in (from_offsets, from_time) or None not in (to_offsets, to_time):
        raise click.UsageError("Give each bound of a range as offsets or as a time.")
    found = {} if from_offsets is None and from_time is None else starting_at(from_offsets, from_time)
    if to_offsets is not None:
        found["endingOffsets"] = to_offsets
    if to_time is not None:
        found["endingTimestamp"] = milliseconds(to_time)
    return found
