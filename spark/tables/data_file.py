"""The files of a table: tasks write them, and the driver commits them."""

from __future__ import annotations

from typing import NamedTuple


class DataFile(NamedTuple):
    """A Parquet file that a task has written and synced."""

    path: str
    """Relative to the location of the table."""
    bytes: int
    rows: int
    partition: tuple[str | None, ...]
    """The values of the columns that the table is partitioned by, as texts, in the order of these columns."""
    statistics: str
    """Counts of rows and nulls and the bounds of columns, as Delta's JSON."""
