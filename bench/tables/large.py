"""A table that is larger than the memory of its broker: random gets, other producers meanwhile, a snapshot, a watch."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from bench.generator import Figures, GeneratorFailed
from bench.stage import Stage
from bench.tables.frames import batch_frame, get_frame, key_of, watch_frame
from bench.tables.loads import BATCH_RECORDS, new_table
from bench.tables.memory_group import memory_group
from bench.writes.frames import HELLO
from bench.writes.loads import RECORD_BYTES, KafkaWrites, run_load, topic_id
from gnomon.client.blocking import connect_blocking
from gnomon.client.errors import Unavailable

MEMORY_BYTES = 512 << 20
VALUE_BYTES = 200
CONNECTIONS = 50
SAMPLE_SECONDS = 0.02
FLUSHED_SECONDS_MAX = 600.0
KEPT = "large table"
TOPIC = "large"


def large_table(stage: Stage) -> Figures:
    """The figures of a table of `large_table_keys` keys of 200 bytes in 512 MiB; it is filled once a run."""
    installation = stage.kept.get(KEPT)
    with memory_group(MEMORY_BYTES) as group:
        if installation is None:
            installation = stage.system.install(stage.workspace)
            with stage.serving(installation) as server:
                group.add(server.process.pid)
                stage.await_leaders("probe")
                new_table(stage, keys=stage.scale.large_table_keys, value_bytes=VALUE_BYTES, name=TOPIC)
                _await_flushed(stage)  # Kafka's producers do not wait for it
            stage.kept[KEPT] = installation
        with stage.serving(installation) as server:
            group.add(server.process.pid)
            stage.await_leaders(TOPIC)
            _await_flushed(stage)  # once it is loaded
            return {**_gets_beside_a_producer(stage), "snapshot_mb": _snapshot_mb(stage), "watch_mb": _watch_mb(stage)}


def _gets_beside_a_producer(stage: Stage) -> Figures:
    """Gets of random keys; and the longest wait of a producer to another topic, which has one request in flight."""
    frame = get_frame(TOPIC, topic_id(stage, TOPIC), stage.scale.large_table_keys)
    with ThreadPoolExecutor(1) as other:
        produced = other.submit(KafkaWrites(1, 1, own_partitions=False), stage)
        gets = run_load(stage, "load", CONNECTIONS, 1, TOPIC, frame, is_native=True)
        return {**gets, "longest_produce_ms": produced.result()["longest_ms"]}


def _snapshot_mb(stage: Stage) -> float:
    """The anonymous memory that a snapshot takes at most."""
    process = stage.server.process
    with connect_blocking(process.ready()["native"]) as client:
        table = client.table(TOPIC)
        table.put(key_of(0), bytes(VALUE_BYTES))  # otherwise the last snapshot may be as new
        _await_flushed(stage)
        before, most, ended = process.anonymous_bytes(), [0], threading.Event()

        def look() -> None:
            while not ended.wait(SAMPLE_SECONDS):
                most[0] = max(most[0], process.anonymous_bytes())

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            table.snapshot()
        finally:
            ended.set()
            watcher.join()
    return max(0, most[0] - before) / 1e6


def _watch_mb(stage: Stage) -> float:
    """The anonymous memory that a sleeping watch takes during a load, beyond the growth in the same load without it."""
    frame = batch_frame(TOPIC, BATCH_RECORDS, stage.scale.large_table_keys, RECORD_BYTES)

    def growth_bytes() -> int:
        _await_flushed(stage)
        before = stage.server.process.anonymous_bytes()
        run_load(stage, "load", 1, 5, TOPIC, frame)
        _await_flushed(stage)
        return stage.server.process.anonymous_bytes() - before

    growth_bytes()
    alone = growth_bytes()
    with _sleeping_watch(stage):
        return max(0, growth_bytes() - max(0, alone)) / 1e6


@contextmanager
def _sleeping_watch(stage: Stage) -> Iterator[None]:
    """A watch of all keys from now on, whose client reads nothing of it."""
    with connect_blocking(stage.server.process.ready()["native"]) as client:
        end = client.table(TOPIC).put(key_of(0), b"") + 1
    with socket.create_connection(("127.0.0.1", stage.native_port)) as connection:
        connection.sendall(HELLO + watch_frame(TOPIC, topic_id(stage, TOPIC), end))
        yield


def _await_flushed(stage: Stage) -> None:
    """Waits until the table has nothing in memory that its store lacks."""
    given_up_at = time.monotonic() + FLUSHED_SECONDS_MAX
    with connect_blocking(stage.server.process.ready()["native"]) as client:
        while time.monotonic() < given_up_at:
            try:
                if not any(status.unflushed_bytes for status in client.table(TOPIC).status()):
                    return
            except Unavailable:  # it is being loaded
                pass
            time.sleep(SAMPLE_SECONDS)
    raise GeneratorFailed("the table is not flushed")
