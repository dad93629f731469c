"""One Kafka config key: its type, its default, and the values that gnomon can honour.

An accepted value has the effect that Kafka documents; a value that gnomon cannot honour is refused with the reason. A
key that only tunes machinery that gnomon lacks (files, threads, a log cleaner) accepts every value of Kafka's type and
bounds, because tools set it on all topics and brokers; the documentation of such a key says that it has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum


class ConfigType(IntEnum):
    """The type numbers of DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """The source of a value, with the numbers of DescribeConfigs (KIP-226)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class InvalidConfig(ValueError):
    """A key or a value is refused; the text names the key, the value and the reason."""


_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


def any_value(_text: str) -> str | None:
    """Accepts every value of the key's type."""
    return None


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A config key of a topic or a broker.

    `judge` returns None for a value that gnomon honours, else the reason for the refusal; its argument is a text of the
    right type. `synonym` is the broker's key that a topic's key falls back to. `alterable` says whether the value may
    change at run time. `has_effect` says whether anything in gnomon depends on the value.
    """

    name: str
    type: ConfigType
    default: str | None
    documentation: str
    judge: Callable[[str], str | None] = any_value
    synonym: str | None = None
    alterable: bool = True
    has_effect: bool = True

    def check(self, text: str) -> None:
        """Checks a value.

        Raises:
            InvalidConfig: the value has another type, is out of bounds, or cannot be honoured.
        """
        reason = self._judge_type(text) or self.judge(text)
        if reason is not None:
            raise InvalidConfig(f"Invalid value {text!r} for configuration {self.name}: {reason}")

    def _judge_type(self, text: str) -> str | None:
        if self.type is ConfigType.BOOLEAN:
            return None if text in ("true", "false") else "must be true or false"
        if self.type is ConfigType.DOUBLE:
            try:
                float(text)
            except ValueError:
                return "must be a number"
            return None
        if (bits := _BITS.get(self.type)) is not None:
            if not _WHOLE_NUMBER.fullmatch(text):
                return f"must be a whole number of {bits} bits"
            number = int(text)
            return None if -(1 << (bits - 1)) <= number < 1 << (bits - 1) else f"does not fit into {bits} bits"
        return None


def at_least(low: int) -> Callable[[str], str | None]:
    """Accepts numbers from `low` on."""
    return lambda text: None if int(text) >= low else f"must be at least {low}"


def between(low: float, high: float) -> Callable[[str], str | None]:
    """Accepts numbers from `low` to `high`."""
    return lambda text: None if low <= float(text) <= high else f"must be from {low} to {high}"


def one_of(*allowed: str) -> Callable[[str], str | None]:
    """Accepts one of the given words."""
    return lambda text: None if text in allowed else f"must be {' or '.join(allowed)}"


def only(allowed: str, reason: str) -> Callable[[str], str | None]:
    """Accepts only the value `allowed`, for the given reason."""
    return lambda text: None if text.replace(" ", "") == allowed else f"only {allowed!r} is supported: {reason}"


def address_limits(text: str) -> dict[str, int]:
    """The limit of each address in a text such as `10.0.0.7:100,[fd00::7]:20`.

    Raises:
        ValueError: the text has another form.
    """
    limits: dict[str, int] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        address, _, limit = item.rpartition(":")
        if not address or not limit.isdecimal():
            raise ValueError(f"{item!r} is no address and number, such as 10.0.0.7:100")
        limits[address] = int(limit)
    return limits


def readable(read: Callable[[str], object]) -> Callable[[str], str | None]:
    """Accepts texts that `read` takes, which raises ValueError with the reason for others."""

    def judge(text: str) -> str | None:
        try:
            read(text)
        except ValueError as error:
            return str(error)
        return None

    return judge
