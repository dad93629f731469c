"""`gnomon config`: every setting with its value."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import click

from gnomon.broker.broker_configs import BROKER_CONFIGS, BrokerConfigs
from gnomon.cli.given_settings import KAFKA, config_option, read_settings
from gnomon.cli.output import output_option, show_list
from gnomon.runtime.settings import Settings, declared_settings


@click.group()
def config() -> None:
    """Show every setting, and where its value comes from."""


@config.command()
@click.option("--origin", is_flag=True, help="Also show where each value comes from.")
@config_option
@output_option
def show(origin: bool, config_file: Path | None, output: str) -> None:
    """Show every setting with the value that a broker started here would use."""
    loaded = read_settings(config_file)
    kafka = BrokerConfigs(loaded.settings.kafka)
    rows = [{"setting": name, "value": _value(loaded.settings, name)} for name in declared_settings()]
    rows += [{"setting": KAFKA + name, "value": kafka.text(name)} for name in BROKER_CONFIGS]
    for row in rows:
        row["origin"] = str(loaded.origins.get(str(row["setting"]), "default"))
    show_list(rows, ("setting", "value", "origin") if origin else ("setting", "value"), output)


def _value(settings: Settings, name: str) -> Any:
    section, _, setting = name.rpartition(".")
    found: Any = getattr(getattr(settings, section.replace(".", "_")) if section else settings, setting)
    if isinstance(found, Enum):
        return found.value
    return str(found) if isinstance(found, Path) else found
