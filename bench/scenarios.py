"""All scenarios, and the loads of those of Kafka's protocol."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.failover import lose_bookie, lose_leader, take_over
from bench.generator import Figures
from bench.scenario import MESSAGES, P50, P99, PER_CPU_SECOND, REQUESTS, Column, Scenario
from bench.stage import PLAIN, UNTIL_ENOUGH, Stage, throughput
from bench.stores.store import KeyValueStore, warm_up_store
from bench.tables.scenarios import TABLES
from bench.writes.scenarios import WRITES

SINGLE = ("gnomon", "floor", "kafka", "kafka-synced")
ALL = ("gnomon", "cluster", "floor", "kafka", "kafka-synced")
CLUSTER = ("cluster",)
PEERS = ("gnomon", "kafka", "kafka-synced")
ONE_OF_EACH = ("gnomon", "kafka")
"""If flush.messages changes nothing, Kafka is measured once."""

KIB, MIB = 1 << 10, 1 << 20
IDLE_SECONDS = 2.0


def warm_up(stage: Stage) -> Figures:
    """Lets a JVM compile its hot paths, and any server open its files, before the first scenario counts."""
    if isinstance(stage.system, KeyValueStore):
        return warm_up_store(stage)
    stage.await_leaders("warm-up")
    topic, seconds = stage.topic(), min(2.0, stage.scale.seconds)
    if not stage.system.only_produces:
        filled = stage.fill(topic, KIB, seconds)
        stage.rdkafka("consume", stage.server.bootstrap, topic, filled, 30_000)
    frame = stage.frame(topic, 1, 100)
    return stage.raw("load", stage.server.port, 10, 5, 0, int(seconds * 1e3), frame)


def produce(value_bytes: int, batch_bytes: int) -> Callable[[Stage], Figures]:
    def measure(stage: Stage) -> Figures:
        topic, scale = stage.topic(), stage.scale
        times = (int(scale.warmup_seconds * 1e3), int(scale.seconds * 1e3))
        arguments = ("produce", stage.server.bootstrap, topic, value_bytes, batch_bytes, *times, UNTIL_ENOUGH, PLAIN)
        with stage.cpu_cost() as cost:
            figures = stage.rdkafka(*arguments)
        return throughput(figures, cost)

    return measure


def unbatched(connections: int, in_flight: int) -> Callable[[Stage], Figures]:
    def measure(stage: Stage) -> Figures:
        topic, scale = stage.topic(), stage.scale
        frame = stage.frame(topic, 1, 100)
        times = (int(scale.warmup_seconds * 1e3), int(scale.seconds * 1e3))
        with stage.cpu_cost() as cost:
            figures = stage.raw("load", stage.server.port, connections, in_flight, *times, frame)
        return throughput(figures, cost)

    return measure


def consume(value_bytes: int) -> Callable[[Stage], Figures]:
    def measure(stage: Stage) -> Figures:
        topic = stage.topic()
        filled = stage.fill(topic, value_bytes, stage.scale.seconds)
        with stage.cpu_cost() as cost:
            figures = stage.rdkafka("consume", stage.server.bootstrap, topic, filled, 60_000)
        return throughput(figures, cost)

    return measure


def end_to_end(stage: Stage) -> Figures:
    """Latencies at a fixed rate.

    A backlog from a cold start shrinks slowly at such a rate, so the warm-up is as long as the measurement.
    """
    topic, rate, scale = stage.topic(), 1_000, stage.scale
    counts = (int(rate * scale.seconds), int(rate * scale.seconds))
    with stage.cpu_cost() as cost:
        figures = stage.rdkafka("latency", stage.server.bootstrap, topic, 100, rate, *counts)
    return throughput(figures, cost)


def fan_out(stage: Stage) -> Figures:
    """One producer of 1 KB records, 200 long-polling readers; the warm-up is as long as the measurement."""
    topic, readers, rate, scale = stage.topic(), 200, 200, stage.scale
    counts = (int(rate * scale.seconds), int(rate * scale.seconds))
    frame = stage.frame(topic, 1, KIB)
    with stage.cpu_cost() as cost:
        figures = stage.raw("fan", stage.server.port, topic, readers, rate, *counts, frame)
    share = figures["operations"] / figures["wanted"]
    return {**throughput(figures, cost), "delivered_percent": share * 100}


def subscribe(stage: Stage) -> Figures:
    """The group of the round's first subscription pays for the offsets topic; the second one is measured."""
    topic = stage.topic()
    frame = stage.frame(topic, 1, 100)
    stage.await_leaders(topic, first_produce=frame)
    stage.rdkafka("group", stage.server.bootstrap, topic, f"{topic}-first", 30_000)
    return stage.rdkafka("group", stage.server.bootstrap, topic, f"{topic}-counted", 30_000)


def start_up(stage: Stage) -> Figures:
    """From exec on an empty data directory to the first acknowledged Produce, into a topic that this creates."""
    with stage.serving(stage.system.install(stage.workspace)) as server:
        reached = stage.await_leaders("first", first_produce=stage.frame("first", 1, 100))
        return {"acknowledged_s": reached["acknowledged_at_s"] - server.started_at_seconds}


