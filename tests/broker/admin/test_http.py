"""The admin API of a real broker process, over sockets, beside real Kafka clients."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from gnomon.broker.admin.body import BODY_SECONDS_MAX
from gnomon.testing import KafkaBroker

PATH = "/admin/v2/persistent/public/default/{}/shadowTopics"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        futures = admin.create_topics([NewTopic(name, 1) for name in ("orders", "garbage", "flights")])
        for future in futures.values():
            future.result(30)
        yield broker


def connect(broker: KafkaBroker) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(broker.admin_host, broker.admin_port, timeout=20)


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection.request(method, path, None if body is None else json.dumps(body), JSON)
    response = connection.getresponse()
    content = response.read()
    return response.status, json.loads(content) if content else None


def test_kafka_clients_read_a_shadow_created_over_rest_and_cannot_write_to_it(broker: KafkaBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("orders", b"first")
    assert producer.flush(30) == 0
    connection = connect(broker)
    assert ask(connection, "PUT", PATH.format("orders"), ["persistent://public/default/copy"]) == (204, None)
    assert ask(connection, "GET", PATH.format("orders")) == (200, ["persistent://public/default/copy"])

    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"})
    consumer.assign([TopicPartition("copy", 0, 0)])
    message = consumer.poll(30)
    assert message is not None
    assert (message.value(), message.offset()) == (b"first", 0)
    consumer.close()

    stats = ask(connection, "GET", "/admin/v2/persistent/public/default/copy/stats")[1]
    assert stats["source"] == "persistent://public/default/orders"
    assert stats["partitions"] == [{"partition": 0, "leader": 1, "startOffset": 0, "highWatermark": 1}]

    errors: list[KafkaError | None] = []
    producer.produce("copy", b"no", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert [error.name() for error in errors if error is not None] == ["POLICY_VIOLATION"]

    assert ask(connection, "DELETE", PATH.format("orders")) == (204, None)
    assert ask(connection, "GET", PATH.format("orders")) == (200, [])


@pytest.mark.parametrize("chunked", [False, True])
def test_a_huge_body_is_refused_and_the_next_request_is_served(broker: KafkaBroker, chunked: bool) -> None:
    connection = connect(broker)
    parts = (b" " * 65536 for _ in range(1000))
    try:
        if chunked:
            connection.request("PUT", PATH.format("garbage"), parts, JSON, encode_chunked=True)
        else:
            connection.request("PUT", PATH.format("garbage"), b"".join(parts), JSON)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the broker answered and closed the connection before the whole body was sent
    else:
        assert connection.getresponse().status == 413
    assert ask(connect(broker), "GET", PATH.format("garbage")) == (200, [])


def test_invalid_http_and_half_a_body_delay_no_other_client(broker: KafkaBroker) -> None:
    where = (broker.admin_host, broker.admin_port)
    head = f"PUT {PATH.format('garbage')} HTTP/1.1\r\nHost: x\r\n"
    half = f"{head}Content-Type: application/json\r\nContent-Length: 9\r\n\r\n["
    lines = [half.encode(), b"\x16\x03\x01\x02\x00garbage", b"GET / HTTP/9.9\r\n\r\n", b"PUT " + b"x" * 100_000]
    held = [socket.create_connection(where, 20) for _ in range(40)]
    for number, one in enumerate(held):
        with suppress(OSError):  # the broker may have closed the connection before it received all lines
            one.sendall(lines[number % len(lines)])
    began_at = time.monotonic()
    assert ask(connect(broker), "POST", PATH.format("garbage"), ["x"]) == (204, None)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("flights", b"x")
    assert producer.flush(30) == 0
    assert time.monotonic() - began_at < BODY_SECONDS_MAX, "they waited for half a body"
    for one in held:
        one.close()
    assert ask(connect(broker), "GET", PATH.format("garbage")) == (200, ["persistent://public/default/x"])
    assert "admin_request_failed" not in broker.log()
