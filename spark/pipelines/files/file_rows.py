"""The rows of files as rows of the sink, in Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from gnomon.spark.formats.avro_schema import AvroSchema, avro_columns
from gnomon.spark.pipelines.files.avro_files import AvroReader
from gnomon.spark.pipelines.files.part_writer import FILE_COLUMN, START_COLUMN
from gnomon.spark.pipelines.files.read_failure import first_line, read_failure
from gnomon.spark.pipelines.session import SPARK_ERRORS
from gnomon.spark.pipelines.settings.file_settings import FileFormatSettings, TopicTargetSettings
from gnomon.spark.pipelines.settings.section import BadPipeline
from gnomon.spark.writing.row_encoder import UnknownColumn, check_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_READING: Final = {
    "mode": "FAILFAST",  # a row that does not fit is an error, not a row of nulls
    "recursiveFileLookup": "true",  # folders such as day=1 are no columns
    "__globPaths__": "false",  # names are no patterns
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "mergeSchema": "true",  # Parquet files with more columns than others keep them
}
_CSV: Final = {
    "enforceSchema": "false",  # the names of a header have to be those of the schema
    "multiLine": "true",  # a quoted field may have several lines
}


class FileRow(NamedTuple):
    """A row as the pipeline writes it, with texts in place of bytes."""

    key: str | None
    value: str | None
    partition: int | None


def sink_rows(
    session: SparkSession, form: FileFormatSettings, target: TopicTargetSettings, paths: Sequence[Path]
) -> DataFrame:
    """The rows of files as `PartWriter` takes them.

    Raises:
        BadPipeline: an expression cannot be used.
        PySparkException, Py4JJavaError: the files cannot be read.
    """
    rows = _rows(session, form, paths)
    columns = {"key": target.key, "value": target.value, "partition": target.partition}
    given = [_column(rows, name, text) for name, text in columns.items() if text is not None]
    _check(rows.select(*given))
    if form.kind == "avro":
        return rows.select(*given)
    file = rows.metadataColumn("_metadata")  # not a column of the rows with this name
    places = file.getField("file_path").alias(FILE_COLUMN), file.getField("file_block_start").alias(START_COLUMN)
    return rows.select(*given, *places)


def first_rows(
    session: SparkSession, form: FileFormatSettings, target: TopicTargetSettings, path: Path, most: int
) -> tuple[list[FileRow], str | None]:
    """The first rows of a file, and the reason why it cannot be read.

    Raises:
        BadPipeline: as `sink_rows`.
    """
    try:
        found = sink_rows(session, form, target, [path]).limit(most).collect()
    except SPARK_ERRORS as error:
        return [], str(read_failure(error))
    rows = [row.asDict() for row in found]
    return [FileRow(_text(row.get("key")), _text(row["value"]), row.get("partition")) for row in rows], None


def path_of(uri: str) -> Path:
    """The path of a file that Spark names."""
    return Path(unquote(urlsplit(uri).path))


def _rows(session: SparkSession, form: FileFormatSettings, paths: Sequence[Path]) -> DataFrame:
    if form.kind == "avro":
        assert form.schema is not None, "the schema is read from its file"
        columns = from_arrow_schema(avro_columns(AvroSchema(form.schema)))
        numbers = session.range(0, len(paths), 1, len(paths))
        return numbers.mapInArrow(AvroReader(tuple(map(str, paths)), form.schema), columns)
    reading = session.read.format(form.kind).options(**_READING)
    if form.kind == "csv":
        reading = reading.options(sep=form.delimiter, header=form.has_header, **_CSV)
    if form.schema is not None:
        try:
            reading = reading.schema(form.schema)
        except SPARK_ERRORS as error:
            raise BadPipeline(f"format.schema: {first_line(error)}") from error
    return reading.load([f"file://{path}" for path in paths])


def _column(rows: DataFrame, name: str, text: str) -> Column:
    try:
        column = F.expr(text)
        column = column.cast("int") if name == "partition" else column
        rows.select(column)
    except SPARK_ERRORS as error:
        raise BadPipeline(f"target.{name} = {text!r:.200}: {first_line(error)}") from error
    return column.alias(name)


def _check(rows: DataFrame) -> None:
    try:
        check_columns({field.name: field.dataType.simpleString() for field in rows.schema.fields}, "")
    except UnknownColumn as error:
        raise BadPipeline(f"target: {error}") from error


def _text(value: bytes | str | None) -> str | None:
    return value if value is None or isinstance(value, str) else bytes(value).decode(errors="replace")
