"""The settings of a pipeline (`spark.pipelines.settings.settings`)."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from gnomon.spark.pipelines.settings.section import BadPipeline
from gnomon.spark.pipelines.settings.settings import PipelineSettings, parse_settings

LEAST = """
name = "flights"
[source]
bootstrap = "127.0.0.1:9092"
topic = "flights"
[format]
kind = "json"
schema = "carrier STRING"
[target]
kind = "delta"
path = "table"
"""


def parsed(text: str = "", **changed: Any) -> PipelineSettings:
    """The settings of the least file, with sections changed: `format={"kind": "text"}`; None takes a key away."""
    given = tomllib.loads(LEAST + text)
    for section, values in changed.items():
        if not isinstance(values, dict):
            given[section] = values
            continue
        known = given.setdefault(section, {})
        for key, value in values.items():
            known.pop(key, None)
            if value is not None:
                known[key] = value
    return parse_settings(given)


def test_a_name_a_topic_a_format_and_a_target_are_enough() -> None:
    found = parsed()
    assert found.checkpoint == "flights.checkpoint"
    assert found.source.options == {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "flights"}
    assert found.source.starting == {"startingOffsets": "earliest"}
    assert (found.errors.on_error, found.trigger.available_now, found.target.upserts) == ("stop", False, False)
    assert found.target.place_columns == ("_topic", "_partition", "_offset", "_timestamp")
    assert found.target.file_bytes_max == 128 << 20


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"nam": "x"}, "nam: no such setting; is it name?"),
        ({"source": {"topc": "x"}}, "source.topc: no such setting; is it topic?"),
        ({"target": {"zzz": 1}}, "target.zzz: no such setting: there are catalog, "),
        ({"errors": {"max_error": 1}}, "is it max_errors?"),
        ({"trigger": {"evry": "1s"}}, "is it every?"),
        ({"transform": {"sqll": "x"}}, "is it sql?"),
        ({"format": {"delimeter": ";"}}, "is it delimiter?"),
    ],
)
def test_an_unknown_key_is_an_error_with_the_nearest_one(changed: dict[str, Any], text: str) -> None:  # 1
    with pytest.raises(BadPipeline) as raised:
        parsed(**changed)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"name": 7}, "name = 7: expected a text"),
        ({"name": "a/b"}, "name = 'a/b': expected 1 to 200 characters"),
        ({"source": 7}, "source = 7: expected a table"),
        ({"source": {"bootstrap": None}}, "source.bootstrap: not given"),
        ({"source": {"start": "yesterday"}}, "source.start = 'yesterday': expected \"earliest\", "),
        ({"source": {"end": "latest"}}, "source.end = 'latest': expected a time"),
        ({"source": {"options": {"startingOffsets": "latest"}}}, "source.options.startingOffsets: set by bootstrap"),
        ({"source": {"options": {"SUBSCRIBE": "x"}}}, "source.options.SUBSCRIBE: set by"),
        ({"source": {"options": {"via": []}}}, "source.options.via = []: expected a text or a number"),
        ({"format": {"kind": "xml"}}, "format.kind = 'xml': expected 'json' or"),
        ({"format": {"delimiter": ";;"}}, "format.delimiter = ';;': expected one character"),
        ({"target": {"kind": "hudi"}}, "target.kind = 'hudi'"),
        ({"target": {"partition_by": "day"}}, "target.partition_by = 'day': expected a list of texts"),
        ({"target": {"partition_by": []}}, "expected a list of texts"),
        ({"target": {"file_bytes": 0}}, "target.file_bytes = 0: expected a whole number from 1"),
        ({"target": {"file_bytes": True}}, "expected a whole number"),
        ({"target": {"place_columns": {"ofset": "x"}}}, "target.place_columns.ofset: there are topic"),
        ({"errors": {"on_error": "retry"}}, "errors.on_error = 'retry'"),
        ({"errors": {"max_errors": -1}}, "errors.max_errors = -1"),
        ({"trigger": {"available_now": "yes"}}, "trigger.available_now = 'yes': expected true or false"),
        ({"transform": {"function": "f"}}, "transform.function = 'f': expected \"module:function\""),
        ({"spark": {"a": [1]}}, "spark.a = [1]"),
    ],
)
def test_a_value_of_another_type_or_out_of_bounds_is_an_error_that_names_it(
    changed: dict[str, Any], text: str
) -> None:  # 1
    with pytest.raises(BadPipeline) as raised:
        parsed(**changed)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"source": {"pattern": "a.*"}}, "give one of topic, topics and pattern, not topic and pattern"),
        ({"source": {"topic": None}}, "not none"),
        ({"transform": {"sql": "x", "function": "a:b"}}, "give one of sql and function"),
        ({"trigger": {"every": "1s", "available_now": True}}, "give one of every and available_now"),
        ({"errors": {"on_error": "dead_letter"}}, "needs one of dead_letter_topic and dead_letter_path"),
        ({"errors": {"dead_letter_topic": "x"}}, "the others need none"),
    ],
)
def test_keys_that_replace_each_other_are_not_both_given(changed: dict[str, Any], text: str) -> None:  # 2
    with pytest.raises(BadPipeline) as raised:
        parsed(**changed)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"format": {"kind": "text"}}, "format.schema: 'text' has none"),
        ({"format": {"kind": "csv", "schema": None}}, "format.schema: needed for 'csv'"),
        ({"format": {"registry": "http://x"}}, "are for 'avro', not for 'json'"),
        ({"format": {"kind": "avro", "schema": None}}, "format.schema_file: needed for 'avro'"),
        ({"target": {"kind": "iceberg", "table": "a.b", "path": None}}, "target.catalog"),
        ({"target": {"kind": "iceberg", "path": None}}, "target.table: not given"),
        ({"target": {"catalog": {"a": "b"}}}, "target.catalog"),
        ({"target": {"path": None}}, "target.path: not given"),
        ({"target": {"mode": "upsert"}}, "give format.key"),
        ({"target": {"mode": "upsert", "kind": "parquet"}, "format": {"key": "text"}}, "take delta or iceberg"),
    ],
)
def test_a_setting_of_another_format_or_target_is_an_error(changed: dict[str, Any], text: str) -> None:  # 3
    with pytest.raises(BadPipeline) as raised:
        parsed(**changed)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("topics", "options"),
    [
        ({"pattern": "fl.*s"}, {"subscribePattern": "fl.*s"}),
        ({"topics": ["flights", "delays"]}, {"subscribe": "flights,delays"}),
    ],
)
def test_a_pipeline_may_follow_several_topics_or_those_of_a_pattern(
    topics: dict[str, Any], options: dict[str, str]
) -> None:
    found = parsed(source={"topic": None, **topics})
    assert found.source.options == {"kafka.bootstrap.servers": "127.0.0.1:9092", **options}


@pytest.mark.parametrize(
    ("start", "options"),
    [
        ('"latest"', {"startingOffsets": "latest"}),
        ("{flights = {0 = 17}}", {"startingOffsets": '{"flights": {"0": 17}}'}),
        (
            "2026-01-31T12:00:00Z",
            {"startingTimestamp": "1769860800000", "startingOffsetsByTimestampStrategy": "latest"},
        ),
    ],
)
def test_a_pipeline_starts_at_an_end_at_offsets_or_at_a_time(start: str, options: dict[str, str]) -> None:
    given = tomllib.loads(LEAST.replace('topic = "flights"', f'topic = "flights"\nstart = {start}'))
    assert parse_settings(given).source.starting == options


@pytest.mark.parametrize(
    ("end", "options"),
    [
        ("{flights = {0 = 17}}", {"endingOffsets": '{"flights": {"0": 17}}'}),
        ("2026-01-31T12:00:00Z", {"endingTimestamp": "1769860800000"}),
    ],
)
def test_a_pipeline_of_present_records_may_end_at_offsets_or_at_a_time(end: str, options: dict[str, str]) -> None:
    text = LEAST.replace('topic = "flights"', f'topic = "flights"\nend = {end}')
    given = tomllib.loads(f"{text}\n[trigger]\navailable_now = true\n")
    assert parse_settings(given).source.ending == options
    given.pop("trigger")
    with pytest.raises(BadPipeline, match=r"source\.end: .* give trigger\.available_now = true"):
        parse_settings(given)


def test_a_time_without_its_offset_is_an_error() -> None:
    given = tomllib.loads(LEAST.replace('topic = "flights"', 'topic = "flights"\nstart = 2026-01-31T12:00:00'))
    with pytest.raises(BadPipeline, match="offset from UTC"):
        parse_settings(given)


def test_spark_settings_may_be_nested_tables() -> None:
    found = parsed("[spark]\nmaster = 'x'\n'spark.a' = true\n[spark.spark.b]\nc = 3\n")
    assert found.spark == {"master": "x", "spark.a": "true", "spark.b.c": "3"}
