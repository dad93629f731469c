"""Iceberg's expression for the rows with some keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from gnomon.spark.tables.lake_package import lake_package

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression


def rows_with_keys(rows: pa.Table, keys: Sequence[str]) -> BooleanExpression:
    """The expression for all rows of a table with the keys of `rows`, of which at least one is given.

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
