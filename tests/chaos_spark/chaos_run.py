"""One run: topics of its own, two stages, a storm of kills, and the judgement of what is left.

A producer writes numbered rows to a source, FIRST_ROWS at first. The first stage copies the source to a target with SQL
and gnomon's sink; the second one, a pipeline, keeps a Delta table in step with the target. Once the table has rows, the
kills begin and more rows follow, for STORM_SECONDS. Then all rows have to arrive.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from read_back import TopicReader, batches_in, rows_in, table_letters, table_rows

from gnomon.testing.storms.drivers.kill_storm import KillStorm
from gnomon.testing.storms.drivers.numbered_rows import COPY_SQL, TABLE_SCHEMA, NumberedRows, differences
from gnomon.testing.storms.drivers.row_producer import RowProducer
from gnomon.testing.storms.drivers.spare_drivers import SpareDrivers
from gnomon.testing.storms.drivers.spark_stage import SparkStage
from gnomon.testing.storms.processes.cluster_processes import ClusterProcesses
from gnomon.testing.storms.processes.kafka_load import CLIENT

PARTITIONS = 3
ROWS_A_SECOND = 250
FIRST_ROWS = 300
STORM_SECONDS = 15.0
STUCK_SECONDS = 180.0
"""Rows that do not get on for so long without kills are a finding."""
STOP_SECONDS = 90.0
BEFORE_SECONDS = 3.0
"""A pause may have its cause so long before it begins."""
TICK_SECONDS = 0.05
LOOK_SECONDS = 0.5
"""The time between two questions whether all rows have arrived."""
ALARMING = ("FENCED", "belongs to query", "AssertionError", "StagedDamaged", "DeliveryFailed", "at index is null")
"""Texts in errors that no kill explains. Others are of connections, of killed processes, and of a driver beside another
one, whose Python process was killed."""
PIPELINE = """
name = "{name}"
checkpoint = "table.checkpoint"
[source]
bootstrap = "{servers}"
topic = "{topic}"
start = "earliest"
options = {{maxOffsetsPerTrigger = {limit}}}
[format]
kind = "json"
schema = "{schema}"
{transform}
[target]
kind = "delta"
path = "table"
[errors]
on_error = "dead_letter"
{letters}
"""
TRANSFORM = """
[transform]
sql = "SELECT n, copied_from, text, _partition, _offset FROM records"
"""


def is_alarming(error: str) -> bool:
    """Whether no kill explains the error of a stage."""
    return any(text in error for text in ALARMING)


@dataclass(frozen=True, slots=True)
class Variant:
    """The settings of a run, drawn from its seed."""

    copy_limit: int
    table_limit: int
    compression: str
    letters_to_topic: bool
    queried: bool
    """Whether the second stage has a query."""
    from_shadow: bool
    """Whether the second stage reads a shadow of the target."""

    @classmethod
    def drawn(cls, seed: int) -> Variant:
        drawn = random.Random(f"{seed}/variant")
        limits = (300, 1000, 4000)
        return cls(
            copy_limit=drawn.choice(limits),
            table_limit=drawn.choice(limits),
            compression=drawn.choice(("none", "lz4", "zstd")),
            letters_to_topic=drawn.random() < 0.5,
            queried=drawn.random() < 0.3,
            from_shadow=drawn.random() < 0.3,
        )

    def __str__(self) -> str:
        words = ["letters to a topic" if self.letters_to_topic else "letters to a table"]
        words += ["query"] * self.queried + ["from a shadow"] * self.from_shadow
        return f"{self.copy_limit} and {self.table_limit} rows a batch, {self.compression}, {', '.join(words)}"


@dataclass(slots=True)
class Progress:
    """The longest time without a new commit of the table, the time to the first one included."""

    table: Path
    pause_seconds: float = 0.0
    pause_ended: float = 0.0
    _batches: int = 0
    _since: float = field(default_factory=time.monotonic)

    def look(self) -> None:
        batches, now = batches_in(self.table), time.monotonic()
        if now - self._since > self.pause_seconds:
            self.pause_seconds, self.pause_ended = now - self._since, now
        if batches != self._batches:
            self._batches, self._since = batches, now


class ChaosRun:
    """One run.

    Args:
        cluster: serves; other runs have used it.
        folder: of this run; it receives the table and the checkpoints.
    """

    def __init__(self, cluster: ClusterProcesses, spares: SpareDrivers, folder: Path, seed: int) -> None:
        self.seed, self.variant = seed, Variant.drawn(seed)
        self.findings: list[str] = []
        self._cluster, self._spares, self._folder = cluster, spares, folder
        self._servers = cluster.bootstrap_servers
        self._name = f"run-{seed}"
        self._admin = AdminClient({**CLIENT, "bootstrap.servers": self._servers})
        self._reader = TopicReader(self._servers)
        self._producer = RowProducer(
            self._servers, self._topic("source"), PARTITIONS, first=FIRST_ROWS, rows_a_second=ROWS_A_SECOND
        )
        self.stages = [SparkStage("copy", self._copying(), spares), SparkStage("table", self._tabling(), spares)]
        self.progress = Progress(folder / "table")
        self.storm = KillStorm(cluster, self.stages, seed)
        self.began = time.monotonic()

    def _topic(self, role: str) -> str:
        return f"{self._name}.{role}"

    @property
    def rows(self) -> NumberedRows:
        """The rows so far."""
        return NumberedRows(PARTITIONS, self._producer.sent)

    def pause(self) -> str:
        """The longest pause, with the kills in it and shortly before."""
        seconds, end = self.progress.pause_seconds, self.progress.pause_ended
        begin = end - seconds
        kills = [
            f"{text} at {when - begin:+.1f}" for when, text in self.storm.kills if begin - BEFORE_SECONDS < when < end
        ]
        return f"{seconds:.1f} s from {begin - self.began:.1f} s on: {', '.join(kills) or 'no kill'}"

    # --- the stages ---

    def _copying(self) -> dict[str, object]:
        brokers = {"kafka.bootstrap.servers": self._servers}
        limit = str(self.variant.copy_limit)
        source = {"subscribe": self._topic("source"), "startingOffsets": "earliest", "maxOffsetsPerTrigger": limit}
        sink = {"topic": self._topic("target"), "writer": self._name, "compression": self.variant.compression}
        return {
            "stage": "copy",
            "sql": COPY_SQL,
            "reading": brokers | source,
            "writing": brokers | sink,
            "checkpoint": str(self._folder / "copy.checkpoint"),
        }

    def _tabling(self) -> dict[str, object]:
        letters = "dead_letter_path = 'letters'"
        if self.variant.letters_to_topic:
            letters = f"dead_letter_topic = '{self._topic('letters')}'"
        file = self._folder / "table.toml"
        file.write_text(
            PIPELINE.format(
                name=f"{self._name}.table",
                servers=self._servers,
                topic=self._topic("shadow" if self.variant.from_shadow else "target"),
                limit=self.variant.table_limit,
                schema=TABLE_SCHEMA,
                transform=TRANSFORM if self.variant.queried else "",
                letters=letters,
            )
        )
        return {"stage": "table", "file": str(file)}

    # --- the run ---

    def run(self) -> None:
        """Runs and judges; `findings` has the result."""
        self._create_topics()
        self._producer.start()
        try:
            if self._until(lambda: rows_in(self.progress.table) > 0, STUCK_SECONDS):
                self._producer.go_on()
                self._until(lambda: False, STORM_SECONDS, self.storm.tick)
            else:
                self._stuck("no row arrives in the table, so nothing was killed")
            self._producer.stop()
            self.storm.heal()
            self._settle()
            self._judge()
        finally:
            self._producer.stop()
            for stage in self.stages:
                self.findings += stage.hangs + [error for error in stage.failures if is_alarming(error)]
                stage.close()
        self.findings += self._cluster.ended
        self._cluster.ended.clear()
        if not self.findings:
            self._delete_topics()
        self._reader.close()

    def _settle(self) -> None:
        """Waits until all rows have arrived, and ends the stages."""
        if not self._until(lambda: not self._producer.is_alive(), STUCK_SECONDS) or self._producer.error:
            self.findings.append(f"the producer does not end: {self._producer.error}")
        wanted, last = self._wanted(), ""
        while (missing := self._missing(wanted)) and missing != last:
            last = missing
            self._until(lambda last=last: self._missing(wanted) != last, STUCK_SECONDS)  # type: ignore[misc]
        if missing:
            self._stuck(f"rows do not arrive: {missing}")
        for stage in self.stages:
            stage.stop()
        if not self._until(self._ended, STOP_SECONDS):
            self._stuck("the stages do not end")

    def _until(self, holds: Callable[[], bool], seconds: float, more: Callable[[], None] = lambda: None) -> bool:
        """Looks after all processes until something holds; returns whether it does in time."""
        deadline, look_at = time.monotonic() + seconds, 0.0
        while (now := time.monotonic()) < deadline:
            if now >= look_at:
                if holds():
                    return True
                look_at = now + LOOK_SECONDS
            for tick in (self._cluster.tick, self._spares.tick, *(stage.tick for stage in self.stages), more):
                tick()
            self.progress.look()
            time.sleep(TICK_SECONDS)
        return False

    def _wanted(self) -> dict[str, int]:
        """The number of rows in each place at the end."""
        rows = self.rows
        return {"target": sum(map(len, rows.target())), "table": len(rows.table()), "letters": len(rows.letters())}

    def _missing(self, wanted: dict[str, int]) -> str:
        """The places that have fewer rows than they will have; nothing if there are none."""
        try:
            target = sum(self._reader.end(self._topic("target"), partition) for partition in range(PARTITIONS))
            letters = self._letters()
        except KafkaException as error:
            return f"the brokers do not answer: {error}"
        found = {"target": target, "table": rows_in(self.progress.table), "letters": letters}
        return ", ".join(f"{name} {found[name]} of {wanted[name]}" for name in found if found[name] < wanted[name])

    def _letters(self) -> int:
        if self.variant.letters_to_topic:
            return self._reader.end(self._topic("letters"), 0)
        return rows_in(self._folder / "letters")

    def _ended(self) -> bool:
        return all(stage.orphans_ended() and stage.ended for stage in self.stages)

    def _stuck(self, what: str) -> None:
        self.findings.append(f"{what}; the stacks are in the drivers' logs")
        for stage in self.stages:
            stage.dump()
            self.findings += [f"the last error of {stage.name}: {error}" for error in stage.failures[-1:]]
        time.sleep(2)  # for the stacks to be written

    # --- the judgement ---

    def _judge(self) -> None:
        rows = self.rows
        for role, expected in (("source", rows.source()), ("target", rows.target()), ("shadow", rows.target())):
            for partition in range(PARTITIONS):
                found = self._reader.records(self._topic(role), partition)
                self.findings += differences(f"{role}-{partition}", expected[partition], found)
        self.findings += differences("table", rows.table(), table_rows(self._folder / "table"))
        if self.variant.letters_to_topic:
            letters = self._reader.letters(self._topic("letters"))
        else:
            letters = table_letters(self._folder / "letters")
        self.findings += differences("dead letters", rows.letters(), sorted(letters))

    # --- topics ---

    def _create_topics(self) -> None:
        shadowed = {"gnomon.shadow.source": self._topic("target")}
        self._create(NewTopic(self._topic("source"), PARTITIONS))
        self._create(NewTopic(self._topic("target"), PARTITIONS))
        self._create(NewTopic(self._topic("shadow"), PARTITIONS, config=shadowed))
        self._create(NewTopic(self._topic("letters"), 1))

    def _create(self, topic: NewTopic) -> None:
        self._admin.create_topics([topic])[topic.topic].result(30)

    def _delete_topics(self) -> None:
        sinks = [name for name in self._admin.list_topics(timeout=30).topics if name.startswith("__gnomon_sink_")]
        names = [self._topic(role) for role in ("shadow", "letters", "target", "source")]
        for name in (*names, *(name for name in sinks if self._name in name)):
            self._admin.delete_topics([name])[name].result(30)
