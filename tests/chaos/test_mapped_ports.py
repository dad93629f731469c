"""A bookie and a broker that others reach only through mapped ports, as containers with `docker -p` or node ports.

The bookie, the broker, and a client inside share a host with an address that nobody else has a route to; the metadata
and the client outside are elsewhere (needs root and nftables).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gnomon.client.blocking import connect_blocking
from gnomon.testing.daemon import Daemon
from gnomon.testing.storms.processes.lan import Lan, LanHost
from gnomon.testing.storms.processes.mapped_ports import PortMapping, mapping_missing

INSIDE, OUTSIDE, NATIVE, BOOKIE = 9092, 9093, 6650, 4002
PORTS = {port: 10_000 + port for port in (OUTSIDE, NATIVE, BOOKIE)}
"""The router's port for each port of the host."""
SECONDS = 20
CONNECT = (sys.executable, "-c", f"import socket, sys; socket.create_connection((sys.argv[1], {OUTSIDE}), timeout=0.7)")
CLIENT = f"""
import sys
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
servers, word = {{"bootstrap.servers": sys.argv[1]}}, sys.argv[2]
brokers = AdminClient(servers).list_topics(timeout={SECONDS}).brokers.values()
producer = Producer(servers)
producer.produce("t", word)
assert producer.flush({SECONDS}) == 0
consumer = Consumer({{**servers, "group.id": word, "auto.offset.reset": "smallest"}})
consumer.subscribe(["t"])
read = ""
while read != word:
    message = consumer.poll({SECONDS})
    assert message is not None, "no record"
    read = message.value().decode()
consumer.close()
print(*(f"{{one.host}}:{{one.port}}" for one in brokers))
"""


def reach(bootstrap: str, word: str, prefix: tuple[str, ...]) -> str:
    """The addresses that a client gets that produces and consumes a record; it runs where `prefix` says."""
    command = [*prefix, sys.executable, "-c", CLIENT, bootstrap, word]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[PortMapping, LanHost]]:
    missing = mapping_missing()
    if missing is not None:
        pytest.skip(f"NOT TESTED: there is no address translation: {missing}")
    with Lan() as lan, PortMapping(lan, {outer: inner for inner, outer in PORTS.items()}) as host, ExitStack() as stack:
        elsewhere, router = lan.host(), host.router.address

        def start(name: str, prefix: tuple[str, ...], *words: object) -> Daemon:
            daemon = Daemon((name, "--admin-port", 0, *words), tmp_path / f"{name}.log", prefix=prefix)
            stack.callback(daemon.kill)
            return daemon.wait_ready()

        where = ("--host", elsewhere.address, "--data-dir", tmp_path / "metadata")
        metadata = ("--metadata", start("metadata", elsewhere.prefix, *where).ready["metadata"])
        given = {"advertised_host": router, "advertised_port": PORTS[BOOKIE]}
        settings = (f"--set=bookie_service.{name}={value}" for name, value in given.items())
        where = ("--host", "0.0.0.0", "--port", BOOKIE, "--data-dir", tmp_path / "bookie")
        start("bookie", host.prefix, "--name", "b", *where, *settings, *metadata)
        given = {
            **{f"broker_service.{name}": 1 for name in ("ensemble_size", "write_quorum", "ack_quorum")},
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "listeners": f"INSIDE://0.0.0.0:{INSIDE},OUTSIDE://0.0.0.0:{OUTSIDE}",
            "advertised.listeners": f"INSIDE://{host.address}:{INSIDE},OUTSIDE://{router}:{PORTS[OUTSIDE]}",
            "broker.native_port": NATIVE,
            "broker.native_advertised_host": router,
            "broker.native_advertised_port": PORTS[NATIVE],
        }
        start("broker", host.prefix, *(f"--set={name}={value}" for name, value in given.items()), *metadata)
        yield host, elsewhere


def test_clients_inside_and_outside_reach_a_broker_and_its_bookie_through_mapped_ports(
    hosts: tuple[PortMapping, LanHost],
) -> None:
    mapped, elsewhere = hosts
    router, inside = mapped.router.address, f"{mapped.address}:{INSIDE}"
    unreachable = subprocess.run([*elsewhere.prefix, *CONNECT, mapped.address], check=False, stderr=subprocess.PIPE)
    assert b"Network is unreachable" in unreachable.stderr
    outside = f"{router}:{PORTS[OUTSIDE]}"
    assert reach(outside, "from outside", elsewhere.prefix) == outside
    assert reach(inside, "from inside", mapped.prefix) == inside
    with connect_blocking(f"{router}:{PORTS[NATIVE]}") as client:
        consumer = client.subscribe("t", "s", initial_position="earliest")
        read = [consumer.receive(seconds=SECONDS) for _ in range(2)]
    assert [message and message.value for message in read] == [b"from outside", b"from inside"]
