"""The text of a pipeline's file (`spark.pipelines.settings.template`)."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from gnomon.spark.pipelines.settings.section import BadPipeline
from gnomon.spark.pipelines.settings.settings import PipelineSettings, parse_settings
from gnomon.spark.pipelines.settings.template import KINDS, template, with_schema

COMMENTED = re.compile(r'^# (?=["\w.]+ = |\[)', re.M)
"""The begin of a line that is a setting once the mark of its comment is taken away."""
KEYS = {
    "checkpoint",
    "options",
    "key",
    "sql",
    "mode",
    "partition_by",
    "evolve",
    "dead_letter_topic",
    "dead_letter_path",
    "max_errors",
    "every",
    '"spark.master"',
}


def parsed(text: str) -> PipelineSettings:
    return parse_settings(tomllib.loads(text))


def commented(text: str) -> list[str]:
    """The keys of the settings in comments."""
    return [line[2:].split(" = ")[0] for line in text.splitlines() if COMMENTED.match(line) and "[" not in line[:3]]


def with_setting(text: str, key: str) -> str:
    """The file with one more setting, and the others that it needs."""
    needed = {
        "sql": ["# [transform]"],
        "mode": ["# key ="],
        "dead_letter_topic": ["on_error"],
        "dead_letter_path": ["on_error"],
    }
    for line in [*needed.get(key, []), f"# {key} ="]:
        text = re.sub(rf"^{re.escape(line)}", line.removeprefix("# "), text, count=1, flags=re.M)
    if key.startswith("dead_letter"):
        text = text.replace('on_error = "stop"', 'on_error = "dead_letter"')
    return text.replace("available_now = true", "# available_now") if key == "every" else text


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_file_is_a_pipeline_as_it_is(kind: str) -> None:
    found = parsed(template(kind))
    assert (found.target.kind, found.name, found.trigger.available_now) == (kind, "orders", True)
    assert found.source.starting == {"startingOffsets": "earliest"}


@pytest.mark.parametrize("kind", KINDS)
def test_each_setting_in_a_comment_can_be_taken_out_of_it(kind: str) -> None:
    keys = commented(template(kind))
    for key in keys:
        changed = with_setting(template(kind), key)
        assert parsed(changed) != parsed(template(kind)) or key == "checkpoint", key
    assert set(keys) == KEYS - ({"mode", "evolve"} if kind == "parquet" else set())


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_names_every_section_of_the_settings(kind: str) -> None:
    sections: dict[str, Any] = tomllib.loads(template(kind).replace("# [transform]", "[transform]"))
    assert {"source", "format", "transform", "target", "errors", "trigger", "spark"} < set(sections)


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
