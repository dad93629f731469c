"""Structured logs: JSON lines for machines, coloured text on a terminal.

A node gets its logger and binds its own fields. Nothing here is global, so several nodes of one process may log
differently.

structlog is imported at the first event, because the import (with rich and asyncio) takes 0.1 s, a large share of a
broker's start. An event that is written before the `ready` line, with which a daemon reports that it serves, delays
that line. A file descriptor is reserved for the import, so that a process without free descriptors can still log that
it has none.

A line that cannot be written (full disk, closed stream, no reader) is dropped and counted; it never stops a node.
"""

from __future__ import annotations

import os
from typing import Any, Protocol, TextIO

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
FORMATS = ("auto", "json", "console")


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
        """A requested operation was not done."""

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


class _Output:
    """One stream with its level and format, and the structlog logger after its first event."""

    def __init__(self, level: int, format: str, stream: TextIO | None) -> None:
        self.level = level
        self.lines_dropped = 0
        self._format = format
        self._stream = stream
        self._logger: Any = None
        self._spare_descriptor: int | None = os.open(os.devnull, os.O_RDONLY)

    def write(self, method: str, event: str, fields: dict[str, object]) -> None:
        if self._stream is None:
            self.lines_dropped += 1
            return
        try:
            if self._logger is None:
                self._logger = self._open(self._stream)
            getattr(self._logger, method)(event, **fields)
        except OSError:
            self.lines_dropped += 1

    def _open(self, stream: TextIO) -> Any:
        if self._spare_descriptor is not None:
            os.close(self._spare_descriptor)
            self._spare_descriptor = None
        import structlog

        terminal = stream.isatty()
        console = self._format == "console" or (self._format == "auto" and terminal)
        processors: list[Any] = [
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=not console),
        ]
        if console:
            plain = structlog.dev.plain_traceback
            processors.append(structlog.dev.ConsoleRenderer(colors=terminal, exception_formatter=plain))
        else:
            processors += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
        return structlog.wrap_logger(
            structlog.WriteLogger(stream),
            processors=processors,
            wrapper_class=structlog.make_filtering_bound_logger(self.level),
            context_class=dict,
        )


class StreamLogger:
    """A `Logger` on one stream; made by `configure_logs`."""

    def __init__(self, output: _Output, fields: dict[str, object]) -> None:
        self._output = output
        self._fields = fields

    @property
    def lines_dropped(self) -> int:
        """The number of lines that could not be written, over all loggers bound from this one."""
        return self._output.lines_dropped

    def bind(self, **fields: object) -> Logger:
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
        self._write("error", event, {"exc_info": True} | fields)

    def _write(self, method: str, event: str, fields: dict[str, object]) -> None:
        if LEVELS[method] >= self._output.level:
            self._output.write(method, event, self._fields | fields)


def configure_logs(level: str, format: str, stream: TextIO | None) -> StreamLogger:
    """A logger that writes events of `level` and above to `stream`.

    Args:
        level: a key of LEVELS.
        format: one of FORMATS; `auto` is `console` on a terminal and `json` elsewhere.
        stream: standard error in production, None if it is closed; data goes to standard output.
    """
    assert format in FORMATS, f"log format {format!r} is none of {FORMATS}"
    return StreamLogger(_Output(LEVELS[level], format, stream), {})
