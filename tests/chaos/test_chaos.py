"""A real cluster under real clients, while its processes are killed and stopped, its disks fill and its links are cut.

`make chaos MINUTES=10 [SEED=n] [METADATA=etcd]`; the project's own check runs it for half a minute. The figures come
with pytest's `-s`.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from etcd_needed import etcd_or_skip

from gnomon.testing.storms.processes.cluster_processes import ClusterProcesses
from gnomon.testing.storms.processes.kafka_load import CLIENT, Gap, Load, Worker
from gnomon.testing.storms.processes.lan import Lan, lan_missing
from gnomon.testing.storms.processes.process_storm import KINDS, ProcessStorm
from gnomon.testing.storms.processes.table_load import TableLoad

TOPIC = "orders"
TABLE = "table"
PARTITIONS = 6
PRODUCERS = 3
CONSUMERS = 3
BOOKIES = 4
BROKERS = 3
RECORDS_A_SECOND = 300
PADDING_BYTES = 1000
MESSAGE_TIMEOUT_SECONDS = 300
SECONDS_WITHOUT_MINUTES = 12.0
CALM_SECONDS = 2.0
DISK_BYTES_A_SECOND = 4 << 20
DISK_BYTES = 256 << 20
"""The size of each bookie's disk, plus DISK_BYTES_A_SECOND for each second of the storm."""
IMPATIENT = {"request.timeout.ms": 3000, "socket.timeout.ms": 4000}
"""Timeouts of the first producer, which so leaves a silent broker soon; by default a client takes half a minute."""
GAP_SECONDS_MIN = 1.0
PROGRESS_SECONDS = 10.0
GAPS_SHOWN = 8
SETTINGS = {
    "auditor.grace_seconds": 10,
    "auditor.interval_seconds": 1,
    "log.segment.bytes": 4 << 20,
    "offsets.topic.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "log.level": "debug",
}


def say(text: str) -> None:
    print(text, flush=True)


def outspoken(file: Path) -> dict[str, object]:
    """Config of consumers that log in detail to this file, to show why they read nothing."""
    written = logging.FileHandler(file)
    written.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.Logger("consumers")
    logger.addHandler(written)
    return {"debug": "cgrp,topic", "log_level": 7, "logger": logger}


def weather(storm: ProcessStorm, load: Load, workers: list[Worker], seconds: float, began: float) -> None:
    """Runs the storm and prints its progress; ends early if a client has failed."""
    progress_at, read_before = began, 0
    while (now := time.monotonic()) < began + seconds and all(worker.is_alive() for worker in workers):
        storm.tick()
        if now >= progress_at:
            progress_at += PROGRESS_SECONDS
            happening = ", ".join(fault.text for fault in storm.faults if not fault.over)
            read = sum(load.consumed)
            records = f"{len(load.acknowledged)} acknowledged, {read} read"
            say(f"{now - began:5.0f} s  {len(storm.faults)} faults, {records}  {happening}")
            if read == read_before:
                say(f"         {load.group()}")
            read_before = read
        time.sleep(0.01)


def make_table(admin: AdminClient) -> None:
    """Creates a table on disk, and a shadow of it."""
    for new in (
        NewTopic(TABLE, 1, config={"gnomon.view": "kv"}),
        NewTopic(f"{TABLE}-copy", -1, config={"gnomon.shadow.source": TABLE}),
    ):
        admin.create_topics([new])[new.topic].result(30)


