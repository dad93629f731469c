"""The broker for tests: starts fast, restarts on the same address, and ends with its parent."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
import trio
from confluent_kafka.admin import AdminClient

from gnomon.testing import BrokerNotStarted, KafkaBroker


def topics(broker: KafkaBroker) -> set[str]:
    return set(AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=10).topics)


def produce(broker: KafkaBroker, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"value")
    assert producer.flush(10) == 0


def test_a_broker_serves_and_leaves_no_files() -> None:
    with KafkaBroker() as broker:
        produce(broker, "orders")
        assert topics(broker) == {"orders"}
        assert urllib.request.urlopen(f"{broker.admin_url}/livez").status == 200
        directory = broker.data_dir
        assert directory.exists()
    assert not broker.running
    assert not directory.exists()


def test_a_restarted_broker_has_the_same_address_and_data() -> None:
    with KafkaBroker() as broker:
        produce(broker, "orders")
        address = broker.bootstrap_servers, broker.admin_url
        broker.kill()
        assert not broker.running
        broker.start()
        assert (broker.bootstrap_servers, broker.admin_url) == address
        assert topics(broker) == {"orders"}
        assert broker.stop() == 0
        broker.start()
        assert topics(broker) == {"orders"}


def test_a_given_directory_is_kept(tmp_path: Path) -> None:
    with KafkaBroker(data_dir=tmp_path / "data", durability="synced") as broker:
        produce(broker, "orders")
    with KafkaBroker(data_dir=tmp_path / "data", durability="synced") as broker:
        assert topics(broker) == {"orders"}


def test_settings_have_kafkas_names_or_gnomons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_BROKER__KAFKA_PORT", "not for the child")
    with KafkaBroker(settings={"num.partitions": 5, "broker.connections_max": 50}) as broker:
        produce(broker, "orders")
        found = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=10)
        assert len(found.topics["orders"].partitions) == 5


def test_a_failed_start_reports_the_reason() -> None:
    broker = KafkaBroker(settings={"num.partition": 5})
    with pytest.raises(BrokerNotStarted, match=r"did you mean GNOMON_KAFKA__NUM_PARTITIONS"):
        broker.start()
    assert not broker.running
    broker.close()


def test_a_broker_starts_inside_asyncio_and_trio() -> None:
    async def main() -> str:
        with KafkaBroker() as broker:
            produce(broker, "orders")
            return broker.bootstrap_servers

    assert asyncio.run(main()) != ""
    assert trio.run(main) != ""


def test_a_broker_ends_when_its_parent_is_killed() -> None:
    script = (
        "import time\n"
        "from gnomon.testing import KafkaBroker\n"
        "broker = KafkaBroker()\n"
        "broker.start()\n"
        "print(broker.pid, broker.data_dir.parent, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid, _, directory = parent.stdout.readline().strip().partition(" ")
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < deadline, "the broker outlives its parent"
        os.sched_yield()
    subprocess.run(["rm", "-rf", directory], check=True)


def test_the_plugin_provides_brokers(
    kafka_broker: KafkaBroker, kafka_broker_factory: Callable[..., KafkaBroker]
) -> None:
    other = kafka_broker_factory(settings={"auto.create.topics.enable": False})
    assert kafka_broker.running
    assert other.bootstrap_servers != kafka_broker.bootstrap_servers


def test_the_plugin_is_cheap_to_import() -> None:
    script = (
        "import sys\n"
        "import gnomon.testing.plugin\n"
        "print(*sorted({'trio', 'hypothesis', 'lmdb', 'click', 'structlog'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
