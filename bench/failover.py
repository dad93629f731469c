"""Measures a cluster after the kill of a broker or a bookie."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.cluster import BOOKIES, Cluster, ClusterServer
from bench.generator import Figures, GeneratorFailed
from bench.stage import IDEMPOTENT, Stage

RECORD_BYTES = 1 << 10
TAKEOVERS = 5
LOAD_MS = 200
SHORT_LEASE = {"broker_service.lease_seconds": "2"}
"""A short lease, because the measurements begin after the lease has ended."""
EAGER_AUDITOR = {
    "auditor.grace_seconds": "1",
    "auditor.interval_seconds": "0.5",
    "auditor.lease_seconds": "2",
    "auditor.repair_bytes_per_second": "1e12",
    "bookie_service.lease_seconds": "2",
}
REPAIR_SECONDS_MAX = 300
LOOK_SECONDS = 0.1


@contextmanager
def started_cluster(stage: Stage, settings: dict[str, str]) -> Iterator[ClusterServer]:
    with stage.serving(Cluster(settings).install(stage.workspace)) as server:
        assert isinstance(server, ClusterServer), "a cluster's server is another one"
        yield server


def take_over(stage: Stage) -> Figures:
    """Time from the first request to a new owner until its answer: the median of several takeovers of one open ledger.

    Each time the owner has just appended, is killed, and its lease has ended; the next owner is a broker that was
    started meanwhile and has led nothing yet. The request is a Produce on an open connection, sent as soon as this
    broker reports itself as the leader. An idempotent producer, as Java's are by default, has written to the ledger, so
    its state has to be recovered.
    """
    records = stage.scale.ledger_bytes // RECORD_BYTES
    with started_cluster(stage, SHORT_LEASE) as server:
        topic = stage.topic()
        stage.fill(topic, RECORD_BYTES, records=records)
        stage.fill(topic, RECORD_BYTES, records=records // 16, idempotent=IDEMPOTENT)
        frame = stage.frame(topic, 60, RECORD_BYTES)
        served_ms = []
        for broker in range(2, TAKEOVERS + 2):
            stage.raw("load", server.port, 1, 10, 0, LOAD_MS, frame)
            server.process.kill()
            server.start_broker(broker)
            reached = stage.await_leaders(topic, first_produce=frame, leader=broker)
            served_ms.append((reached["acknowledged_at_s"] - reached["ready_at_s"]) * 1e3)
    return {"served_ms": statistics.median(served_ms), "slowest_ms": max(served_ms)}


def lose_leader(stage: Stage) -> Figures:
    """Time from the end of a dead broker's lease until each of its partitions has accepted a record elsewhere."""
    topic, partitions = "many", stage.scale.ledgers
    with started_cluster(stage, {}) as server:
        stage.topic(partitions, name=topic)
        stage.seed(topic, partitions)
        server.process.kill()
        server.start_broker(2)
        stage.await_leaders(topic, partitions, leader=2)
        with stage.cpu_cost() as cost:
            figures = stage.seed(topic, partitions)
    return {"served_s": figures["seconds"], "broker_cpu_us": cost.seconds / partitions * 1e6}


def lose_bookie(stage: Stage) -> Figures:
    """Bytes a second that the auditor copies to a new bookie, for a ledger of a killed one."""
    with started_cluster(stage, EAGER_AUDITOR) as server:
        stage.fill(stage.topic(), RECORD_BYTES, records=stage.scale.ledger_bytes // 4 // RECORD_BYTES)
        server.start_bookies([BOOKIES + 1])
        server.metric("auditor_copied_bytes_total")  # the first request for an admin page imports its server
        server.members[f"bookie-{BOOKIES}"].kill()
        given_up_at = time.monotonic() + REPAIR_SECONDS_MAX
        begun = time.monotonic()
        while not server.metric("auditor_fragments_moved_total"):
            if server.metric("auditor_copied_bytes_total") == 0:
                begun = time.monotonic()
            if time.monotonic() > given_up_at:
                raise GeneratorFailed("the auditor did not finish its repair")
            time.sleep(LOOK_SECONDS)
        seconds, copied_bytes = time.monotonic() - begun, server.metric("auditor_copied_bytes_total")
    return {"repaired_mb_s": copied_bytes / seconds / 1e6, "copied_mb": copied_bytes / 1e6, "seconds": seconds}
