"""The driver's part of one batch: dead letters first, then the rows, each with the number of the batch.

1. A batch commits nothing if the run has more dead records with it than are allowed.
2. Dead letters are committed before the rows. A driver that dies in between leaves a batch that the next driver
   commits again: its dead letters are there already, and its rows are not.
3. Both are committed under the same query id and number, so a repeat adds nothing to either. A batch that another
   driver has committed meanwhile is reported without rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from gnomon.spark.pipelines.progress import CommittedBatch
from gnomon.spark.pipelines.settings.settings import ErrorSettings
from gnomon.spark.pipelines.tasks.dead_letters import DeadPlace
from gnomon.spark.pipelines.tasks.letters import RecordsRefused
from gnomon.spark.pipelines.tasks.task_result import TaskResult
from gnomon.spark.tables.table import CommitVerdict, LakeTable, TableBatch, verdict


class PipelineFenced(Exception):
    """Another query writes the table under the name of this pipeline."""


class DeadLetters(Protocol):
    """The dead letters of a pipeline, as the driver knows them."""

    def check(self) -> None:
        """Checks that they can be written; raises BadTable, or RowRefused for a topic."""

    def recover(self) -> None:
        """See `LakeTable.recover`."""

    def place(self, query: str) -> DeadPlace:
        """The place that the tasks of a query write them to."""

    def commit(self, batch: TableBatch, results: Sequence[TaskResult]) -> None:
        """Has the dead records of a batch written, once.

        Raises:
            PipelineFenced: another query writes there under the name of this pipeline.
            BadTable, WriterFenced, RequestRefused, Unreachable: nobody can write there now.
        """


class BatchCommit:
    """Commits the batches of one query.

    Args:
        name: that of the pipeline.
        replaces: the query whose place this one takes.
        dead_letters: None where dead records are only counted.
    """

    def __init__(
        self, name: str, table: LakeTable, replaces: str | None, errors: ErrorSettings, dead_letters: DeadLetters | None
    ) -> None:
        self._name, self._table, self._replaces = name, table, replaces
        self._errors, self._dead_letters = errors, dead_letters
        self._dead = 0

    def recover(self) -> None:
        """Shows the rows of the last batch of an earlier driver; raises BadTable."""
        self._table.recover()
        if self._dead_letters is not None:
            self._dead_letters.recover()

    def is_there(self, batch: TableBatch) -> bool:
        """Whether the batch is in the table.

        Raises:
            PipelineFenced: see there.
            BadTable: as `LakeTable.last`.
        """
        found = verdict(self._table.last(), batch, self._replaces)
        if found is CommitVerdict.FENCED:
            raise self._fenced(batch)
        return found is CommitVerdict.ALREADY

    def dead_place(self, query: str) -> DeadPlace:
        """The place that the tasks of a query write dead records to; None where they are only counted."""
        return None if self._dead_letters is None else self._dead_letters.place(query)

    def commit(self, batch: TableBatch, schema: pa.Schema, results: Sequence[TaskResult]) -> CommittedBatch:
        """Commits the results of all tasks of a batch.

        Args:
            schema: the columns of the rows.

        Raises:
            RecordsRefused: see invariant 1.
            PipelineFenced: see there; no row is added.
            BadTable: as `LakeTable.commit`.
        """
        dead = allowed_dead(self._errors, results, self._dead)
        self._dead += dead
        if dead and self._dead_letters is not None:
            self._dead_letters.commit(batch, results)
        files = [file for result in results for file in result.files]
        found = self._table.commit(batch, schema, files) if files else CommitVerdict.COMMITTED
        if found is CommitVerdict.FENCED:
            raise self._fenced(batch)
        if found is CommitVerdict.ALREADY:
            return CommittedBatch(batch.number, found, 0, 0, None, dead)
        size = sum(file.bytes for file in files)
        newest = max((result.newest_ms for result in results if result.newest_ms is not None), default=None)
        return CommittedBatch(batch.number, found, sum(result.rows for result in results), size, newest, dead)

    def _fenced(self, batch: TableBatch) -> PipelineFenced:
        return PipelineFenced(fenced(self._name, self._table.last(), batch))


def allowed_dead(errors: ErrorSettings, results: Sequence[TaskResult], before: int = 0) -> int:
    """The number of dead records of some tasks.

    Args:
        before: that of earlier batches of the run.

    Raises:
        RecordsRefused: the settings do not allow so many.
    """
    dead = sum(result.dead for result in results)
    first = min((result.first_dead for result in results if result.first_dead is not None), default=None)
    if dead and errors.on_error == "stop":
        raise RecordsRefused(f"{first} ({dead} records of the batch do not fit; errors.on_error decides)")
    if dead and errors.errors_max is not None and before + dead > errors.errors_max:
        raise RecordsRefused(
            f"{before + dead} records of this run do not fit, errors.max_errors = {errors.errors_max}: {first}"
        )
    return dead


def fenced(name: str, last: TableBatch | None, batch: TableBatch) -> str:
    """The text for a query that may not write the table.

    Args:
        name: that of the pipeline.
        last: the batch that the table has.
    """
    return (
        f"pipeline {name!r}: FENCED: the table was last written by query {last and last.query_digits}, not by this one"
        f" ({batch.query_digits}). Was the checkpoint deleted, or does another checkpoint use this name? Restore the"
        " checkpoint, give the pipeline another name, or take over with `gnomon pipeline reset`"
    )
