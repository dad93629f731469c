"""The input formats of `gnomon produce`: a line of text or of JSON as a record.

1. Every byte of a line becomes part of the record, or the line is refused: nothing is dropped or replaced.
2. JSON is the JSON that `gnomon consume` writes: its output is valid input.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import json
from typing import Any, NamedTuple

from gnomon.cli.options import INT32_MAX, INT64_MAX


class UnfitLine(ValueError):
    """A line that is no record; the text says what is wrong with it."""


class NewRecord(NamedTuple):
    """A record to be sent; without a partition the producer chooses one, without a timestamp it takes the present."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]
    partition: int | None = None
    timestamp_ms: int | None = None


class TextLine(NamedTuple):
    """The form of a line of text: headers up to the first `header_separator`, then a key up to the first
    `key_separator`, then the value; a part without a separator is absent."""

    header_separator: bytes | None = None
    key_separator: bytes | None = None
    tombstone: bool = False
    """Makes an empty value a tombstone."""

    def record(self, line: bytes) -> NewRecord:
        """The record of a line without its newline; raises UnfitLine if it lacks a separator."""
        headers: list[tuple[str, str | bytes | None]] = []
        key, value = None, line
        if self.header_separator is not None:
            named, value = _split(value, self.header_separator, "header separator")
            headers = [_header(text) for text in named.split(b",")] if named else []
        if self.key_separator is not None:
            key, value = _split(value, self.key_separator, "key separator")
        return NewRecord(key, None if self.tombstone and not value else value, headers)


def _split(line: bytes, separator: bytes, what: str) -> tuple[bytes, bytes]:
    before, found, after = line.partition(separator)
    if not found:
        raise UnfitLine(f"has no {what} {separator.decode()!r}")
    return before, after


def _header(text: bytes) -> tuple[str, bytes | None]:
    name, equals, value = text.partition(b"=")
    if not name:
        raise UnfitLine("has a header without a name: write NAME=VALUE,NAME=VALUE")
    try:
        return name.decode(), value if equals else None
    except UnicodeDecodeError:
        raise UnfitLine(f"has a header name that is not UTF-8: {name!r}") from None


WRITTEN_BY_CONSUME = ("topic", "offset")
"""Fields that a new record cannot have: they are read over."""
FIELDS = ("key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp_ms", *WRITTEN_BY_CONSUME)
HEADER_FIELDS = ("name", "value", "value_base64")


def json_record(line: bytes) -> NewRecord:
    """The record of a line of JSON; raises UnfitLine if it does not describe one."""
    try:
        found = json.loads(line, object_pairs_hook=_unique)
    except UnfitLine:
        raise
    except (ValueError, RecursionError) as error:
        raise UnfitLine(f"is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise UnfitLine('is no JSON object: write {"key": "k", "value": "v"}')
    _check_fields(found, FIELDS)
    return NewRecord(
        _content(found, "key", None),
        _content(found, "value", "a tombstone"),
        _json_headers(found.get("headers")),
        _whole(found, "partition", 0, INT32_MAX),
        _whole(found, "timestamp_ms", 1, INT64_MAX),  # librdkafka takes 0 for the present
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise UnfitLine("names a field twice: write headers of one name as a list of objects")
    return found


def _check_fields(found: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in found:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}" if near else f"the fields are {', '.join(known)}"
            raise UnfitLine(f"has an unknown field {name!r}: {hint}")


def _content(found: dict[str, Any], name: str, null: str | None) -> bytes | None:
    """The bytes of a field; raises UnfitLine if it is absent and `null`, the meaning of null, is not to be guessed."""
    encoded = f"{name}_base64"
    if name in found and encoded in found:
        raise UnfitLine(f"has both {name!r} and {encoded!r}: give one of them")
    try:
        if encoded in found:
            return base64.b64decode(_text(found, encoded), validate=True)
        if found.get(name) is not None:
            return _text(found, name).encode()
    except (binascii.Error, UnicodeEncodeError) as error:
        raise UnfitLine(f"has a wrong {name!r}: {error}") from None
    if name not in found and null is not None:
        raise UnfitLine(f"has no {name!r}: write null for {null}")
    return None


def _text(found: dict[str, Any], name: str) -> str:
    if not isinstance(found[name], str):
        raise UnfitLine(f"has a {name!r} that is no text")
    return str(found[name])


def _json_headers(found: Any) -> list[tuple[str, str | bytes | None]]:
    """Headers as a list of objects, or as one object of names and texts."""
    if found is None:
        return []
    if isinstance(found, dict):
        found = [{"name": name, "value": value} for name, value in found.items()]
    if not isinstance(found, list) or not all(isinstance(header, dict) for header in found):
        raise UnfitLine('has wrong headers: write {"name": "value"} or [{"name": "n", "value": "v"}]')
    headers: list[tuple[str, str | bytes | None]] = []
    for header in found:
        _check_fields(header, HEADER_FIELDS)
        if "name" not in header:
            raise UnfitLine("has a header without a name")
        name = _text(header, "name")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise UnfitLine(f"has a wrong header name: {error}") from None
        headers.append((name, _content(header, "value", "a header without a value")))
    return headers


def _whole(found: dict[str, Any], name: str, least: int, most: int) -> int | None:
    number = found.get(name)
    if number is None:
        return None
    if type(number) is not int or not least <= number <= most:
        raise UnfitLine(f"has a {name!r} that is no whole number from {least} to {most}")
    return number
