"""The settings of a pipeline, as its file has them. Pure.

1. An unknown key is an error, with the nearest known one. So is a value of another type, or one out of its bounds.
2. Keys that replace each other are not both given: `topic`, `topics` and `pattern`; `sql` and `function`; `every` and
   `available_now`.
3. Settings that only some formats or targets know are errors for the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from gnomon.spark.pipelines.settings.section import BadPipeline, Section
from gnomon.spark.writing.sink_options import WRITER_CHARACTERS_MAX

_NAME: Final = re.compile(rf"[a-zA-Z0-9._-]{{1,{WRITER_CHARACTERS_MAX}}}")
_FORMATS: Final = ("json", "csv", "avro", "text", "raw")
_SECTIONS: Final = {
    "source": ("bootstrap", "topic", "topics", "pattern", "start", "end", "options"),
    "format": ("kind", "schema", "schema_file", "registry", "delimiter", "key"),
    "transform": ("sql", "function", "watermark"),
    "target": (
        "kind",
        "path",
        "table",
        "catalog",
        "mode",
        "partition_by",
        "evolve",
        "file_bytes",
        "place_columns",
    ),
    "errors": ("on_error", "dead_letter_topic", "dead_letter_path", "max_errors"),
    "trigger": ("every", "available_now"),
}
"""The keys of each section."""
_SET_BY_KEYS: Final = ("kafka.bootstrap.servers", "subscribe", "assign", "starting", "ending")
"""The options of the source that have keys of their own begin with these."""
_WITH_SCHEMA: Final = ("json", "csv")
FILE_BYTES_MAX: Final = 128 << 20
PLACE_COLUMNS: Final = ("_topic", "_partition", "_offset", "_timestamp")
"""The names of a record's place, unless the file has other ones."""


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The topics that a pipeline follows."""

    options: Mapping[str, str]
    """The options of the format `gnomon`."""
    starting: Mapping[str, str]
    """The options that say where a new pipeline starts."""
    ending: Mapping[str, str] = field(default_factory=dict)
    """The options that say where it ends; none for the end of its topics."""
    of_letters: bool = False
    """Whether the topics have dead letters of this pipeline, which are replayed."""


@dataclass(frozen=True, slots=True)
class FormatSettings:
    """The format of the records' values."""

    kind: str
    schema: str | None
    """The columns in Spark's DDL, or Avro's JSON once the file is read; None for JSON of unknown columns."""
    schema_file: str | None
    """A file with Avro's JSON."""
    registry: str | None
    """The URL of a schema registry; values then begin with the id of their schema."""
    delimiter: str
    key: str
    """`none`, or the form of the column `_key`: `text` or `raw`."""


@dataclass(frozen=True, slots=True)
class TransformSettings:
    """A query over the view `records`, or a function of a data frame; neither leaves the rows as they are."""

    sql: str | None
    function: str | None
    """`module:function`."""
    watermark: tuple[tuple[str, str], ...] = ()
    """Columns of `records`, each with the time for which its windows wait for late records."""


AS_IS: Final = TransformSettings(None, None)


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """The table that a pipeline writes."""

    kind: str
    """`delta`, `iceberg` or `parquet`."""
    path: str
    """The folder of the table; empty for `iceberg`."""
    table: str
    """The identifier of an Iceberg table."""
    catalog: Mapping[str, str]
    """The properties of its catalog."""
    upserts: bool
    """Whether a row replaces the row of its key."""
    partition_by: tuple[str, ...]
    adds_columns: bool
    """Whether columns that the table lacks are added to it."""
    file_bytes_max: int
    place_columns: tuple[str, ...]
    """The names of topic, partition, offset and timestamp of a record."""


@dataclass(frozen=True, slots=True)
class ErrorSettings:
    """The treatment of records that the format does not fit."""

    on_error: str
    """`stop`, `skip` or `dead_letter`."""
    dead_letter_topic: str | None
    dead_letter_path: str | None
    """A folder for a Delta table if the target is one, else for Parquet files."""
    errors_max: int | None
    """The most errors of one run that do not stop the pipeline."""


