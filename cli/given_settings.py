"""The settings given to a command: by its flags, the environment, and the settings file."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click

from gnomon.cli.options import BOOTSTRAP_VARIABLE, NATIVE_VARIABLE, PASSWORD_VARIABLE, metadata_option, pairs
from gnomon.cli.profile.profiles import PROFILE_VARIABLE, profile_of_command, profile_option
from gnomon.runtime.settings.loaded_settings import DEFAULT, FILE_VARIABLE, Loaded, load_settings
from gnomon.runtime.settings.settings import Settings, declared_settings

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


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--metadata`, `--profile` and `--config` of a command for a cluster, whose settings are `cluster_settings`."""
    return metadata_option(profile_option(config_option(command)))


def cluster_settings(metadata: str | None, config_file: Path | None, data_dir: str | None = None) -> Settings:
    """The settings of a command for a cluster, or for a data directory where the command has that choice.

    The cluster is that of `--metadata`, else of the setting, else of the profile; a data directory that was given or
    set counts more than a profile.
    """
    loaded = read_settings(config_file, **{"data_dir": data_dir, "cluster.metadata": metadata})
    if loaded.settings.cluster.metadata or loaded.origins["data_dir"] != DEFAULT:
        return loaded.settings
    return read_settings(config_file, **{"cluster.metadata": profile_of_command().metadata or None}).settings


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
    named = {name if name in declared else full_name(name): value for name, value in asked.items()}
    no_settings = (BOOTSTRAP_VARIABLE, NATIVE_VARIABLE, PASSWORD_VARIABLE, PROFILE_VARIABLE)
    environment = {name: value for name, value in os.environ.items() if name not in no_settings}
    return load_settings(config_file, environment, named, kafka_names=_kafka_names, kafka_check=_check_kafka)


def full_name(name: str) -> str:
    """The name of a setting that may have been given by Kafka's plain name."""
    return KAFKA + name if name in _kafka_names() else name


def _kafka_names() -> Collection[str]:
    """Kafka's names; only a node that is given one of them loads the broker's table."""
    from gnomon.broker.configs.broker_configs import BROKER_CONFIGS

    return BROKER_CONFIGS.keys()


def _check_kafka(name: str, value: str) -> None:
    from gnomon.broker.configs.broker_configs import check_broker_config

    check_broker_config(name, value)
