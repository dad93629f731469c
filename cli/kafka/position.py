"""A place in a log, as it is written on the command line: the beginning or end, an offset, or a time.

A command that moves positions has an option for each kind of place (`target_options`), and gets exactly one of them.

1. A text of digits alone is an offset; a Unix time begins with `@`.
2. A time without a zone is local time. A time before 1970 is the beginning of 1970, since Kafka gives negative numbers
   other meanings.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import click

from gnomon.cli.options import INT64_MAX, OFFSET, PARTITION


class LogEdge(Enum):
    """The first record of a partition, or its end."""

    EARLIEST = "earliest"
    LATEST = "latest"


class AtOffset(NamedTuple):
    """The record with this offset."""

    offset: int


class AtTime(NamedTuple):
    """The first record whose timestamp is not before this time, in milliseconds since 1970."""

    milliseconds: int


Position: TypeAlias = LogEdge | AtOffset | AtTime

EDGES = {
    **dict.fromkeys(("earliest", "beginning", "start"), LogEdge.EARLIEST),
    **dict.fromkeys(("latest", "end"), LogEdge.LATEST),
}
"""The names of the edges, those of kcat and rpk too."""
UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"(\d+)(ms|[smhdw])")
_AGO = re.compile(rf"-({_PART.pattern})+")
_SECONDS_MAX = 100_000_000_000
"""A larger Unix time is in milliseconds: as seconds it would be after the year 5000, as milliseconds it is after 1973.
"""
EXAMPLES = "2026-01-31T18:30:00Z, -1h30m or @1769884200"


def parse_position(text: str, now_ms: int) -> Position:
    """The position that a text names.

    Args:
        now_ms: the present in milliseconds since 1970, from which `-1h` is counted.

    Raises:
        ValueError: the text names none; the error says how to write one.
    """
    if text in EDGES:
        return EDGES[text]
    if text.isascii() and text.isdecimal():
        if int(text) > INT64_MAX:
            raise ValueError(f"offset {text} is not in the range 0<=x<={INT64_MAX}")
        return AtOffset(int(text))
    if re.fullmatch(r"-\d+", text):
        raise ValueError(f"{text!r} has no unit: write {text}s for a time, or --last {text[1:]} for the last records")
    try:
        return AtTime(parse_time(text, now_ms))
    except ValueError:
        raise ValueError(
            f"{text!r} is neither earliest, latest, an offset nor a time: write a time as {EXAMPLES}"
        ) from None


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since 1970: of an ISO time, of a span before now (`-1h30m`), or of a Unix time (`@1769884200`).

    A Unix time is in seconds or, above a hundred billion, in milliseconds.

    Raises:
        ValueError: the text is none of these.
    """
    body = text.removeprefix("@")
    if _AGO.fullmatch(body):
        found = now_ms - sum(int(number) * UNITS_MS[unit] for number, unit in _PART.findall(body))
    elif body != text and body.isascii() and body.isdecimal():
        found = int(body) if int(body) >= _SECONDS_MAX else int(body) * 1000
    else:
        found = _iso_ms(body)
    if found > INT64_MAX:
        raise ValueError(f"the time {text!r} is too late")
    return max(0, found)


def _iso_ms(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no time: write it as {EXAMPLES}") from None


def position_given(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Position | None:
    """The callback of an option that takes a position."""
    try:
        return None if text is None else parse_position(text, _now_ms())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def edge_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Completes the name of an edge."""
    return [name for name in EDGES if name.startswith(incomplete)]


def time_given(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    """The callback of an option that takes a time; its value is in milliseconds since 1970."""
    try:
        return None if text is None else parse_time(text, _now_ms())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _now_ms() -> int:
    return int(time.time() * 1000)


TARGETS = ("--to-earliest", "--to-latest", "--to-offset", "--to-datetime")
_OPTIONS = (
    click.option("--partition", "only", type=PARTITION, multiple=True, help="Only this partition; may be repeated."),
    click.option("--to-earliest", is_flag=True, help="To the first record."),
    click.option("--to-latest", is_flag=True, help="To the end."),
    click.option("--to-offset", type=OFFSET, help="To this offset."),
    click.option(
        "--to-datetime",
        callback=time_given,
        metavar="TIME",
        help="To the first record from then on: ISO, -1h or @UNIX.",
    ),
)


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options `--to-…`, and `--partition` as `only`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def the_target(values: Mapping[str, Any], options: tuple[str, ...] = TARGETS) -> tuple[str, Any]:
    """The target that was given: the name of its parameter, and its value.

    Args:
        values: the values of all options that name a target, by parameter.
        options: these options, for the error.

    Raises:
        click.UsageError: none was given, or several.
    """
    given = {target: value for target, value in values.items() if value is not None and value is not False}
    if len(given) != 1:
        raise click.UsageError(f"say where to, once: {', '.join(options[:-1])} or {options[-1]}")
    ((target, value),) = given.items()
    return target, value
