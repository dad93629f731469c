"""A pipeline and the files that describe it (`spark.pipelines.pipeline`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnomon.spark.pipelines.pipeline import Pipeline
from gnomon.spark.pipelines.settings.section import BadPipeline
from gnomon.spark.pipelines.tasks.task_writer import decoding_of

FILE = """
name = "orders"
[source]
bootstrap = "127.0.0.1:9092"
topic = "orders"
[format]
kind = "avro"
schema_file = "schemas/order.avsc"
[target]
kind = "parquet"
path = "table"
"""
AVRO = {"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}, {"name": "at", "type": "string"}]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a pipeline whose records have the schema of another file."""
    (tmp_path / "orders.toml").write_text(FILE)
    return tmp_path / "orders.toml"


def test_the_schema_of_avro_is_read_from_its_file_beside_that_of_the_pipeline(file: Path) -> None:
    (file.parent / "schemas").mkdir()
    (file.parent / "schemas" / "order.avsc").write_text(json.dumps(AVRO))
    assert decoding_of(Pipeline.load(file).settings).made().schema.names[:2] == ["id", "at"]


def test_a_schema_file_that_cannot_be_read_is_an_error_that_names_it(file: Path) -> None:
    with pytest.raises(BadPipeline, match=r"format.schema_file: .*schemas/order.avsc cannot be read"):
        Pipeline.load(file)
