"""The options of a source or a sink, as Spark hands them over: texts by names in any case.

1. An unknown option is an error, with the nearest known one. Settings of Kafka's clients (`kafka.…`) that only tune
   them have no effect; those that protect a connection are refused.
2. A value that cannot be used is an error that names the option, the value, and the values that it takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from gnomon.client.addresses import Address, parse_addresses
from gnomon.spark.offsets import BadOption

_TIME: Final = re.compile(r"([0-9]{1,15})\s*(us|ms|s|m|min|h|d)?")
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
_PROTECTION: Final = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")
NUMBER_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = 20
"""A number with as many digits is above NUMBER_MAX."""


class GivenOptions:
    """The given options, by their names as documented.

    Args:
        known: the names of all options.

    Raises:
        BadOption: see invariant 1; so all methods, see invariant 2.
    """

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        by_lower = {name.lower(): name for name in known}
        self._given: dict[str, str] = {}
        for name, value in given.items():
            found = by_lower.get(name.lower())
            if found is not None:
                self._given[found] = value
            elif name.lower().startswith(_PROTECTION) and value.upper() != "PLAINTEXT":
                raise BadOption(f"{name}: connections with TLS or SASL are not built yet")
            elif not name.lower().startswith("kafka."):
                nearest = get_close_matches(name.lower(), by_lower, 1)
                raise BadOption(f"{name}: no such option" + (f"; is it {by_lower[nearest[0]]}?" if nearest else ""))

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def text(self, name: str) -> str | None:
        """The value of an option, None if it is not given."""
        return self._given.get(name)

    def addresses(self) -> tuple[Address, ...]:
        """The addresses of brokers."""
        text = self._given.get("kafka.bootstrap.servers")
        if text is None:
            raise BadOption("kafka.bootstrap.servers: give HOST:PORT[,HOST:PORT…] of some brokers")
        try:
            return tuple(parse_addresses(text))
        except ValueError:
            raise BadOption(
                f"kafka.bootstrap.servers={text!r:.200}: give HOST:PORT[,HOST:PORT…] of some brokers"
            ) from None

    def number(self, name: str, lowest: int = 1, highest: int = NUMBER_MAX) -> int | None:
        """A whole number; None if the option is not given."""
        if name not in self._given:
            return None
        text = self._given[name].strip()
        digits = text.lstrip("0")[:_DIGITS_MAX] or text[:1]
        if not (text.isascii() and text.isdecimal()) or not lowest <= int(digits) <= highest:
            raise BadOption(f"{name}={text!r:.100}: expected a whole number from {lowest} to {highest}")
        return int(digits)

    def seconds(self, name: str, default: str) -> float:
        """A time such as `500ms`."""
        text = self._given.get(name, default).strip().lower()
        found = _TIME.fullmatch(text)
        if found is None:
            raise BadOption(f"{name}={text!r:.100}: expected a time such as 500ms, 30s, 15m, 1h or 1d")
        return int(found[1]) * _SECONDS[found[2] or "ms"]

    def one_of(self, name: str, values: tuple[str, ...]) -> str:
        """The value of an option, the first of `values` unless it is given."""
        value = self._given.get(name, values[0]).strip().lower()
        if value not in values:
            raise BadOption(f"{name}={value!r:.100}: expected {' or '.join(values)}")
        return value
