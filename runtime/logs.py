"""Structured logs: JSON lines for machines, coloured text on a terminal.

A node gets its logger and binds its own fields. Nothing here is global, so several nodes of one process may log
differently.

The standard library alone renders the lines (decision 30): each start writes some, and every import for them would be a
part of its time and of an idle node's memory. The formats are those of structlog's JSONRenderer and ConsoleRenderer,
whose import (with rich and asyncio) takes 10 MB and 0.1 s.

A line that cannot be written at once (full disk, closed stream, a pipe or terminal that nobody reads) is dropped and
counted. It never stops or delays a node: the buffer of the pipe is the only queue.
"""

from __future__ import annotations

import datetime
import errno
import json
import os
import select  # noqa: TID251 - standard error is no socket of the world
import sys
import traceback
from collections.abc import Callable
from typing import Protocol, TextIO, TypeAlias

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
FORMATS = ("auto", "json", "console")

RESET, BRIGHT, DIM = "\x1b[0m", "\x1b[1m", "\x1b[2m"
RED, GREEN, YELLOW, MAGENTA, CYAN = (f"\x1b[{code}m" for code in (31, 32, 33, 35, 36))
LEVEL_COLOURS = {"debug": GREEN, "info": GREEN, "warning": YELLOW, "error": RED}


class Logger(Protocol):
    """The log of a node: a short lower-case event, and fields."""

    def bind(self, **fields: object) -> Logger:
        """A logger that adds these fields to every event."""

    def debug(self, event: str, **fields: object) -> None:
        """For developers of gnomon."""

    def info(self, event: str, **fields: object) -> None:
        """An event that an operator expects: started, rolled, elected."""

    def warning(self, event: str, **fields: object) -> None:
        """It works, but an operator should look."""

    def error(self, event: str, **fields: object) -> None:
        """An operation of the node failed, and an operator has to look.

        Never for the refusal of a request, a client that left, or a stop on request.
        """

    def exception(self, event: str, **fields: object) -> None:
        """`error` with the traceback of the exception being handled."""


class SilentLogger:
    """Writes nothing."""

    def bind(self, **fields: object) -> Logger:
        """See `Logger.bind`."""
        return self

    def debug(self, event: str, **fields: object) -> None:
        """See `Logger.debug`."""

    info = warning = error = exception = debug


class _PromptStream:
    """A stream whose writes never wait for a reader.

    Linux reports a pipe as writable if PIECE_BYTES fit into it, and other streams likewise.
    """

    PIECE_BYTES = select.PIPE_BUF

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._cut = False
        """The last line was written in part."""
        try:
            self._descriptor = stream.fileno()
        except (OSError, ValueError):  # a stream in memory
            self._descriptor = -1
        self._poll = select.poll()
        if self._descriptor >= 0:
            self._poll.register(self._descriptor, select.POLLOUT)

    def write(self, text: str) -> None:
        """Writes one line.

        Raises:
            OSError: it cannot be written at once; a part of it may be written.
        """
        if self._descriptor < 0:
            self._stream.write(text)
            return
        data = (b"\n" if self._cut else b"") + text.encode(errors="backslashreplace")
        while data:
            if not self._poll.poll(0):
                raise BlockingIOError(errno.EAGAIN, "nobody reads the log")
            written = os.write(self._descriptor, data[: self.PIECE_BYTES])
            data, self._cut = data[written:], True
        self._cut = False

    def flush(self) -> None:
        """Writes what a stream in memory has collected."""
        self._stream.flush()


Render: TypeAlias = Callable[[datetime.datetime, str, str, dict[str, object], str], str]
"""Makes a line of the time, a level, an event, its fields, and a traceback or an empty text."""


def _json_line(now: datetime.datetime, level: str, event: str, fields: dict[str, object], trace: str) -> str:
    line = fields | {"event": event, "level": level, "timestamp": now.isoformat().replace("+00:00", "Z")}
    if trace:
        line["exception"] = trace
    return json.dumps(line, default=str)


class _ConsoleLine:
    """Renders lines for people: in local time, the event and the level in columns, fields by name.

    Characters of a field that a terminal does not show, such as escapes, are written as Python writes them.
    """

    def __init__(self, coloured: bool) -> None:
        self._coloured = coloured

    def __call__(self, now: datetime.datetime, level: str, event: str, fields: dict[str, object], trace: str) -> str:
        paint = self._paint
        local = now.astimezone().replace(tzinfo=None).isoformat()
        words = [
            paint(local, DIM),
            f"[{paint(f'{level:9}', LEVEL_COLOURS[level] + BRIGHT)}]",
            paint(f"{event:30}", BRIGHT),
        ]
        words += (f"{paint(name, CYAN)}={paint(_value_text(fields[name]), MAGENTA)}" for name in sorted(fields))
        line = " ".join(words).rstrip(" ")
        return f"{line}\n{trace}" if trace else line

    def _paint(self, text: str, codes: str) -> str:
        return f"{codes}{text}{RESET}" if self._coloured else text


def _value_text(value: object) -> str:
    if isinstance(value, str) and value.isprintable() and not set(value) & set(" =\"'"):
        return value
    return repr(value)


class _Output:
    """One stream with its level and format."""

    def __init__(self, level: int, format: str, stream: TextIO | None) -> None:
        self.level = level
        self.lines_dropped = 0
        self._stream = None if stream is None else _PromptStream(stream)
        terminal = stream is not None and stream.isatty()
        console = format == "console" or (format == "auto" and terminal)
        self._render: Render = _ConsoleLine(coloured=terminal) if console else _json_line

    def write(self, level: str, event: str, fields: dict[str, object], trace: str) -> None:
        if self._stream is None:
            self.lines_dropped += 1
            return
        now = datetime.datetime.now(tz=datetime.UTC)  # noqa: TID251 - a line has the time of its readers' clocks
        try:
            self._stream.write(self._render(now, level, event, fields, trace) + "\n")
            self._stream.flush()
        except OSError:
            self.lines_dropped += 1


class StreamLogger:
    """A `Logger` on one stream; made by `configure_logs`."""

    def __init__(self, output: _Output, fields: dict[str, object]) -> None:
        self._output = output
        self._fields = fields

    @property
    def lines_dropped(self) -> int:
        """The number of lines that could not be written, over all loggers bound from this one."""
        return self._output.lines_dropped

    def bind(self, **fields: object) -> StreamLogger:
        """See `Logger.bind`."""
        return StreamLogger(self._output, self._fields | fields)

    def debug(self, event: str, **fields: object) -> None:
        """See `Logger.debug`."""
        self._write("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        """See `Logger.info`."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """See `Logger.warning`."""
        self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """See `Logger.error`."""
        self._write("error", event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """See `Logger.exception`."""
        failed = sys.exc_info()[0] is not None
        self._write("error", event, fields, traceback.format_exc().removesuffix("\n") if failed else "")

    def _write(self, level: str, event: str, fields: dict[str, object], trace: str = "") -> None:
        if LEVELS[level] >= self._output.level:
            self._output.write(level, event, self._fields | fields, trace)


def configure_logs(level: str, format: str, stream: TextIO | None) -> StreamLogger:
    """A logger that writes events of `level` and above to `stream`.

    Args:
        level: a key of LEVELS.
        format: one of FORMATS; `auto` is `console` on a terminal and `json` elsewhere.
        stream: standard error in production, None if it is closed; data goes to standard output.
    """
    assert format in FORMATS, f"log format {format!r} is none of {FORMATS}"
    return StreamLogger(_Output(LEVELS[level], format, stream), {})
