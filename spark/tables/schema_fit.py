"""The columns of rows compared with those of the table that takes them. Pure.

1. Rows fit a table if both have the same names with the same types. The order of the columns does not count.
2. A table that evolves takes rows with additional columns, which it adds, and rows that lack columns, which stay null.
3. A column that the table requires is never lacking, and never null.
4. Texts, bytes and lists have one type each, whichever size Arrow keeps for their offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

import pyarrow as pa

from gnomon.spark.tables.table import BadTable

Evolution = Literal["fail", "add"]
"""Whether a table refuses rows with other columns, or adds the columns that it lacks."""
TYPES: Final = (
    "booleans, signed whole numbers, floats of 32 and 64 bits, decimals of up to 38 digits, texts, bytes, dates, times"
    " in microseconds in UTC or without a zone, and lists, maps and structs of these"
)
PARTITION_TYPES: Final = "texts, whole numbers, booleans or dates"
DELETED: Final = "_deleted"
"""The column of an upsert's rows that says whether the row deletes."""


def same(kind: pa.DataType) -> pa.DataType:
    """The type itself: for tables that have all of Arrow's types."""
    return kind


def canonical(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType] = same) -> pa.DataType:
    """The one type for all that are equal (invariant 4).

    Args:
        leaf: the table's type for one of Arrow that is not nested.
    """
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(canonical(kind.value_type, leaf))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, canonical(field.type, leaf)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(canonical(kind.key_type, leaf), canonical(kind.item_type, leaf))
    return leaf(kind)


def check_rows(name: str, schema: pa.Schema, partition_by: Sequence[str], keys: Sequence[str] = ()) -> None:
    """Checks that a table of any kind can have these columns.

    Raises:
        BadTable: it cannot.
    """
    folded = [column.lower() for column in schema.names]
    for column in schema.names:
        if folded.count(column.lower()) > 1:
            raise BadTable(f"{name}: the column {column!r} occurs twice; letters of another case make no other column")
    for column in (*partition_by, *keys):
        if column not in schema.names:
            raise BadTable(f"{name}: {column!r} is no column of the rows, which have {', '.join(schema.names)}")
    for field in schema:
        odd = _odd_type(field.type)
        if odd is not None:
            raise BadTable(f"{name}: the column {field.name!r} is a {odd}, and tables have {TYPES}")
    for column in partition_by:
        if not _is_partition_type(schema.field(column).type):
            kind = schema.field(column).type
            raise BadTable(f"{name}: the column {column!r} is a {kind}, and partitions are by {PARTITION_TYPES}")
    for column in keys:
        kind = schema.field(column).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind):
            raise BadTable(f"{name}: the key {column!r} is a {kind}: use keys that are equal or not")
    if len(partition_by) == len(schema):
        raise BadTable(f"{name} is partitioned by all columns: leave one for the files")


def additions(
    name: str,
    rows: pa.Schema,
    table: pa.Schema,
    evolve: Evolution,
    leaf: Callable[[pa.DataType], pa.DataType] = same,
) -> list[pa.Field]:
    """The columns of the rows that the table lacks (invariants 1 to 3).

    Args:
        leaf: see `canonical`.

    Raises:
        BadTable: the rows do not fit; the text has the first column that differs.
    """
    adding = evolve == "add"
    remedy = "" if adding else ": evolve='add' adds columns to the table and leaves lacking ones null"
    for field in table:
        found = rows.get_field_index(field.name)
        if found < 0:
            if not adding or not field.nullable:
                raise BadTable(f"{name}: the rows lack the column {field.name!r}{remedy}")
            continue
        theirs, ours = canonical(field.type, leaf), canonical(rows.field(found).type, leaf)
        if theirs != ours:
            raise BadTable(f"{name}: the column {field.name!r} is a {theirs} in the table and a {ours} in the rows")
        if rows.field(found).nullable and not field.nullable:
            raise BadTable(f"{name}: the column {field.name!r} is required in the table, and may be null in the rows")
    added = [pa.field(field.name, field.type) for field in rows if field.name not in table.names]
    for field in added:
        if not adding:
            raise BadTable(f"{name} lacks the column {field.name!r} of the rows{remedy}")
        if field.name.lower() in [column.lower() for column in table.names]:
            raise BadTable(f"{name} has the column {field.name!r} of the rows in letters of another case")
    return added


def check_partitioning(name: str, table: Sequence[str], given: Sequence[str]) -> None:
    """Checks that a table is partitioned as the pipeline says.

    Raises:
        BadTable: it is not.
    """
    if list(table) != list(given):
        texts = [", ".join(columns) or "nothing" for columns in (table, given)]
        raise BadTable(f"{name} is partitioned by {texts[0]}, and the pipeline says by {texts[1]}: they must agree")


def _is_partition_type(kind: pa.DataType) -> bool:
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(text or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind))


def _odd_type(kind: pa.DataType) -> pa.DataType | None:
    """The first type in this one that not all kinds of tables have."""
    kind = canonical(kind)
    if pa.types.is_nested(kind):
        inner = [kind.field(at).type for at in range(kind.num_fields)]
        if pa.types.is_map(kind):
            inner = [kind.key_type, kind.item_type]
        elif not pa.types.is_list(kind) and not pa.types.is_struct(kind):
            return kind
        return next((odd for each in inner if (odd := _odd_type(each)) is not None), None)
    if pa.types.is_timestamp(kind):
        return None if kind.unit == "us" and kind.tz in (None, "UTC") else kind
    is_number = pa.types.is_signed_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)
    is_value = pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_boolean(kind)
    return None if is_number or is_value or pa.types.is_date32(kind) or pa.types.is_decimal128(kind) else kind


def with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with these columns; one that they lack is null."""
    for field in schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(schema.names).cast(schema)
