"""The files of a table: tasks write them, and the driver commits them. Pure.

1. A layout is all that a task needs to know of a table; it can be pickled.
2. The path of a file is relative to the location of its layout.
"""

from __future__ import annotations

from typing import Final, NamedTuple

STAGED_SUFFIX: Final = ".staged"
"""The end of the name of a file that no reader of the table opens."""


class DataFile(NamedTuple):
    """A Parquet file that a task has written and synced."""

    path: str
    """See invariant 2."""
    bytes: int
    rows: int
    partition: tuple[str | None, ...]
    """The values of the columns that the table is partitioned by, as texts, in the order of these columns."""
    statistics: str
    """Counts of rows and nulls and the bounds of columns, as Delta's JSON."""


class FileLayout(NamedTuple):
    """The place and the form of the files that tasks write for a table: `file_writer.FileWriter` is given it."""

    location: str
    """A folder, as a path or a `file://` URI."""
    partition_by: tuple[str, ...] = ()
    """The rows of a file have the same values in these columns."""
    keep_partition_columns: bool = True
    """Whether these columns are in the files, too."""
    folders: bool = True
    """Whether a file is in a folder named after these values."""
    suffix: str = ".parquet"
