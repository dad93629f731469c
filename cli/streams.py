"""Standard input and output of commands: one that was closed is None in `sys`, and its number is not used again."""

from __future__ import annotations

import select
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from gnomon.cli.exit import Failure

STDOUT = 1


def writes_output(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command that does nothing where standard output, which its data goes to, is closed."""

    @wraps(command)
    def run(*args: Any, **named: Any) -> Any:
        if sys.stdout is None:
            raise Failure("standard output is closed")
        return command(*args, **named)

    return run


def check_input() -> None:
    """Raises Failure where there is no standard input to be read."""
    if sys.stdin is None:
        raise Failure("standard input is closed")


def check_reader() -> None:
    """Raises BrokenPipeError where nobody reads standard output any more: a write would, but may be long in coming."""
    stdout = select.poll()
    stdout.register(STDOUT, 0)
    if any(found & (select.POLLERR | select.POLLHUP) for _, found in stdout.poll(0)):
        raise BrokenPipeError
