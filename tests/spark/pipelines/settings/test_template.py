"""The text of a pipeline's file (`spark.pipelines.settings.template`)."""

from __future__ import annotations

import tomllib

import pytest

from gnomon.spark.pipelines.settings.section import BadPipeline
from gnomon.spark.pipelines.settings.settings import parse_settings
from gnomon.spark.pipelines.settings.template import KINDS, template, with_schema


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_file_has_settings_of_its_kind(kind: str) -> None:
    assert parse_settings(tomllib.loads(template(kind))).target.kind == kind


def test_a_schema_is_written_into_the_section_of_the_format() -> None:
    text = template("delta").replace('schema = "id BIGINT, name STRING, at TIMESTAMP"\n', "")
    schema = 'a "quoted" `name` BIGINT, ü STRING'
    assert "schema" not in tomllib.loads(text)["format"]
    written = tomllib.loads(with_schema(text, schema))
    assert written["format"] == {"schema": schema, "kind": "json"}
    assert {**written, "format": None} == {**tomllib.loads(text), "format": None}


@pytest.mark.parametrize("text", ["", 'format = {kind = "json"}', 'x = "[format]"'])
def test_a_file_without_a_line_for_the_format_is_left_alone(text: str) -> None:
    with pytest.raises(BadPipeline, match=r"schema = "):
        with_schema(text, "a BIGINT")
