"""The interface of all tables that a pipeline writes. Pure.

1. A commit adds the files of a batch and records the batch, or does neither. So each batch is in the table once,
   whichever drivers commit it and whenever they die.
2. A batch is OPEN unless the table's last batch of the pipeline is of the same query and has this number or a higher
   one (ALREADY), or is of another query (FENCED), except the one that this query replaces.
3. A query is known by QUERY_DIGITS of its id, since some tables record numbers only.
4. A driver decides by a state of the table, and its commit is refused if the record of the pipeline has changed since
   then. It decides again by the new state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from gnomon.spark.tables.data_files.data_file import DataFile, FileLayout

QUERY_DIGITS: Final = 15
"""Hexadecimal digits of a query id that are compared: 60 bits."""
ATTEMPTS_MAX: Final = 20
"""Attempts to commit a batch. Each that fails means that another writer made progress."""
AGAIN: Final = None
"""The result of an attempt that must decide again, by the new state of the table (invariant 4)."""
_PIPELINE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class BadTable(Exception):
    """The table cannot take what the pipeline writes; the text names the table, the reason and the remedy."""


class TableBusy(Exception):
    """Other writers of the table were faster each time; a later attempt may succeed."""


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


class CommitMode(Enum):
    """The change that a batch makes."""

    APPEND = "append"
    """The rows are added."""
    UPSERT = "upsert"
    """A row takes the place of the row with the same keys, or deletes it if its column `_deleted` is true."""
    REPLACE = "replace"
    """The rows take the place of those that fulfil a condition; a batch is not recorded."""


class LakeTable(Protocol):
    """A table, as the driver of a pipeline knows it. A handle is for one thread."""

    def check(self, schema: pa.Schema) -> None:
        """Checks that the table can take rows, without a change to it; raises BadTable as `prepare`."""

    def recover(self) -> None:
        """Shows all rows of the last batch: its driver may have died after the decision, and before it showed them."""

    def prepare(self, schema: pa.Schema) -> FileLayout:
        """Creates the table if it does not exist, and returns the layout of the files of the next batches.

        Args:
            schema: the columns of the rows, those included that the table is partitioned by; not `_deleted`.

        Raises:
            BadTable: the schema does not fit, or the table is not one that a pipeline can write.
        """

    def schema(self) -> pa.Schema | None:
        """The columns; None if the table does not exist."""

    def last(self) -> TableBatch | None:
        """The last batch of the pipeline.

        Raises:
            BadTable: the table has a record of the pipeline that cannot be read.
        """

    def commit(self, batch: TableBatch, schema: pa.Schema, files: Sequence[DataFile]) -> CommitVerdict:
        """Adds files in one atomic act, and returns COMMITTED, ALREADY or FENCED.

        Any other error leaves open whether the batch is in the table. The same call, or one with other files of the
        same rows, then ends it.

        Args:
            schema: see `prepare`.
            files: written in the layout that `prepare` returned; none for a batch without rows.

        Raises:
            BadTable: the schema does not fit; nothing is added.
            TableBusy: other writers were faster each time; nothing is added.
        """

    def maintain(self) -> str:
        """Merges small files and removes unused ones, as far as the kind of the table allows; returns a report."""


def checked_pipeline_name(name: str) -> str:
    """The name, if folders and records of tables can be named after it.

    Raises:
        BadTable: it has other characters.
    """
    if _PIPELINE.fullmatch(name) is None:
        raise BadTable(
            f"{name!r} is no name of a pipeline: use letters, digits, '-', '_' and '.' after a letter or digit"
        )
    return name


def decided(name: str, attempt: Callable[[], CommitVerdict | None]) -> CommitVerdict:
    """The first verdict of repeated attempts; an attempt that returns AGAIN is followed by another one.

    Raises:
        TableBusy: ATTEMPTS_MAX attempts lost.
    """
    for _ in range(ATTEMPTS_MAX):
        if (found := attempt()) is not None:
            return found
    raise TableBusy(f"{name}: {ATTEMPTS_MAX} commits of a batch lost against other writers: try again when fewer write")
