"""A pipeline from files to a topic, described by one TOML file: each file is read once, each row is in the topic once.

    from gnomon.spark import FilePipeline

    FilePipeline.load("files.toml").run()

`gnomon pipeline` does the same from the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.spark.pipelines.checkpoint import Checkpoint
from gnomon.spark.pipelines.files.file_log import FileLog
from gnomon.spark.pipelines.files.listing import listed
from gnomon.spark.pipelines.files.next_files import SourceFile, chosen
from gnomon.spark.pipelines.pipeline_file import read_pipeline_file, read_schema_file
from gnomon.spark.pipelines.progress import BatchProgress
from gnomon.spark.pipelines.settings.file_settings import (
    FileFormatSettings,
    FilePipelineSettings,
    parse_file_settings,
)
from gnomon.spark.process import cluster_of
from gnomon.spark.writing.sink_options import SinkOptions
from gnomon.spark.writing.target import RowRefused
from gnomon.spark.writing.targets import find_targets
from gnomon.spark.writing.writers import NoSuchWriter, Writers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gnomon.spark.pipelines.files.file_rows import FileRow
    from gnomon.spark.pipelines.files.file_runner import FileRunner

ROWS: Final = 10
"""Rows that a dry run shows."""


class FileStatus(NamedTuple):
    """The state of a pipeline of files."""

    query: str | None
    """The id of its query; None if it has not run since the last reset."""
    generation: int
    """The number of resets."""
    batch: int | None
    """The last batch that has ended."""
    topic_batch: int | None
    """The last batch that the topic has. It may be one more than `batch`, or that of a query before a reset."""
    waiting: tuple[SourceFile, ...]
    """The files that are left to read, in their order."""


class FileCheck(NamedTuple):
    """The report of a dry run."""

    status: FileStatus
    rows: list[FileRow]
    problem: str | None
    """The first reason why a run would fail."""


class FilePipeline:
    """One pipeline.

    Args:
        settings: see there.
        folder: relative paths of the settings begin there.
    """

    def __init__(self, settings: FilePipelineSettings, folder: Path) -> None:
        self._folder = folder.absolute()
        self.settings = replace(settings, format=self._with_schema(settings.format))
        self.checkpoint = Checkpoint(
            settings.checkpoint if "://" in settings.checkpoint else str(self._folder / settings.checkpoint)
        )

    @classmethod
    def load(cls, path: str | Path) -> FilePipeline:
        """The pipeline of a file.

        Raises:
            BadPipeline: the file cannot be read, or a setting cannot be used.
        """
        return cls.of(read_pipeline_file(Path(path)), Path(path).parent)

    @classmethod
    def of(cls, given: Mapping[str, Any], folder: str | Path = ".") -> FilePipeline:
        """The pipeline of settings that are given as in a file; raises as `load`."""
        return cls(parse_file_settings(given), Path(folder))

    def run(
        self, session: SparkSession | None = None, committed: Callable[[BatchProgress], None] = lambda batch: None
    ) -> None:
        """Runs until the trigger ends it; raises as `FileRunner.run`."""
        self.runner(session or self.session(), committed).run()

    def runner(self, session: SparkSession, committed: Callable[[BatchProgress], None]) -> FileRunner:
        """One run, which another thread or a signal handler may stop."""
        from gnomon.spark.pipelines.files.file_runner import FileRunner

        return FileRunner(self.settings, self._folder, session, self._log(), self._options(), committed)

    def session(self) -> SparkSession:
        """A session with the settings of the section `spark`."""
        from gnomon.spark.pipelines.session import opened

        return opened(self.settings.name, self.settings.spark)

    def status(self) -> FileStatus:
        """The state of the pipeline; raises as `Writers.state`, except NoSuchWriter."""
        log, source, options = self._log(), self.settings.source, self._options()
        (cluster, *_), thread = cluster_of(options.addresses)
        number, read = log.next_number(), log.read()
        for each in log.batch(number) or ():  # recorded, and not known to be in the topic
            del read[each.name]
        found = list(listed(source.pattern, self._folder))
        waiting = chosen(found, read, len(found), by_time=source.by_time)
        topic_batch = thread.call(_last_batch, cluster, self.settings.name)
        return FileStatus(
            log.query(), self.checkpoint.generation.number, number - 1 if number else None, topic_batch, waiting.files
        )

    def check(self) -> FileCheck:
        """A dry run, which changes nothing; raises as `status`, and BadPipeline as `FileRunner.run`."""
        from gnomon.spark.pipelines.files.file_rows import first_rows

        settings, status, options = self.settings, self.status(), self._options()
        (cluster, *_), thread = cluster_of(options.addresses)
        problem: str | None = None
        rows: list[FileRow] = []
        try:
            thread.call(find_targets, cluster, [settings.target.topic])
        except RowRefused as error:
            problem = str(error)
        if status.waiting:
            path = self._folder / status.waiting[0].name
            rows, failure = first_rows(self.session(), settings.format, settings.target, path, ROWS)
            problem = problem or failure
        return FileCheck(status, rows, problem)

    def reset(self) -> None:
        """Has the next run begin again with the first file, in the place of the query that has written the topic.

        Raises:
            BadPipeline: as `FileLog`.
        """
        self._log()
        self.checkpoint.reset({}, self.checkpoint.query())

    def _log(self) -> FileLog:
        return FileLog(self.checkpoint)

    def _options(self) -> SinkOptions:
        """The options of the sink; a pipeline that was reset takes over its writer."""
        target = self.settings.target
        given = {
            "kafka.bootstrap.servers": target.bootstrap_servers,
            "topic": target.topic,
            "writer": self.settings.name,
            "writerTakeOver": "true" if self.checkpoint.generation.number else "false",
        }
        return SinkOptions.parse(given, streaming=True)

    def _with_schema(self, form: FileFormatSettings) -> FileFormatSettings:
        """The settings with the schema that is in a file."""
        if form.schema_file is None:
            return form
        return replace(form, schema=read_schema_file(self._folder / form.schema_file))


async def _last_batch(cluster: KafkaBrokers, writer: str) -> int | None:
    """The last batch that a writer has decided; None if there is none."""
    try:
        decision = (await Writers(cluster).state(writer)).decision
    except NoSuchWriter:
        return None
    return None if decision is None else decision.batch
