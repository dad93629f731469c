"""The scenarios of tables, and of the stores beside which they are measured."""

from __future__ import annotations

from collections.abc import Callable

from bench.generator import Figures
from bench.scenario import P50, P99, REQUESTS, WIN_RATE, Column, Scenario, ratio
from bench.stage import Stage
from bench.stores.store import KeyValueStore, store_load
from bench.tables.loads import DISK, MEMORY, TableBatches, TableGets, TablePuts, TableSwaps, scans
from bench.writes.loads import KafkaWrites, Load, beside

GNOMON = ("gnomon",)
PUT_STORES = ("gnomon", "etcd", "redis", "nats")
GET_STORES = ("gnomon", "etcd", "redis")
ENTRIES = Column("rate", "entries", "entries/s", more=True)
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
    Scenario("table-get-cluster", "get in a cluster, 50 clients", ("cluster",), (P50, P99), TableGets(50)),
    Scenario(
        "table-swap",
        "50 clients put one key at the revision that they know",
        GNOMON,
        (WIN_RATE, ratio("÷ puts of one client", more=True), Column("longest_wait_ms", "longest wait for a win", "ms")),
        beside(TableSwaps(50), TablePuts(1), "rate"),
    ),
    Scenario("table-scan", "scan, 100-byte values", GNOMON, (ENTRIES,), scans),
    Scenario("table-batches", "Kafka batches into a table on disk", GNOMON, (ENTRIES,), TableBatches(DISK)),
    Scenario("table-batches-memory", "Kafka batches into a table in memory", GNOMON, (ENTRIES,), TableBatches(MEMORY)),
)