@dataclass(frozen=True, slots=True)
class TriggerSettings:
    """The times of batches."""

    every: str | None
    """An interval, as Spark has them; None for batches without a pause."""
    available_now: bool
    """Whether the pipeline ends at the present end of its topics."""


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """One pipeline."""

    name: str
    """Identifies the pipeline in its table."""
    checkpoint: str
    """A folder."""
    source: SourceSettings
    format: FormatSettings
    transform: TransformSettings
    target: TargetSettings
    errors: ErrorSettings
    trigger: TriggerSettings
    spark: Mapping[str, str]
    """Spark's own settings; `spark.master` among them."""

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of brokers."""
        return self.source.options["kafka.bootstrap.servers"]


def parse_settings(given: Mapping[str, Any]) -> PipelineSettings:
    """The settings that a file has.

    Args:
        given: the content of the file, as `tomllib` reads it.

    Raises:
        BadPipeline: one of them cannot be used.
    """
    source, into = given.get("source"), given.get("target")
    if isinstance(source, dict) and "files" in source:
        raise BadPipeline("source.files: a pipeline of files is a FilePipeline, not a Pipeline")
    if isinstance(into, dict) and into.get("kind") == "topic":
        raise BadPipeline("target.kind = 'topic': a topic is the target of files: give source.files")
    file = Section("", given, ("name", "checkpoint", "spark", *_SECTIONS))
    name = parse_name(file)
    form, target = (
        _format(file.section("format", _SECTIONS["format"])),
        _target(file.section("target", _SECTIONS["target"])),
    )
    found = PipelineSettings(
        name,
        file.text("checkpoint") or f"{name}.checkpoint",
        _source(file.section("source", _SECTIONS["source"])),
        form,
        _transform(file.section("transform", _SECTIONS["transform"])),
        target,
        _errors(file.section("errors", _SECTIONS["errors"])),
        parse_trigger(file.section("trigger", _SECTIONS["trigger"])),
        file.texts_by_name("spark"),
    )
    if found.source.ending and not found.trigger.available_now:
        raise BadPipeline(
            "source.end: a run that does not end with the present records has none: give trigger.available_now = true"
        )
    if target.upserts and form.key == "none":
        raise BadPipeline('target.mode = \'upsert\': a row replaces that of its key: give format.key = "text" or "raw"')
    return found


def _source(section: Section) -> SourceSettings:
    topics = {key: section.given(key) for key in ("topic", "topics", "pattern") if section.given(key) is not None}
    if len(topics) != 1:
        raise BadPipeline(
            f"{section.name}: give one of topic, topics and pattern, not {' and '.join(topics) or 'none'}"
        )
    options = section.texts_by_name("options")
    for name in options:
        if name.lower().startswith(_SET_BY_KEYS):
            raise BadPipeline(f"{section.name}.options.{name}: set by bootstrap, topic, topics, pattern, start and end")
    options["kafka.bootstrap.servers"] = section.needed("bootstrap")
    if "pattern" in topics:
        options["subscribePattern"] = section.needed("pattern")
    else:
        names = [section.needed("topic")] if "topic" in topics else section.texts("topics")
        options["subscribe"] = ",".join(names)
    return SourceSettings(options, _start(section), _end(section))


def _start(section: Section) -> dict[str, str]:
    start = section.given("start")
    if start is None:
        return {"startingOffsets": "earliest"}
    if start in ("earliest", "latest"):
        return {"startingOffsets": str(start)}
    found = _bound(section, "start", '"earliest", "latest", ')
    return {**found, "startingOffsetsByTimestampStrategy": "latest"} if "startingTimestamp" in found else found


def _end(section: Section) -> dict[str, str]:
    return {} if section.given("end") is None else _bound(section, "end")


def _bound(section: Section, key: str, words: str = "") -> dict[str, str]:
    """The options of a time or of offsets."""
    given = section.given(key)
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise BadPipeline(f"{section.name}.{key} = {given}: give the time's offset from UTC, such as {given}Z")
        return {f"{key}ingTimestamp": str(int(given.timestamp() * 1000))}
    if isinstance(given, dict):
        return {f"{key}ingOffsets": json.dumps(given)}
    raise BadPipeline(
        f"{section.name}.{key} = {given!r:.100}: expected {words}a time such as 2026-01-31T12:00:00Z,"
        " or offsets such as {orders = {0 = 17}}"
    )


def _format(section: Section) -> FormatSettings:
    kind = section.one_of("kind", _FORMATS)
    found = FormatSettings(
        kind,
        section.text("schema"),
        section.text("schema_file"),
        section.text("registry"),
        section.text("delimiter") or ",",
        section.one_of("key", ("none", "text", "raw")),
    )
    if found.schema is None and kind == "csv":
        raise BadPipeline(f'{section.name}.schema: needed for {kind!r}, such as "id BIGINT, name STRING"')
    if found.schema is not None and kind not in _WITH_SCHEMA:
        raise BadPipeline(f"{section.name}.schema: {kind!r} has none")
    if (found.schema_file is not None or found.registry is not None) and kind != "avro":
        raise BadPipeline(f"{section.name}.schema_file and .registry are for 'avro', not for {kind!r}")
    if kind == "avro" and found.schema_file is None:
        raise BadPipeline(f"{section.name}.schema_file: needed for 'avro': a file with the schema of the values")
    if len(found.delimiter) != 1:
        raise BadPipeline(f"{section.name}.delimiter = {found.delimiter!r:.100}: expected one character")
    return found


def _transform(section: Section) -> TransformSettings:
    watermark = tuple(section.texts_by_name("watermark").items())
    found = TransformSettings(section.text("sql"), section.text("function"), watermark)
    if found.sql is not None and found.function is not None:
        raise BadPipeline(f"{section.name}: give one of sql and function")
    if watermark and found.sql is None:
        raise BadPipeline(f"{section.name}.watermark: for sql; a function calls withWatermark itself")
    if found.function is not None and not re.fullmatch(r"[\w.]+:\w+", found.function):
        raise BadPipeline(f'{section.name}.function = {found.function!r:.100}: expected "module:function"')
    return found


def _target(section: Section) -> TargetSettings:
    kind = section.one_of("kind", ("delta", "iceberg", "parquet"))
    names = section.texts_by_name("place_columns")
    unknown = sorted(set(names) - {name.removeprefix("_") for name in PLACE_COLUMNS})
    if unknown:
        raise BadPipeline(
            f"{section.name}.place_columns.{unknown[0]}: there are topic, partition, offset and timestamp"
        )
    is_iceberg = kind == "iceberg"
    found = TargetSettings(
        kind,
        section.needed("path") if not is_iceberg else "",
        section.needed("table") if is_iceberg else "",
        section.texts_by_name("catalog"),
        section.one_of("mode", ("append", "upsert")) == "upsert",
        tuple(section.texts("partition_by")),
        section.one_of("evolve", ("fail", "add")) == "add",
        section.number("file_bytes", 1, FILE_BYTES_MAX) or FILE_BYTES_MAX,
        tuple(names.get(name.removeprefix("_"), name) for name in PLACE_COLUMNS),
    )
    if is_iceberg != bool(found.catalog):
        raise BadPipeline(f"{section.name}.catalog: the properties of the catalog are for 'iceberg', and needed for it")
    if found.upserts and kind == "parquet":
        raise BadPipeline(
            f"{section.name}.mode = 'upsert': a folder of Parquet files only grows: take delta or iceberg"
        )
    return found


def _errors(section: Section) -> ErrorSettings:
    found = ErrorSettings(
        section.one_of("on_error", ("stop", "skip", "dead_letter")),
        section.text("dead_letter_topic"),
        section.text("dead_letter_path"),
        section.number("max_errors", 0),
    )
    places = [place for place in (found.dead_letter_topic, found.dead_letter_path) if place is not None]
    if len(places) != (found.on_error == "dead_letter"):
        raise BadPipeline(
            f"{section.name}: on_error = 'dead_letter' needs one of dead_letter_topic and dead_letter_path, the others"
            " need none"
        )
    return found


def parse_name(file: Section) -> str:
    """The name of a pipeline.

    Raises:
        BadPipeline: it cannot be that of a writer.
    """
    name = file.needed("name")
    if not _NAME.fullmatch(name):
        raise BadPipeline(
            f"name = {name!r:.250}: expected 1 to {WRITER_CHARACTERS_MAX} characters from letters, digits, '.', '_'"
            " and '-'"
        )
    return name


def parse_trigger(section: Section) -> TriggerSettings:
    """The section `trigger`; raises BadPipeline."""
    found = TriggerSettings(section.text("every"), section.flag("available_now"))
    if found.available_now and found.every is not None:
        raise BadPipeline(f"{section.name}: give one of every and available_now")
    return found
