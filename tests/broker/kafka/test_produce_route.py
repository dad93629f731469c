"""A Produce request recognized by its bytes alone is answered like a parsed one."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "authorization"))  # for `deciding`: test folders are no packages

from deciding import Refusing

from gnomon.broker.authorization.authorizer import Access, Authorizer
from gnomon.broker.authorization.kafka_table import KAFKA_RULES
from gnomon.broker.authorization.operation import Operation, ResourceType
from gnomon.broker.authorization.session import ANONYMOUS, Session
from gnomon.broker.kafka.connections.exchange import Exchange
from gnomon.broker.kafka.produce_route import ProduceRoute, ProduceRoutes
from gnomon.broker.partition.appends import AppendCallback, Produced
from gnomon.log.entry import Offset
from gnomon.wire.kafka.api import request_header_version
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.frame import RequestHeader, parse_request_header
from gnomon.wire.kafka.messages.header import RequestHeader as HeaderMessage
from gnomon.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gnomon.wire.kafka.produce import PartitionProduced, encode_produce_response, parse_produce
from gnomon.wire.kafka.schema import encode

VERSIONS = range(5, 14)
TOPIC_ID = bytes(range(16))


class RecordingPartition:
    def __init__(self) -> None:
        self.appended: list[tuple[bytes, AppendCallback, Any]] = []

    def append(self, records: memoryview, appender: AppendCallback, slot: Any, *, by_all: bool) -> None:
        self.appended.append((bytes(records), appender, slot))


class RecordingConnection:
    def __init__(self) -> None:
        self.replies: list[bytes] = []

    def session_of(self, client_id: str) -> Session:
        return Session(ANONYMOUS, "PLAINTEXT", client_id, "host")

    def replied(self, exchange: Exchange, chunks: Any, flush: bool) -> None:
        self.replies.append(b"".join(chunks))


def frame_of(version: int, records: bytes, *, correlation_id: int = 1, index: int = 3, acks: int = -1) -> memoryview:
    header = HeaderMessage(
        request_api_key=0, request_api_version=version, correlation_id=correlation_id, client_id="producer"
    )

    message = ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name="orders" if version < 13 else "",
                topic_id=UUID(bytes=TOPIC_ID) if version >= 13 else UUID(int=0),
                partition_data=[PartitionProduceData(index=index, records=records)],
            )
        ],
    )
    return memoryview(encode(header, request_header_version(0, version)) + encode(message, version))


def route_for(
    frame: memoryview, version: int, authorizer: Authorizer | None = None
) -> tuple[ProduceRoute | None, RecordingPartition, Any]:
    partition = RecordingPartition()
    topics: Any = SimpleNamespace(find=lambda ref: SimpleNamespace(name="orders"))
    routes: Any = SimpleNamespace(revision=0, to_produce=lambda topic, index: partition)
    metrics: Any = SimpleNamespace(produce_bytes=0, produce_batches=0, traffic=None)
    access = Access(authorizer or Refusing(), KAFKA_RULES)
    header = parse_request_header(frame, lambda key, version: request_header_version(key, version) >= 2)
    exchange = exchange_of(header)
    request = parse_produce(frame, header.body_start, version)
    produced = ProduceRoutes(topics, routes, access, metrics, lambda connection: None)
    return produced.route(exchange, frame, request), partition, routes


def exchange_of(header: RequestHeader, connection: Any = None) -> Exchange:
    return Exchange(connection or RecordingConnection(), header, 256, 0.0)


@pytest.mark.parametrize("version", VERSIONS)
@given(first=st.integers(30, 400), second=st.integers(30, 400))
def test_a_request_of_the_same_form_fits_and_its_records_are_found(version: int, first: int, second: int) -> None:
    route, partition, _ = route_for(frame_of(version, b"\0" * first), version)
    assert route is not None
    records = b"\0" * 29 + b"\7" * (second - 29)
    frame = frame_of(version, records, correlation_id=77)
    assert route.fits(frame)
    route.handle(exchange_of(route.header), frame)
    assert partition.appended[0][0] == records


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_of_another_form_does_not_fit(version: int) -> None:
    records = b"\0" * 100
    frame = frame_of(version, records)
    route, _, routes = route_for(frame, version)
    assert route is not None
    assert not route.fits(frame_of(version, records, index=4))
    assert not route.fits(frame_of(version, records, acks=1))
    assert not route.fits(memoryview(bytes(frame) + b"\0"))
    for stop in range(len(frame)):
        assert not route.fits(frame[:stop])
    routes.revision += 1
    assert not route.fits(frame)


@pytest.mark.parametrize("version", VERSIONS)
@given(
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    offset=st.integers(0, 2**62),
    time_ms=st.integers(-1, 2**50),
    start=st.integers(0, 2**62),
)
def test_the_answer_of_a_route_equals_that_of_the_encoder(
    version: int, correlation_id: int, offset: int, time_ms: int, start: int
) -> None:
    route, _, _ = route_for(frame_of(version, b"\0" * 100), version)
    assert route is not None
    topic = "orders" if version < 13 else TOPIC_ID
    for outcome in (
        Produced(ErrorCode.NONE, Offset(offset), time_ms, start),
        Produced.refusal(ErrorCode.INVALID_RECORD, "why"),
    ):
        connection = RecordingConnection()
        exchange = exchange_of(route.header, connection)
        exchange.correlation_id = correlation_id
        route.appended(exchange, outcome)
        results = [(topic, [PartitionProduced(3, *outcome)])]
        assert connection.replies == [encode_produce_response(correlation_id, version, results)]


def test_a_route_ends_when_the_authorizer_may_decide_differently() -> None:
    authorizer = Refusing()
    frame = frame_of(9, b"\0" * 100)
    route, _, _ = route_for(frame, 9, authorizer)
    assert route is not None
    assert route.fits(frame)
    authorizer.refuse(())
    assert not route.fits(frame)


def test_a_session_that_may_not_write_to_the_topic_has_no_route() -> None:
    authorizer = Refusing({(Operation.WRITE, ResourceType.TOPIC)})
    route, _, _ = route_for(frame_of(9, b"\0" * 100), 9, authorizer)
    assert route is None