def settle(
    storm: ProcessStorm,
    load: Load,
    table: TableLoad,
    producers: list[Worker],
    consumers: list[Worker],
    on_table: list[Worker],
) -> list[str]:
    """Heals the cluster, ends the clients and returns findings: records that are not acknowledged, read, or right."""
    found: list[str] = []

    def judge(what: str, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except Exception as error:
            found.append(f"{what}: {error}")

    def end(workers: list[Worker]) -> None:
        for worker in workers:
            if judge(worker.name, worker.finish) is False:
                found.append(f"{worker.name} does not end: it has lost the cluster")

    healed = time.monotonic()
    judge("healing", storm.heal)
    say(f"healed: all processes serve after {time.monotonic() - healed:.1f} s")
    if all(worker.is_alive() for worker in producers):
        partitions = range(PARTITIONS)
        again = judge("after healing", lambda: max(load.wait_until_acknowledged(healed, at) for at in partitions))
        say(f"        all partitions take records after {again or float('inf'):.1f} s")
    end(on_table)
    found += judge("the table", table.findings) or []
    end(producers)
    judge("the group", load.wait_until_consumed)
    end(consumers)
    judge("brokers without a memory", storm.leave_disks_alone)
    found += judge("the last reading", load.findings) or []
    return found + storm.cluster.ended + storm.cluster.stop_all()


def report(storm: ProcessStorm, load: Load, began: float) -> None:
    roles = ("metadata", "bookie", "broker")
    say(f"\n{'faults':12}" + "".join(f"{role:>10}" for role in roles) + f"{'all':>10}")
    for kind in KINDS:
        counts = [storm.counts[kind.name, role] for role in roles]
        say(f"{kind.name:12}" + "".join(f"{count:10}" for count in (*counts, sum(counts))))
    counts = [sum(storm.counts[kind.name, role] for kind in KINDS) for role in roles]
    say(f"{'all':12}" + "".join(f"{count:10}" for count in (*counts, sum(counts))))
    say(f"full disks that their bookies noticed: {storm.disks_noticed}; starts in vain: {storm.cluster.restarts}")
    gaps = load.gaps(GAP_SECONDS_MIN)
    for gap in gaps[:-GAPS_SHOWN:-1]:
        where = f"{TOPIC}-{gap.partition} from {gap.since - began:.1f} s on"
        say(f"  {gap.seconds:5.1f} s without {where}: {causes(storm, gap)}")
    lengths = [gap.seconds for gap in gaps] or [0.0]
    p50, p99 = (lengths[int(len(lengths) * part)] for part in (0.5, 0.99))
    say(f"records acknowledged: {len(load.acknowledged)}")
    say(
        f"unavailability (over {GAP_SECONDS_MIN:g} s without an acknowledgement of a partition): {len(gaps)} times,"
        f" p50 {p50:.1f} s, p99 {p99:.1f} s, max {lengths[-1]:.1f} s"
    )


def causes(storm: ProcessStorm, gap: Gap) -> str:
    hit = [fault for fault in storm.faults if fault.since < gap.until and fault.until > gap.since - 1]
    return "; ".join(f"{fault.text} at {fault.since - gap.since:+.1f}" for fault in hit) or "no fault"


def test_a_cluster_in_a_storm_keeps_acknowledged_records_and_serves_again(tmp_path: Path) -> None:
    minutes = float(os.environ.get("MINUTES") or 0)
    seconds = minutes * 60 or SECONDS_WITHOUT_MINUTES
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    metadata = os.environ.get("METADATA") or "embedded"
    assert metadata in ("embedded", "etcd"), f"METADATA={metadata}: give embedded or etcd"
    if metadata == "etcd":
        etcd_or_skip()
    say(f"\nseed {seed}, {seconds:g} s, metadata {metadata}, logs in {tmp_path}")
    missing = lan_missing(tmp_path)
    if missing is not None:
        say(f"NOT TESTED: cut links, and disks are not filled but files limited, for want of namespaces: {missing}")
    lan = Lan() if missing is None else None
    workers: list[Worker] = []
    try:
        disk_bytes = DISK_BYTES + int(seconds * DISK_BYTES_A_SECOND)
        with ClusterProcesses(
            tmp_path,
            lan,
            bookies=BOOKIES,
            brokers=BROKERS,
            disk_bytes=disk_bytes,
            settings=SETTINGS,
            etcd=metadata == "etcd",
        ) as cluster:
            admin = AdminClient({**CLIENT, "bootstrap.servers": cluster.bootstrap_servers})
            admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
            make_table(admin)
            load = Load(
                cluster.bootstrap_servers,
                TOPIC,
                partitions=PARTITIONS,
                records_a_second=RECORDS_A_SECOND,
                padding_bytes=PADDING_BYTES,
                message_timeout_seconds=MESSAGE_TIMEOUT_SECONDS,
            )
            spoken = outspoken(tmp_path / "consumers.log")
            consumers = [load.consumer(f"consumer-{number}", spoken) for number in range(CONSUMERS)]
            producers = [load.producer("producer-0", IMPATIENT)]
            producers += [load.producer(f"producer-{number}") for number in range(1, PRODUCERS)]
            table = TableLoad(cluster.native_addresses, cluster.bootstrap_servers, TABLE)
            on_table = table.workers()
            workers = [*consumers, *producers, *on_table]
            for worker in workers:
                worker.start()
            time.sleep(CALM_SECONDS)
            storm, began = ProcessStorm(cluster, lan, seed), time.monotonic()
            weather(storm, load, workers, seconds, began)
            found = settle(storm, load, table, producers, consumers, on_table)
            report(storm, load, began)
            say(table.report())
    finally:
        for worker in workers:
            worker.abandon()
        if lan is not None:
            lan.close()
    say("\n".join(["FOUND:", *found]) if found else "nothing was lost, doubled or out of order: passed")
    assert not found, f"seed {seed}: see above; {len(found)} findings, the first: {found[0]}"