def restart(stage: Stage) -> Figures:
    """From exec, after SIGKILL, to a leader for every partition and the first acknowledged Produce.

    Every partition holds a record. The directory is filled once a run; each round kills the server and starts again.
    """
    topic, partitions = "many", stage.scale.partitions
    installation = stage.kept.get("restart")
    if installation is None:
        installation = stage.system.install(stage.workspace)
        with stage.serving(installation):
            stage.await_leaders("probe")
            stage.topic(partitions, name=topic)
            stage.seed(topic, partitions)
        stage.kept["restart"] = installation
    with stage.serving(installation) as server:
        reached = stage.await_leaders(topic, partitions, stage.frame(topic, 1, 100))
        started_at = server.started_at_seconds
        return {
            "ready_s": reached["ready_at_s"] - started_at,
            "acknowledged_s": reached["acknowledged_at_s"] - started_at,
        }


def memory(stage: Stage) -> Figures:
    """Resident two seconds after the first Produce; anonymous after batches, reads and small requests."""
    with stage.serving(stage.system.install(stage.workspace)) as server:
        stage.await_leaders("first", first_produce=stage.frame("first", 1, 100))
        time.sleep(IDLE_SECONDS)
        idle = server.process.memory()
        for load in (consume(KIB), produce(KIB, MIB), unbatched(50, 1)):
            load(stage)
        loaded = server.process.memory()
    return {
        "resident_idle_mb": idle.resident / 1e6,
        "anonymous_idle_mb": idle.anonymous / 1e6,
        "resident_loaded_mb": loaded.resident / 1e6,
        "anonymous_loaded_mb": loaded.anonymous / 1e6,
    }


SCENARIOS = (
    Scenario("produce-1k-64k", "produce 1 KB, 64 KiB batches", ALL, (MESSAGES, PER_CPU_SECOND), produce(KIB, 64 * KIB)),
    Scenario("produce-1k-1m", "produce 1 KB, 1 MiB batches", ALL, (MESSAGES,), produce(KIB, MIB)),
    Scenario("produce-100b-64k", "produce 100 B, 64 KiB batches", SINGLE, (MESSAGES,), produce(100, 64 * KIB)),
    Scenario("produce-100b-1m", "produce 100 B, 1 MiB batches", SINGLE, (MESSAGES,), produce(100, MIB)),
    Scenario("unbatched-1x1", "unbatched, 1 connection", SINGLE, (REQUESTS, P50), unbatched(1, 1)),
    Scenario("unbatched-50x1", "unbatched, 50 connections", ALL, (REQUESTS,), unbatched(50, 1)),
    Scenario("unbatched-1x100", "unbatched, 100 in flight on one", SINGLE, (REQUESTS,), unbatched(1, 100)),
    Scenario("consume-1k", "consume 1 KB", ONE_OF_EACH, (MESSAGES,), consume(KIB)),
    Scenario("consume-100b", "consume 100 B", ONE_OF_EACH, (MESSAGES,), consume(100)),
    Scenario("end-to-end", "end to end at 1,000 msg/s", PEERS, (P50, P99), end_to_end),
    Scenario(
        "fan-out",
        "200 raw consumers × 200 msg/s",
        ONE_OF_EACH,
        (
            Column("delivered_percent", "delivered", "%", more=True),
            P50,
            P99,
            Column("broker_cpu_us", "broker CPU per delivery", "µs"),
        ),
        fan_out,
    ),
    Scenario(
        "subscribe",
        "subscribe → first message",
        ONE_OF_EACH,
        (Column("first_message_ms", "first message", "ms"),),
        subscribe,
    ),
    Scenario(
        "start-up",
        "start → first produce",
        SINGLE[:3],
        (Column("acknowledged_s", "acknowledged after", "s"),),
        start_up,
        own_server=True,
    ),
    Scenario(
        "restart",
        "restart after SIGKILL, many partitions",
        ONE_OF_EACH,
        (Column("ready_s", "ready after", "s"), Column("acknowledged_s", "acknowledged after", "s")),
        restart,
        own_server=True,
    ),
    Scenario(
        "memory",
        "memory",
        ONE_OF_EACH,
        (
            Column("resident_idle_mb", "resident when idle", "MB"),
            Column("anonymous_loaded_mb", "anonymous after load", "MB"),
        ),
        memory,
        own_server=True,
    ),
    Scenario(
        "takeover",
        "takeover of a large open ledger",
        CLUSTER,
        (Column("served_ms", "first request served after", "ms"), Column("slowest_ms", "slowest of five", "ms")),
        take_over,
        own_server=True,
    ),
    Scenario(
        "ledgers",
        "open ledgers of a dead broker",
        CLUSTER,
        (Column("served_s", "all served after", "s"),),
        lose_leader,
        own_server=True,
    ),
    Scenario(
        "repair",
        "repair after a bookie's death",
        CLUSTER,
        (Column("repaired_mb_s", "copied", "MB/s", more=True),),
        lose_bookie,
        own_server=True,
    ),
    *WRITES,
    *TABLES,
)
