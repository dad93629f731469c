"""The scenarios of tables, and of the stores beside which they are measured."""

from __future__ import annotations

from collections.abc import Callable

from bench.generator import Figures
from bench.scenario import P50, P99, REQUESTS, WIN_RATE, Column, Scenario, ratio
from bench.stage import Stage
from bench.stores.store import KeyValueStore, store_load
from bench.tables.large import large_table
from bench.tables.loading import TableTakeover, load_again
from bench.tables.loads import (
    DISK,
    MEMORY,
    TableBatches,
    TableGets,
    TablePuts,
    TableSwaps,
    gets_in_cluster,
    scans,
)
from bench.writes.loads import KafkaWrites, Load, beside

GNOMON = ("gnomon",)
CLUSTER = ("cluster",)
PUT_STORES = ("gnomon", "etcd", "redis", "nats")
GET_STORES = ("gnomon", "etcd", "redis")
ENTRIES = Column("rate", "entries", "entries/s", more=True)
FIRST_GET = Column("first_get_s", "from the lease's end to the first get", "s")
PRODUCE_RATIO = ratio("÷ own unbatched produce", more=True)


def on_each(load: Load, operations: Callable[[KeyValueStore, Stage, int, int], Figures], clients: int) -> Load:
    """The load of a table, and on another store its operations."""
    other = store_load(operations, clients)
    return lambda stage: (other if isinstance(stage.system, KeyValueStore) else load)(stage)


def _puts(store: KeyValueStore, stage: Stage, clients: int, operations: int) -> Figures:
    return store.puts(stage, clients, operations)


def _gets(store: KeyValueStore, stage: Stage, clients: int, operations: int) -> Figures:
    return store.gets(stage, clients, operations)


def _unbatched(connections: int) -> Load:
    return KafkaWrites(connections, 1, own_partitions=False)


TABLES = (
    Scenario(
        "table-put-1x1",
        "put, 1 client",
        PUT_STORES[:3],
        (P50, ratio("÷ own unbatched produce", more=False)),
        on_each(beside(TablePuts(1), _unbatched(1), "p50_ms"), _puts, 1),
    ),
    Scenario(
        "table-put-50x1",
        "put, 50 clients",
        PUT_STORES,
        (REQUESTS, PRODUCE_RATIO),
        on_each(beside(TablePuts(50), _unbatched(50), "rate"), _puts, 50),
    ),
    Scenario(
        "table-get-50x1",
        "get, 50 clients",
        GET_STORES,
        (REQUESTS, PRODUCE_RATIO),
        on_each(beside(TableGets(50), _unbatched(50), "rate"), _gets, 50),
    ),
    Scenario(
        "table-get-cluster",
        "get in a cluster, 50 clients",
        CLUSTER,
        (P50, P99, Column("metadata_reads", "metadata reads per get", "")),
        gets_in_cluster,
    ),
    Scenario(
        "table-swap",
        "50 clients put one key at the revision that they know",
        GNOMON,
        (WIN_RATE, ratio("÷ puts of one client", more=True), Column("longest_wait_ms", "longest wait for a win", "ms")),
        beside(TableSwaps(50), TablePuts(1), "rate"),
    ),
    Scenario("table-scan", "scan, 100-byte values", GNOMON, (ENTRIES,), scans),
    Scenario("table-batches", "Kafka batches, 100,000 keys on disk", GNOMON, (ENTRIES,), TableBatches(DISK)),
    Scenario("table-batches-memory", "Kafka batches, 100,000 keys in memory", GNOMON, (ENTRIES,), TableBatches(MEMORY)),
    Scenario(
        "table-batches-many", "Kafka batches, 1,000,000 keys on disk", GNOMON, (ENTRIES,), TableBatches(DISK, 1_000_000)
    ),
    Scenario(
        "table-load",
        "a table of 1,000,000 keys is loaded again",
        GNOMON,
        (
            Column("from_log", "from the log", "entries/s", more=True),
            Column("from_snapshot", "from a snapshot", "entries/s", more=True),
        ),
        load_again,
        own_server=True,
    ),
    Scenario(
        "table-takeover-shadow",
        "the leader of 1,000,000 keys is killed, with a shadow",
        CLUSTER,
        (FIRST_GET,),
        TableTakeover(with_shadow=True),
        own_server=True,
    ),
    Scenario(
        "table-takeover-cold",
        "the leader of 1,000,000 keys is killed, without one",
        CLUSTER,
        (FIRST_GET,),
        TableTakeover(with_shadow=False),
        own_server=True,
    ),
    Scenario(
        "table-large",
        "10,000,000 keys of 200 bytes in 512 MiB",
        GNOMON,
        (
            Column("rate", "random gets", "req/s", more=True),
            Column("longest_produce_ms", "longest produce to another topic meanwhile", "ms"),
            Column("snapshot_mb", "memory of a snapshot", "MB"),
            Column("watch_mb", "memory of a sleeping watch", "MB"),
        ),
        large_table,
        own_server=True,
    ),
)
