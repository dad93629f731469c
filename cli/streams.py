"""Standard input and output of commands: a closed stream is None in `sys`, and its number is not reused."""

from __future__ import annotations

import select
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from gnomon.cli.exit import Failure

STDOUT = 1


def writes_output(command: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a command so that it does nothing if standard output, which receives its data, is closed."""

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
    """Raises BrokenPipeError if the reader of standard output is gone: the next write would raise it, but may be far
    away."""
    stdout = select.poll()
    stdout.register(STDOUT, 0)
    if any(found & (select.POLLERR | select.POLLHUP) for _, found in stdout.poll(0)):
        raise BrokenPipeError
