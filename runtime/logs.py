"""Structured logs: JSON lines where a machine reads, coloured text on a terminal.

A node is given its logger and binds its own fields; nothing here is global, so several nodes of one process may log
differently. Importing structlog takes 0.1 s (its package imports rich and asyncio, whatever one needs of it), a large
share of a broker's start, so it is imported when the first event is written: write none before `ready`. A file
descriptor is kept for that, since having none left is worth a line.

A line that cannot be written, as a disk is full, nobody reads any more or the stream is closed, is dropped and counted,
and ends no node.
"""

from __future__ import annotations

import os
from typing import Any, Protocol, TextIO

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
FORMATS = ("auto", "json", "console")


class Logger(Protocol):
    """What nodes log to: a short lower-case event, and fields."""

    def bind(self, **fields: object) -> Logger:
        """A logger that adds these fields to every event."""

    def debug(self, event: str, **fields: object) -> None:
        """For those who look into gnomon itself."""

    def info(self, event: str, **fields: object) -> None:
        """Something an operator expects to read: started, rolled, elected."""

    def warning(self, event: str, **fields: object) -> None:
        """Works, but somebody should look."""

    def error(self, event: str, **fields: object) -> None:
        """Something asked for was not done."""

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
    """One stream with its level and format, and the structlog logger once there is one."""

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
        """How many could not be written when they were due, of all loggers bound from this one."""
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
        stream: standard error in production, None where it is closed; data goes to standard output.
    """
    assert format in FORMATS, f"log format {format!r} is none of {FORMATS}"
    return StreamLogger(_Output(LEVELS[level], format, stream), {})
