"""Structured logs: JSON lines for machines, coloured text on a terminal.

A node gets its logger and binds its own fields. Nothing here is global, so several nodes of one process may log
differently.

structlog is imported at the first event, because the import (with rich and asyncio) takes 0.1 s, a large share of a
broker's start. An event that is written before the `ready` line, with which a daemon reports that it serves, delays
that line. A file descriptor is reserved for the import, so that a process without free descriptors can still log that
it has none.

A line that cannot be written at once (full disk, closed stream, a pipe or terminal that nobody reads) is dropped and
counted. It never stops or delays a node: the buffer of the pipe is the only queue.
"""

from __future__ import annotations

import errno
import os
import select  # noqa: TID251 - standard error is no socket of the world
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


class _Output:
    """One stream with its level and format, and the structlog logger after its first event."""

    def __init__(self, level: int, format: str, stream: TextIO | None) -> None:
        self.level = level
        self.lines_dropped = 0
        self._format = format
        self._stream = stream
        self._logger: Any = None
        self._spare_descriptor: int | None = os.open(os.devnull, os.O_RDONLY)

    @property
    def opened(self) -> bool:
        return self._logger is not None

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
            structlog.WriteLogger(_PromptStream(stream)),  # type: ignore[arg-type]  # it only writes and flushes
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

    @property
    def opened(self) -> bool:
        """Whether the first line was written, which takes long, because it imports structlog."""
        return self._output.opened

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
