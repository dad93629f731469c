"""The rows of a batch split by the values of columns, and these values as texts. Pure.

1. Each row is in exactly one part, and the rows of a part have the same values. A null is a value of its own.
2. A text says which value it is: numbers in decimal digits, `true` and `false`, dates as `2024-12-31`.
3. A folder is named after its values as Hive does it: `column=value`, each percent-encoded, and HIVE_NULL for a null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_UNQUOTED: Final = " !$&'()+,-.;@[]^_`{}~"
"""Characters, beside letters and digits, that Spark leaves in the name of a folder, too."""


class RowsPart(NamedTuple):
    """The rows of a batch with the same values in some columns."""

    values: tuple[str | None, ...]
    rows: pa.RecordBatch


def parts(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[RowsPart]:
    """The rows by their values in these columns; rows of a part are in the order of the batch (invariant 1)."""
    if batch.num_rows == 0:
        return
    if not columns:
        yield RowsPart((), batch)
        return
    found = [batch.column(name).dictionary_encode(null_encoding="encode") for name in columns]
    codes = np.zeros(batch.num_rows, np.int64)
    for column in found:
        # Numbers are dense again after each column, so that they cannot overflow.
        raw = codes * len(column.dictionary) + column.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(raw, return_inverse=True)[1].reshape(-1)
    order = np.argsort(codes, kind="stable")
    begins = np.flatnonzero(np.diff(codes[order], prepend=-1))
    ends = [*begins[1:].tolist(), batch.num_rows]
    for begin, end in zip(begins.tolist(), ends, strict=True):
        rows = batch.take(pa.array(order[begin:end]))  # a copy: a slice would keep the whole batch in memory
        yield RowsPart(tuple(text_of(rows.column(name)[0].as_py()) for name in columns), rows)


def text_of(value: Any) -> str | None:
    """A value as text (invariant 2)."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def folder_of(columns: Sequence[str], values: Sequence[str | None]) -> str:
    """The relative path of the folder for these values (invariant 3); empty if there are no columns."""
    return "/".join(
        f"{_quoted(column)}={HIVE_NULL if value is None else _quoted(value)}"
        for column, value in zip(columns, values, strict=True)
    )


def without(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """The batch without these columns."""
    return batch.select([name for name in batch.schema.names if name not in columns])


def nulls_for_empty(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """The batch with a null for each empty text in these columns: in names of folders both are the same."""
    arrays = [
        pc.if_else(pc.equal(array, ""), pa.scalar(None, array.type), array)
        if name in columns and (pa.types.is_string(array.type) or pa.types.is_large_string(array.type))
        else array
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _quoted(text: str) -> str:
    return quote(text, safe=_UNQUOTED)
