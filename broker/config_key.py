"""One Kafka config key: its type, its default, which values can be honoured.

A value that is accepted does what Kafka says it does; one that could not be honoured is refused with the reason. What
a key says of something that cannot occur here (compaction, files, unsynced acknowledgements) is kept and does nothing,
since tools set it for all their topics; its documentation says so.
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
    """Where a value comes from, by the numbers of DescribeConfigs (KIP-226)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class InvalidConfig(ValueError):
    """The text names the key, the value and the reason."""


_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A config key of a topic or a broker.

    `judge` returns None for a value that is honoured, else the reason why not; it sees the text after its type was
    checked. `synonym` is the broker's key that a topic's key falls back to; `alterable` is whether it may be changed
    while the broker runs.
    """

    name: str
    type: ConfigType
    default: str | None
    documentation: str
    judge: Callable[[str], str | None] = lambda text: None
    synonym: str | None = None
    alterable: bool = True

    def check(self, text: str) -> None:
        """Accepts a value, or says why not.

        Raises:
            InvalidConfig: the value is not of the key's type, out of its bounds, or could not be honoured.
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
    """Numbers from `low` on."""
    return lambda text: None if int(text) >= low else f"must be at least {low}"


def between(low: float, high: float) -> Callable[[str], str | None]:
    """Numbers from `low` to `high`."""
    return lambda text: None if low <= float(text) <= high else f"must be from {low} to {high}"


def one_of(*allowed: str) -> Callable[[str], str | None]:
    """One of some words."""
    return lambda text: None if text in allowed else f"must be {' or '.join(allowed)}"


def only(allowed: str, reason: str) -> Callable[[str], str | None]:
    """Nothing but `allowed`, for the reason given."""
    return lambda text: None if text.replace(" ", "") == allowed else f"only {allowed!r} is supported: {reason}"
