from __future__ import annotations

import json

import pytest

from gnomon.cli.kafka.record_lines import NewRecord, TextLine, UnfitLine, json_record


def test_a_line_of_text_is_the_value_and_keeps_every_byte() -> None:
    """Invariant 1."""
    assert TextLine().record(b"\xff\r") == NewRecord(None, b"\xff\r", [])
    assert TextLine().record(b"") == NewRecord(None, b"", [])


def test_a_line_of_text_is_split_at_the_first_separators() -> None:
    line = TextLine(b"|", b":")
    assert line.record(b"a=1=2,b=,c|k:v:|w") == NewRecord(b"k", b"v:|w", [("a", b"1=2"), ("b", b""), ("c", None)])
    assert line.record(b"|:") == NewRecord(b"", b"", [])


def test_an_empty_value_is_a_tombstone_on_request() -> None:
    assert TextLine(None, b":", tombstone=True).record(b"k:") == NewRecord(b"k", None, [])


@pytest.mark.parametrize("line", [b"k:v", b"a=1|v", b"=1|k:v", b"a=1,|k:v", b"\xff=1|k:v"])
def test_a_line_that_lacks_a_part_is_refused(line: bytes) -> None:
    """Invariant 1."""
    with pytest.raises(UnfitLine):
        TextLine(b"|", b":").record(line)


def test_a_json_record_has_all_fields() -> None:
    line = json.dumps(
        {
            "topic": "elsewhere",
            "offset": 7,
            "key_base64": "/w==",
            "value": "ü",
            "partition": 3,
            "timestamp_ms": 5,
            "headers": [{"name": "", "value_base64": "AA=="}, {"name": "n", "value": None}],
        }
    )
    assert json_record(line.encode()) == NewRecord(b"\xff", "ü".encode(), [("", b"\0"), ("n", None)], 3, 5)


def test_null_is_a_tombstone_and_an_absent_key_is_none() -> None:
    assert json_record(b'{"value": null}') == NewRecord(None, None, [])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("7", "is no JSON object"),
        ("{}", "has no 'value': write null for a tombstone"),
        ('{"value": 7}', "'value' that is no text"),
        ('{"value": "a", "value": "b"}', "names a field twice"),
        ('{"value": "a", "value_base64": "YQ=="}', "has both"),
        ('{"value_base64": "?"}', "wrong 'value'"),
        ('{"value_base64": null}', "no text"),
        (r'{"value": "\ud800"}', "wrong 'value'"),
        ('{"value": "a", "kye": "b"}', "did you mean 'key'"),
        ('{"value": "a", "xyzzy": "b"}', "the fields are key, "),
        ('{"value": "a", "partition": -1}', "whole number from 0"),
        ('{"value": "a", "partition": true}', "whole number from 0"),
        ('{"value": "a", "timestamp_ms": 0}', "whole number from 1"),
        ('{"value": "a", "timestamp_ms": 1.5}', "whole number from 1"),
        ('{"value": "a", "headers": "x=1"}', "wrong headers"),
        ('{"value": "a", "headers": ["x"]}', "wrong headers"),
        ('{"value": "a", "headers": [{"value": "x"}]}', "header without a name"),
        ('{"value": "a", "headers": [{"name": "x"}]}', "write null for a header without a value"),
        (r'{"value": "a", "headers": {"\ud800": "x"}}', "wrong header name"),
    ],
)
def test_a_line_of_json_that_is_no_record_is_refused_with_the_reason(line: str, why: str) -> None:
    """Invariant 1."""
    with pytest.raises(UnfitLine, match=why):
        json_record(line.encode())
