"""The output formats of `gnomon consume`: values, keys and values, JSON, and format strings as kcat has them.

1. JSON distinguishes a tombstone (null) from an empty value, and keeps every byte: bytes that are not UTF-8 are under
   `key_base64`, `value_base64`.
2. In a format string the length of an absent key or value is -1, and it has no bytes.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from typing import Any, TypeAlias

import click
from confluent_kafka import Message

Form: TypeAlias = Callable[[Message], bytes]

_SIZE = struct.Struct(">i")
_TOKEN = re.compile(r"%(?P<field>.?)|\\(?P<escape>x[0-9a-fA-F]{2}|.?)|(?P<text>[^%\\]+)", re.S)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}


def format_string(text: str) -> Form:
    """The format that a text with `%` fields and backslash escapes describes; nothing is added to it.

    Raises:
        ValueError: it has an unknown field or escape.
    """
    parts: list[bytes | Form] = []
    for token in _TOKEN.finditer(text):
        kind, found = token.lastgroup, token[token.lastgroup or 0]
        if kind == "text":
            parts.append(found.encode())
        elif kind == "escape" and found.startswith("x") and len(found) > 1:
            parts.append(bytes([int(found[1:], 16)]))
        elif kind == "escape" and found in _ESCAPES:
            parts.append(_ESCAPES[found])
        elif kind == "field" and found in FIELDS:
            parts.append(FIELDS[found])
        else:
            raise ValueError(
                f"{token[0]!r} is unknown: the fields are {', '.join('%' + field for field in FIELDS)}, the escapes"
                r" \n, \r, \t, \0, \\ and \xHH"
            )
    return lambda message: b"".join(part if isinstance(part, bytes) else part(message) for part in parts)


def _size(content: Any) -> int:
    return -1 if content is None else len(content)


def _number(found: Any) -> bytes:
    return str(found).encode()


def _headers(message: Message) -> bytes:
    """`name=value` of each header, separated by commas; a header without a value is its name alone."""
    headers: Any = message.headers() or []
    return b",".join(name.encode() if value is None else name.encode() + b"=" + value for name, value in headers)


FIELDS: dict[str, Form] = {
    "t": lambda message: str(message.topic()).encode(),
    "p": lambda message: _number(message.partition()),
    "o": lambda message: _number(message.offset()),
    "k": lambda message: bytes(message.key() or b""),
    "K": lambda message: _number(_size(message.key())),
    "s": lambda message: bytes(message.value() or b""),
    "S": lambda message: _number(_size(message.value())),
    "R": lambda message: _SIZE.pack(_size(message.value())),
    "h": _headers,
    "T": lambda message: _number(message.timestamp()[1]),
    "%": lambda message: b"%",
}
"""kcat's fields."""


def _json(message: Message) -> bytes:
    headers: Any = message.headers() or []
    record: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": message.timestamp()[1],
        **_named("key", message.key()),
        **_named("value", message.value()),
        "headers": [{"name": name, **_named("value", value)} for name, value in headers],
    }
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def _named(name: str, content: Any) -> dict[str, str | None]:
    """Bytes as text if they are UTF-8, else as base64 under a name that says so."""
    if content is None:
        return {name: None}
    try:
        return {name: bytes(content).decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


FORMATS: dict[str, Form] = {"value": format_string(r"%s\n"), "kv": format_string(r"%k\t%s\n"), "json": _json}


def format_given(_ctx: click.Context, _param: click.Parameter, text: str) -> Form:
    """The callback of an option that takes the name of a format, or a format string."""
    if text in FORMATS:
        return FORMATS[text]
    if "%" not in text:
        raise click.BadParameter(f"{text!r} is none of {', '.join(FORMATS)}, and no format string, as it has no %")
    try:
        return format_string(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def format_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Completes the name of a format."""
    return [name for name in FORMATS if name.startswith(incomplete)]
