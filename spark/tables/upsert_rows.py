"""The rows of an upsert: the columns, and one that says whether a row deletes the row with its keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from gnomon.spark.tables.data_files.data_file import DataFile
from gnomon.spark.tables.lake_package import lake_package
from gnomon.spark.tables.schema_fit import DELETED, with_columns
from gnomon.spark.tables.staged_files import staged_folder
from gnomon.spark.tables.table import BadTable

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression


def read_rows(name: str, folder: Path, files: Sequence[DataFile], schema: pa.Schema, keys: Sequence[str]) -> pa.Table:
    """The rows of an upsert with the columns of `schema` and `_deleted`; a column that they lack is null.

    Raises:
        BadTable: the rows have no column `_deleted`, a key is null, or two rows have the same keys.
    """
    rows = pa.concat_tables([pq.ParquetFile(staged_folder(folder) / file.path).read() for file in files])
    if DELETED not in rows.column_names or not pa.types.is_boolean(rows.schema.field(DELETED).type):
        raise BadTable(f"{name}: the rows of an upsert have a boolean column {DELETED!r}")
    at = rows.column_names.index(DELETED)
    rows = rows.set_column(at, DELETED, rows.column(DELETED).fill_null(False))
    for key in keys:
        if rows.column(key).null_count:
            raise BadTable(f"{name}: the key {key!r} of a row is null: such a row can be neither found nor replaced")
    if rows.group_by(list(keys)).aggregate([]).num_rows != rows.num_rows:
        raise BadTable(f"{name}: two rows of a batch have the same {', '.join(keys)}: keep the last one of each")
    return with_columns(rows, schema.append(rows.schema.field(DELETED)))


def check_keys(name: str, schema: pa.Schema, keys: Sequence[str]) -> None:
    """Checks that the rows of an upsert can have these columns and keys.

    Raises:
        BadTable: they cannot.
    """
    if not keys:
        raise BadTable(f"{name}: an upsert needs the columns that are the keys")
    if DELETED in schema.names:
        raise BadTable(f"{name}: the column {DELETED!r} says which rows an upsert deletes: rename it")


def rows_near_keys(rows: pa.Table, keys: Sequence[str]) -> BooleanExpression:
    """Iceberg's expression for all rows of a table that have, in each key, a value that one of `rows` has there.

    With one key, these are the rows with the keys of `rows`. With several keys they are more: an expression of one term
    for each row would be exact, but some 20,000 terms overflow the stack of Arrow's C++ code.
    """
    made = lake_package("pyiceberg.expressions")
    terms = [made.In(key, rows.column(key).unique().to_pylist()) for key in keys]
    near: BooleanExpression = terms[0] if len(terms) == 1 else made.And(*terms)
    return near


def rows_with_other_keys(near: pa.Table, rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows of `near` without those that have the keys of one of `rows`."""
    columns = pa.schema([rows.schema.field(key) for key in keys])
    numbered = with_columns(near, columns).append_column("number", pa.array(range(near.num_rows), pa.int64()))
    renamed = [f"key{at}" for at in range(len(keys))]  # no key is called `number`
    left = numbered.rename_columns([*renamed, "number"])
    right = rows.select(list(keys)).rename_columns(renamed)
    return near.take(left.join(right, renamed, join_type="left anti").column("number"))
