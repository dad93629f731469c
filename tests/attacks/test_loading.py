"""The loading of a large table, beside a canary: the turns of the node stay short.

The canary's answers wait for the disk, to which the records of the table are being written.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from canary import Canary
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prepared import CANARY_TOPIC, SECONDS_MAX
from test_attacks import PROGRAM, TURN_SECONDS_MAX
from watched_node import WatchedNode

from gnomon.client.blocking import connect_blocking
from gnomon.testing import KafkaBroker

TOPIC, KEYS = "loaded", 200_000


def fill(broker: KafkaBroker, engine: str) -> None:
    config = {"gnomon.view": "kv", "gnomon.view.engine": engine}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for created in admin.create_topics([NewTopic(CANARY_TOPIC, 1), NewTopic(TOPIC, 1, config=config)]).values():
        created.result(SECONDS_MAX)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})
    for number in range(KEYS):
        while True:
            try:
                producer.produce(TOPIC, bytes(100), b"key %06d" % number, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(SECONDS_MAX) == 0


@pytest.mark.parametrize(
    ("engine", "source"),
    [("memory", "log"), ("memory", "snapshot"), ("disk", "log"), ("disk", "snapshot"), ("disk", "store")],
)
def test_a_healthy_client_hardly_notices_that_a_large_table_is_loaded(tmp_path: Path, engine: str, source: str) -> None:
    turns = tmp_path / "turns"
    broker = KafkaBroker(data_dir=tmp_path / "data", command=(sys.executable, str(PROGRAM), str(turns)))
    with broker:
        fill(broker, engine)
        with connect_blocking(broker.native_address) as client:
            assert client.table(TOPIC).get(b"key 000000") is not None
            if source == "snapshot":
                client.table(TOPIC).snapshot()
        broker.stop()
        if source != "store":
            shutil.rmtree(tmp_path / "data" / "tables", ignore_errors=True)
        broker.start()
        node, before = WatchedNode(broker.pid), turns.stat().st_size
        address = (broker.host, broker.port)
        with Canary(node, address, CANARY_TOPIC) as canary, connect_blocking(broker.native_address) as client:
            assert client.table(TOPIC).get(b"key %06d" % (KEYS - 1)) is not None
            assert client.table(TOPIC).count() == KEYS
        turn = max(map(float, turns.read_text()[before:].split()), default=0.0)
    print(f"{engine} from {source}: turn {turn * 1e3:.1f} ms, canary {canary.slowest_seconds * 1e3:.1f} ms")
    assert canary.answers
    assert turn <= TURN_SECONDS_MAX
