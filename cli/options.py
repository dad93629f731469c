"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "GNOMON_BOOTSTRAP_SERVER"
NATIVE_DEFAULT = "127.0.0.1:6650"
NATIVE_VARIABLE = "GNOMON_NATIVE_ADDRESS"
PASSWORD_VARIABLE = "GNOMON_LEDGER_PASSWORD"


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


def native_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--native-address` of a command that asks brokers what Kafka's protocol has no words for."""
    return click.option(
        "--native-address",
        "native",
        metavar="HOST:PORT",
        envvar=NATIVE_VARIABLE,
        show_envvar=True,
        default=NATIVE_DEFAULT,
        show_default=True,
        help="The native port of a broker; several are separated by commas.",
    )(command)


def durability_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--durability` of a daemon that stores."""
    return click.option(
        "--durability", type=click.Choice(["synced", "none"]), help="`none` may lose records in a power cut."
    )(command)


def set_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--set` of a daemon."""
    return click.option(
        "--set", "given", metavar="NAME=VALUE", multiple=True, help="Any setting by its name; may be repeated."
    )(command)


def metadata_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--metadata` of a process or command of a cluster."""
    return click.option(
        "--metadata",
        "metadata_address",
        metavar="ADDRESS",
        help="The cluster's metadata: HOST:PORT[,HOST:PORT...] or etcd://HOST:PORT[,...]; the setting"
        " `cluster.metadata` unless given.",
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
