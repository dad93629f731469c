"""The settings a command was given: its flags, the environment, and the settings file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gnomon.broker.broker_configs import BROKER_CONFIGS, check_broker_config
from gnomon.cli.options import BOOTSTRAP_VARIABLE, NATIVE_VARIABLE, PASSWORD_VARIABLE, pairs
from gnomon.runtime.loaded_settings import FILE_VARIABLE, Loaded, load_settings

KAFKA = "kafka."


def config_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--config` of a command that reads settings."""
    return click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path, dir_okay=False),
        envvar=FILE_VARIABLE,
        show_envvar=True,
        help="Settings file (TOML).",
    )(command)


def data_dir_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--data-dir` of a command that works on a data directory."""
    return click.option("--data-dir", metavar="DIR", help="Data directory; the setting `data_dir` unless given.")(
        command
    )


def read_settings(config_file: Path | None, given: tuple[str, ...] = (), /, **flags: object) -> Loaded:
    """The settings in force; flags that are None were not given.

    Args:
        given: what `--set` was given; Kafka's names may stand without `kafka.` before them.
        flags: by dotted name, which go before what `--set` says of the same.

    Raises:
        SettingsError: one of them is unknown or unfit.
        UsageError: something in `given` is no NAME=VALUE.
    """
    asked = {**pairs(given, "--set"), **{name: value for name, value in flags.items() if value is not None}}
    named = {KAFKA + name if name in BROKER_CONFIGS else name: value for name, value in asked.items()}
    no_settings = (BOOTSTRAP_VARIABLE, NATIVE_VARIABLE, PASSWORD_VARIABLE)
    environment = {name: value for name, value in os.environ.items() if name not in no_settings}
    return load_settings(
        config_file, environment, named, kafka_names=list(BROKER_CONFIGS), kafka_check=check_broker_config
    )
