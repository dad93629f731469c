"""The interface of all formats: values of records in, columns and the rows that do not fit out. Pure.

1. A value becomes a row of the columns or a misfit with a reason, never both, and never two rows.
2. The rows have the order of their values.
3. A value is decoded in the same way alone and among others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

REASON_CHARACTERS_MAX: Final = 300


class BadFormat(Exception):
    """The description of a format cannot be used; the text names the setting."""


class Misfit(NamedTuple):
    """A value that the format does not fit."""

    row: int
    """Its place among the values."""
    reason: str


class DecodedValues(NamedTuple):
    """The values of one record batch."""

    columns: pa.RecordBatch
    """One row for each value that fits."""
    misfits: list[Misfit]
    """In the order of their rows."""


class Decoder(Protocol):
    """Decodes values into columns."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    def decode(self, values: pa.BinaryArray) -> DecodedValues:
        """The values as columns, and those that do not fit. A null value fits `raw` and `text` only."""


def decode_together(
    values: pa.BinaryArray, schema: pa.Schema, parse: Callable[[list[bytes]], pa.RecordBatch]
) -> DecodedValues:
    """Decodes by a parser that refuses all values if one of them does not fit: they are halved until the rest fits.

    Args:
        parse: yields one row for each value; raises ValueError with the reason if a value does not fit.
    """
    parts: list[pa.RecordBatch] = []
    misfits: list[Misfit] = []
    given: list[bytes | None] = values.to_pylist()
    rows = [row for row, value in enumerate(given) if value is not None]
    known = [value for value in given if value is not None]
    open_parts = [(0, len(known))] if known else []
    while open_parts:
        start, stop = open_parts.pop()
        try:
            parts.append(parse(known[start:stop]))
        except ValueError as error:
            if stop - start == 1:
                misfits.append(Misfit(rows[start], str(error)[:REASON_CHARACTERS_MAX]))
            else:
                middle = (start + stop) // 2
                open_parts += [(middle, stop), (start, middle)]
    misfits += [Misfit(row, "the value is null") for row, value in enumerate(given) if value is None]
    return DecodedValues(joined(parts, schema), sorted(misfits))


def joined(parts: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """All rows in one record batch."""
    columns = pa.Table.from_batches(parts, schema).combine_chunks().columns
    arrays = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
