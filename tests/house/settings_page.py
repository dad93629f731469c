"""Writes docs/settings.md: gnomon's own settings, then every broker setting and topic config with Kafka's name.

python tests/house/settings_page.py
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from gnomon.broker.configs.broker_configs import BROKER_CONFIGS, DERIVED
from gnomon.broker.configs.config_key import ConfigKey, ConfigType
from gnomon.broker.configs.topic_configs import TOPIC_CONFIGS
from gnomon.runtime.settings.settings import MIB, SECTIONS, declared_settings

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"

_NUMBERS = {ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE}

_HEAD = """# Settings

Written by `python tests/house/settings_page.py` from the code; a test keeps the two the same.

A flag wins over an environment variable, that over the TOML file, that over the default. `gnomon config show --origin`
says what is in force without flags, and why. An unknown name is an error that names the nearest known one.

```toml
data_dir = "/var/lib/gnomon"

[broker]
kafka_port = 9092

[kafka]
num.partitions = 4
```

The same in the environment: `GNOMON_DATA_DIR`, `GNOMON_BROKER__KAFKA_PORT`, `GNOMON_KAFKA__NUM_PARTITIONS`."""

_KAFKA_HEAD = """
## kafka

Kafka's own broker settings under Kafka's names (`num.partitions`, `log.retention.ms`, …): here in the file, as
`GNOMON_KAFKA__NUM_PARTITIONS` in the environment, as `--set num.partitions=4` on the command line.
`kafka-configs.sh --describe --entity-type brokers` lists them with their values. The tables below come from
`broker/configs/broker_configs.py` and `broker/configs/topic_configs.py`.
"""
_BROKER_HEAD = """
### Broker settings

*Alterable*: through IncrementalAlterConfigs while the broker runs, for one broker or as a default of all; the others
are read at the start. A default of *none* is that of a key that nothing is set for.
"""
_TOPIC_HEAD = """
### Topic configs

Set when a topic is created or at any time after it (`gnomon topic alter`, IncrementalAlterConfigs). A topic without a
value of its own takes that of the broker setting in the last column, where there is one. *Only the default* means that
another value is refused with the reason given: it could not be honoured.
"""


def settings_page() -> str:
    """The whole page."""
    return _own_settings() + _BROKER_HEAD + _broker_table(BROKER_CONFIGS) + _TOPIC_HEAD + _topic_table()


def _own_settings() -> str:
    """The page up to Kafka's settings."""
    lines = [_HEAD]
    section = None
    for name, setting in declared_settings().items():
        title = name.rpartition(".")[0] if "." in name else "top level"
        if title != section:
            section = title
            about = f"{SECTIONS[title].__doc__}\n\n" if title in SECTIONS else ""
            lines.append(f"\n## {title}\n\n{about}| setting | default | what it does |\n|---|---|---|")
        lines.append(f"| `{name}`<br>`{setting.variable}` | {_shown(setting.default)} | {setting.doc} |")
    return "\n".join([*lines, _KAFKA_HEAD])


def _shown(default: object) -> str:
    if isinstance(default, Enum):
        default = default.value
    if type(default) is bool:
        default = str(default).lower()
    if type(default) is int and default >= MIB and default % MIB == 0:
        size, unit = default // MIB, 0
        while size % 1024 == 0:
            size, unit = size // 1024, unit + 1
        return f"{default} ({size} {('MiB', 'GiB', 'TiB')[unit]})"
    return "empty" if default == "" else f"`{default}`"


def _broker_table(keys: Mapping[str, ConfigKey]) -> str:
    rows = ["", "| setting | type | default | alterable | what it does | values |", "|---|---|---|---|---|---|"]
    for key in sorted(keys.values(), key=lambda key: key.name):
        alterable = "yes" if key.alterable else "no"
        rows.append(f"| {_key_columns(key)} | {alterable} | {key.documentation} | {_values(key)} |")
    return "\n".join(rows) + "\n"


def _topic_table() -> str:
    rows = ["", "| config | type | default | what it does | values | broker setting |", "|---|---|---|---|---|---|"]
    for key in sorted(TOPIC_CONFIGS.values(), key=lambda key: key.name):
        assert key.alterable, f"{key.name}: the page says that every topic config may be altered"
        synonym = f"`{key.synonym}`" if key.synonym is not None else ""
        rows.append(f"| {_key_columns(key)} | {key.documentation} | {_values(key)} | {synonym} |")
    return "\n".join(rows) + "\n"


def _key_columns(key: ConfigKey) -> str:
    default = {None: "*none*", "": "empty"}.get(key.default, f"`{key.default}`")
    return f"`{key.name}` | {key.type.name.lower()} | {default}"


def _values(key: ConfigKey) -> str:
    """The limits of a key's values, from the error that a client gets for a value that no key allows."""
    if key.name in DERIVED:
        return f"cannot be set: follows from {DERIVED[key.name]}"
    reason = key.judge("-1000" if key.type in _NUMBERS else "neither")
    if reason is None:
        return ""
    bound, colon, why = reason.partition(" is supported: ")
    return f"only the default: {why}" if colon and bound.startswith("only ") else reason.removeprefix("must be ")


if __name__ == "__main__":
    PAGE.write_text(settings_page(), encoding="utf-8")
