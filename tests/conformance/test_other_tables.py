"""Tables with kcat, with consumer groups, and over kills of the broker: the longer tests, with `--all-clients`."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from programs import run
from refused_batches import produced
from tables import PARTITIONS, TTL, contents, create_table, keys_of
from toolchains import tool

from gnomon.client.blocking import connect_blocking
from gnomon.client.tables.blocking_table import BlockingTable

from families.group import read

if TYPE_CHECKING:
    from conftest import Broker

    from families.family import Family

MURMUR2 = ["-X", "topic.partitioner=murmur2_random"]
KEYS = [key for partition in range(PARTITIONS) for key in keys_of(partition, 2)]
KILLS = 2


def kcat(broker: Broker) -> list[str]:
    return [tool("kcat", "it is a Debian package"), "-b", broker.bootstrap_servers]


def test_kcat_writes_and_reads_a_table(broker: Broker, table: BlockingTable) -> None:
    produce = [*kcat(broker), "-P", "-t", table.topic, *MURMUR2, "-K:", "-Z"]
    run(produce, "\n".join(f"{key.decode()}:value" for key in KEYS))
    assert {key: value for key, (value, _) in contents(table).items()} == dict.fromkeys(KEYS, b"value")
    run(produce, f"{KEYS[0].decode()}:")
    assert table.get(KEYS[0]) is None
    run([*produce, "-H", f"{TTL}=3600000"], f"{KEYS[0].decode()}:expires")
    entry = table.get(KEYS[0])
    assert entry is not None
    assert entry.expires_ms is not None
    table.put(KEYS[0], b"native")
    form = ["-f", "%o %k %S %s\n"]
    came = run([*kcat(broker), "-q", "-C", "-t", table.topic, "-p", "0", "-o", "beginning", "-e", *form])
    first, second = (key.decode() for key in KEYS[:2])
    assert came.splitlines() == [
        *(f"0 {first} 5 value", f"1 {second} 5 value", f"2 {first} -1 "),
        *(f"3 {first} 7 expires", f"4 {first} 6 native"),
    ]


def test_kcat_shows_that_a_record_was_refused(broker: Broker, table: BlockingTable) -> None:
    before = produced(broker)
    command = [*kcat(broker), "-P", "-t", table.topic, "-p", "0"]
    done = subprocess.run(command, input="no key", text=True, capture_output=True, timeout=60)
    assert produced(broker) - before == 1
    assert done.returncode == 1
    assert "Broker failed to validate record" in done.stderr
    assert contents(table) == {}


def test_a_consumer_group_reads_the_history_of_a_table(family: Family, table: BlockingTable) -> None:
    for key in KEYS:
        table.put(key, b"value")
    table.delete(KEYS[0])
    member = family.member(table.topic, table.topic)
    found = read(member, len(KEYS) + 1)
    member.commit()
    member.close()
    by_key = {key: [record.value for record in found if record.key == key] for key in KEYS}
    assert by_key == {key: [b"value", None] if key == KEYS[0] else [b"value"] for key in KEYS}


def test_each_record_of_an_idempotent_producer_counts_once_over_kills_of_the_broker(
    own_broker: Broker, own_family: Family, topic: str
) -> None:
    create_table(own_broker.bootstrap_servers, topic)
    producer = own_family.producer(idempotent=True, kafka_partitioner=True)
    sent = 0

    def send() -> None:
        nonlocal sent
        for _ in range(20):
            for key in KEYS:
                producer.send(topic, b"%d" % sent, key=key)
            sent += 1

    for _ in range(KILLS):
        send()
        own_broker.kill()
        send()
        own_broker.start()
    send()
    offsets = producer.flush()
    producer.close()
    with connect_blocking(own_broker.native_address) as client:
        entries = [client.table(topic).get(key) for key in KEYS]
    found = [(entry.value, entry.version, entry.revision) for entry in entries if entry]
    assert found == [(b"%d" % (sent - 1), sent, offset) for offset in offsets[-len(KEYS) :]]
