"""Groups whose coordinators are brokers of a cluster."""

from __future__ import annotations

from cluster_calls import LEASE_SECONDS, create

from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.storm_clients import ask_until, commit_offsets, create_topic, delete_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.wire.kafka.messages.group import FindCoordinatorRequest, FindCoordinatorResponse
from gnomon.wire.kafka.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse


def test_groups_move_with_their_partition_and_no_committed_offset_goes_back() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS, kafka={"offsets.topic.num.partitions": "1"})
        await cluster.start()

        async def prepare(client: WireCluster) -> int:
            await create(client, 1)
            return await coordinator(client)

        async def coordinator(client: WireCluster) -> int:
            async def ask(connection: WireConnection) -> FindCoordinatorResponse:
                request = FindCoordinatorRequest(key="readers", key_type=0)
                return await connection.request(request, 3, FindCoordinatorResponse)

            found, _ = await ask_until(client, ask)
            assert (found.error_code, found.host) == (0, f"broker-{found.node_id}")
            return found.node_id

        first = await cluster.run_client("first", prepare)
        committer = cluster.start_client("committer", lambda client: commit_offsets(client, 20.0))
        await simulation.clock.sleep(3)
        cluster.brokers[first].terminate()
        await simulation.clock.sleep(4)
        second = 3 - first
        assert await cluster.run_client("second", coordinator) == second
        cluster.start_broker(first)
        await cluster.settled(1, 2)
        assert await cluster.run_client("third", coordinator) == first
        cluster.brokers[first].kill()
        assert committer.process is not None
        await committer.process.ended.wait()
        assert await cluster.run_client("fourth", coordinator) == second

    simulate(6, scenario)


def test_all_brokers_delete_the_offsets_of_a_deleted_topic_before_its_name_is_free() -> None:
    groups = [f"group-{number}" for number in range(12)]

    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, kafka={"offsets.topic.num.partitions": "6"})
        await cluster.start()

        async def work(client: WireCluster) -> None:
            await create(client, 1)
            for group in groups:
                await ask_coordinator(client, group)
                await commit_offsets(client, 0.0, group=group)
            await delete_topic(client, "orders")
            await create_topic(client, "orders", {})
            for group in groups:
                request = OffsetFetchRequest(
                    group_id=group, topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
                )
                connection = await ask_coordinator(client, group)
                answer = await connection.request(request, 7, OffsetFetchResponse)
                assert answer.topics[0].partitions[0].committed_offset == -1

        await cluster.run_client("client", work)

    simulate(11, scenario)


async def ask_coordinator(client: WireCluster, group: str) -> WireConnection:
    connection = await client.connect()
    request = FindCoordinatorRequest(key=group, key_type=0)
    found = await connection.request(request, 3, FindCoordinatorResponse)
    connection.close()
    assert found.error_code == 0
    return await WireConnection.open(client.world, found.host, found.port)
