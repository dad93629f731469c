"""Loads on the table of one partition: puts, gets, races for a key, scans, and batches of Kafka's producers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Producer

from bench.cluster import ClusterServer
from bench.generator import Figures, GeneratorFailed
from bench.stage import Stage
from bench.tables.frames import batch_frame, get_frame, key_of, put_frame, scan_frame, swap_frame
from bench.writes.loads import RECORD_BYTES, run_load, topic_id

KEYS = 10_000
"""The keys of a load."""
SCANNED_KEYS = 100_000
PAGE_ENTRIES = 1_000
BATCH_RECORDS = 512
"""Records of a batch: 64 KiB."""
DISK, MEMORY = "disk", "memory"
FLUSH_SECONDS = 60.0
_QUEUED = 10_000
"""Records after which a producer looks for its answers."""


def table_config(engine: str) -> Mapping[str, str]:
    """The configs of a table."""
    return {"gnomon.view": "kv", "gnomon.view.engine": engine}


def new_table(stage: Stage, engine: str = DISK, keys: int = 0, value_bytes: int = RECORD_BYTES, name: str = "") -> str:
    """A table of one partition with that many keys."""
    topic = stage.topic(config=table_config(engine), name=name)
    fill_table(stage.server.bootstrap, topic, keys, value_bytes)
    return topic


def fill_table(bootstrap: str, topic: str, keys: int, value_bytes: int) -> None:
    """Puts keys 0 to below `keys` by a Kafka producer.

    Raises:
        GeneratorFailed: a record was not acknowledged.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.kbytes": 65536})
    failures: list[str] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            failures.append(str(error))

    value = bytes(value_bytes - 8)
    for number in range(keys):
        key = key_of(number)
        while True:
            try:
                producer.produce(topic, value + key, key, partition=0, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        if not number % _QUEUED:
            producer.poll(0)
    left = producer.flush(FLUSH_SECONDS)
    if failures or left:
        reason = failures[0] if failures else f"no answer within {FLUSH_SECONDS:.0f} s"
        raise GeneratorFailed(f"{len(failures) + left} of {keys} records were not acknowledged: {reason}")


@dataclass(frozen=True, slots=True)
class TablePuts:
    """Native puts of one key each."""

    connections: int

    def __call__(self, stage: Stage) -> Figures:
        topic = new_table(stage)
        frame = put_frame(topic, topic_id(stage, topic), KEYS, RECORD_BYTES)
        return run_load(stage, "load", self.connections, 1, topic, frame, is_native=True)


@dataclass(frozen=True, slots=True)
class TableGets:
    """Linearizable gets of one key each."""

    connections: int

    def __call__(self, stage: Stage) -> Figures:
        topic = new_table(stage, keys=KEYS)
        frame = get_frame(topic, topic_id(stage, topic), KEYS)
        figures = run_load(stage, "load", self.connections, 1, topic, frame, is_native=True)
        return _with_values(figures, RECORD_BYTES)


def gets_in_cluster(stage: Stage) -> Figures:
    """Gets by 50 clients, and the requests to the metadata service for each."""
    server = stage.server
    assert isinstance(server, ClusterServer), "one process has no metadata service to ask"
    before = server.metadata_requests()
    figures = TableGets(50)(stage)
    return {**figures, "metadata_reads": (server.metadata_requests() - before) / figures["total"]}


@dataclass(frozen=True, slots=True)
class TableSwaps:
    """Clients that put one key at the revision that they know; the rate is that of the puts."""

    connections: int

    def __call__(self, stage: Stage) -> Figures:
        topic = new_table(stage)
        frame = swap_frame(topic, topic_id(stage, topic), RECORD_BYTES)
        return run_load(stage, "swap", self.connections, 1, topic, frame, is_native=True)


def scans(stage: Stage) -> Figures:
    """Pages of a scan; the rate is that of the entries."""
    topic = new_table(stage, keys=SCANNED_KEYS)
    frame = scan_frame(topic, topic_id(stage, topic), SCANNED_KEYS, PAGE_ENTRIES)
    figures = run_load(stage, "load", 1, 1, topic, frame, is_native=True)
    return {**_with_values(figures, PAGE_ENTRIES * RECORD_BYTES), "rate": figures["rate"] * PAGE_ENTRIES}


@dataclass(frozen=True, slots=True)
class TableBatches:
    """Batches of a Kafka producer into a table; the rate is that of the records."""

    engine: str
    keys: int = 100_000

    def __call__(self, stage: Stage) -> Figures:
        topic = new_table(stage, self.engine)
        frame = batch_frame(topic, BATCH_RECORDS, self.keys, RECORD_BYTES)
        figures = run_load(stage, "load", 1, 5, topic, frame)
        return {**figures, "rate": figures["rate"] * BATCH_RECORDS}


def _with_values(figures: Figures, value_bytes: int) -> Figures:
    """Checks that the answers had values, on average.

    Raises:
        GeneratorFailed: they had none.
    """
    if figures["answer_bytes"] < figures["operations"] * value_bytes:
        raise GeneratorFailed("the answers have no values")
    return figures
