"""The interface of all tables that a pipeline appends to.

1. A commit adds the files of a batch and records the batch, or does neither. So each batch is in the table once,
   whichever drivers commit it and whenever they die.
2. A batch is OPEN unless the table's last batch of the pipeline is of the same query and has this number or a higher
   one (ALREADY), or is of another query (FENCED), except the one that this query replaces.
3. A query is known by QUERY_DIGITS of its id, since some tables record numbers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from gnomon.spark.tables.data_file import DataFile

QUERY_DIGITS: Final = 15
"""Hexadecimal digits of a query id that are compared: 60 bits."""


class BadTable(Exception):
    """The table cannot take what the pipeline writes; the text names the table, the reason and the remedy."""


class TableBatch(NamedTuple):
    """A batch of a query: Spark numbers the batches of a checkpoint from 0, and gives the checkpoint a query id."""

    query: str
    """A UUID, or its first QUERY_DIGITS digits."""
    number: int

    @property
    def query_digits(self) -> str:
        """See invariant 3."""
        return self.query.replace("-", "")[:QUERY_DIGITS]


class CommitVerdict(Enum):
    """The state of a batch in a table."""

    OPEN = "not in the table: it may be committed"
    COMMITTED = "committed, by this driver"
    ALREADY = "this batch or a later one of the query is in the table"
    FENCED = "another query of the pipeline writes the table"


def verdict(last: TableBatch | None, batch: TableBatch, replaces: str | None) -> CommitVerdict:
    """The state of `batch` in a table (invariant 2).

    Args:
        last: the last batch of the pipeline in the table.
        replaces: the query whose place this one takes.
    """
    if last is None:
        return CommitVerdict.OPEN
    if last.query_digits == batch.query_digits:
        return CommitVerdict.ALREADY if last.number >= batch.number else CommitVerdict.OPEN
    replaced = replaces is not None and TableBatch(replaces, 0).query_digits == last.query_digits
    return CommitVerdict.OPEN if replaced else CommitVerdict.FENCED


class Table(Protocol):
    """A table, as the driver of a pipeline knows it."""

    @property
    def location(self) -> str:
        """The folder that tasks write files into: `data_file.FileWriter` is given it."""

    @property
    def files_have_partition_columns(self) -> bool:
        """Whether the columns that the table is partitioned by are in its files, too."""

    def schema(self) -> pa.Schema | None:
        """The columns; None if the table does not exist."""

    def last(self) -> TableBatch | None:
        """The last batch of the pipeline.

        Raises:
            BadTable: the table has a record of the pipeline that cannot be read.
        """

    def commit(self, batch: TableBatch, schema: pa.Schema, files: Sequence[DataFile]) -> CommitVerdict:
        """Adds files, and creates the table if it does not exist; returns COMMITTED, ALREADY or FENCED.

        Args:
            schema: the columns of the rows, those included that the table is partitioned by.
            files: at least one.

        Raises:
            BadTable: the schema does not fit; nothing is added.
        """
