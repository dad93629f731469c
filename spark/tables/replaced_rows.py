"""The rows of a table that a replay replaces, as a condition on their columns. Pure.

1. A row fulfils a condition if it fulfils all terms of one of its alternatives. A condition without alternatives
   means no row.
2. The rows of a range of offsets are those with these places. The rows of partitions of a table are those with the
   values of some row in all columns that the table is partitioned by; null is a value.
3. A term compares with a text, a whole number, a truth value or a date, so that it means the same in all tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from gnomon.spark.columns import Range
from gnomon.spark.tables.lake_package import lake_package
from gnomon.spark.tables.table import BadTable

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

Value: TypeAlias = str | int | bool | date | None
_EXPRESSIONS: Final = {"=": "EqualTo", ">=": "GreaterThanOrEqual", "<": "LessThan"}
"""The comparisons, and pyiceberg's names of them."""


class Term(NamedTuple):
    """A comparison of a column with a value; with None it is `=`, and means that the column is null."""

    column: str
    comparison: str
    value: Value


Condition: TypeAlias = tuple[tuple[Term, ...], ...]


def with_places(columns: Sequence[str], ranges: Sequence[Range]) -> Condition:
    """The rows of some ranges (invariant 2).

    Args:
        columns: the names of topic, partition and offset.
    """
    topic, partition, offset = columns
    return tuple(
        (
            Term(topic, "=", each.topic),
            Term(partition, "=", each.partition),
            Term(offset, ">=", each.start),
            Term(offset, "<", each.stop),
        )
        for each in ranges
        if each.start < each.stop
    )


def with_values(rows: pa.Table) -> Condition:
    """The rows of the partitions that some rows are in (invariant 2).

    Args:
        rows: the columns that the table is partitioned by.

    Raises:
        BadTable: a value is none of those in invariant 3.
    """
    if not rows.num_rows:
        return ()
    distinct = rows.group_by(rows.column_names).aggregate([]).select(rows.column_names)
    return tuple(
        tuple(Term(name, "=", _value(name, row[name])) for name in rows.column_names) for row in distinct.to_pylist()
    )


def _value(column: str, given: Any) -> Value:
    if given is None or type(given) in (str, int, bool, date):
        found: Value = given
        return found
    raise BadTable(
        f"column {column!r}: partitions of a table are replaced by texts, whole numbers, truth values and dates, not"
        f" by {given!r:.60}"
    )


def as_sql(condition: Condition) -> str:
    """The condition as SQL of Delta's."""
    return " OR ".join(f"({' AND '.join(map(_sql, terms))})" for terms in condition) or "false"


def _sql(term: Term) -> str:
    column = f"`{term.column}`"
    if term.value is None:
        return f"{column} IS NULL"
    if isinstance(term.value, bool | int):
        return f"{column} {term.comparison} {str(term.value).lower()}"
    text = str(term.value).replace("'", "''")
    return f"{column} {term.comparison} '{text}'"


def as_expression(condition: Condition) -> BooleanExpression:
    """The condition as an expression of pyiceberg's."""
    made = lake_package("pyiceberg.expressions")
    found: BooleanExpression = made.AlwaysFalse()
    for terms in condition:
        alternative: BooleanExpression = made.AlwaysTrue()
        for column, comparison, value in terms:
            term = made.IsNull(column) if value is None else getattr(made, _EXPRESSIONS[comparison])(column, value)
            alternative = made.And(alternative, term)
        found = made.Or(found, alternative)
    return found
