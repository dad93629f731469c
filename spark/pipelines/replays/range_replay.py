"""A range of a pipeline's topics, read again: into a new table, or in the place of the rows that the table has of it.

1. The range is fixed before it is read. Its rows are committed at once: into a new table as batch 0 of a query of its
   own, otherwise by a replacement, which may be repeated.
2. Rows are replaced up to the offsets that the pipeline has read. It would add those of later records once more.
3. A replacement is of the rows with the places of the range. If the rows have no places, as those of a query may, it
   is of all rows in the partitions of the table that the new rows are in.
4. Dead records are counted. Their letters were written when they were read first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.columns import Range
from gnomon.spark.offsets import Offsets
from gnomon.spark.options import SourceOptions
from gnomon.spark.pipelines.batch_commit import BatchCommit, allowed_dead
from gnomon.spark.pipelines.settings.settings import PipelineSettings
from gnomon.spark.planning import partitions_of, ranges_of
from gnomon.spark.tables.replaced_rows import Condition, with_places, with_values
from gnomon.spark.tables.replacing_table import ReplacingTable
from gnomon.spark.tables.staged_files import values_of
from gnomon.spark.tables.table import QUERY_DIGITS, LakeTable, TableBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gnomon.spark.pipelines.frames import WrittenRows


_QUERY: Final = "0" * QUERY_DIGITS
"""The query of a new table's only batch. A pipeline that goes on with the table takes its place by a reset."""


class ReplayRefused(Exception):
    """A replay is not possible as it was asked for; the text names the reason and the remedy."""


class ReplayReport(NamedTuple):
    """A replay that is done."""

    ranges: list[Range]
    rows: int
    bytes: int
    """Of the files that tasks wrote."""
    errors: int
    """Records that the format does not fit."""


async def replayed_ranges(cluster: KafkaBrokers, options: SourceOptions, warn: Callable[[str], None]) -> list[Range]:
    """The offsets of each partition that a replay reads; arguments and errors are those of `planning.plan`."""
    return await ranges_of(cluster, options, await partitions_of(cluster, options), warn)


def check_read(ranges: Sequence[Range], read: Offsets | None) -> None:
    """Checks that the pipeline has read the ranges (invariant 2).

    Args:
        read: the offsets at which its last batch ended; None if it has not run since it was reset.

    Raises:
        ReplayRefused: it has not.
    """
    if read is None:
        raise ReplayRefused(
            "the pipeline has not run since it was created or reset: `gnomon pipeline run` reads the range"
        )
    for topic, partition, start, stop in ranges:
        position = read.get(TopicPartition(topic, partition), 0)
        if start < stop > position:
            raise ReplayRefused(
                f"the pipeline has read partition {partition} of topic {topic!r} up to offset {position}, the replay is"
                f" of offsets {start} to {stop}: end it there, or run the pipeline first"
            )


class RangeReplay:
    """One replay of a range, in Spark."""

    def __init__(self, settings: PipelineSettings, session: SparkSession, ranges: list[Range]) -> None:
        self._settings, self._session, self._ranges = settings, session, ranges

    def into(self, table: LakeTable) -> ReplayReport:
        """Writes the rows into a new table.

        Raises:
            ReplayRefused: it exists.
            RecordsRefused, BadTable: as `BatchCommit.commit`; nothing is added.
            BadPipeline, RunFailed: as `Runner.run`.
        """
        if table.schema() is not None:
            raise ReplayRefused("the new table exists already: remove it, or replay into another one")
        written = self._written(table)
        commit = BatchCommit(self._settings.name, table, None, self._settings.errors, None)
        done = commit.commit(TableBatch(_QUERY, 0), *written)
        return ReplayReport(self._ranges, done.rows, done.bytes, done.dead)

    def instead(self, table: ReplacingTable) -> ReplayReport:
        """Writes the rows in the place of those that the table has (invariant 3).

        Raises:
            ReplayRefused: there is no table, or nothing says which of its rows are replaced.
            RecordsRefused: the settings do not allow so many dead records; nothing is changed.
            BadTable, TableBusy: as `ReplacingTable.replace`.
            BadPipeline, RunFailed: as `Runner.run`.
        """
        if table.schema() is None:
            raise ReplayRefused("the table does not exist, so it has no rows to replace: run the pipeline")
        written = self._written(table)
        files = [file for result in written.results for file in result.files]
        dead = allowed_dead(self._settings.errors, written.results)
        table.replace(written.columns, files, self._replaced(table, written))
        rows = sum(result.rows for result in written.results)
        return ReplayReport(self._ranges, rows, sum(file.bytes for file in files), dead)

    def _replaced(self, table: ReplacingTable, written: WrittenRows) -> Condition:
        target = self._settings.target
        places = target.place_columns[:3]
        if set(places) <= set(written.columns.names):
            return with_places(places, self._ranges)
        if not target.partition_by:
            raise ReplayRefused(
                f"the rows have no columns {', '.join(places)}, and the table is not partitioned: nothing says which of"
                " its rows are replaced. Replay into a new table"
            )
        files = [file for result in written.results for file in result.files]
        return with_values(values_of(table.prepare(written.columns), files, target.partition_by))

    def _written(self, table: LakeTable) -> WrittenRows:
        from gnomon.spark.pipelines.frames import RowFrames
        from gnomon.spark.pipelines.run_failed import own_error
        from gnomon.spark.pipelines.session import SPARK_ERRORS

        frames = RowFrames(self._settings, self._session)
        reading = self._session.read.options(**read_of(self._settings.source.options, self._ranges))
        try:
            return frames.write(frames.rows(reading), table, None)
        except SPARK_ERRORS as error:
            raise own_error(error) or error from error


def read_of(options: Mapping[str, str], ranges: Sequence[Range]) -> dict[str, str]:
    """The options of a batch read of these ranges, made from those of the pipeline's stream."""
    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for topic, partition, start, stop in ranges:
        assigned.setdefault(topic, []).append(partition)
        starts.setdefault(topic, {})[str(partition)] = start
        ends.setdefault(topic, {})[str(partition)] = stop
    kept = {name: value for name, value in options.items() if name not in ("subscribe", "subscribePattern")}
    places = {"assign": assigned, "startingOffsets": starts, "endingOffsets": ends}
    return kept | {name: json.dumps(value) for name, value in places.items()}
