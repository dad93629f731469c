from __future__ import annotations

import json

import pytest

from gnomon.cli.kafka.record_format import FORMATS, format_string
from gnomon.cli.kafka.record_lines import NewRecord, json_record


class Record:
    """A message as confluent-kafka gives it."""

    def __init__(self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]] | None) -> None:
        self.key, self.value, self.headers = (lambda: key), (lambda: value), (lambda: headers)

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return 5

    def timestamp(self) -> tuple[int, int]:
        return 1, 1700


FULL = Record(b"k\xff", b"v", [("a", b"1"), ("b", None)])
EMPTY = Record(b"", b"", None)
TOMBSTONE = Record(None, None, None)


def test_a_format_string_has_the_fields_and_escapes_of_kcat() -> None:
    form = format_string(r"%t/%p/%o/%T %K=%k %S=%s %h %%\x41\t\\\n")
    assert form(FULL) == b"t/2/5/1700 2=k\xff 1=v a=1,b %A\t\\\n"
    assert format_string("%R")(FULL) == b"\0\0\0\1"


def test_an_absent_key_or_value_has_the_length_minus_1() -> None:
    """Invariant 2."""
    form = format_string("%K[%k]%S[%s]%R")
    assert form(EMPTY) == b"0[]0[]\0\0\0\0"
    assert form(TOMBSTONE) == b"-1[]-1[]\xff\xff\xff\xff"


@pytest.mark.parametrize("text", ["%", "%x", "\\", r"\q", r"\x4", "100%"])
def test_unknown_fields_and_escapes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is unknown: the fields are %t, "):
        format_string(text)


@pytest.mark.parametrize("record", [FULL, EMPTY, TOMBSTONE])
def test_json_keeps_every_byte_and_distinguishes_absent_from_empty(record: Record) -> None:
    """Invariant 1."""
    line = FORMATS["json"](record)
    assert line.endswith(b"}\n")
    headers = list(record.headers() or [])
    assert json_record(line) == NewRecord(record.key(), record.value(), headers, 2, 1700)
    assert json.loads(line)["topic"] == "t"
