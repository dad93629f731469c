"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "GNOMON_BOOTSTRAP_SERVER"


def bootstrap_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--bootstrap-server` of a command that talks to a broker."""
    return click.option(
        "--bootstrap-server",
        "bootstrap",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_VARIABLE,
        show_envvar=True,
        default=BOOTSTRAP_DEFAULT,
        show_default=True,
        help="Where the broker is; several are separated by commas.",
    )(command)


def pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    """What an option of the form NAME=VALUE was given, which may be repeated.

    Raises:
        UsageError: a text has another form.
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} {text!r}: give NAME=VALUE")
        found[name] = value
    return found
