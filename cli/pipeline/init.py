"""`gnomon pipeline init`."""

from __future__ import annotations

from pathlib import Path

import click

from gnomon.cli.exit import Exit, Failure
from gnomon.cli.output import note

_TOPIC = "topic"
KINDS = ("delta", "iceberg", "parquet", _TOPIC)


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    default="pipeline.toml",
    show_default=True,
    help="The file to write.",
)
def init(kind: str, file: Path) -> None:
    """Write a pipeline with comments: a table of KIND that follows a topic, or files that go into a `topic`."""
    from gnomon.spark.pipelines.settings.file_template import FILE_TEMPLATE
    from gnomon.spark.pipelines.settings.template import template

    try:
        with file.open("x", encoding="utf-8") as written:
            written.write(FILE_TEMPLATE if kind == _TOPIC else template(kind))
    except FileExistsError:
        raise Failure(f"{file} exists: choose another one with --file", Exit.CONFLICT) from None
    note(f"{file} is written: name the source and the columns there, then `gnomon pipeline check {file}`")
