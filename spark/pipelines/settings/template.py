"""The text of a pipeline's file: a new one with comments, and one with another schema. Pure."""

from __future__ import annotations

import json
import re
from typing import Final

from gnomon.spark.pipelines.settings.section import BadPipeline

_HEAD: Final = """\
# A pipeline of gnomon: a table that follows a topic. `gnomon pipeline check FILE` shows what a run would do.
# docs/pipelines.md explains all settings.

name = "orders"                 # identifies the pipeline in its table: two pipelines have two names
# checkpoint = "orders.checkpoint"

[source]
bootstrap = "127.0.0.1:9092"
topic = "orders"                # or: topics = ["a", "b"], or: pattern = "orders-.*"
start = "earliest"              # or "latest", a time such as 2026-01-31T12:00:00Z, or {orders = {0 = 17}}
# options = {maxOffsetsPerTrigger = 1000000}

[format]
kind = "json"                   # json, csv, avro, text or raw
schema = "id BIGINT, name STRING, at TIMESTAMP"
# key = "text"                  # adds the column _key: text or raw

# [transform]
# sql = "SELECT id, upper(name) AS name, _partition, _offset FROM records"

"""
_TARGETS: Final = {
    "delta": """\
[target]
kind = "delta"
path = "orders-table"
# mode = "upsert"               # a row replaces the row of its key; a null value deletes it
# partition_by = ["_date"]      # _date is the day of the record's timestamp, in UTC
# evolve = "add"                # columns that the table lacks are added

""",
    "iceberg": """\
[target]
kind = "iceberg"
table = "default.orders"
# mode = "upsert"               # a row replaces the row of its key; a null value deletes it
# partition_by = ["_date"]      # _date is the day of the record's timestamp, in UTC
# evolve = "add"                # columns that the table lacks are added

[target.catalog]                # the properties of a catalog, as for pyiceberg
type = "sql"
uri = "sqlite:///catalog.db"
warehouse = "warehouse"

""",
    "parquet": """\
[target]
kind = "parquet"
path = "orders-table"
# partition_by = ["_date"]      # folders by day of the record's timestamp, in UTC

""",
}
_TAIL: Final = """\
[errors]
on_error = "stop"               # or skip, or dead_letter with a topic or a folder:
# dead_letter_topic = "orders-dead"
# dead_letter_path = "orders-dead"
# max_errors = 100              # of one run

[trigger]
available_now = true            # ends at the present end of the topic; without it the pipeline follows the topic
# every = "10s"

[spark]
# "spark.master" = "local[2]"
"""
KINDS: Final = tuple(_TARGETS)
_FORMAT: Final = re.compile(r"^[ \t]*\[format\][ \t]*(?:#.*)?\n", re.MULTILINE)


def template(kind: str) -> str:
    """The file for a target of this kind."""
    return _HEAD + _TARGETS[kind] + _TAIL


def with_schema(text: str, schema: str) -> str:
    """The text of a file whose section `format` has no schema, with one.

    Raises:
        BadPipeline: the section does not begin with a line of its own.
    """
    line = f"schema = {json.dumps(schema, ensure_ascii=False)}\n"
    written, count = _FORMAT.subn(lambda found: found[0] + line, text, 1)
    if not count:
        raise BadPipeline(f"the file has no line [format], so this line is to be added to the section by hand: {line}")
    return written
