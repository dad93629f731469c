"""Loads the settings of a process from file, environment and flags, with the origin of each value.

1. A flag wins over the environment, the environment over the file, the file over the default.
2. An unknown name and a value of the wrong type are errors; nothing is ignored.
3. Each value's origin is known (`gnomon config show --origin`).
4. Settings that replace each other (`listeners`) are not both given; one that is replaced has the value and the origin
   of the one that replaces it.
5. The table of Kafka's settings is loaded only if a given name is not one of gnomon's own settings, so that bookies
   and metadata services start without the table.

docs/decisions/0004-settings.md says why no settings library is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gnomon.runtime.settings.listeners import ADVERTISED, LISTENERS, PROTOCOL_MAP, REPLACED, kafka_listeners
from gnomon.runtime.settings.settings import (
    ENVIRONMENT_PREFIX,
    SECTIONS,
    BrokerSettings,
    Setting,
    Settings,
    declared_settings,
    environment_variable,
)

FILE_VARIABLE = "GNOMON_CONFIG"
"""Names the settings file; the command line reads it, so it is not a setting."""

_TRUTHS = {"true": True, "false": False}


class SettingsError(Exception):
    """A setting is unknown or its value unfit; the text names the setting, its origin, and the values that fit."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a value: `default`, `file`, `environment` or `flag`, and the file or variable."""

    kind: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.place}".rstrip()


DEFAULT = Origin("default")


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings and the origin of each, by name: all declared ones, and those of `kafka` that were given."""

    settings: Settings
    origins: dict[str, Origin]


def load_settings(
    file: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, object],
    *,
    kafka_names: Callable[[], Collection[str]] = tuple,
    kafka_check: Callable[[str, str], None] | None = None,
) -> Loaded:
    """Reads and checks every setting.

    Args:
        file: a TOML file, or None.
        environment: usually `os.environ`; names that do not begin with `GNOMON_` are skipped.
        flags: by dotted name (`broker.kafka_port`, `kafka.num.partitions`, `data_dir`); texts are parsed.
        kafka_names: gives Kafka's names that the section `kafka` takes.
        kafka_check: raises ValueError with the reason where a value does not fit the Kafka setting of that name.

    Raises:
        SettingsError: a name is unknown, a value invalid, or the file cannot be read.
    """
    declared = declared_settings()
    known = _KnownNames(declared, kafka_names)
    values: dict[str, Any] = {name: setting.default for name, setting in declared.items()}
    origins = dict.fromkeys(declared, DEFAULT)
    for name, value, origin in _given(file, environment, flags, known):
        if name in declared:
            values[name] = _checked(declared[name], value, origin)
        else:
            values[name] = _checked_kafka(name, value, origin, kafka_check)
        origins[name] = origin

    _take_listeners(values, origins)

    def section(prefix: str) -> dict[str, Any]:
        return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}

    parts: dict[str, Any] = {name.replace(".", "_"): kind(**section(f"{name}.")) for name, kind in SECTIONS.items()}
    settings = Settings(data_dir=values["data_dir"], kafka=MappingProxyType(section("kafka.")), **parts)
    return Loaded(settings, origins)


def _take_listeners(values: dict[str, Any], origins: dict[str, Origin]) -> None:
    """Invariant 4: the first of Kafka's listeners, where they are given, is that of the section `broker`."""
    given = {
        name: values[f"kafka.{name}"] for name in (LISTENERS, ADVERTISED, PROTOCOL_MAP) if f"kafka.{name}" in values
    }
    for replacing, replaced in REPLACED.items():
        for name in replaced:
            if replacing in origins and origins[name] != DEFAULT:
                raise SettingsError(
                    f"{name} ({origins[name]}) and {replacing} ({origins[replacing]}) both say where Kafka clients "
                    "connect: give only one of them"
                )
    if not given:
        return
    names = REPLACED[f"kafka.{LISTENERS}"]
    try:
        broker = BrokerSettings(**{name.removeprefix("broker."): values[name] for name in names})
        first = kafka_listeners(broker, given)[0]
    except ValueError as problem:
        raise SettingsError(f"the listeners for Kafka clients are refused: {problem}") from None
    values.update(zip(names, (first.host, first.port, first.advertised_host), strict=True))
    for replacing, replaced in REPLACED.items():
        if replacing in origins:
            origins.update(dict.fromkeys(replaced, origins[replacing]))


