"""A driver of the chaos runs with Spark: a program that runs a stage, and another one after it, until it is killed.

Its lines are those of `DriverProcess`. A command has the name of the stage and its arguments:

- `copy`: a streaming query reads a topic, transforms the rows with SQL, and writes them to a topic with gnomon's sink.
- `table`: the pipeline of a file keeps a table in step with a topic.
- null asks the stage that runs to end.

Its argument is an archive of the JVM's classes, which halves the start of the drivers. Where the file does not exist,
the program makes it and ends.
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

from pyspark.sql import SparkSession

import gnomon.spark
from gnomon.spark.pipelines.run_failed import own_error
from gnomon.spark.pipelines.session import opened

JVM_OPTIONS = "spark.driver.extraJavaOptions"
SPARK = {
    "spark.master": "local[2, 4]",
    "spark.sql.shuffle.partitions": "2",
    JVM_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Two threads; a task may fail three times before its stage does."""
WAIT_SECONDS = 0.2


class RunningStage(Protocol):
    """A stage."""

    def run(self) -> None:
        """Runs until it is stopped or fails."""

    def stop(self) -> None:
        """Asks it to end; another thread calls this."""


class CopyStage:
    """A query from a topic to a topic."""

    def __init__(
        self,
        session: SparkSession,
        *,
        sql: str,
        reading: Mapping[str, str],
        writing: Mapping[str, str],
        checkpoint: str,
    ) -> None:
        self._session, self._sql, self._checkpoint = session, sql, checkpoint
        self._reading, self._writing = reading, writing
        self._stopping = False

    def run(self) -> None:
        self._session.readStream.format("gnomon").options(**self._reading).load().createOrReplaceTempView("source")
        writer = self._session.sql(self._sql).writeStream.format("gnomon")
        query = writer.options(**self._writing).option("checkpointLocation", self._checkpoint).start()
        while not query.awaitTermination(WAIT_SECONDS):
            if self._stopping and not query.status["isTriggerActive"]:
                query.stop()

    def stop(self) -> None:
        self._stopping = True


def stage_of(session: SparkSession, command: Mapping[str, Any]) -> RunningStage:
    arguments = {name: value for name, value in command.items() if name != "stage"}
    if command["stage"] == "copy":
        return CopyStage(session, **arguments)
    return gnomon.spark.Pipeline.load(arguments["file"]).runner(session, lambda batch: None)


class Driver:
    """Runs the commands one after the other."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._running: RunningStage | None = None
        self._stop_asked = False

    def listen(self) -> None:
        """Takes commands; at the end of the input, the processes of the driver end."""
        for line in sys.stdin:
            command = json.loads(line)
            self._stop_asked = command["stage"] is None
            if not self._stop_asked:
                self._commands.put(command)
            elif self._running is not None:
                self._running.stop()
        os.killpg(0, signal.SIGKILL)

    def work(self, session: SparkSession) -> None:
        """Runs stages until the JVM ends."""
        self._say(state="idle")
        while True:
            command = self._commands.get()
            try:
                self._running = stage_of(session, command)
                if self._stop_asked:
                    self._running.stop()
                self._running.run()
                self._say(state="idle")
            except Exception as error:
                traceback.print_exc()
                known = own_error(error) or error
                self._say(state="failed", error=f"{type(known).__name__}: {known}")
                if not lives(session):
                    return
            self._running = None

    def _say(self, **what: object) -> None:
        print(json.dumps(what), file=self._output, flush=True)


def lives(session: SparkSession) -> bool:
    """Whether the JVM answers."""
    try:
        session.sparkContext._jvm.java.lang.System.nanoTime()
    except Exception:
        return False
    return True


def session_with(option: str) -> SparkSession:
    """A session whose JVM has this option."""
    session = opened("chaos", {**SPARK, JVM_OPTIONS: f"{SPARK[JVM_OPTIONS]} {option}"})
    session.sparkContext.setLogLevel("WARN")
    session.range(2).count()  # loads classes that each first query needs
    return session


def make_archive(archive: Path) -> None:
    """Archives the classes that a small stream needs, once the JVM has ended."""
    written = archive.with_suffix(".new")
    session = session_with(f"-XX:ArchiveClassesAtExit={written}")
    schema = "timestamp timestamp, value long"
    rows = session.readStream.format("rate").load().mapInArrow(lambda found: found, schema)
    query = rows.writeStream.foreachBatch(lambda frame, number: frame.collect()).start()
    while query.lastProgress is None:
        query.awaitTermination(WAIT_SECONDS)
    query.stop()
    jvm: Any = session.sparkContext._gateway.proc
    session.stop()
    jvm.stdin.close()
    jvm.wait()
    written.rename(archive)


def main(archive: Path) -> None:
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # prints of the JVM are for the log
    if not archive.exists():
        make_archive(archive)
        return
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    driver = Driver(output)
    threading.Thread(target=driver.listen, daemon=True).start()
    driver.work(session_with(f"-XX:SharedArchiveFile={archive}"))
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
