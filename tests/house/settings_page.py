"""Writes docs/settings.md: gnomon's own settings, then every broker setting and topic config that goes by Kafka's name.

python tests/house/settings_page.py
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gnomon.broker.broker_configs import BROKER_CONFIGS, TOLD
from gnomon.broker.config_key import ConfigKey, ConfigType
from gnomon.broker.topic_configs import TOPIC_CONFIGS
from gnomon.runtime.settings import render_settings_page

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"

_NUMBERS = {ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE}

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
    return render_settings_page() + _BROKER_HEAD + _broker_table(BROKER_CONFIGS) + _TOPIC_HEAD + _topic_table()


def _broker_table(keys: Mapping[str, ConfigKey]) -> str:
    rows = ["", "| setting | type | default | alterable | what it does | values |", "|---|---|---|---|---|---|"]
    for key in sorted(keys.values(), key=lambda key: key.name):
        alterable = "yes" if key.alterable else "no"
        rows.append(f"| {_head(key)} | {alterable} | {key.documentation} | {_values(key)} |")
    return "\n".join(rows) + "\n"


def _topic_table() -> str:
    rows = ["", "| config | type | default | what it does | values | broker setting |", "|---|---|---|---|---|---|"]
    for key in sorted(TOPIC_CONFIGS.values(), key=lambda key: key.name):
        assert key.alterable, f"{key.name}: the page says that every topic config may be altered"
        synonym = f"`{key.synonym}`" if key.synonym is not None else ""
        rows.append(f"| {_head(key)} | {key.documentation} | {_values(key)} | {synonym} |")
    return "\n".join(rows) + "\n"


def _head(key: ConfigKey) -> str:
    default = {None: "*none*", "": "empty"}.get(key.default, f"`{key.default}`")
    return f"`{key.name}` | {key.type.name.lower()} | {default}"


def _values(key: ConfigKey) -> str:
    """What is refused, in the words that a client gets: asked with a value that no key honours."""
    if key.name in TOLD:
        return f"cannot be set: follows from {TOLD[key.name]}"
    reason = key.judge("-1000" if key.type in _NUMBERS else "neither")
    if reason is None:
        return ""
    bound, colon, why = reason.partition(" is supported: ")
    return f"only the default: {why}" if colon and bound.startswith("only ") else reason.removeprefix("must be ")


if __name__ == "__main__":
    PAGE.write_text(settings_page(), encoding="utf-8")
