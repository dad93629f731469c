"""`gnomon config`: every setting with its value."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import click

from gnomon.broker.configs.broker_configs import BROKER_CONFIGS, BrokerConfigs
from gnomon.cli.given_settings import KAFKA, config_option, read_settings
from gnomon.cli.names.suggestion import CommandGroup
from gnomon.cli.output import output_option, show_list
from gnomon.runtime.settings.loaded_settings import DEFAULT, Loaded
from gnomon.runtime.settings.settings import Settings, declared_settings


@click.group(cls=CommandGroup)
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
    rows = []
    for name, setting in declared_settings().items():
        value = _value(loaded.settings, name)
        source = setting.follows if setting.follows and loaded.origins[name] == DEFAULT else name
        rows.append({"setting": name, "value": value, "origin": _origin(loaded, name, source), "note": ""})
    for name in BROKER_CONFIGS:
        used = kafka.synonyms(name)[0]
        origin_text = _origin(loaded, KAFKA + name, KAFKA + used.name)
        note = "" if BROKER_CONFIGS[name].has_effect else "without effect"
        rows.append({"setting": KAFKA + name, "value": used.text, "origin": origin_text, "note": note})
    show_list(rows, ("setting", "value", "origin", "note") if origin else ("setting", "value", "note"), output)


def _origin(loaded: Loaded, name: str, source: str) -> str:
    """The origin of the value of `name`, which is that of the setting `source`."""
    origin = loaded.origins.get(source, DEFAULT)
    return str(origin) if source == name or origin == DEFAULT else f"{origin} ({source})"


def _value(settings: Settings, name: str) -> Any:
    section, _, setting = name.rpartition(".")
    found: Any = getattr(getattr(settings, section.replace(".", "_")) if section else settings, setting)
    if isinstance(found, Enum):
        return found.value
    return str(found) if isinstance(found, Path) else found
