"""Uses each front end of an installed gnomon once: Kafka clients, the native client, the admin port, the command line.

`versions.py` runs it in an environment of its own, which has the wheel and no checkout. Its arguments are the program
that runs the broker (`KafkaBroker(command=…)`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import confluent_kafka

import gnomon
from gnomon.testing import KafkaBroker

RECORDS = [b"%d" % number for number in range(100)]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def kafka(broker: KafkaBroker) -> str:
    """Produces with each codec, and reads all of it as a consumer group."""
    for codec in CODECS:
        configs = {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "enable.idempotence": True}
        producer = confluent_kafka.Producer(configs)
        for value in RECORDS:
            producer.produce("orders", value, key=codec)
        assert producer.flush(20) == 0
    reading = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, **reading})
    consumer.subscribe(["orders"])
    found: list[bytes] = []
    while len(found) < len(CODECS) * len(RECORDS):
        message = consumer.poll(20)
        assert message is not None, f"only {len(found)} records arrived"
        assert message.error() is None, message.error()
        found.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    assert sorted(found) == sorted(RECORDS * len(CODECS))
    return f"{len(found)} records in {len(CODECS)} codecs, read by a group"


def native(broker: KafkaBroker) -> str:
    """Reads and acknowledges as a durable subscription."""
    with gnomon.connect_blocking(broker.native_address) as client:
        consumer = client.subscribe("orders", "shipping", initial_position="earliest")
        for _ in range(len(CODECS) * len(RECORDS)):
            message = consumer.receive(seconds=20)
            assert message is not None, "a record is missing"
            consumer.ack(message)
    return f"{len(CODECS) * len(RECORDS)} records acknowledged"


def admin(broker: KafkaBroker) -> str:
    """Asks for health, metrics, and the description of the admin API."""
    pages = {}
    for path in ("/livez", "/readyz?verbose", "/metrics", "/admin/v2/openapi.json"):
        with urllib.request.urlopen(broker.admin_url + path, timeout=20) as response:
            pages[path] = response.read()
    assert b"metadata" in pages["/readyz?verbose"]
    assert b"gnomon_produce_bytes_total" in pages["/metrics"]
    assert json.loads(pages["/admin/v2/openapi.json"])["openapi"]
    return " ".join(pages)


def command_line(broker: KafkaBroker) -> str:
    """Runs commands as a user does."""
    words = (
        ("--version",),
        ("topic", "create", "flights", "--partitions", "3", "--bootstrap-server", broker.bootstrap_servers),
        ("topic", "list", "--bootstrap-server", broker.bootstrap_servers),
        ("group", "list", "--bootstrap-server", broker.bootstrap_servers),
        ("config", "show"),
        ("doctor", "--data-dir", str(broker.data_dir)),
    )
    program = Path(sys.executable).with_name("gnomon")
    for each in words:
        done = subprocess.run([program, *each], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{each}: {done.stdout}{done.stderr}"
    return ", ".join(each[0] + (f" {each[1]}" if each[0] in ("topic", "group", "config") else "") for each in words)


if __name__ == "__main__":
    checkout = Path(__file__).parents[2]
    assert not Path(gnomon.__file__).is_relative_to(checkout), "this is the checkout's gnomon, not the wheel's"
    with KafkaBroker(command=sys.argv[1:] or None) as running:
        try:
            for front_end in (kafka, native, admin, command_line):
                print(f"  {front_end.__name__}: {front_end(running)}", flush=True)
            assert running.stop() == 0
        finally:
            print(running.log())
