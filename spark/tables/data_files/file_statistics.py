"""The counts and bounds of the rows of a file, as Delta's log has them. Pure.

1. A bound is never inside the values: a time is rounded to milliseconds, the lower bound down and the upper one up.
2. A column has both bounds or none. It has none if a value is NaN or infinite, is a text of more than
   TEXT_CHARACTERS_MAX characters, or is outside the years 1 to 9999: Delta's readers order NaN above all numbers, and
   JSON has no infinity.
3. Columns that are not nested have a count of nulls. Whole and floating-point numbers, dates, times and texts have
   bounds.
"""

from __future__ import annotations

import json
import math
from datetime import date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

TEXT_CHARACTERS_MAX: Final = 64
_EPOCH: Final = datetime(1970, 1, 1)
_MICROSECONDS: Final = 1_000
_YEARS: Final = (-62_135_596_800_000, 253_402_300_799_999)
"""The first and the last millisecond of the years 1 to 9999."""


class FileStatistics:
    """The statistics of a growing file.

    Args:
        schema: the columns of the file.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._rows = 0
        self._nulls = {field.name: 0 for field in schema if not pa.types.is_nested(field.type)}
        self._bounds: dict[str, tuple[Any, Any] | None] = {}
        self._bounded = {field.name: field.type for field in schema if _has_bounds(field.type)}

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._rows

    def add(self, batch: pa.RecordBatch) -> None:
        """Counts the rows of a batch."""
        self._rows += batch.num_rows
        for name in self._nulls:
            self._nulls[name] += batch.column(name).null_count
        for name, kind in list(self._bounded.items()):
            found = _bounds(batch.column(name), kind)
            if found is None:
                del self._bounded[name]
                self._bounds.pop(name, None)
            elif found[0] is not None:
                known = self._bounds.get(name) or found
                self._bounds[name] = min(known[0], found[0]), max(known[1], found[1])

    def text(self) -> str:
        """The statistics as JSON."""
        lower, upper = {}, {}
        for name, bounds in self._bounds.items():
            assert bounds is not None, "a column without bounds was removed"
            texts = _texts(*bounds, self._bounded[name])
            if texts is not None:
                lower[name], upper[name] = texts
        members = {"numRecords": self._rows, "minValues": lower, "maxValues": upper, "nullCount": self._nulls}
        return json.dumps(members, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _has_bounds(kind: pa.DataType) -> bool:
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(is_text or is_number or pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def _bounds(array: pa.Array, kind: pa.DataType) -> tuple[Any, Any] | None:
    """The least and the greatest value, both None if there is none; None if the column has no bounds."""
    if pa.types.is_floating(kind):
        if not pc.all(pc.is_finite(array), min_count=0).as_py():
            return None
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        longest = pc.max(pc.utf8_length(array)).as_py()
        if longest is not None and longest > TEXT_CHARACTERS_MAX:
            return None
    elif pa.types.is_timestamp(kind):
        array = array.cast(pa.int64())
    elif pa.types.is_date32(kind):
        array = array.cast(pa.int32())
    found = pc.min_max(array)
    return found["min"].as_py(), found["max"].as_py()


def _texts(lower: Any, upper: Any, kind: pa.DataType) -> tuple[Any, Any] | None:
    """The bounds as JSON has them (invariant 1); None if they are outside the years that it can have."""
    if pa.types.is_timestamp(kind):
        if kind.unit != "us":
            return None
        lower, upper = lower // _MICROSECONDS, -(-upper // _MICROSECONDS)
        if lower < _YEARS[0] or upper > _YEARS[1]:
            return None
        zone = "" if kind.tz is None else "Z"
        return _time(lower) + zone, _time(upper) + zone
    if pa.types.is_date32(kind):
        days = date.min.toordinal() - _EPOCH.toordinal(), date.max.toordinal() - _EPOCH.toordinal()
        if lower < days[0] or upper > days[1]:
            return None
        return _day(lower), _day(upper)
    if pa.types.is_floating(kind) and not (math.isfinite(lower) and math.isfinite(upper)):
        return None
    return lower, upper


def _day(days: int) -> str:
    return date.fromordinal(_EPOCH.toordinal() + days).isoformat()


def _time(milliseconds: int) -> str:
    return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")
