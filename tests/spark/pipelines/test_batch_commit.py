"""The driver's part of a batch (`spark.pipelines.batch_commit`)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from gnomon.spark.pipelines.batch_commit import BatchCommit, PipelineFenced
from gnomon.spark.pipelines.progress import CommittedBatch
from gnomon.spark.pipelines.settings.settings import ErrorSettings
from gnomon.spark.pipelines.tasks.dead_letters import DeadPlace
from gnomon.spark.pipelines.tasks.letters import RecordsRefused
from gnomon.spark.pipelines.tasks.task_result import TaskResult
from gnomon.spark.tables.data_files.data_file import DataFile, FileLayout
from gnomon.spark.tables.table import CommitVerdict, TableBatch, verdict

QUERY = "0f1e2d3c-4b5a-4968-8776-655443322110"
OTHER = "f0000000-0000-4000-8000-000000000000"
SCHEMA = pa.schema([("a", pa.int64())])
FIRST_DEAD = "topic 'orders', partition 0, offset 4: not a JSON object"


class Killed(Exception):
    """The driver dies."""


class MemoryTable:
    """A table in memory, which writes each commit to a diary.

    Args:
        dies: whether a commit ends the driver before it has an effect.
    """

    def __init__(self, name: str, diary: list[tuple[str, int, int]], *, dies: bool = False) -> None:
        self._name, self._diary, self.dies = name, diary, dies
        self.batch: TableBatch | None = None

    def last(self) -> TableBatch | None:
        return self.batch

    def schema(self) -> pa.Schema | None:
        return None

    def check(self, schema: pa.Schema) -> None:
        raise AssertionError("a commit does not check")

    def prepare(self, schema: pa.Schema) -> FileLayout:
        return FileLayout("/table")

    def commit(self, batch: TableBatch, schema: pa.Schema, files: Sequence[DataFile]) -> CommitVerdict:
        if self.dies:
            raise Killed
        found = verdict(self.batch, batch, None)
        if found is not CommitVerdict.OPEN:
            return found
        self.batch = batch
        self._diary.append((self._name, batch.number, len(files)))
        return CommitVerdict.COMMITTED

    def maintain(self) -> str:
        raise AssertionError("a commit does not maintain")


class MemoryLetters:
    """Dead letters in such a table."""

    def __init__(self, table: MemoryTable) -> None:
        self._table = table

    def check(self) -> None:
        raise AssertionError("a commit does not check")

    def place(self, query: str) -> DeadPlace:
        return FileLayout(f"/dead/{query}")

    def commit(self, batch: TableBatch, results: Sequence[TaskResult]) -> None:
        files = [file for result in results for file in result.dead_files]
        if self._table.commit(batch, SCHEMA, files) is CommitVerdict.FENCED:
            raise PipelineFenced("the dead letters")


class Driver:
    """A driver, its table and its dead letters."""

    def __init__(self, on_error: str = "dead_letter", errors_max: int | None = None) -> None:
        self.diary: list[tuple[str, int, int]] = []
        self.table, self._letters = MemoryTable("rows", self.diary), MemoryTable("letters", self.diary)
        self._errors = ErrorSettings(on_error, None, None, errors_max)
        self.commit = self.restarted()

    def restarted(self) -> BatchCommit:
        """The next driver."""
        letters = MemoryLetters(self._letters) if self._errors.on_error == "dead_letter" else None
        self.commit = BatchCommit("orders", self.table, None, self._errors, letters)
        return self.commit

    def write(self, number: int, *results: TaskResult, query: str = QUERY) -> CommittedBatch:
        return self.commit.commit(TableBatch(query, number), SCHEMA, results)


def file(size: int, rows: int) -> DataFile:
    return DataFile(f"{size}.parquet", size, rows, (), "{}")


def result(rows: int, dead: int = 0, newest_ms: int | None = 1_000, first: str = FIRST_DEAD) -> TaskResult:
    """The result of a task that has written a file of rows, if there are some, and a file of dead records."""
    files = (file(10 * rows, rows),) if rows else ()
    dead_files = (file(dead, dead),) if dead else ()
    return TaskResult(files, rows, newest_ms if rows else None, dead, first if dead else None, dead_files, None)


def test_a_batch_is_reported_with_the_sums_of_its_tasks() -> None:
    found = Driver("skip").write(3, result(5, newest_ms=7_000), result(0, dead=2), result(7, newest_ms=6_000))
    assert found == CommittedBatch(3, CommitVerdict.COMMITTED, 12, 120, 7_000, 2)


def test_a_batch_without_rows_leaves_the_table_as_it_is() -> None:
    driver = Driver()
    assert driver.write(0, result(0)) == CommittedBatch(0, CommitVerdict.COMMITTED, 0, 0, None, 0)
    assert driver.diary == []


@pytest.mark.parametrize("on_error", ["stop", "skip", "dead_letter"])
def test_a_batch_with_more_dead_records_than_allowed_commits_nothing(on_error: str) -> None:
    """Invariant 1."""
    driver = Driver(on_error, errors_max=1)
    later = FIRST_DEAD.replace("4", "9")
    with pytest.raises(RecordsRefused, match="offset 4: not a JSON object"):
        driver.write(0, result(5, dead=1, first=later), result(5, dead=1))
    assert driver.diary == []


def test_dead_records_are_counted_over_the_run() -> None:
    """Invariant 1."""
    driver = Driver("skip", errors_max=3)
    driver.write(0, result(1, dead=2))
    driver.write(1, result(1, dead=1))
    with pytest.raises(
        RecordsRefused, match=r"^4 records of this run do not fit, errors.max_errors = 3: topic 'orders'"
    ):
        driver.write(2, result(1, dead=1))
    assert driver.diary == [("rows", 0, 1), ("rows", 1, 1)]
    driver.restarted()
    assert driver.write(2, result(1, dead=1)).verdict is CommitVerdict.COMMITTED


def test_no_dead_record_is_allowed_with_stop_whatever_the_bound() -> None:
    """Invariant 1."""
    with pytest.raises(RecordsRefused, match=r"\(2 records of the batch do not fit; errors.on_error decides\)"):
        Driver("stop", errors_max=100).write(0, result(1, dead=2))


def test_dead_letters_are_committed_before_the_rows() -> None:
    """Invariant 2."""
    driver = Driver()
    driver.write(0, result(5, dead=2), result(3, dead=1))
    driver.write(1, result(5))
    assert driver.diary == [("letters", 0, 2), ("rows", 0, 2), ("rows", 1, 1)]


def test_a_driver_that_dies_between_both_leaves_a_batch_that_the_next_one_commits() -> None:
    """Invariants 2 and 3."""
    driver = Driver()
    driver.table.dies = True
    with pytest.raises(Killed):
        driver.write(0, result(5, dead=2))
    driver.table.dies = False
    driver.restarted()
    assert not driver.commit.is_there(TableBatch(QUERY, 0))
    assert driver.write(0, result(5, dead=2)).verdict is CommitVerdict.COMMITTED
    assert driver.diary == [("letters", 0, 1), ("rows", 0, 1)]


def test_a_repeat_adds_nothing_and_is_reported_without_rows() -> None:
    """Invariant 3."""
    driver = Driver()
    driver.write(0, result(5, dead=2))
    before = list(driver.diary)
    assert driver.commit.is_there(TableBatch(QUERY, 0))
    assert not driver.commit.is_there(TableBatch(QUERY, 1))
    assert driver.write(0, result(5, dead=2)) == CommittedBatch(0, CommitVerdict.ALREADY, 0, 0, None, 2)
    assert driver.diary == before


def test_another_query_is_fenced_before_and_at_its_commit() -> None:
    driver = Driver()
    driver.write(4, result(5))
    text = (
        r"^pipeline 'orders': FENCED: the table was last written by query 0f1e2d3c4b5a496, not by this one \(f0000000"
    )
    with pytest.raises(PipelineFenced, match=text):
        driver.commit.is_there(TableBatch(OTHER, 5))
    with pytest.raises(PipelineFenced, match=text):
        driver.write(5, result(5), query=OTHER)
    assert driver.diary == [("rows", 4, 1)]


def test_dead_records_are_written_where_the_letters_are() -> None:
    assert Driver("dead_letter").commit.dead_place(QUERY) == FileLayout(f"/dead/{QUERY}")
    assert Driver("skip").commit.dead_place(QUERY) is None
