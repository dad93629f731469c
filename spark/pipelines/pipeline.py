"""A pipeline: a table that follows topics, described by one TOML file.

    from gnomon.spark import Pipeline

    Pipeline.load("flights.toml").run()

`gnomon pipeline` does the same from the command line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from gnomon.spark.bookie_plans import planned_sizes
from gnomon.spark.columns import Range
from gnomon.spark.offsets import flat
from gnomon.spark.options import SourceOptions
from gnomon.spark.pipelines.backlog import first_records
from gnomon.spark.pipelines.batch_commit import BatchCommit, DeadLetters, fenced
from gnomon.spark.pipelines.checking import (
    INFERRED_RECORDS,
    RECORDS,
    CheckedRecord,
    PipelineCheck,
    checked_records,
    inferred_schema,
)
from gnomon.spark.pipelines.checkpoint import Checkpoint
from gnomon.spark.pipelines.pipeline_file import read_pipeline_file, read_schema_file
from gnomon.spark.pipelines.progress import BatchProgress
from gnomon.spark.pipelines.replays.range_replay import (
    RangeReplay,
    ReplayRefused,
    ReplayReport,
    check_read,
    replayed_ranges,
)
from gnomon.spark.pipelines.settings.catalog_places import placed_catalog
from gnomon.spark.pipelines.settings.settings import (
    AS_IS,
    FormatSettings,
    PipelineSettings,
    SourceSettings,
    TargetSettings,
    TriggerSettings,
    parse_settings,
)
from gnomon.spark.pipelines.status import PipelineStatus, options_of, status_of
from gnomon.spark.pipelines.tasks.decoding import RecordDecoding, without_deleted
from gnomon.spark.pipelines.tasks.task_writer import decoding_of
from gnomon.spark.process import cluster_of
from gnomon.spark.tables.replacing_table import ReplacingTable
from gnomon.spark.tables.table import BadTable, CommitVerdict, LakeTable, TableBatch, verdict
from gnomon.spark.writing.sink_options import SinkOptions
from gnomon.spark.writing.target import RowRefused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gnomon.spark.pipelines.runner import Runner

NO_QUERY = "none"
"""The query of a pipeline that has not run yet, which is another one than any."""
_DEAD_LETTERS = "dead-letters"
"""Ends the name under which a pipeline writes its dead letters."""
_REPLAY: Final = "replay"
"""Ends the name under which a pipeline writes the records of its dead letters, and the folder of their checkpoint."""
_warn = logging.getLogger(__name__).warning


class Pipeline:
    """One pipeline.

    Args:
        settings: see there.
        folder: relative paths of the settings begin there.
    """

    def __init__(self, settings: PipelineSettings, folder: Path) -> None:
        self._folder = folder
        self.settings = replace(settings, format=self._with_schema(settings.format))
        self.checkpoint = Checkpoint(self._placed(settings.checkpoint))

    @classmethod
    def load(cls, path: str | Path) -> Pipeline:
        """The pipeline of a file.

        Raises:
            BadPipeline: the file cannot be read, or a setting cannot be used.
        """
        return cls.of(read_pipeline_file(Path(path)), Path(path).parent)

    @classmethod
    def of(cls, given: Mapping[str, Any], folder: str | Path = ".") -> Pipeline:
        """The pipeline of settings that are given as in a file; raises as `load`."""
        return cls(parse_settings(given), Path(folder))

    def run(
        self, session: SparkSession | None = None, committed: Callable[[BatchProgress], None] = lambda batch: None
    ) -> None:
        """Runs until the trigger ends it; raises as `Runner.run`."""
        self.runner(session or self.session(), committed).run()

    def runner(self, session: SparkSession, committed: Callable[[BatchProgress], None]) -> Runner:
        """One run, which another thread or a signal handler may stop."""
        from gnomon.spark.pipelines.runner import Runner

        table = self.table()
        commit = BatchCommit(
            self.settings.name, table, self.checkpoint.generation.replaces, self.settings.errors, self._dead_letters()
        )
        return Runner(self.settings, session, self.checkpoint, table, commit, committed)

    def session(self) -> SparkSession:
        """A session with the settings of the section `spark`, which knows the format `gnomon`."""
        from gnomon.spark.pipelines.session import opened

        return opened(self.settings.name, self.settings.spark)

    def status(self) -> PipelineStatus:
        """The state of the pipeline; raises as `status_of`."""
        options = options_of(self.settings.source, self.checkpoint)
        (cluster, *_), thread = cluster_of(options.addresses)
        return thread.call(status_of, cluster, self.settings.source, self.checkpoint, self.table())

    def check(self) -> PipelineCheck:
        """A dry run, which changes nothing; raises as `status`, BadPipeline as `Runner.run`, and BadFormat."""
        options = options_of(self.settings.source, self.checkpoint)
        connections, thread = cluster_of(options.addresses)
        status, table, settings, inferred = self.status(), self.table(), self.settings, None
        if settings.format.kind == "json" and settings.format.schema is None:
            sample = thread.call(first_records, connections, options, status.backlog, INFERRED_RECORDS)
            inferred = inferred_schema(sample)
            settings = replace(settings, format=replace(settings.format, schema=inferred))
        decoding = decoding_of(settings).made()
        records = thread.call(first_records, connections, options, status.backlog, RECORDS)
        checked, rows = list(checked_records(decoding, records)), self._rows(decoding)
        problem = self._problem(status, table, rows, checked)
        ranges = [Range(*each[:2], max(each.position, each.start), each.end) for each in status.backlog if each.records]
        sizes = thread.call(planned_sizes, connections.brokers, options, ranges)
        return PipelineCheck(status, sizes, table.schema(), rows, checked, inferred, problem)

    def _problem(
        self, status: PipelineStatus, table: LakeTable, rows: pa.Schema, records: Sequence[CheckedRecord]
    ) -> str | None:
        """The first reason why a run would fail."""
        letters, next_batch = self._dead_letters(), TableBatch(status.query or NO_QUERY, (status.batch or 0) + 1)
        if verdict(status.table_batch, next_batch, self.checkpoint.generation.replaces) is CommitVerdict.FENCED:
            return fenced(self.settings.name, status.table_batch, next_batch)
        try:
            table.check(rows)
            if letters is not None:
                letters.check()
        except (BadTable, RowRefused) as error:
            return str(error)
        if self.settings.errors.on_error == "stop":
            return next((f"{each.place}: {each.reason}" for each in records if each.reason is not None), None)
        return None

    def _rows(self, decoding: RecordDecoding) -> pa.Schema:
        """The columns of the table's rows; a query needs Spark."""
        transform, upserts = self.settings.transform, self.settings.target.upserts
        queried = decoding.queried_schema(dead=self.settings.errors.on_error != "stop")
        if transform == AS_IS:
            return without_deleted(queried if upserts else decoding.schema)
        from gnomon.spark.pipelines.frames import result_schema

        return without_deleted(result_schema(self.session(), queried, transform))

    def reset(self, starting: Mapping[str, str]) -> None:
        """Has the next run read from other offsets on, in the place of the query that has written the table.

        Args:
            starting: options of the format `gnomon` that say where a stream starts.

        Raises:
            BadOption: one of them cannot be used.
            BadTable: the table cannot be read.
        """
        SourceOptions.parse({**self.settings.source.options, **starting}, streaming=True)
        last = self.table().last()
        self.checkpoint.reset(starting, None if last is None else last.query)

    def replay(
        self, bounds: Mapping[str, str], into: str | None = None, session: SparkSession | None = None
    ) -> ReplayReport:
        """Reads a range of the topics once more.

        Args:
            bounds: options of the format `gnomon` that say where a batch read starts and ends.
            into: the path of a new table, or its identifier in the catalog; None to replace the rows of the range in
                the table of the pipeline.

        Raises:
            BadOption: one of them cannot be used.
            DataLost, RequestRefused, Unreachable: as `planning.plan`.
            ReplayRefused, RecordsRefused, BadTable, TableBusy, BadPipeline, RunFailed: as `RangeReplay`.
        """
        source = self.settings.source
        options = SourceOptions.parse({**source.options, **bounds}, streaming=False)
        (cluster, *_), thread = cluster_of(options.addresses)
        ranges = thread.call(replayed_ranges, cluster, options, _warn)
        target = self._target(into)
        if into is not None:
            return RangeReplay(self.settings, session or self.session(), ranges).into(
                self._table(self.settings.name, target)
            )
        table, batch = self._replaced_table(), self.checkpoint.committed()
        check_read(ranges, None if batch is None else flat(self.checkpoint.offsets(batch)))
        return RangeReplay(self.settings, session or self.session(), ranges).instead(table)

    def letters(self) -> Pipeline:
        """A pipeline that reads the dead letters up to their present end, each once, as records of their old places.

        Records that still do not fit are treated as `errors` says: their letters go behind the others.

        Raises:
            ReplayRefused: the pipeline has no topic of dead letters, or its rows replace each other.
        """
        settings, topic = self.settings, self.settings.errors.dead_letter_topic
        if topic is None:
            raise ReplayRefused("errors.dead_letter_topic is not given: only the letters of a topic can be replayed")
        if settings.target.upserts:
            raise ReplayRefused(
                "target.mode = 'upsert': an old record would replace a newer row of its key: write the records to"
                " their topic again"
            )
        options = {**settings.source.options, "subscribe": topic}
        options.pop("subscribePattern", None)
        letters = replace(
            settings,
            name=f"{settings.name}.{_REPLAY}",
            checkpoint=f"{settings.checkpoint}/{_REPLAY}",
            source=SourceSettings(options, {"startingOffsets": "earliest"}, of_letters=True),
            trigger=TriggerSettings(None, available_now=True),
        )
        return Pipeline(letters, self._folder)

    def table(self) -> LakeTable:
        """The table; raises BadTable if it cannot be opened."""
        return self._table(self.settings.name, self._target())

    def _target(self, place: str | None = None) -> TargetSettings:
        """The target, in another place if one is given, with its paths where they are."""
        target = self.settings.target
        if place is not None:
            target = replace(target, table=place) if target.kind == "iceberg" else replace(target, path=place)
        catalog = placed_catalog(target.catalog, self._folder)
        return replace(target, path=self._placed(target.path), catalog=catalog)

    def _replaced_table(self) -> ReplacingTable:
        from gnomon.spark.pipelines.targets import replacing_table_of

        return replacing_table_of(self.settings.name, self._target())

    def _table(self, name: str, target: TargetSettings) -> LakeTable:
        from gnomon.spark.pipelines.targets import table_of

        return table_of(name, target, self.checkpoint.generation.replaces)

    def _dead_letters(self) -> DeadLetters | None:
        if self.settings.errors.on_error != "dead_letter":
            return None
        from gnomon.spark.pipelines.dead_letter_writers import DeadTable, DeadTopicWriter

        settings, errors = self.settings, self.settings.errors
        name = f"{settings.name}.{_DEAD_LETTERS}"
        if errors.dead_letter_path is not None:
            letters = replace(
                settings.target,
                kind="delta" if settings.target.kind == "delta" else "parquet",
                path=self._placed(errors.dead_letter_path),
                upserts=False,
                partition_by=(),
            )
            return DeadTable(self._table(name, letters))
        assert errors.dead_letter_topic is not None, "dead letters have a path or a topic"
        options = {"kafka.bootstrap.servers": settings.bootstrap_servers, "topic": errors.dead_letter_topic}
        sink = replace(
            SinkOptions.parse(options, streaming=True), takes_over=self.checkpoint.generation.replaces is not None
        )
        return DeadTopicWriter(sink, name)

    def _with_schema(self, form: FormatSettings) -> FormatSettings:
        """The settings with the schema that is in a file."""
        if form.schema_file is None:
            return form
        return replace(form, schema=read_schema_file(Path(self._placed(form.schema_file))))

    def _placed(self, path: str) -> str:
        """A path of the settings; a URI is left as it is."""
        return path if not path or "://" in path else str(self._folder / path)
