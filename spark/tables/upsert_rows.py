"""The rows of an upsert: the columns, and one that says whether a row deletes the row with its keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from gnomon.spark.tables.data_file import DataFile
from gnomon.spark.tables.lake_package import lake_package
from gnomon.spark.tables.schema_fit import DELETED
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
    for field in schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select([*schema.names, DELETED])


def check_keys(name: str, schema: pa.Schema, keys: Sequence[str]) -> None:
    """Checks that the rows of an upsert can have these columns and keys.

    Raises:
        BadTable: they cannot.
    """
    if not keys:
        raise BadTable(f"{name}: an upsert needs the columns that are the keys")
    if DELETED in schema.names:
        raise BadTable(f"{name}: the column {DELETED!r} says which rows an upsert deletes: rename it")


def rows_with_keys(rows: pa.Table, keys: Sequence[str]) -> BooleanExpression:
    """Iceberg's expression for all rows of a table with the keys of `rows`, of which at least one is given.

    The values of the last key are compared as a set, one for all rows that agree in the other keys.
    """
    made = lake_package("pyiceberg.expressions")
    if len(keys) == 1:
        found: BooleanExpression = made.In(keys[0], rows.column(keys[0]).to_pylist())
        return found
    rest = keys[:-1]
    grouped = rows.select(list(keys)).group_by(list(rest)).aggregate([(keys[-1], "list")])
    terms = [
        made.And(*(made.EqualTo(key, row[key]) for key in rest), made.In(keys[-1], row[f"{keys[-1]}_list"]))
        for row in grouped.to_pylist()
    ]
    either: BooleanExpression = terms[0] if len(terms) == 1 else made.Or(*terms)
    return either
