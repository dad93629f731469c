"""The settings of a pipeline from files to a topic (`spark.pipelines.settings.file_settings`)."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from gnomon.spark.pipelines.settings.file_settings import (
    FilePipelineSettings,
    TopicTargetSettings,
    is_of_files,
    parse_file_settings,
)
from gnomon.spark.pipelines.settings.file_template import FILE_TEMPLATE
from gnomon.spark.pipelines.settings.section import BadPipeline
from gnomon.spark.pipelines.settings.settings import parse_settings

LEAST = """
name = "orders"
[source]
files = "in/*.json"
[format]
kind = "json"
schema = "id BIGINT"
[target]
kind = "topic"
bootstrap = "127.0.0.1:9092"
topic = "orders"
"""


def parsed(**changed: Any) -> FilePipelineSettings:
    """The settings of the least file, with sections changed: `format={"kind": "text"}`; None takes a key away."""
    given = tomllib.loads(LEAST)
    for section, values in changed.items():
        if not isinstance(values, dict):
            given[section] = values
            continue
        known = given.setdefault(section, {})
        for key, value in values.items():
            known.pop(key, None)
            if value is not None:
                known[key] = value
    return parse_file_settings(given)


def test_a_name_files_a_format_and_a_topic_are_enough() -> None:
    found = parsed()
    assert found.checkpoint == "orders.checkpoint"
    assert (found.source.pattern, found.source.by_time, found.source.files_per_batch) == ("in/*.json", False, 100)
    assert found.target == TopicTargetSettings("127.0.0.1:9092", "orders", None, "to_json(struct(*))", None)
    assert (found.trigger.available_now, found.pause_seconds) == (False, 1.0)


def test_the_value_of_a_line_of_text_is_the_line() -> None:
    assert parsed(format={"kind": "text", "schema": None}).target.value == "value"


def test_a_pipeline_of_files_has_the_key_files() -> None:
    assert is_of_files(tomllib.loads(LEAST))
    assert not is_of_files({"source": {"topic": "orders"}})
    assert not is_of_files({"source": "files"})


def test_the_template_is_a_pipeline_of_files() -> None:
    found = parse_file_settings(tomllib.loads(FILE_TEMPLATE))
    assert (found.target.key, found.trigger.available_now) == ("CAST(id AS STRING)", True)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"nam": "x"}, "nam: no such setting; is it name?"),
        ({"source": {"ordr": "x"}}, "source.ordr: no such setting; is it order?"),
        ({"target": {"path": "x"}}, "target.path: no such setting"),
        ({"format": {"key": "text"}}, "format.key: no such setting"),
        ({"errors": {"max_errors": 1}}, "errors.max_errors: no such setting"),
        ({"name": "a/b"}, "name = 'a/b': expected 1 to 200 characters"),
        ({"source": {"order": "size"}}, "source.order = 'size': expected 'name' or 'time'"),
        ({"source": {"files": "s3://b/*.json"}}, "source.files = 's3://b/*.json': expected a path"),
        ({"source": {"files_per_batch": 0}}, "source.files_per_batch = 0: expected a whole number from 1 to 10000"),
        ({"format": {"kind": "raw"}}, "format.kind = 'raw': expected 'json' or"),
        ({"format": {"kind": "csv", "delimiter": ";;"}}, "format.delimiter = ';;': expected one character"),
        ({"target": {"topic": None}}, "target.topic: not given"),
        ({"target": {"bootstrap": None}}, "target.bootstrap: not given"),
        ({"target": {"key": 7}}, "target.key = 7: expected a text"),
        ({"trigger": {"every": "soon"}}, "trigger.every = 'soon': expected a number and a unit"),
        ({"trigger": {"every": "0s"}}, "trigger.every = '0s'"),
        ({"trigger": {"every": "1s", "available_now": True}}, "give one of every and available_now"),
    ],
)
def test_an_unknown_key_or_an_unfit_value_is_an_error_that_names_it(changed: dict[str, Any], text: str) -> None:  # 1
    with pytest.raises(BadPipeline) as raised:
        parsed(**changed)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"source": {"topic": "x"}}, "source.topic: not beside source.files"),
        ({"source": {"start": "latest"}}, "source.start: not beside source.files"),
        ({"transform": {"sql": "x"}}, "transform: not for files"),
        ({"target": {"kind": "delta"}}, "target.kind = 'delta': files go into a topic"),
        ({"errors": {"on_error": "skip"}}, "errors.on_error = 'skip': expected 'stop'"),
    ],
)
def test_files_and_topics_are_not_both_read(changed: dict[str, Any], text: str) -> None:  # 2
    with pytest.raises(BadPipeline) as raised:
        parsed(**changed)
    assert text in str(raised.value)


def test_a_pipeline_into_a_table_has_neither_files_nor_a_topic_as_its_target() -> None:  # 2
    with pytest.raises(BadPipeline, match=r"target.kind = 'topic': a topic is the target of files"):
        parse_settings({**tomllib.loads(LEAST), "source": {"bootstrap": "x:1", "topic": "x"}})
    with pytest.raises(BadPipeline, match=r"source.files: a pipeline of files is a FilePipeline"):
        parse_settings({**tomllib.loads(LEAST), "target": {"kind": "delta", "path": "x"}})


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"schema": None}, "format.schema: needed for 'json'"),
        ({"kind": "parquet"}, "format.schema: 'parquet' has none"),
        ({"header": True}, "format.header: for 'csv', not for 'json'"),
        ({"delimiter": ";"}, "format.delimiter: for 'csv', not for 'json'"),
        ({"kind": "avro", "schema": None}, "format.schema_file: for 'avro', and needed for it"),
        ({"schema_file": "x"}, "format.schema_file: for 'avro'"),
    ],
)
def test_a_setting_of_another_format_is_an_error(changed: dict[str, Any], text: str) -> None:  # 3
    with pytest.raises(BadPipeline) as raised:
        parsed(format=changed)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("every", "seconds"),
    [("10s", 10), ("250 milliseconds", 0.25), ("5 ms", 0.005), ("2 minutes", 120), ("1h", 3600), ("3 m", 180)],
)
def test_an_interval_has_a_number_and_a_unit(every: str, seconds: float) -> None:
    assert parsed(trigger={"every": every}).pause_seconds == pytest.approx(seconds)
