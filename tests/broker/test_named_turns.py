"""A long turn of a node's event loop can be told from its requests: each task that works for one names it."""

from __future__ import annotations

from typing import Any

import pytest
from native_calls import native

from gnomon.broker.kafka.connections import server
from gnomon.runtime.logs import SilentLogger
from gnomon.runtime.loop.turn_watch import TurnWatch
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.testing.storms.kafka.wire_client import WireConnection
from gnomon.wire.kafka.messages.cluster import ApiVersionsRequest
from gnomon.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gnomon.wire.kafka.messages.group import FindCoordinatorRequest
from gnomon.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


class Names(TurnWatch):
    """Notes the requests that the steps of tasks work for, and those that are dispatched."""

    def __init__(self) -> None:
        super().__init__(SilentLogger())
        self.runs: list[dict[str, object]] = []

    def ran(self, request: Any, seconds: float) -> None:
        super().ran(request, seconds)
        self.runs.append(request.named())

    def apis(self, client: str) -> set[object]:
        return {fields["api"] for fields in self.runs if fields.get("client") == client}


async def connect(broker: EmbeddedBroker, client_id: str) -> BrokerClient:
    return BrokerClient(await WireConnection.open(broker.client_world, "broker", 9092, client_id))


def test_the_tasks_of_kafka_requests_name_api_peer_and_client() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        watch = Names()
        client = await connect(broker, "billing")
        await client.create_topic("wide", partitions=1_100)
        await client.ask(FindCoordinatorRequest(coordinator_keys=["g"] * 1_001), 4)
        batches = [PartitionProduceData(index=index, records=b"") for index in range(300)]
        topic = TopicProduceData(name="wide", partition_data=batches)
        await client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9)
        wanted = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(1_100)]
        fetch = FetchRequest(
            replica_id=-1, max_bytes=1, session_epoch=-1, topics=[FetchTopic(topic="wide", partitions=wanted)]
        )
        await client.ask(fetch, 11)
        assert watch.apis("billing") == {"CREATE_TOPICS", "FIND_COORDINATOR", "PRODUCE", "FETCH"}
        assert all(str(fields["peer"]).startswith("clients:") for fields in watch.runs if "client" in fields)

    simulate_broker(scenario)


def test_the_tasks_of_native_calls_name_service_method_and_peer() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        watch = Names()
        client = await broker.connect()
        await client.create_topic("orders")
        async with native(broker) as caller:
            await caller.subscribe("orders", "s")
        named = [fields for fields in watch.runs if "method" in fields]
        assert {fields["service"] for fields in named} == {"broker"}
        assert {fields["method"] for fields in named} == {"lookup", "subscribe"}
        assert all(str(fields["peer"]).startswith("clients:") for fields in named)

    simulate_broker(scenario)


def test_a_request_that_is_handled_within_its_turn_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "NOTED_SECONDS", -1.0)

    async def scenario(broker: EmbeddedBroker) -> None:
        watch = Names()
        client = await connect(broker, "billing")
        await client.ask(ApiVersionsRequest(), 0)
        assert {fields["client"] for fields in watch.runs} == {"billing"}
        assert {fields["api"] for fields in watch.runs} == {"API_VERSIONS"}

    simulate_broker(scenario)
