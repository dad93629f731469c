"""A fetch recognized by its bytes alone is answered like a parsed one (numbers: invariants of `fetch_route`)."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "authorization"))  # for `deciding`: test folders are no packages

from deciding import Refusing

from gnomon.broker.authorization.authorizer import Access, Authorizer
from gnomon.broker.authorization.kafka_table import KAFKA_RULES
from gnomon.broker.authorization.operation import Operation, ResourceType
from gnomon.broker.authorization.session import ANONYMOUS, Session
from gnomon.broker.errors import KafkaError
from gnomon.broker.kafka.fetch_route import FetchRoute, FetchRoutes
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.api import request_header_version
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fetch import FetchPartition as Spec
from gnomon.wire.kafka.fetch import parse_fetch
from gnomon.wire.kafka.frame import parse_request_header
from gnomon.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from gnomon.wire.kafka.messages.header import RequestHeader as HeaderMessage
from gnomon.wire.kafka.records import Record, build_batch
from gnomon.wire.kafka.schema import encode

VERSIONS = range(4, 19)
CORRELATION_ID = range(4, 8)
SESSION = Session(ANONYMOUS, "PLAINTEXT", "consumer", "host")


def frame_of(version: int, offset: int, *, correlation_id: int = 1, partitions: int = 1, **fields: Any) -> memoryview:
    header = HeaderMessage(
        request_api_key=1, request_api_version=version, correlation_id=correlation_id, client_id="consumer"
    )
    wanted = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20) for index in range(partitions)
    ]
    topic = FetchTopic(topic="orders", topic_id=UUID(int=7), partitions=wanted)
    message = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic], **fields)
    return memoryview(encode(header, request_header_version(1, version)) + encode(message, version))


class RecordingRoutes:
    """Routes and placement of a broker."""

    revision = 0
    alive = True

    def lease_lives(self) -> bool:
        return self.alive

    def find(self, ref: bytes) -> Any:
        return SimpleNamespace(name="orders")

    def to_read(self, topic: str | bytes, index: int) -> Any:
        if topic not in ("orders", UUID(int=7).bytes):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "not there")
        return SimpleNamespace(index=index)


def route_of(
    frame: memoryview, routes: RecordingRoutes | None = None, authorizer: Authorizer | None = None
) -> FetchRoute | None:
    header = parse_request_header(frame, lambda key, version: request_header_version(key, version) >= 2)
    request = parse_fetch(frame, header.body_start, header.api_version)
    exchange: Any = SimpleNamespace(
        api_key=1, api_version=header.api_version, client_id=header.client_id, session=lambda: SESSION
    )
    served: Any = routes or RecordingRoutes()
    polls: Any = None
    access = Access(authorizer or Refusing(), KAFKA_RULES)
    return FetchRoutes(served, served, served, access, polls).route(exchange, frame, request, 1000)


@pytest.mark.parametrize("version", VERSIONS)
def test_only_correlation_id_and_offset_may_differ(version: int) -> None:  # invariant 1
    first = frame_of(version, 5)
    route = route_of(first)
    assert route is not None
    assert route.fits(first)
    assert route.fits(frame_of(version, 2**40 + 7, correlation_id=99))
    places = [at for at in range(len(first)) if first[at] != frame_of(version, -6)[at]]
    assert len(places) == 8
    for at in range(len(first)):
        other = bytearray(first)
        other[at] ^= 1
        assert route.fits(memoryview(other)) == (at in places or at in CORRELATION_ID)
    assert not route.fits(memoryview(bytes(first) + b"\0"))
    assert not route.fits(first[:-1])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_route_fetches_the_same_as_its_parsed_request(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    polls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        "gnomon.broker.kafka.fetch_route.Poll",
        lambda *asked: SimpleNamespace(start=lambda: polls.append(asked)),
    )
    route = route_of(frame_of(version, 5))
    assert route is not None
    exchange: Any = object()
    route.handle(exchange, frame_of(version, 77, correlation_id=3))
    ((_, asked, request, session, wanted, bytes_max),) = polls
    ((item, partition, error),) = wanted
    assert (asked, request.max_wait_ms, session, partition.index, error, bytes_max) == (exchange, 500, None, 0, 0, 1000)
    assert item.topic == ("orders" if version < 13 else UUID(int=7).bytes)
    assert item.spec == Spec(0, -1, 77, -1, -1, 1 << 20)


def test_a_request_that_does_not_repeat_has_no_route() -> None:  # invariant 1
    assert route_of(frame_of(11, 0, partitions=2)) is None
    assert route_of(frame_of(11, 0, session_epoch=0)) is None
    assert route_of(frame_of(11, 0, session_id=5, session_epoch=-1)) is None
    assert route_of(frame_of(11, 0, forgotten_topics_data=[ForgottenTopic(topic="orders", partitions=[1])])) is None
    assert route_of(frame_of(11, 0, rack_id="a")) is not None
    assert route_of(frame_of(18, 0, rack_id="a")) is not None


def test_a_route_ends_when_a_topic_is_deleted() -> None:  # invariant 2
    routes = RecordingRoutes()
    frame = frame_of(11, 0)
    route = route_of(frame, routes)
    assert route is not None
    routes.revision += 1
    assert not route.fits(frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_polls_of_several_readers_are_each_answered(version: int) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        producer = await broker.connect()
        await producer.create_topic("t")
        readers = [await broker.connect() for _ in range(3)]
        batch = build_batch([Record(offset_delta=0, key=None, value=b"v")], base_timestamp=1)
        for reader in readers:
            reader.topic_ids = producer.topic_ids
        for offset in range(4):
            # The last one wants more than there will be, so it is not answered with the others.
            polls = [
                reader.connection.send(reader.fetch_request("t", offset, max_wait_ms=2000, min_bytes=minimum), version)
                for reader, minimum in zip(readers, (1, 1, 10 * len(batch)), strict=True)
            ]
            await broker.simulation.sleep(0.5)
            await producer.produce("t", batch)
            await broker.simulation.sleep(0.5)
            assert [poll.settled.is_set() for poll in polls] == [True, True, False]
            await broker.simulation.sleep(2)
            for poll in polls:
                answer: Any = poll.message
                (partition,) = answer.responses[0].partitions
                assert (partition.error_code, partition.high_watermark) == (0, offset + 1)
                assert int.from_bytes(partition.records[:8], "big") == offset
                assert len(partition.records) == len(batch)

    simulate_broker(scenario)


def test_a_route_ends_when_the_authorizer_may_decide_differently() -> None:
    authorizer = Refusing()
    route = route_of(frame_of(11, 5), authorizer=authorizer)
    assert route is not None
    assert route.fits(frame_of(11, 6))
    authorizer.refuse(())
    assert not route.fits(frame_of(11, 7))


def test_a_session_that_may_not_read_the_topic_has_no_route() -> None:
    authorizer = Refusing({(Operation.READ, ResourceType.TOPIC)})
    assert route_of(frame_of(11, 5), authorizer=authorizer) is None
