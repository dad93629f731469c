"""Errors and delays that a test asks a broker for (numbers: invariants of `request_faults`)."""

from __future__ import annotations

from typing import Any

import trio

from gnomon.broker.kafka.connections.request_faults import RequestFault, RequestFaults
from gnomon.broker.kafka.guards.topic_ids import TopicIds
from gnomon.testing.storms.kafka.embedded_broker import HOST, PORT, BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.testing.storms.kafka.wire_client import WireConnection
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import ApiVersionsRequest, MetadataRequest, MetadataRequestTopic
from gnomon.wire.kafka.messages.group import HeartbeatRequest
from gnomon.wire.kafka.records import Record, build_batch

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
BY_ID = 13
"""The first version of Produce and Fetch that names topics by their ids."""


def faults_of(broker: EmbeddedBroker) -> RequestFaults:
    """The faults of a running broker."""
    parts = broker.serving.broker
    return RequestFaults(broker.server, TopicIds(parts.topics.image), broker.client_world.clock, parts.timers)


def batch(text: bytes = b"x") -> bytes:
    """A batch of one record."""
    return build_batch([Record(value=text)], base_timestamp=1)


async def produced(client: BrokerClient, topic: str = "orders", version: int = 9) -> tuple[int, int]:
    """The error and the offset of one batch."""
    outcome = await client.produce(topic, batch(), version=version)
    return outcome.error_code, outcome.base_offset


def test_the_next_requests_get_the_error_and_have_no_effect() -> None:  # invariants 1 and 2
    async def scenario(broker: EmbeddedBroker) -> None:
        client, faults = await broker.connect(), faults_of(broker)
        await client.create_topic("orders")
        assert await produced(client) == (0, 0)  # the next ones would take the shortcut of equal requests
        faults.add(RequestFault(ApiKey.PRODUCE, 2, NOT_LEADER))
        assert [await produced(client) for _ in range(2)] == [(NOT_LEADER, 0)] * 2
        assert faults.left == 0
        assert await produced(client) == (0, 1)

    simulate_broker(scenario)


def test_a_fault_hits_its_topic_and_its_client_alone() -> None:  # invariant 1
    async def scenario(broker: EmbeddedBroker) -> None:
        client, faults = await broker.connect(), faults_of(broker)
        for name in ("orders", "flights"):
            await client.create_topic(name)
        faults.add(RequestFault(ApiKey.PRODUCE, 2, NOT_LEADER, topic="flights"))
        assert await produced(client) == (0, 0)
        assert await produced(client, "flights") == (NOT_LEADER, 0)
        assert await produced(client, "flights", BY_ID) == (NOT_LEADER, 0)
        assert await produced(client, "flights") == (0, 0)
        faults.add(RequestFault(ApiKey.PRODUCE, 1, NOT_LEADER, client_id="other"))
        assert await produced(client) == (0, 1)
        other = BrokerClient(await WireConnection.open(broker.client_world, HOST, PORT, "other"))
        assert await produced(other) == (NOT_LEADER, 0)
        faults.add(RequestFault(ApiKey.PRODUCE, 1, NOT_LEADER))
        faults.clear()
        assert await produced(client) == (0, 2)

    simulate_broker(scenario)


def test_a_delayed_request_is_handled_after_the_delay_and_keeps_the_order_of_its_connection() -> None:  # invariant 2
    async def scenario(broker: EmbeddedBroker) -> None:
        client, faults = await broker.connect(), faults_of(broker)
        await client.create_topic("orders")
        faults.add(RequestFault(ApiKey.PRODUCE, 1, delay_seconds=3.0))
        began = trio.current_time()
        answers = [client.connection.send(client.produce_request("orders", batch(b"%d" % n)), 9) for n in range(3)]
        outcomes: list[Any] = [await client.connection.wait(answer) for answer in answers]
        assert 3.0 <= trio.current_time() - began < 4.0
        assert [each.responses[0].partition_responses[0].base_offset for each in outcomes] == [0, 1, 2]

    simulate_broker(scenario)


def test_a_delayed_request_is_handled_also_if_its_client_has_left() -> None:  # invariant 2
    async def scenario(broker: EmbeddedBroker) -> None:
        client, faults = await broker.connect(), faults_of(broker)
        await client.create_topic("orders")
        faults.add(RequestFault(ApiKey.PRODUCE, 1, delay_seconds=2.0))
        client.connection.send(client.produce_request("orders", batch()), 9)
        await trio.sleep(0.5)
        client.connection.connection.close()
        await trio.sleep(3)
        assert await produced(await broker.connect()) == (0, 1)

    simulate_broker(scenario)


def test_fetches_of_a_session_get_the_error_of_their_partitions() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client, faults = await broker.connect(), faults_of(broker)
        await client.create_topic("orders")
        await produced(client)

        async def fetched(**fields: Any) -> Any:
            return await client.ask(client.fetch_request("orders", 0, **fields), BY_ID)

        session = (await fetched(session_id=0, session_epoch=0)).session_id
        assert session
        faults.add(RequestFault(ApiKey.FETCH, 1, NOT_LEADER, topic="orders"))
        lost = await fetched(session_id=session, session_epoch=1, topics=[])
        assert lost.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND  # which the broker may say at any time
        assert faults.left == 1
        refused = await fetched(session_id=0, session_epoch=0)
        assert (refused.error_code, refused.session_id) == (0, 0)
        assert refused.responses[0].partitions[0].error_code == NOT_LEADER
        answered = await fetched(session_id=0, session_epoch=0)
        assert answered.responses[0].partitions[0].error_code == 0

    simulate_broker(scenario)


def test_answers_about_the_cluster_keep_everything_but_the_error() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client, faults = await broker.connect(), faults_of(broker)
        await client.create_topic("orders")
        faults.add(RequestFault(ApiKey.METADATA, 1, ErrorCode.LEADER_NOT_AVAILABLE))
        request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
        spoilt = await client.ask(request, 9)
        assert [each.port for each in spoilt.brokers] == [PORT]
        assert [each.error_code for each in spoilt.topics] == [ErrorCode.LEADER_NOT_AVAILABLE]
        assert (await client.ask(request, 9)).topics[0].error_code == 0
        faults.add(RequestFault(ApiKey.API_VERSIONS, 1, ErrorCode.UNSUPPORTED_VERSION))
        versions = await client.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        assert versions.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert versions.api_keys

    simulate_broker(scenario)


def test_groups_get_errors_and_unanswered_produce_requests_end_the_connection() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client, faults = await broker.connect(), faults_of(broker)
        await client.create_topic("orders")
        faults.add(RequestFault(ApiKey.HEARTBEAT, 1, ErrorCode.REBALANCE_IN_PROGRESS))
        beat = await client.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
        assert beat.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        faults.add(RequestFault(ApiKey.PRODUCE, 1, NOT_LEADER))
        client.connection.send(client.produce_request("orders", batch(), acks=0), 9)
        await trio.sleep(1)
        assert client.connection.closed_by_peer

    simulate_broker(scenario)


def test_without_faults_requests_take_their_usual_path_again() -> None:  # invariant 3
    async def scenario(broker: EmbeddedBroker) -> None:
        client, faults = await broker.connect(), faults_of(broker)
        await client.create_topic("orders")
        (connection,) = broker.server._connections
        await produced(client)
        assert connection.shortcut is not None
        faults.add(RequestFault(ApiKey.PRODUCE, 1, NOT_LEADER, client_id="other"))
        assert connection.shortcut is None
        await produced(client)
        assert connection.shortcut is None
        faults.clear()
        await produced(client)
        assert connection.shortcut is not None

    simulate_broker(scenario)
