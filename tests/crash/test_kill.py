"""A real broker under load, killed repeatedly with SIGKILL: each acknowledged record is there once, at its offset.

`--kills 50` kills it more often; the figures come with pytest's `-s`.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from gnomon.testing.kafka_broker import BrokerNotStarted, KafkaBroker
from gnomon.testing.storms.processes.kafka_load import CLIENT, Load

TOPIC = "orders"
PARTITIONS = 4
PRODUCERS = 2
CONSUMERS = 2


def _kill_and_start(broker: KafkaBroker, stream: random.Random) -> list[float]:
    """Kills the broker, in some rounds again while it starts; returns the times of the kills."""
    kills = [time.monotonic()]
    broker.kill()
    while stream.random() < 0.3:
        starting = threading.Thread(target=_try_to_start, args=[broker])
        starting.start()
        while not broker.running and starting.is_alive():
            time.sleep(0.001)
        time.sleep(0.4 * stream.random())
        kills.append(time.monotonic())
        if broker.running:
            os.kill(broker.pid, signal.SIGKILL)
        starting.join()
        broker.kill()
    broker.start()
    return kills


def _try_to_start(broker: KafkaBroker) -> None:
    try:
        broker.start()
    except BrokerNotStarted:
        pass


def test_a_broker_killed_under_load_keeps_acknowledged_records(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    stream = random.Random("kills")
    settings = {"log.segment.bytes": 65_536, "group.initial.rebalance.delay.ms": 0}
    kills: list[float] = []
    resumed: list[float] = []
    with KafkaBroker(data_dir=tmp_path, durability="synced", settings=settings) as broker:
        admin = AdminClient({**CLIENT, "bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
        load = Load(broker.bootstrap_servers, TOPIC, partitions=PARTITIONS)
        producers = [load.producer(f"producer-{number}") for number in range(PRODUCERS)]
        consumers = [load.consumer(f"consumer-{number}") for number in range(CONSUMERS)]
        for worker in (*consumers, *producers):
            worker.start()
        while len(kills) < pytestconfig.getoption("--kills"):
            time.sleep(stream.random())
            kills += _kill_and_start(broker, stream)
            ready = time.monotonic()
            if stream.random() < 0.8:  # otherwise the next kill may come before the clients recover
                resumed.append(load.wait_until_acknowledged(ready))
        time.sleep(0.5)
        for producer in producers:
            producer.finish()
        load.wait_until_consumed()
        for consumer in consumers:
            consumer.finish()
        assert load.findings() == []
    outages = load.outages(kills)
    records = sum(len(history.final) for history in load.histories)
    print(
        f"\n{records} records, {len(kills)} kills, {len(outages)} outages as the producers saw them:"
        f" p50 {outages[len(outages) // 2]:.2f} s, max {outages[-1]:.2f} s; from ready to the next acknowledgement"
        f" p50 {sorted(resumed)[len(resumed) // 2]:.2f} s, max {max(resumed):.2f} s"
    )
