"""`gnomon pipeline check`."""

from __future__ import annotations

import base64
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnomon.cli.exit import Failure
from gnomon.cli.output import note, output_option, show_record
from gnomon.cli.pipeline.files import checked
from gnomon.cli.pipeline.opened import file_argument, opened

if TYPE_CHECKING:
    import pyarrow as pa

    from gnomon.client.kafka.topic_partition import TopicPartition
    from gnomon.spark.bookie_plans import PlannedSize
    from gnomon.spark.pipelines.backlog import PartitionBacklog
    from gnomon.spark.pipelines.checking import PipelineCheck
    from gnomon.spark.pipelines.files.file_pipeline import FilePipeline
    from gnomon.spark.pipelines.pipeline import Pipeline


@click.command()
@file_argument
@click.option("--write-schema", is_flag=True, help="Write the columns that were inferred from JSON records to FILE.")
@output_option
def check(file: Path, write_schema: bool, output: str) -> None:
    """Show what a run of the pipeline of FILE would read and write, and the first records; change nothing.

    Fails with the first reason for which a run would fail.
    """
    from gnomon.spark.pipelines.settings.template import with_schema

    with opened(file) as pipeline:
        from gnomon.spark.pipelines.files.file_pipeline import FilePipeline

        if isinstance(pipeline, FilePipeline):
            if write_schema:
                raise click.UsageError("--write-schema is for topics: a pipeline of files has its schema.")
            _check_files(pipeline, output)
            return
        found = pipeline.check()
        show_record(_checked(pipeline, found), output)
        if found.inferred is not None and write_schema:
            written = with_schema(file.read_text(encoding="utf-8"), found.inferred)
            file.write_text(written, encoding="utf-8")
            note(f"format.schema is written to {file}")
        if found.problem is not None:
            raise Failure(found.problem)


def _check_files(pipeline: FilePipeline, output: str) -> None:
    found = pipeline.check()
    show_record(checked(pipeline, found), output)
    if found.problem is not None:
        raise Failure(found.problem)


def _checked(pipeline: Pipeline, found: PipelineCheck) -> dict[str, Any]:
    target, sizes = pipeline.settings.target, found.sizes
    record: dict[str, Any] = {
        "pipeline": pipeline.settings.name,
        "records_to_read": found.status.lag,
        "bytes_to_read": None if sizes is None else sum(each.bytes for each in sizes.values()),
        "target": f"{target.kind} {target.path or target.table}",
        "table_exists": found.table is not None,
        "partitions": [_partition(each, sizes) for each in found.status.backlog],
        "columns": [
            {"column": field.name, "type": str(field.type), "in_table": _type_in(found.table, field.name)}
            for field in found.rows
        ],
        "first_records": [
            {"record": each.place, "row": _plain(each.row or ""), "error": each.reason or ""} for each in found.records
        ],
    }
    if found.inferred is not None:
        record["inferred_schema"] = found.inferred
    return record


def _partition(backlog: PartitionBacklog, sizes: dict[TopicPartition, PlannedSize] | None) -> dict[str, Any]:
    size = None if sizes is None else sizes.get(backlog.place)
    return {
        **backlog._asdict(),
        "records": backlog.records,
        "bytes": None if size is None else size.bytes,
        "read_from": None if size is None else "bookies" if size.from_bookies else "brokers",
        "holds": None if size is None else size.holds,
    }


def _plain(value: Any) -> Any:
    """A value of a row for JSON and YAML: times and decimals as texts, bytes in base64."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, Decimal) else value


def _type_in(table: pa.Schema | None, column: str) -> str:
    """The type of a column of the table, empty if the table does not have it."""
    return "" if table is None or column not in table.names else str(table.field(column).type)
