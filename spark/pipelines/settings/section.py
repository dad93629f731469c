"""One section of a pipeline's file: typed values by their keys, and errors that name the key. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any


class BadPipeline(Exception):
    """A setting of a pipeline cannot be used; the text names it, its value and the values that it takes."""


class Section:
    """A table of the file.

    Args:
        name: its dotted name, empty for the file itself.
        known: its keys.

    Raises:
        BadPipeline: another key is given; so all methods, see there.
    """

    def __init__(self, name: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
        self.name = name
        self._given = given
        for key in given:
            if key not in known:
                nearest = get_close_matches(key, known, 1)
                advice = f"; is it {nearest[0]}?" if nearest else f": there are {', '.join(sorted(known))}"
                raise BadPipeline(f"{self._dotted(key)}: no such setting{advice}")

    def given(self, key: str) -> Any:
        """The value as it is; None if it is not given."""
        return self._given.get(key)

    def text(self, key: str) -> str | None:
        """A text that is not empty."""
        value = self.given(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise self._unfit(key, value, "a text")
        return value

    def needed(self, key: str) -> str:
        """A text that must be given."""
        value = self.text(key)
        if value is None:
            raise BadPipeline(f"{self._dotted(key)}: not given")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of texts, empty if it is not given."""
        value = self.given(key)
        if value is None:
            return []
        if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
            raise self._unfit(key, value, "a list of texts")
        return value

    def texts_by_name(self, key: str) -> dict[str, str]:
        """A table of texts and numbers, all as texts; nested tables have dotted names, as Spark's settings."""
        value = self.given(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._unfit(key, value, "a table")
        return dict(self._flat(self._dotted(key), "", value))

    def one_of(self, key: str, values: tuple[str, ...]) -> str:
        """One of some texts; the first one if it is not given."""
        value = self.given(key)
        if value is None:
            return values[0]
        if value not in values:
            raise self._unfit(key, value, " or ".join(map(repr, values)))
        found: str = value
        return found

    def number(self, key: str, lowest: int, highest: int = (1 << 63) - 1) -> int | None:
        """A whole number."""
        value = self.given(key)
        if value is not None and (type(value) is not int or not lowest <= value <= highest):
            raise self._unfit(key, value, f"a whole number from {lowest} to {highest}")
        return value

    def flag(self, key: str) -> bool:
        """True or false; false if it is not given."""
        value = self.given(key)
        if value is not None and type(value) is not bool:
            raise self._unfit(key, value, "true or false")
        return bool(value)

    def section(self, key: str, known: tuple[str, ...]) -> Section:
        """A table within, empty if it is not given."""
        value = self.given(key)
        if value is not None and not isinstance(value, dict):
            raise self._unfit(key, value, "a table")
        return Section(self._dotted(key), value or {}, known)

    def _flat(self, name: str, prefix: str, value: Mapping[str, Any]) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for key, item in value.items():
            if isinstance(item, dict):
                found += self._flat(f"{name}.{key}", f"{prefix}{key}.", item)
            elif isinstance(item, str | int | float):
                found.append((prefix + key, str(item).lower() if isinstance(item, bool) else str(item)))
            else:
                raise BadPipeline(f"{name}.{key} = {item!r:.100}: expected a text or a number")
        return found

    def _dotted(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def _unfit(self, key: str, value: object, expected: str) -> BadPipeline:
        return BadPipeline(f"{self._dotted(key)} = {value!r:.100}: expected {expected}")
