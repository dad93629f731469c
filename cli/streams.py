"""Checks the standard streams of a command; a stream that was closed when the process started is None in `sys`."""

from __future__ import annotations

import select
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from gnomon.cli.exit import Failure

STDOUT = 1


def writes_output(command: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a command so that it fails before it does anything if standard output, which gets its data, is closed."""

    @wraps(command)
    def run(*args: Any, **named: Any) -> Any:
        if sys.stdout is None:
            raise Failure("standard output is closed")
        return command(*args, **named)

    return run


def check_input() -> None:
    """Raises Failure if there is no standard input to read."""
    if sys.stdin is None:
        raise Failure("standard input is closed")


def check_reader() -> None:
    """Raises BrokenPipeError if the reader of standard output is gone: the next write would raise it, but may come much
    later."""
    stdout = select.poll()
    stdout.register(STDOUT, 0)
    if any(found & (select.POLLERR | select.POLLHUP) for _, found in stdout.poll(0)):
        raise BrokenPipeError
