"""The recipes of the guide to conditional writes, as they stand in `docs/examples`, against a real broker."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from recipes import EXAMPLES, recipe

import gnomon
from gnomon.testing.kafka_broker import KafkaBroker


@pytest.fixture
def topic(broker: KafkaBroker) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    config = {"gnomon.conditional.write": "true"}
    admin.create_topics([NewTopic("flights", 1, config=config)])["flights"].result()
    return "flights"


@pytest.fixture
def client(broker: KafkaBroker) -> Iterator[gnomon.BlockingClient]:
    with gnomon.connect_blocking(broker.native_address) as client:
        yield client


def values(client: gnomon.BlockingClient, topic: str) -> list[bytes]:
    """The values of all records."""
    count = (client.end(topic).sn.sequence_id or 0) + 1
    consumer = client.subscribe(topic, "audit", initial_position="earliest")
    consumer.seek("earliest")
    found = []
    for _ in range(count):
        message = consumer.receive(seconds=10)
        assert message is not None
        found.append(message.value or b"")
    consumer.close()
    return found


def test_a_file_is_copied_exactly_once_by_a_program_that_is_killed_again_and_again(
    broker: KafkaBroker, client: gnomon.BlockingClient, topic: str, tmp_path: Path
) -> None:
    path, stream = tmp_path / "flights.csv", random.Random(7)
    lines = [f"{number},{'x' * stream.randrange(400)}\n".encode() for number in range(40_000)]
    path.write_bytes(b"".join(lines))
    command = [sys.executable, str(EXAMPLES / "copy_file.py"), broker.native_address, str(path), topic]
    kills = 0
    while True:
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            process.wait(0.3 + 0.03 * kills)
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
    assert process.returncode == 0
    assert values(client, topic) == lines
    assert recipe("copy_file").copy_file(broker.native_address, path, topic) == 0
    assert kills, "the program was never killed: give it less time"


def test_of_two_copies_at_once_one_is_refused_and_each_line_is_there_once(
    broker: KafkaBroker, client: gnomon.BlockingClient, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "flights.csv"
    lines = [b"%d,%s\n" % (number, b"x" * 300) for number in range(5_000)]
    path.write_bytes(b"".join(lines))
    copy_file, outcomes = recipe("copy_file").copy_file, []

    def copy() -> None:
        try:
            outcomes.append(copy_file(broker.native_address, path, topic))
        except gnomon.CasWriteException:
            outcomes.append("refused")

    threads = [threading.Thread(target=copy) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if "refused" in outcomes:
        copy_file(broker.native_address, path, topic)
    assert values(client, topic) == lines


def test_replicas_that_race_never_spend_more_than_there_is(
    broker: KafkaBroker, client: gnomon.BlockingClient, topic: str, tmp_path: Path
) -> None:
    module = recipe("replicated_accounts")
    first = module.ReplicatedAccounts(client, topic, "first", tmp_path / "first.json")
    first.transfer("bank", "ann", 100)
    refused = []

    def spend(name: str, target: str) -> None:
        with gnomon.connect_blocking(broker.native_address) as own:
            replica = module.ReplicatedAccounts(own, topic, name, tmp_path / f"{name}.json")
            for _ in range(30):
                try:
                    replica.transfer("ann", target, 3)
                except module.Refused:
                    refused.append(name)
            replica.save()

    threads = [threading.Thread(target=spend, args=(f"replica-{target}", target)) for target in ("bob", "cid")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first.catch_up()
    assert first.balances["ann"] == 1
    assert first.balances["bob"] + first.balances["cid"] == 99
    assert len(refused) == 60 - 33
    again = module.ReplicatedAccounts(client, topic, "replica-bob", tmp_path / "replica-bob.json")
    again.catch_up()
    assert again.balances == first.balances
    assert again.applied == first.applied == 33


def test_a_new_leader_knows_every_record_of_the_one_before_which_writes_no_more(
    broker: KafkaBroker, client: gnomon.BlockingClient, topic: str
) -> None:
    module = recipe("elected_leader")
    first = module.ElectedLeader(client, topic, "first")
    written: list[bytes] = []
    deposed = threading.Event()

    def lead() -> None:
        try:
            for number in range(100_000):
                first.write(b"%d" % number)
                written.append(b"%d" % number)
        except module.Deposed:
            deposed.set()

    thread = threading.Thread(target=lead)
    thread.start()
    while len(written) < 50:
        time.sleep(0.01)
    with gnomon.connect_blocking(broker.native_address) as other:
        second = module.ElectedLeader(other, topic, "second")
        thread.join(30)
        assert deposed.is_set()
        assert second.log == written
        second.write(b"mine")
        with pytest.raises(module.Deposed):
            first.write(b"late")
    assert values(client, topic) == [*written, b"mine"]
