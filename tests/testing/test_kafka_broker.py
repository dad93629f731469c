"""The broker for tests: starts fast, restarts on the same address, and ends with its parent."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import trio
from confluent_kafka.admin import AdminClient, NewTopic

from gnomon.testing import BrokerNotStarted, KafkaBroker, daemon


def topics(broker: KafkaBroker) -> set[str]:
    return set(AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=10).topics)


def produce(broker: KafkaBroker, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"value")
    assert producer.flush(10) == 0


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture
def own_broker(shared_broker: KafkaBroker) -> KafkaBroker:
    """A broker of these tests, which runs and has no faults."""
    if not shared_broker.running:
        shared_broker.start()
    shared_broker.resume()
    shared_broker.heal()
    return shared_broker


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


WITHOUT_HTTP = (sys.executable, "-P", str(Path(__file__).with_name("without_http.py")))


def test_another_program_may_run_the_broker_which_needs_no_http_server_until_its_pages_are_asked_for() -> None:
    with KafkaBroker(command=WITHOUT_HTTP) as broker:
        produce(broker, "orders")
        assert topics(broker) == {"orders"}
        assert "admin_port_unserved" not in broker.log()
        with pytest.raises(OSError, match=r"reset|refused|closed"):
            urllib.request.urlopen(f"{broker.admin_url}/livez", timeout=20)
        while "admin_port_unserved" not in broker.log():
            os.sched_yield()
        assert "not installed" in broker.log()
        assert "python -m pip install --upgrade hypercorn starlette" in broker.log()
        produce(broker, "more")
        assert topics(broker) == {"orders", "more"}
        assert broker.stop() == 0


def test_the_fixture_itself_needs_no_dependency_when_another_environment_runs_the_broker() -> None:
    script = (
        "import sys\n"
        "for name in ('trio', 'lmdb', 'msgpack', 'click', 'crc32c', 'cramjam', 'prometheus_client',\n"
        "             'hypercorn', 'starlette', 'confluent_kafka', 'rich', 'yaml', 'sortedcontainers', 'hypothesis'):\n"
        "    sys.modules[name] = None\n"
        "import gnomon.testing.plugin\n"
        "from gnomon.testing import KafkaBroker\n"
        "with KafkaBroker(command=[sys.executable, '-P', '-m', 'gnomon.cli.child']) as broker:\n"
        "    print(broker.bootstrap_servers)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("127.0.0.1:")


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


@pytest.mark.parametrize("before", ["", "broker.pause()"])
def test_a_broker_ends_when_its_parent_is_killed(before: str) -> None:
    script = (
        "import time\n"
        "from gnomon.testing import KafkaBroker\n"
        "broker = KafkaBroker()\n"
        "broker.start()\n"
        f"{before}\n"
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


def test_a_paused_broker_is_silent_and_goes_on_where_it_stood(own_broker: KafkaBroker) -> None:
    produce(own_broker, "paused")
    own_broker.pause()
    assert own_broker.paused
    assert own_broker.running
    producer = confluent_kafka.Producer({"bootstrap.servers": own_broker.bootstrap_servers})
    producer.produce("paused", b"value")
    assert producer.flush(0.3) == 1
    with pytest.raises(AssertionError, match="paused: call resume"):
        own_broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER")
    own_broker.resume()
    assert not own_broker.paused
    assert producer.flush(10) == 0


def test_a_paused_broker_can_be_stopped_and_killed(own_broker: KafkaBroker) -> None:
    own_broker.pause()
    assert own_broker.stop() == 0
    own_broker.start()
    own_broker.pause()
    own_broker.kill()
    own_broker.start()
    produce(own_broker, "again")


def test_clients_get_the_errors_and_delays_that_were_asked_for(own_broker: KafkaBroker) -> None:
    produce(own_broker, "orders")
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap_servers})
    own_broker.fail("CreateTopics", error="POLICY_VIOLATION", topic="refused")
    futures = admin.create_topics([NewTopic("refused", 1)])
    with pytest.raises(confluent_kafka.KafkaException, match="POLICY_VIOLATION"):
        futures["refused"].result(10)
    own_broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", calls=2)
    own_broker.delay("Produce", seconds=0.3, topic="orders")
    began = time.monotonic()
    produce(own_broker, "orders")  # the client tries again
    assert time.monotonic() - began > 0.3
    assert own_broker.faults_left == 0
    own_broker.delay("Fetch", seconds=60, calls=3, client_id="nobody")
    assert own_broker.faults_left == 3
    own_broker.heal()
    assert own_broker.faults_left == 0


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ({"api": "Prodce", "error": "UNKNOWN_SERVER_ERROR"}, "there is no API 'Prodce': did you mean 'PRODUCE'"),
        ({"api": "Produce", "error": "NOT_LEADER"}, "there is no error 'NOT_LEADER': did you mean 'NOT_LEADER_OR"),
        ({"api": "Produce", "error": "NONE"}, "NONE is no error"),
        ({"api": "Produce", "error": "UNKNOWN_SERVER_ERROR", "calls": 0}, "calls is a number from 1"),
    ],
)
def test_a_fault_that_does_not_exist_is_refused(kafka_broker: KafkaBroker, fault: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        kafka_broker.fail(fault.pop("api"), **fault)
    with pytest.raises(ValueError, match="seconds is a number from 0"):
        kafka_broker.delay("Produce", seconds=-1)
    assert kafka_broker.faults_left == 0


def test_a_broker_of_the_command_line_has_no_control_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "ANSWER_SECONDS_MAX", 0.5)
    with KafkaBroker(command=[sys.executable, "-P", "-m", "gnomon.cli.main"]) as broker:
        with pytest.raises(TimeoutError, match="does not answer"):
            broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER")
        produce(broker, "orders")


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
        "print(*sorted({'trio', 'hypothesis', 'lmdb', 'click'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
