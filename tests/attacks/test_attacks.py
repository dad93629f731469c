"""Each attack, beside a canary: its turns, its memory and the canary's slowest answer stay bounded."""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attack import ATTACKS, HEALTHY_GZIP_TOPIC, Attack, bombs
from canary import ANSWER_SECONDS, Canary
from frames import kafka_frame, produce_body, read_frame
from prepared import CANARY_TOPIC, prepare
from watched_node import WatchedNode

from gnomon.testing import KafkaBroker
from gnomon.wire.kafka.records import Record, build_batch

REQUEST_MEMORY_BYTES = 32 << 20
MEMORY_BYTES_MAX = REQUEST_MEMORY_BYTES + (64 << 20)
TURN_SECONDS_MAX = 0.010
"""The most processor time of one turn of the event loop, and of the canary for each connection of an attack."""
PROGRAM = Path(__file__).with_name("timed_node.py")


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("attacks") / "turns"


@pytest.fixture(scope="module")
def broker(turns: Path) -> Iterator[KafkaBroker]:
    settings = {"broker.request_queue_bytes_max": REQUEST_MEMORY_BYTES}
    with KafkaBroker(settings=settings, command=(sys.executable, str(PROGRAM), str(turns))) as broker:
        prepare((broker.host, broker.port))
        yield broker
        assert broker.running, "the broker ended by itself"


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    rows = [f"{'attack':50} {'MiB':>7} {'processor ms':>13} {'turn ms':>8} {'canary ms':>10}"]
    yield rows
    print("\n" + "\n".join(rows))


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_a_healthy_client_and_the_memory_of_the_node_hardly_notice(
    broker: KafkaBroker, turns: Path, table: list[str], attack: Attack
) -> None:
    node = WatchedNode(broker.pid)
    address = (broker.native_host, broker.native_port) if attack.native else (broker.host, broker.port)
    idle = node.resident_bytes()
    node.forget_peak()
    before, turns_before = node.processor_seconds(), turns.stat().st_size
    with Canary(node, (broker.host, broker.port), CANARY_TOPIC) as canary:
        attack.run(address)
    grown, used = node.peak_bytes() - idle, node.processor_seconds() - before
    turn = max(map(float, turns.read_text()[turns_before:].split()), default=0.0)
    row = f"{grown / (1 << 20):7.1f} {used * 1e3:13.1f} {turn * 1e3:8.1f} {canary.slowest_seconds * 1e3:10.1f}"
    table.append(f"{attack.name:50} {row}")
    assert canary.answers
    assert grown <= MEMORY_BYTES_MAX
    assert turn <= TURN_SECONDS_MAX
    assert canary.slowest_seconds <= TURN_SECONDS_MAX * (attack.connections + 1)


def test_a_batch_is_recompressed_before_most_bombs_that_another_client_has_queued(broker: KafkaBroker) -> None:
    address = (broker.host, broker.port)
    batch = build_batch([Record(offset_delta=0, key=None, value=bytes(300 << 10))], base_timestamp=1)
    with (
        socket.create_connection(address, timeout=ANSWER_SECONDS) as hostile,
        socket.create_connection(address, timeout=ANSWER_SECONDS) as healthy,
    ):
        hostile.sendall(next(bombs()))
        select.select([], [], [], 0.1)  # the first bomb is being recompressed; all of them take more than a second
        healthy.sendall(kafka_frame(0, 9, produce_body({HEALTHY_GZIP_TOPIC: [batch]})))
        read_frame(healthy)
        answered, _, _ = select.select([hostile], [], [], 0)
        assert not answered
        read_frame(hostile)