class _KnownNames:
    """The names of all settings (invariant 5)."""

    def __init__(self, declared: Collection[str], kafka_names: Callable[[], Collection[str]]) -> None:
        self._names = list(declared)
        self._variables = {environment_variable(name): name for name in declared}
        self._kafka_names: Callable[[], Collection[str]] | None = kafka_names

    def name(self, name: str, origin: Origin) -> str:
        """The name itself, if it is one of a setting."""
        if name not in self._names:
            self._load_kafka_names()
            if name not in self._names:
                raise _unknown(name, self._names, origin)
        return name

    def name_of(self, variable: str) -> str:
        """The name of the setting that an environment variable sets."""
        if variable not in self._variables:
            self._load_kafka_names()
            if variable not in self._variables:
                raise _unknown(variable, list(self._variables), Origin("environment"))
        return self._variables[variable]

    def _load_kafka_names(self) -> None:
        kafka_names, self._kafka_names = self._kafka_names, None
        if kafka_names is not None:
            names = [f"kafka.{name}" for name in kafka_names()]
            self._names += names
            self._variables |= {environment_variable(name): name for name in names}


def _given(
    file: Path | None, environment: Mapping[str, str], flags: Mapping[str, object], known: _KnownNames
) -> Iterator[tuple[str, object, Origin]]:
    """All given values, weakest first; every name is known."""
    if file is not None:
        origin = Origin("file", str(file))
        for name, value in _flatten(_read_toml(file), ""):
            yield known.name(name, origin), value, origin
    for variable in sorted(environment):
        if variable.startswith(ENVIRONMENT_PREFIX) and variable != FILE_VARIABLE:
            origin = Origin("environment", variable)
            yield known.name_of(variable), environment[variable], origin
    for name, value in flags.items():
        yield known.name(name, Origin("flag")), value, Origin("flag")


def _unknown(name: str, known: list[str], origin: Origin) -> SettingsError:
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    advice = f"did you mean {near[0]}?" if near else "`gnomon config show` lists them all"
    return SettingsError(f"unknown setting {name} ({origin}): {advice}")


def _read_toml(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"the settings file {file} does not exist: create it or leave it out") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"the settings file {file} cannot be read: {error}") from error


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    """Joins nested TOML keys, such as `num.partitions = 4`, into one name again."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _checked(setting: Setting, value: object, origin: Origin) -> object:
    kind = type(setting.default)
    try:
        converted = _converted(kind, value, origin.kind != "file")
    except (ValueError, TypeError, KeyError):
        raise _unfit(setting.name, _expected(kind), value, origin) from None
    if value == "" and setting.default:
        raise _unfit(setting.name, "given where it is named", value, origin)
    if isinstance(converted, float) and not math.isfinite(converted):
        raise _unfit(setting.name, "a finite number", value, origin)
    if setting.choices and converted not in setting.choices:
        raise _unfit(setting.name, "one of " + ", ".join(setting.choices), value, origin)
    if isinstance(converted, int | float):
        if converted < setting.minimum:
            raise _unfit(setting.name, f"at least {setting.minimum}", value, origin)
        if setting.maximum is not None and converted > setting.maximum:
            raise _unfit(setting.name, f"at most {setting.maximum}", value, origin)
    return converted


def _converted(kind: type, value: object, texts: bool) -> object:
    """The value as `kind`; `texts` allows numbers as texts."""
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    if kind in (int, float) and ((texts and isinstance(value, str)) or (kind is float and type(value) is int)):
        return kind(value)
    if kind is bool and texts and isinstance(value, str):
        return _TRUTHS[value.lower()]
    if (issubclass(kind, Path) or issubclass(kind, Enum)) and isinstance(value, str):
        return kind(value)
    raise TypeError


def _expected(kind: type) -> str:
    if issubclass(kind, Enum):
        return "one of " + ", ".join(str(member.value) for member in kind)
    return {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}.get(kind, "a path")


def _unfit(name: str, expected: str, value: object, origin: Origin) -> SettingsError:
    return SettingsError(f"setting {name} ({origin}) must be {expected}, not {value!r}")


def _checked_kafka(name: str, value: object, origin: Origin, check: Callable[[str, str], None] | None) -> str:
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, list):
        text = ",".join(map(str, value))
    else:
        text = str(value)
    if check is not None:
        try:
            check(name.removeprefix("kafka."), text)
        except ValueError as error:
            raise SettingsError(f"setting {name} ({origin}) has the unfit value {text!r}: {error}") from error
    return text
