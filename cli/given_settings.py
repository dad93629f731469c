"""The settings given to a command: by its flags, the environment, and the settings file."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click

from gnomon.cli.options import BOOTSTRAP_VARIABLE, NATIVE_VARIABLE, PASSWORD_VARIABLE, pairs
from gnomon.runtime.settings.loaded_settings import FILE_VARIABLE, Loaded, load_settings
from gnomon.runtime.settings.settings import declared_settings

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
    """The settings in force; a flag that is None was not given.

    Args:
        given: the values of `--set`; Kafka's names may be given without `kafka.` before them.
        flags: by dotted name; a flag wins over `--set` of the same name.

    Raises:
        SettingsError: one of them is unknown or unfit.
        UsageError: a text in `given` is no NAME=VALUE.
    """
    asked = {**pairs(given, "--set"), **{name: value for name, value in flags.items() if value is not None}}
    declared = declared_settings()
    named = {name if name in declared else _full_name(name): value for name, value in asked.items()}
    no_settings = (BOOTSTRAP_VARIABLE, NATIVE_VARIABLE, PASSWORD_VARIABLE)
    environment = {name: value for name, value in os.environ.items() if name not in no_settings}
    return load_settings(config_file, environment, named, kafka_names=_kafka_names, kafka_check=_check_kafka)


def _full_name(name: str) -> str:
    return KAFKA + name if name in _kafka_names() else name


def _kafka_names() -> Collection[str]:
    """Kafka's names; only a node that is given one of them loads the broker's table."""
    from gnomon.broker.configs.broker_configs import BROKER_CONFIGS

    return BROKER_CONFIGS.keys()


def _check_kafka(name: str, value: str) -> None:
    from gnomon.broker.configs.broker_configs import check_broker_config

    check_broker_config(name, value)
