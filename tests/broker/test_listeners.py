"""Brokers with several listeners: each client gets the addresses of the listener that it is connected to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from gnomon.runtime.settings.listeners import KafkaListener
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from gnomon.wire.kafka.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from gnomon.wire.kafka.messages.group import FindCoordinatorRequest, FindCoordinatorResponse
from gnomon.wire.kafka.messages.placement import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from gnomon.wire.kafka.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

INSIDE, OUTSIDE = 9092, 19092
PARTITIONS = 8
BROKER = 4


def inside_and_outside(number: int) -> Sequence[KafkaListener]:
    return (
        KafkaListener("INSIDE", "", INSIDE, f"broker-{number}"),
        KafkaListener("OUTSIDE", "", OUTSIDE, "public.example", 32000 + number),
    )


def only_the_first_outside(number: int) -> Sequence[KafkaListener]:
    return inside_and_outside(number)[: 2 if number == 1 else 1]


def with_two_brokers(
    listeners: Callable[[int], Sequence[KafkaListener]], work: Callable[[WireCluster], Awaitable[None]]
) -> None:
    """Runs `work` on a client of two brokers, with the topic `t` of PARTITIONS partitions."""

    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, listeners=listeners)
        await cluster.start()

        async def client(client: WireCluster) -> None:
            create = CreateTopicsRequest(
                topics=[CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=-1)]
            )
            await (await at(client, INSIDE)).request(create, 7, CreateTopicsResponse)
            await work(client)

        await cluster.run_client("client", client)

    simulate(1, scenario)


async def at(client: WireCluster, port: int) -> WireConnection:
    return await WireConnection.open(client.world, "broker-1", port)


async def metadata(connection: WireConnection) -> MetadataResponse:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    return await connection.request(asked, 12, MetadataResponse)


def test_a_client_gets_the_addresses_of_all_brokers_for_the_listener_that_it_is_connected_to() -> None:
    async def work(client: WireCluster) -> None:
        for port, addresses in [
            (INSIDE, {1: ("broker-1", INSIDE), 2: ("broker-2", INSIDE)}),
            (OUTSIDE, {1: ("public.example", 32001), 2: ("public.example", 32002)}),
        ]:
            connection = await at(client, port)
            found = await metadata(connection)
            assert {one.node_id: (one.host, one.port) for one in found.brokers} == addresses
            assert {one.leader_id for one in found.topics[0].partitions} == {1, 2}
            cluster = await connection.request(DescribeClusterRequest(), 1, DescribeClusterResponse)
            assert {one.broker_id: (one.host, one.port) for one in cluster.brokers} == addresses
            groups = [f"group-{number}" for number in range(20)]
            coordinators = FindCoordinatorRequest(coordinator_keys=groups)
            answer = await connection.request(coordinators, 4, FindCoordinatorResponse)
            assert {one.node_id: (one.host, one.port) for one in answer.coordinators} == addresses

    with_two_brokers(inside_and_outside, work)


def test_a_broker_without_the_listener_of_a_client_is_not_named_and_its_partitions_have_no_leader_there() -> None:
    async def work(client: WireCluster) -> None:
        connection = await at(client, OUTSIDE)
        found = await metadata(connection)
        assert [(one.node_id, one.host) for one in found.brokers] == [(1, "public.example")]
        assert found.controller_id == 1
        partitions = found.topics[0].partitions
        led = [one for one in partitions if one.leader_id == 1]
        others = [one for one in partitions if one.leader_id == -1]
        assert len(led) + len(others) == PARTITIONS
        assert {one.error_code for one in led} == {ErrorCode.NONE}
        assert {one.error_code for one in others} == {ErrorCode.LISTENER_NOT_FOUND}
        page = await connection.request(
            DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]), 0, DescribeTopicPartitionsResponse
        )
        assert [one.leader_id for one in page.topics[0].partitions] == [one.leader_id for one in partitions]
        coordinators = FindCoordinatorRequest(coordinator_keys=[f"group-{number}" for number in range(20)])
        answer = await connection.request(coordinators, 4, FindCoordinatorResponse)
        assert {(one.node_id, one.error_code) for one in answer.coordinators} == {
            (1, ErrorCode.NONE),
            (-1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        }
        refused = next(one for one in answer.coordinators if one.error_code)
        assert "has no listener OUTSIDE" in str(refused.error_message)
        inside = await metadata(await at(client, INSIDE))
        assert {one.node_id for one in inside.brokers} == {1, 2}

    with_two_brokers(only_the_first_outside, work)


def test_the_configs_of_a_broker_show_its_listeners() -> None:
    async def work(client: WireCluster) -> None:
        wanted = ["listeners", "advertised.listeners"]
        asked = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=wanted)
        connection = await at(client, OUTSIDE)
        answer = await connection.request(DescribeConfigsRequest(resources=[asked]), 4, DescribeConfigsResponse)
        shown = {one.name: one.value for one in answer.results[0].configs}
        assert shown == {
            "listeners": f"INSIDE://:{INSIDE},OUTSIDE://:{OUTSIDE}",
            "advertised.listeners": f"INSIDE://broker-1:{INSIDE},OUTSIDE://public.example:32001",
        }

    with_two_brokers(inside_and_outside, work)
