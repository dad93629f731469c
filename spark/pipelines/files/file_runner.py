"""Runs a pipeline of files: one batch after the other, each recorded before it is decided.

1. Batch n of the checkpoint is batch n of the query for the sink, which writes it once.
2. The files of a batch are recorded once its rows are staged, and before they are decided. Until then nothing of the
   batch is written, and the next driver chooses files again.
3. A recorded batch that is not known to be in the topic runs again with the same files, unless the topic has it.
4. A batch is not written if one of its files has changed since it was chosen.
5. The parts of the files are written in the order of the files, and of their places there.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from gnomon.spark.decisions import BatchVerdict
from gnomon.spark.pipelines.batch_commit import PipelineFenced
from gnomon.spark.pipelines.files.file_log import FileLog
from gnomon.spark.pipelines.files.file_rows import path_of, sink_rows
from gnomon.spark.pipelines.files.listing import changed_of, listed
from gnomon.spark.pipelines.files.next_files import ChosenFiles, SourceFile, chosen
from gnomon.spark.pipelines.files.part_writer import PART_DDL, PartResult, PartWriter, decode_part
from gnomon.spark.pipelines.files.read_failure import read_failure
from gnomon.spark.pipelines.progress import BatchProgress, CommittedBatch, ProgressMeter
from gnomon.spark.pipelines.run_failed import RunFailed
from gnomon.spark.pipelines.session import SPARK_ERRORS, jvm_watched
from gnomon.spark.pipelines.settings.file_settings import FilePipelineSettings
from gnomon.spark.process import cluster_of
from gnomon.spark.sink import commit
from gnomon.spark.tables.table import CommitVerdict
from gnomon.spark.writing.committing import OtherMessage, StagingLost, WriterFenced
from gnomon.spark.writing.delivery import DeliveryFailed
from gnomon.spark.writing.sink_options import SinkOptions
from gnomon.spark.writing.staging import StagedTask
from gnomon.spark.writing.writer_topic import StagedDamaged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WAIT_SECONDS: Final = 0.2
_warn = logging.getLogger(__name__).warning


class FileRunner:
    """One run of a pipeline of files.

    Args:
        folder: relative names of files begin there.
        options: those of the sink.
        committed: is called with each batch.
    """

    def __init__(
        self,
        settings: FilePipelineSettings,
        folder: Path,
        session: SparkSession,
        log: FileLog,
        options: SinkOptions,
        committed: Callable[[BatchProgress], None],
    ) -> None:
        self._settings, self._folder, self._session, self._log = settings, folder, session, log
        self._options, self._committed = options, committed
        self._query = ""
        self._read: dict[str, SourceFile] = {}
        self._warned: set[str] = set()
        self._stopping = False

    def run(self) -> None:
        """Runs until the trigger says so, the run is stopped, or a batch fails.

        Raises:
            RunFailed: a file has changed or cannot be read, a row does not fit, the topic takes none; or the JVM has
                ended.
            PipelineFenced: another driver or query writes under the name of this pipeline.
            BadPipeline: an expression cannot be used, or the folder of the files does not exist.
            RequestRefused, Unreachable: as `KafkaBrokers.retried`.
        """
        self._query = self._log.begin(str(uuid4()))
        self._read = self._log.read()
        first = number = self._log.next_number()
        meter = ProgressMeter(time.monotonic(), self._next().waiting)
        while not self._stopping:
            began, recorded = time.monotonic(), self._log.batch(number)
            done = self._repeated(number, recorded) if number == first else None
            files = self._next().files if recorded is None else recorded
            if not files:
                if self._settings.trigger.available_now:
                    return
                self._pause()
                continue
            done = done or self._write(number, files, is_recorded=recorded is not None)
            if not self._log.end(number):
                raise _rival(number)
            self._read |= {each.name: each for each in files}
            wall_ms, left = time.time_ns() // 1_000_000, self._next().waiting  # the lag is in files
            self._committed(meter.after(done, began, time.monotonic(), wall_ms, left))
            number += 1

    def stop(self) -> None:
        """Ends the run after the present batch; may be called in a signal handler."""
        self._stopping = True

    def _repeated(self, number: int, files: Sequence[SourceFile] | None) -> CommittedBatch | None:
        """A batch that is in the topic already; None if it is not there."""
        if self._commit(number, []) is not BatchVerdict.ALREADY:
            return None
        if files is None:
            raise PipelineFenced(
                f"ALREADY: the topic has batch {number}, and the checkpoint does not know it: is another driver"
                " running, or was an older copy of the checkpoint restored? Restore the newest one, or begin again with"
                " `gnomon pipeline reset`"
            )
        return CommittedBatch(number, CommitVerdict.ALREADY, 0, 0, None, 0)

    def _write(self, number: int, files: Sequence[SourceFile], *, is_recorded: bool) -> CommittedBatch:
        self._check(number, files, is_recorded=is_recorded)
        paths = [Path(os.path.normpath(self._folder / each.name)) for each in files]  # as Spark names them
        with _in_words(), jvm_watched(self._session):
            rows = sink_rows(self._session, self._settings.format, self._settings.target, paths)
            writer = PartWriter(self._options, self._settings.name, self._query)
            found = [decode_part(bytes(row[0])) for row in rows.mapInArrow(writer, PART_DDL).collect()]
        self._check(number, files, is_recorded=is_recorded)
        if not is_recorded and not self._log.record(number, files):
            raise _rival(number)
        if self._commit(number, _in_order(found, paths)) is BatchVerdict.ALREADY:
            raise _rival(number)
        size = sum(each.bytes for each in files)
        return CommittedBatch(number, CommitVerdict.COMMITTED, sum(part.rows for part in found), size, None, 0)

    def _commit(self, number: int, tasks: Sequence[StagedTask]) -> BatchVerdict:
        (cluster, *_), thread = cluster_of(self._options.addresses)
        with _in_words():
            return thread.call(commit, cluster, self._options, self._settings.name, self._query, number, tasks)

    def _check(self, number: int, files: Sequence[SourceFile], *, is_recorded: bool) -> None:
        """See invariant 4."""
        found = changed_of(files, self._folder)
        if found is None:
            return
        advice = (
            f"batch {number} was recorded with it and may be decided: restore the file with its time, or begin again"
            " with `gnomon pipeline reset`"
            if is_recorded
            else "files have to be whole when they get their names. The next run reads it as it is then"
        )
        raise RunFailed(
            f"{found.name} has changed since it was chosen ({found.bytes} bytes then), or is gone: {advice}. Nothing of"
            " the batch is written"
        )

    def _next(self) -> ChosenFiles:
        source = self._settings.source
        found = chosen(listed(source.pattern, self._folder), self._read, source.files_per_batch, by_time=source.by_time)
        for name in found.changed:
            self._warn_once(f"{name} has changed after it was read: it is not read again")
        if found.late:
            self._warn_once(f"{found.late[0]} came after files that follow it in the order: it is read now")
        return found

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _warn(text)

    def _pause(self) -> None:
        end = time.monotonic() + self._settings.pause_seconds
        while not self._stopping and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _WAIT_SECONDS))


def _in_order(parts: Sequence[PartResult], paths: Sequence[Path]) -> list[StagedTask]:
    """The tasks in the order of their files, and of their places there."""
    numbers = {path: number for number, path in enumerate(paths)}
    placed = [
        (part.file if isinstance(part.file, int) else numbers[path_of(part.file)], part.start, part.task)
        for part in parts
    ]
    return [task for _, _, task in sorted(placed, key=lambda each: each[:2])]


def _rival(number: int) -> PipelineFenced:
    return PipelineFenced(
        f"ALREADY: another driver runs on this checkpoint, and was faster with batch {number}: run one at a time"
    )


@contextmanager
def _in_words() -> Iterator[None]:
    """Turns errors of Spark's jobs and of the sink into those of `FileRunner.run`."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise read_failure(error) from error
    except WriterFenced as error:
        raise PipelineFenced(
            f"FENCED: {error}. For a pipeline: restore the checkpoint, give it another name, or begin again with"
            " `gnomon pipeline reset`"
        ) from error
    except (DeliveryFailed, StagingLost, OtherMessage, StagedDamaged) as error:
        raise RunFailed(str(error)) from error
