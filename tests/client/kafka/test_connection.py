"""A client's connection to a broker, and to a program that violates Kafka's protocol."""

from __future__ import annotations

import pytest

from gnomon.client.kafka.connection import REQUEST_SECONDS_MAX, KafkaClientConnection
from gnomon.runtime.world import Connection, Unreachable
from gnomon.testing.storms.kafka.embedded_broker import HOST, PORT, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.messages.cluster import MetadataRequest, MetadataResponse
from gnomon.wire.kafka.schema import encode

VERSION = 9
FAULTY_PORT = 4000
REQUEST = MetadataRequest(topics=[])


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


class Faulty:
    """A program that answers each request with the same bytes."""

    def __init__(self, connection: Connection, answer: bytes) -> None:
        self._connection, self._answer = connection, answer
        self._buffer = memoryview(bytearray(1 << 10))

    def receive_buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        if self._answer:
            self._connection.write([self._answer])

    def drained(self) -> None:
        pass

    def closed(self) -> None:
        pass


def test_requests_of_one_connection_are_answered_in_order() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        connection = await KafkaClientConnection.open(broker.client_world, HOST, PORT)
        pending = [connection.send(REQUEST, VERSION) for _ in range(3)]
        for each in pending:
            found = await connection.wait(each)
            assert isinstance(found, MetadataResponse)
            assert [member.port for member in found.brokers] == [PORT]
        connection.close()

    simulate_broker(scenario)


def test_a_request_on_an_ended_connection_fails_at_once() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        world = broker.client_world
        connection = await KafkaClientConnection.open(world, HOST, PORT)
        broker.machine.kill()
        began = world.clock.monotonic()
        for _ in range(2):
            with pytest.raises(Unreachable, match=f"no answer to METADATA from {HOST}:{PORT}$"):
                await connection.request(REQUEST, VERSION, MetadataResponse)
        assert world.clock.monotonic() - began < 1

    simulate_broker(scenario)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (framed(b"\0\0\0\2\0" + encode(MetadataResponse(), VERSION)), "a response to request 2, the oldest one is 1"),
        (framed(b"\0\0\0\1\0" + encode(MetadataResponse(), VERSION) + b"x"), "1 bytes follow its end"),
        (framed(b"\0\0\0\1\0" + encode(MetadataResponse(), VERSION)[:-3]), "MetadataResponse v9: "),
        (framed(b"\0\0\0\1"), "is malformed"),
        (framed(b""), "is malformed"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "declares"),
        (b"\xff\xff\xff\xff", "negative length"),
    ],
)
def test_a_response_that_violates_the_protocol_ends_the_connection_with_the_reason(answer: bytes, fault: str) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        world = broker.client_world
        await world.network.listen("", FAULTY_PORT, lambda connection: Faulty(connection, answer))
        connection = await KafkaClientConnection.open(world, "clients", FAULTY_PORT)
        with pytest.raises(Unreachable, match=f"no answer to {ApiKey.METADATA.name} .*{fault}"):
            await connection.request(REQUEST, VERSION, MetadataResponse)
        assert connection.closed_by_peer

    simulate_broker(scenario)


def test_a_request_without_an_answer_fails_after_some_seconds() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        world = broker.client_world
        await world.network.listen("", FAULTY_PORT, lambda connection: Faulty(connection, b""))
        connection = await KafkaClientConnection.open(world, "clients", FAULTY_PORT)
        began = world.clock.monotonic()
        with pytest.raises(Unreachable, match="no answer to METADATA"):
            await connection.request(REQUEST, VERSION, MetadataResponse)
        assert world.clock.monotonic() - began == pytest.approx(REQUEST_SECONDS_MAX)

    simulate_broker(scenario)
