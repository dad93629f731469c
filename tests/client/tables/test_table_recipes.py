"""The recipes of the guide to tables, as they are in `docs/examples`, against a real broker."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from recipes import EXAMPLES, recipe

import gnomon
from gnomon.testing.kafka_broker import KafkaBroker

TABLE = {"gnomon.view": "kv", "gnomon.view.engine": "memory"}
SECONDS = 0.5
"""The time to live of a leader that is to be replaced."""


def create(broker: KafkaBroker, name: str, **configs: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, config=configs)])[name].result()
    return name


@pytest.fixture
def client(running: KafkaBroker) -> Iterator[gnomon.BlockingClient]:
    with gnomon.connect_blocking(running.native_address) as client:
        yield client


@contextmanager
def program(name: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Runs a program of a recipe; it is killed at the end of the block, wherever it is then."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


def test_a_service_that_was_killed_goes_on_with_the_change_after_the_last_one_it_has_seen(
    running: KafkaBroker, client: gnomon.BlockingClient, tmp_path: Path
) -> None:
    settings, change_setting = (
        client.table(create(running, "settings", **TABLE)),
        recipe("followed_settings").change_setting,
    )
    settings.put(b"colour", b"green")
    settings.put(b"size", b"4")
    arguments = ("followed_settings", running.native_address, "settings")
    with program(*arguments, tmp_path / "other.json") as other:
        with program(*arguments, tmp_path / "seen.json") as service:
            for each in (service, other):
                assert lines(each, 2) == ["current colour green", "current size 4"]
            change_setting(settings, b"size", lambda size: b"%d" % (int(size or b"0") + 1))
            assert lines(service, 1) == ["put size 5"]
        change_setting(settings, b"colour", lambda colour: (colour or b"") + b"ish")
        running.kill()
        running.start()
        settings.delete(b"size")
        change_setting(settings, b"font", lambda font: b"none" if font is None else font)
        changes = ["put colour greenish", "delete size None", "put font none"]
        with program(*arguments, tmp_path / "seen.json") as service:
            assert lines(service, 3) == changes
            settings.put(b"font", b"small")
            assert lines(service, 1) == ["put font small"]
        assert lines(other, 5) == ["put size 5", *changes, "put font small"]
    present = {entry.key.decode(): entry.value.decode() for entry in settings.scan().entries}
    for name in ("seen", "other"):
        assert json.loads((tmp_path / f"{name}.json").read_text()) == [7, present]


def test_of_two_administrators_who_change_one_setting_the_second_is_refused(
    running: KafkaBroker, client: gnomon.BlockingClient
) -> None:
    settings, change_setting = (
        client.table(create(running, "raced", **TABLE)),
        recipe("followed_settings").change_setting,
    )

    def late(size: bytes | None) -> bytes:
        with gnomon.connect_blocking(running.native_address) as other:
            change_setting(other.table("raced"), b"size", lambda size: b"first")
        return b"second"

    for before in (None, b"first"):
        with pytest.raises(gnomon.CompareFailed) as refused:
            change_setting(settings, b"size", late)
        assert refused.value.current is not None
        assert refused.value.current.value == b"first"
        assert refused.value.current.version == (1 if before is None else 2)


def test_a_leader_that_was_paused_cannot_write_after_its_successor_has_begun(
    running: KafkaBroker, client: gnomon.BlockingClient
) -> None:
    module = recipe("leased_leader")
    election, work = (
        create(running, "election", **TABLE),
        create(running, "work", **{"gnomon.conditional.write": "true"}),
    )
    one = module.LeasedLeader(client, election, work, "one", ttl_seconds=60)
    one.put(b"address", b"of one")
    with program("leased_leader", running.native_address, election, work, "two", SECONDS) as two:
        for number in range(3):
            one.renew()
            one.write(b"%d of one" % number)
        one.ttl_seconds = SECONDS
        one.renew()  # for the last time before it is paused
        (taken,) = lines(two, 1)
        assert taken.startswith("two leads in term ")
        assert int(taken.split()[-1]) > one.term
        for late in (one.renew, lambda: one.write(b"late"), lambda: one.put(b"address", b"late")):
            with pytest.raises(module.Deposed):
                late()
        running.kill()
        running.start()
        written = client.end(work).sn.sequence_id or 0
        while (client.end(work).sn.sequence_id or 0) <= written:
            pass
    again = module.LeasedLeader(client, election, work, "one")
    assert again.term > int(taken.split()[-1])
    address = client.table(election).get(b"address")
    assert address is not None
    assert address.value == b"of one"
    log = records(client, work)
    assert log[:5] == [b"begins", b"0 of one", b"1 of one", b"2 of one", b"begins"]
    assert {value.partition(b"of ")[2] for value in log[5:]} == {b"two", b""}
    assert log[-1] == b"begins"


def records(client: gnomon.BlockingClient, topic: str) -> list[bytes]:
    """The values of all records."""
    consumer = client.subscribe(topic, "audit", initial_position="earliest")
    found = []
    for _ in range((client.end(topic).sn.sequence_id or 0) + 1):
        message = consumer.receive(seconds=10)
        assert message is not None
        found.append(message.value or b"")
    consumer.close()
    return found


def test_each_record_is_counted_once_by_programs_that_are_killed_and_started_twice(
    running: KafkaBroker, client: gnomon.BlockingClient
) -> None:
    create(running, "visits")
    counters, stream = client.table(create(running, "counters", **TABLE)), random.Random(7)
    pages = [b"page %d" % stream.randrange(20) for _ in range(30_000)]
    producer = Producer({"bootstrap.servers": running.bootstrap_servers, "queue.buffering.max.messages": len(pages)})
    for page in pages:
        producer.produce("visits", page)
    producer.flush()
    arguments = ("counted_events", running.bootstrap_servers, running.native_address, "visits", 0, "counters")

    def position() -> int:
        entry = counters.get(b"position/visits/0")
        return 0 if entry is None else int(entry.value)

    def counted_on(process: subprocess.Popen[str]) -> None:
        """Returns in the middle of the work."""
        begun = position()
        while position() == begun:
            assert process.poll() is None, "it has ended before it was killed: produce more records"

    for _ in range(2):
        with program(*arguments) as process:
            counted_on(process)
    with program(*arguments) as one, program(*arguments) as other:
        counted_on(one)
        running.kill()
        running.start()
        assert (one.wait(), other.wait()) == (0, 0)
    assert position() == len(pages)
    found = {entry.key: int(entry.value) for entry in counters.scan(b"count/").entries}
    assert found == {b"count/" + page: number for page, number in Counter(pages).items()}
    assert recipe("counted_events").count_events(*arguments[1:]) == 0


def test_records_that_another_program_has_counted_meanwhile_are_not_counted_again(
    running: KafkaBroker, client: gnomon.BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(running, "raced-visits")
    counters = client.table(create(running, "raced-counters", **TABLE))
    producer = Producer({"bootstrap.servers": running.bootstrap_servers})
    for _ in range(10):
        producer.produce("raced-visits", b"page")
    producer.flush()
    arguments = (running.bootstrap_servers, running.native_address, "raced-visits", 0, "raced-counters")
    module, other, counted = recipe("counted_events"), recipe("counted_events"), list[int]()
    module.RECORDS_AT_ONCE = other.RECORDS_AT_ONCE = 10  # or it would wait for more

    class OvertakenConsumer(Consumer):
        def consume(self, *args: Any, **named: Any) -> Any:
            records = super().consume(*args, **named)
            if records and not counted:
                counted.append(other.count_events(*arguments))
            return records

    monkeypatch.setattr(module, "Consumer", OvertakenConsumer)
    assert (module.count_events(*arguments), counted) == (0, [10])
    entry = counters.get(b"count/page")
    assert entry is not None
    assert entry.value == b"10"
