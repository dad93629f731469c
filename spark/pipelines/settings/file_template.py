"""The file of a new pipeline from files to a topic, with comments. Pure."""

from __future__ import annotations

from typing import Final

FILE_TEMPLATE: Final = """\
# A pipeline of gnomon: files that go into a topic, each once. `gnomon pipeline check FILE` shows what a run would do.
# docs/pipelines.md explains all settings.

name = "orders"                 # the name of the topic's writer: two pipelines have two names
# checkpoint = "orders.checkpoint"

[source]
files = "orders/*.json"         # files have to be whole when they get their names
order = "name"                  # or "time": that of the last change
# files_per_batch = 100

[format]
kind = "json"                   # json, csv, parquet, avro or text
schema = "id BIGINT, name STRING, at TIMESTAMP"
# header = true                 # of csv: the first line names the columns

[target]
kind = "topic"
bootstrap = "127.0.0.1:9092"
topic = "orders"
key = "CAST(id AS STRING)"      # expressions of Spark's SQL; without a key, remove the line
# value = "to_json(struct(*))"
# partition = "id % 2"

[trigger]
available_now = true            # ends when no file is left; without it the pipeline looks for new files
# every = "10s"

[spark]
# "spark.master" = "local[2]"
"""
