"""The first requests of a client: versions, brokers, coordinators, producer ids."""

from __future__ import annotations

import pytest

from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.api import APIS, ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import (
    ApiVersionsRequest,
    DescribeClusterRequest,
    MetadataRequest,
    SaslHandshakeRequest,
)
from gnomon.wire.kafka.messages.group import FindCoordinatorRequest
from gnomon.wire.kafka.messages.produce import InitProducerIdRequest


@pytest.mark.parametrize("version", range(5))
def test_api_versions_names_exactly_the_served_requests(version: int) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        response = await client.ask(request, version)
        answered = {item.api_key: (item.min_version, item.max_version) for item in response.api_keys}
        assert answered == {api.key.value: (api.min_version, api.max_version) for api in APIS.values()}
        assert answered[ApiKey.PRODUCE] == (0, 13)
        assert all(low <= high for low, high in answered.values())

    simulate_broker(scenario)


@pytest.mark.parametrize("version", range(2))
def test_a_sasl_handshake_is_refused_without_mechanisms(version: int) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        response = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), version)
        assert (response.error_code, response.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])

    simulate_broker(scenario)


@pytest.mark.parametrize("version", range(7))
def test_this_broker_coordinates_every_group_and_no_transaction(version: int) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        for key_type in (0, 1) if version >= 1 else (0,):
            request = FindCoordinatorRequest(key_type=key_type)
            if version >= 4:
                request.coordinator_keys = ["g", "h"]
            else:
                request.key = "g"
            response = await client.ask(request, version)
            found = response.coordinators if version >= 4 else [response]
            assert len(found) == (2 if version >= 4 else 1)
            for one in found:
                if key_type == 0:
                    assert (one.error_code, one.node_id, one.host, one.port) == (0, 1, "broker", 9092)
                else:
                    # librdkafka ends with the older code; clients of the newer versions show the text.
                    refused = ErrorCode.INVALID_REQUEST if version >= 4 else 53
                    assert (one.error_code, one.node_id) == (refused, -1)
                    assert one.error_message == "transactions are not built yet: unset transactional.id"

    simulate_broker(scenario)


def test_a_topic_whose_name_collides_with_the_offsets_topic_is_refused() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        with pytest.raises(AssertionError, match="INVALID_TOPIC_EXCEPTION"):
            await client.create_topic("__consumer.offsets")
        response = await client.ask(FindCoordinatorRequest(key="g"), 2)
        assert response.error_code == 0

    simulate_broker(scenario)


def test_the_cluster_is_described_and_keeps_its_id() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        first = await client.ask(DescribeClusterRequest(), 1)
        assert first.controller_id == 1
        assert [(node.broker_id, node.host, node.port) for node in first.brokers] == [(1, "broker", 9092)]
        controllers = await client.ask(DescribeClusterRequest(endpoint_type=2), 1)
        assert controllers.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
        assert controllers.endpoint_type == 1
        unknown = await client.ask(DescribeClusterRequest(endpoint_type=3), 1)
        assert unknown.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        await broker.restart()
        client = await broker.connect()
        assert (await client.ask(DescribeClusterRequest(), 1)).cluster_id == first.cluster_id

    simulate_broker(scenario)


def test_all_operations_are_listed_on_request_without_access_control() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        cluster, topic, not_asked = 0b1_1111_1010_0000, 0b1101_1111_1000, -(2**31)
        for asked in (True, False):
            request = MetadataRequest(
                topics=None,
                include_cluster_authorized_operations=asked,
                include_topic_authorized_operations=asked,
            )
            response = await client.ask(request, 10)
            assert response.cluster_authorized_operations == (cluster if asked else not_asked)
            assert response.topics[0].topic_authorized_operations == (topic if asked else not_asked)
            described = await client.ask(DescribeClusterRequest(include_cluster_authorized_operations=asked), 1)
            assert described.cluster_authorized_operations == (cluster if asked else not_asked)

    simulate_broker(scenario)


def test_each_producer_id_is_assigned_once() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        given = []
        for _ in range(3):
            client = await broker.connect()
            for version in range(7):
                response = await client.ask(InitProducerIdRequest(transactional_id=None), version)
                assert (response.error_code, response.producer_epoch) == (0, 0)
                given.append(response.producer_id)
            await broker.restart()
        assert len(set(given)) == len(given)
        client = await broker.connect()
        assert (await client.ask(InitProducerIdRequest(transactional_id="tx"), 4)).error_code == 53

    simulate_broker(scenario)
