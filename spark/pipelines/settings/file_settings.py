"""The settings of a pipeline from files to a topic, as its file has them. Pure.

1. An unknown key is an error, with the nearest known one. So is a value of another type, or one out of its bounds.
2. Files and topics are not both read: the keys of a source of topics are errors beside `files`, and so are sections and
   values that only pipelines into tables have.
3. Settings that only some formats know are errors for the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gnomon.spark.pipelines.settings.section import BadPipeline, Section
from gnomon.spark.pipelines.settings.settings import TriggerSettings, parse_name, parse_trigger

FILES_PER_BATCH: Final = 100
FILES_PER_BATCH_MAX: Final = 10_000
_SECTIONS: Final = {
    "source": ("files", "order", "files_per_batch"),
    "format": ("kind", "schema", "schema_file", "header", "delimiter"),
    "target": ("kind", "bootstrap", "topic", "key", "value", "partition"),
    "errors": ("on_error",),
    "trigger": ("every", "available_now"),
}
"""The keys of each section."""
_OF_TOPICS: Final = ("bootstrap", "topic", "topics", "pattern", "start", "options")
"""Keys of a source of topics."""
_FORMATS: Final = ("json", "csv", "parquet", "avro", "text")
_WITH_SCHEMA: Final = ("json", "csv")
_INTERVAL: Final = re.compile(r"([1-9]\d*) *(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PAUSE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class FileSourceSettings:
    """The files that a pipeline reads."""

    pattern: str
    """A path with the wildcards of a shell; a relative one begins at the folder of the pipeline's file."""
    by_time: bool
    """Whether files are read in the order of their times, not of their names."""
    files_per_batch: int


@dataclass(frozen=True, slots=True)
class FileFormatSettings:
    """The format of the files."""

    kind: str
    """`json` and `text` have one row in each line."""
    schema: str | None
    """The columns in Spark's DDL, for JSON and CSV; Avro's JSON once its file is read."""
    schema_file: str | None
    """A file with Avro's JSON."""
    has_header: bool
    """Whether the first line of a CSV file has the names of the columns."""
    delimiter: str


@dataclass(frozen=True, slots=True)
class TopicTargetSettings:
    """The topic that a pipeline writes. The expressions are Spark's SQL over the columns of a row."""

    bootstrap_servers: str
    topic: str
    key: str | None
    value: str
    partition: str | None


@dataclass(frozen=True, slots=True)
class FilePipelineSettings:
    """One pipeline from files to a topic."""

    name: str
    """The name of the writer of the topic."""
    checkpoint: str
    """A folder."""
    source: FileSourceSettings
    format: FileFormatSettings
    target: TopicTargetSettings
    trigger: TriggerSettings
    spark: Mapping[str, str]
    """Spark's own settings."""

    @property
    def pause_seconds(self) -> float:
        """The time until the files are looked for again, once none is left."""
        return _PAUSE_SECONDS if self.trigger.every is None else _interval_seconds(self.trigger.every)


def is_of_files(given: Mapping[str, Any]) -> bool:
    """Whether the content of a pipeline's file is that of a pipeline from files."""
    source = given.get("source")
    return isinstance(source, dict) and "files" in source


def parse_file_settings(given: Mapping[str, Any]) -> FilePipelineSettings:
    """The settings that a file has.

    Args:
        given: the content of the file, as `tomllib` reads it.

    Raises:
        BadPipeline: one of them cannot be used.
    """
    _check_mixed(given)
    file = Section("", given, ("name", "checkpoint", "spark", *_SECTIONS))
    name = parse_name(file)
    file.section("errors", _SECTIONS["errors"])  # its value is checked above
    form = _format(file.section("format", _SECTIONS["format"]))
    trigger = parse_trigger(file.section("trigger", _SECTIONS["trigger"]))
    if trigger.every is not None:
        _interval_seconds(trigger.every)
    return FilePipelineSettings(
        name,
        file.text("checkpoint") or f"{name}.checkpoint",
        _source(file.section("source", _SECTIONS["source"])),
        form,
        _target(file.section("target", _SECTIONS["target"]), form.kind),
        trigger,
        file.texts_by_name("spark"),
    )


def _check_mixed(given: Mapping[str, Any]) -> None:
    """See invariant 2."""
    for key in _OF_TOPICS:
        if key in given["source"]:
            raise BadPipeline(f"source.{key}: not beside source.files: a pipeline reads files or topics")
    if "transform" in given:
        raise BadPipeline("transform: not for files: target.key, target.value and target.partition are expressions")
    target, errors = given.get("target"), given.get("errors")
    if isinstance(target, dict) and target.get("kind", "topic") != "topic":
        raise BadPipeline(f"target.kind = {target['kind']!r:.100}: files go into a topic: expected 'topic'")
    if isinstance(errors, dict) and errors.get("on_error", "stop") != "stop":
        raise BadPipeline(
            f"errors.on_error = {errors['on_error']!r:.100}: expected 'stop': a row that does not fit the format stops"
            " a pipeline of files"
        )


def _source(section: Section) -> FileSourceSettings:
    pattern = section.needed("files")
    if "://" in pattern:
        raise BadPipeline(f"{section.name}.files = {pattern!r:.300}: expected a path, such as 'folder/*.json'")
    count = section.number("files_per_batch", 1, FILES_PER_BATCH_MAX)
    return FileSourceSettings(pattern, section.one_of("order", ("name", "time")) == "time", count or FILES_PER_BATCH)


def _format(section: Section) -> FileFormatSettings:
    kind = section.one_of("kind", _FORMATS)
    schema, schema_file = section.text("schema"), section.text("schema_file")
    if (schema is not None) != (kind in _WITH_SCHEMA):
        raise BadPipeline(
            f'{section.name}.schema: needed for {kind!r}, such as "id BIGINT, name STRING"'
            if kind in _WITH_SCHEMA
            else f"{section.name}.schema: {kind!r} has none"
        )
    if (schema_file is not None) != (kind == "avro"):
        raise BadPipeline(f"{section.name}.schema_file: for 'avro', and needed for it: the schema that is read")
    for key in ("header", "delimiter"):
        if section.given(key) is not None and kind != "csv":
            raise BadPipeline(f"{section.name}.{key}: for 'csv', not for {kind!r}")
    delimiter = section.text("delimiter") or ","
    if len(delimiter) != 1:
        raise BadPipeline(f"{section.name}.delimiter = {delimiter!r:.100}: expected one character")
    return FileFormatSettings(kind, schema, schema_file, section.flag("header"), delimiter)


def _target(section: Section, kind: str) -> TopicTargetSettings:
    section.one_of("kind", ("topic",))
    whole = "value" if kind == "text" else "to_json(struct(*))"
    return TopicTargetSettings(
        section.needed("bootstrap"),
        section.needed("topic"),
        section.text("key"),
        section.text("value") or whole,
        section.text("partition"),
    )


def _interval_seconds(text: str) -> float:
    found = _INTERVAL.fullmatch(text.strip())
    if found is None:
        raise BadPipeline(f"trigger.every = {text!r:.100}: expected a number and a unit, such as '10s' or '5 minutes'")
    unit = found[2]
    return int(found[1]) * _SECONDS["ms" if unit.startswith(("ms", "milli")) else unit[0]]
