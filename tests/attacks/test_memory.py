"""Requests that a node has no memory for: each is refused or ends its own connection, and others are served."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator

import pytest
from attack import SECONDS_MAX, TOPIC
from canary import Canary
from confluent_kafka.admin import AdminClient, NewTopic
from frames import compact, kafka_frame, produce_body, read_frame, text
from watched_node import WatchedNode

from gnomon.testing import KafkaBroker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, build_batch

CANARY_TOPIC = "canary"
BATCH_BYTES = 90 << 20
SPARE_BYTES = 128 << 20
"""Address space beyond that of the idle node: enough for one request, and too little for a copy of it."""
CREATE_SECONDS_MAX = REOPEN_SECONDS_MAX = 30.0
STORAGE_ERROR, UNKNOWN_TOPIC = (
    code.to_bytes(2, "big") + b"\xff" * 8
    for code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
)
"""An error and no base offset, as an answer to Produce has them."""


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(settings={"message.max.bytes": BATCH_BYTES + 4096}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for created in admin.create_topics([NewTopic(name, 1) for name in (CANARY_TOPIC, TOPIC)]).values():
            created.result(CREATE_SECONDS_MAX)
        yield broker


def asked(broker: KafkaBroker, frame: bytes) -> bytes:
    """The answer to a frame; empty if the broker ends the connection instead."""
    with socket.create_connection((broker.host, broker.port), timeout=SECONDS_MAX) as stream:
        stream.sendall(frame)
        try:
            return read_frame(stream)
        except (EOFError, ConnectionError):
            return b""


def attacked(broker: KafkaBroker, frame: bytes) -> bytes:
    """The answer to a frame of a broker that has SPARE_BYTES left, beside a canary; see `asked`."""
    node = WatchedNode(broker.pid)
    limit = node.address_bytes() + SPARE_BYTES
    resource.prlimit(broker.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    with Canary(node, (broker.host, broker.port), CANARY_TOPIC) as canary:
        answer = asked(broker, frame)
        canary.answers = 0  # it has to sing on after the attack
    assert broker.running, "the broker ended by itself"
    return answer


def test_a_request_of_many_batches_is_answered_without_memory_for_copies_of_them(broker: KafkaBroker) -> None:
    count = 300  # more than one turn takes
    batch = bytes(BATCH_BYTES // count)
    body = [b"\0\xff\xff\0\0\x75\x30", compact(1), text("absent"), compact(count)]
    for index in range(count):
        body += (index.to_bytes(4, "big"), compact(len(batch)), batch, b"\0")
    answer = attacked(broker, kafka_frame(0, 9, b"".join([*body, b"\0\0"])))
    assert answer.count(UNKNOWN_TOPIC) == count


def test_a_batch_without_memory_for_its_entry_is_refused_and_the_partition_is_written_again(
    broker: KafkaBroker,
) -> None:
    small, large = (
        kafka_frame(0, 9, produce_body({TOPIC: [build_batch([Record(0, 0, None, bytes(size))], base_timestamp=1)]}))
        for size in (1, BATCH_BYTES)
    )
    assert STORAGE_ERROR not in asked(broker, small)
    assert STORAGE_ERROR in attacked(broker, large)
    deadline = time.monotonic() + REOPEN_SECONDS_MAX
    while STORAGE_ERROR in asked(broker, small):
        assert time.monotonic() < deadline, broker.log()
    assert "no memory for an entry" in broker.log()
