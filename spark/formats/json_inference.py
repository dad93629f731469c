"""The columns of JSON objects, found from the first of them. Pure.

1. The columns have the order in which they first appear.
2. Whole numbers are BIGINT, and DOUBLE if one of them has a fraction or more than 63 bits. Texts are STRING, also those
   that look like a time: a later one need not.
3. A column that is always null, or an array that is always empty, is of STRING. An object that never has a member is
   left out.
4. Values of two types in one column are refused by the name of the column.
5. Values that are not JSON objects, or are nested more than `DEPTH_MAX` deep, are left out.
6. Each value that is not left out fits the columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

import pyarrow as pa
from pyarrow import json

from gnomon.spark.formats.decoder import BadFormat
from gnomon.spark.formats.json_values import read_objects

DEPTH_MAX: Final = 64
"""Arrow crashes the process when it frees a type of a hundred thousand levels."""
VALUES_MAX: Final = 1_000


_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET: Final = re.compile(rb"[\[{\]}]")
_CONFLICT: Final = re.compile(r"Column\(/(.*)\) changed from (\w+) to (\w+)", re.DOTALL)
_NUMBERS: Final = (pa.int64(), pa.float64())
_OPTIONS: Final = json.ParseOptions(newlines_in_values=True)


def inferred_columns(values: Iterable[bytes | None], values_max: int = VALUES_MAX) -> pa.Schema:
    """The columns of the first values.

    Each value is read alone: in one call, a column of one value would cost memory for all of them.

    Args:
        values_max: values that are looked at.

    Raises:
        BadFormat: two values of a column have different types; or no value is an object with a member.
    """
    whole = pa.struct([])
    for value in islice(values, values_max):
        if value is not None and not _is_deep(value):
            whole = _merged(whole, _struct_of(value), "")
    columns = _without_empty(whole)
    if columns is None:
        raise BadFormat("no columns are found in the values: none is a JSON object with a member")
    return pa.schema(list(columns))


def _struct_of(value: bytes) -> pa.DataType:
    """The type of an object; without members if the value is not an object.

    Raises:
        BadFormat: an array has items of different types.
    """
    try:
        return pa.struct(list(read_objects([value], _OPTIONS).schema))
    except ValueError as error:
        conflict = _CONFLICT.search(str(error))
        if conflict is not None:
            raise _conflict(conflict[1].replace("/", "."), conflict[2], conflict[3]) from None
        return pa.struct([])


def _is_deep(value: bytes) -> bool:
    if value.count(b"{") + value.count(b"[") <= DEPTH_MAX:
        return False
    depth = 0
    for bracket in _BRACKET.findall(_TEXT.sub(b"", value)):
        depth += 1 if bracket in b"{[" else -1
        if depth > DEPTH_MAX:
            return True
    return False


def _merged(one: pa.DataType, other: pa.DataType, place: str) -> pa.DataType:
    """The type that the values of both types fit."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        members = {field.name: field.type for field in one}
        for field in other:
            known = members.get(field.name, field.type)
            members[field.name] = _merged(known, field.type, f"{place}.{field.name}".lstrip("."))
        return pa.struct(list(members.items()))
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_merged(one.value_type, other.value_type, f"{place}.[]"))
    if one in _NUMBERS and other in _NUMBERS:
        return pa.float64()
    if _is_text(one) and _is_text(other):
        return pa.string()
    raise _conflict(place, str(one), str(other))


def _conflict(place: str, one: str, other: str) -> BadFormat:
    return BadFormat(f"column {place!r} has values of two types, {one} and {other}: give the columns")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_timestamp(kind))


def _without_empty(kind: pa.DataType) -> pa.DataType | None:
    """The type of a column; None if it is an object without members."""
    if pa.types.is_struct(kind):
        members = [(field.name, _without_empty(field.type)) for field in kind]
        return (
            pa.struct([each for each in members if each[1] is not None]) if any(each[1] for each in members) else None
        )
    if pa.types.is_list(kind):
        inner = _without_empty(kind.value_type)
        return None if inner is None else pa.list_(inner)
    return pa.string() if pa.types.is_null(kind) or _is_text(kind) else kind
