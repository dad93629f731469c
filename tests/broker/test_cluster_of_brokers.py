"""Several brokers over one metadata service and one set of bookies, on simulated machines."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from cluster_calls import (
    LEASE_SECONDS,
    at,
    create,
    latest,
    lose_leader,
    on_one_partition,
    produce,
    produce_one,
    read_all,
)
from native_calls import listening_late

from gnomon.bookie.ledgers.catalog import Quorum
from gnomon.runtime.world import Unreachable
from gnomon.testing.simulation.ground import SimulationFailed
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import KAFKA_PORT, BrokerCluster
from gnomon.testing.storms.kafka.log_checker import LogHistory, check_log
from gnomon.testing.storms.kafka.wire_client import METADATA_VERSION, WireCluster
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from gnomon.wire.kafka.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from gnomon.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from gnomon.wire.kafka.records import Record, build_batch

RECORD = Record(offset_delta=0, key=None, value=b"v")


def test_all_brokers_describe_the_same_brokers_and_leaders_and_refuse_requests_for_other_leaders() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3)
        await cluster.start()

        async def work(client: WireCluster) -> None:
            await create(client, 30)
            told = []
            for number in cluster.brokers:
                connection = await at(client, number)
                request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
                answer = await connection.request(request, METADATA_VERSION, MetadataResponse)
                described = await connection.request(DescribeClusterRequest(), 0, DescribeClusterResponse)
                brokers = [(one.node_id, one.host, one.port) for one in answer.brokers]
                assert brokers == [(one, f"broker-{one}", KAFKA_PORT) for one in cluster.brokers]
                assert [(one.broker_id, one.host, one.port) for one in described.brokers] == brokers
                assert answer.controller_id == described.controller_id == 1
                leaders = [one.leader_id for one in answer.topics[0].partitions]
                assert {one.leader_epoch for one in answer.topics[0].partitions} == {-1}
                told.append(leaders)
                held = await connection.request(DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse)
                (orders,) = [topic for topic in held.results[0].topics if topic.name == "orders"]
                led = [index for index, leader in enumerate(leaders) if leader == number]
                assert [item.partition_index for item in orders.partitions] == led
                for index, leader in enumerate(leaders):
                    expected = ErrorCode.NONE if leader == number else ErrorCode.NOT_LEADER_OR_FOLLOWER
                    assert await produce_one(connection, index) is expected
                error, _, _ = await latest(connection)
                assert error is (ErrorCode.NONE if leaders[0] == number else ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert told[0] == told[1] == told[2]
            assert set(told[0]) == {1, 2, 3}

        await cluster.run_client("client", work)

    simulate(4, scenario)


def test_segments_due_to_roll_accept_appends_while_the_metadata_is_away_and_roll_when_it_is_back() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 1, kafka={"log.segment.bytes": "2048"})
        await cluster.start()
        history = LogHistory()
        await cluster.run_client("first", lambda client: produce(client, history, "first", 0, 20))

        broker = cluster.serving[1].broker
        partition = broker.routes.to_read("orders", 0)
        before = len(partition.segments)
        cluster.ledgers.metadata.power_off()
        began = simulation.clock.monotonic()
        await cluster.run_client("second", lambda client: produce(client, history, "second", 0, 200))
        took = simulation.clock.monotonic() - began
        print(f"200 records without metadata took {took:.2f} s")
        assert took < 10, "appends waited for the metadata"
        assert len(partition.segments) == before
        await simulation.clock.sleep(60)
        cluster.ledgers.metadata.start(cluster.ledgers.nodes()["metadata"])
        await simulation.clock.sleep(10)
        await cluster.run_client("third", lambda client: produce(client, history, "third", 0, 100))
        await cluster.run_client("reader", lambda client: read_all(client, history, 0))
        assert check_log(history) == []
        assert len(history.final) == 320
        assert len(broker.routes.to_read("orders", 0).segments) > before + 1  # one by a new claim: the lease had ended

    simulate(8, scenario)


def test_a_takeover_of_a_partition_costs_one_metadata_read_and_one_write() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster) -> None:
        assert await produce_one(await at(client, cluster.leader("orders", 0))) is ErrorCode.NONE
        second = await lose_leader(cluster)
        await client.world.clock.sleep(1)
        with cluster.counting[second].measure() as cost:
            assert await produce_one(await at(client, second)) is ErrorCode.NONE
        print(f"taking a partition over: {cost.reads} reads, {cost.writes} writes")
        assert (cost.reads, cost.writes) == (1, 1)

    on_one_partition(8, 2, work)


def test_starting_a_broker_costs_the_same_with_100_000_partitions_as_with_one() -> None:
    async def cost_of(simulation: Simulation, partitions: int) -> tuple[int, int]:
        cluster = BrokerCluster(simulation, 1, lease_seconds=LEASE_SECONDS)
        await cluster.start()

        async def work(client: WireCluster) -> None:
            await create(client, partitions)
            assert await produce_one(await client.connect()) is ErrorCode.NONE

        await cluster.run_client("client", work)
        process = cluster.brokers[1].process
        assert process is not None
        cluster.brokers[1].terminate()
        await process.ended.wait()
        cluster.start_broker(1)
        await cluster.settled(1)
        cost = cluster.start_costs[1]
        print(f"starting with {partitions} partitions: {cost.reads} reads, {cost.writes} writes")
        return cost.reads, cost.writes

    few, many = (simulate(9, partial(cost_of, partitions=count)).result for count in (1, 100_000))
    assert few == many
    assert few[0] <= 11
    assert few[1] <= 1


def test_no_broker_ever_sends_clients_an_empty_list_of_brokers() -> None:
    """A client that gets an empty list forgets the whole cluster, also its bootstrap addresses."""

    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS)
        await cluster.start()
        told: dict[int, list[list[int]]] = {number: [] for number in cluster.brokers}

        async def ask(client: WireCluster, number: int) -> None:
            while True:
                try:
                    connection = await at(client, number)
                    while True:
                        answer = await connection.request(
                            MetadataRequest(topics=[]), METADATA_VERSION, MetadataResponse
                        )
                        described = await connection.request(DescribeClusterRequest(), 0, DescribeClusterResponse)
                        told[number] += [[one.node_id for one in answer.brokers]]
                        told[number] += [[one.broker_id for one in described.brokers]]
                        assert all(one.host == f"broker-{one.node_id}" for one in answer.brokers)
                        await client.world.clock.sleep(0.002)
                except Unreachable:
                    await client.world.clock.sleep(0.002)

        for number in cluster.brokers:
            cluster.start_client(f"client-{number}", partial(ask, number=number))
        for number in cluster.brokers:
            simulation.network.block(f"broker-{number}", "metadata")
        await simulation.clock.sleep(3 * LEASE_SECONDS)  # both registrations end, and both brokers notice
        simulation.network.heal()
        await cluster.settled(*cluster.brokers)
        for machine in cluster.brokers.values():
            machine.kill()
        cluster.start_broker(1)
        await cluster.settled(1)
        for number, answers in told.items():
            assert [number] in answers, f"broker {number} never knew of itself alone: the test shows nothing"
            assert [] not in answers

    simulate(12, scenario)


def test_a_client_gets_the_brokers_address_before_the_native_port_is_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 1, lease_seconds=LEASE_SECONDS)
        await cluster.start()
        cluster.brokers[1].kill()
        await simulation.clock.sleep(3 * LEASE_SECONDS)  # no broker is registered any more
        go_on = listening_late(monkeypatch)
        cluster.start_broker(1)

        async def ask(client: WireCluster) -> None:
            connection = await at(client, 1)
            answer = await connection.request(MetadataRequest(topics=[]), METADATA_VERSION, MetadataResponse)
            assert [(one.host, one.port) for one in answer.brokers] == [("broker-1", KAFKA_PORT)]
            go_on.set()

        await simulation.clock.sleep(1)
        cluster.start_client("client", ask)
        await cluster.settled(1)

    simulate(1, scenario)


def test_a_broker_with_the_id_of_a_live_broker_logs_that_it_waits_and_is_refused() -> None:
    traces = []

    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS)
        await cluster.ledgers.start()
        cluster.start_broker(1)
        await cluster.settled(1)
        traces.append(simulation.trace)
        cluster.start_broker(2, broker_id=1)
        process = cluster.brokers[2].process
        assert process is not None
        await process.ended.wait()

    with pytest.raises(SimulationFailed, match=r"BrokerIdTaken.*broker id 1 is taken: .* at broker-1:9092"):
        simulate(10, scenario)
    assert len([line for trace in traces for line in trace.lines if "warning: waiting" in line]) == 1


def test_the_first_append_to_a_partition_waits_for_bookies_for_all_its_copies() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 1, lease_seconds=LEASE_SECONDS)
        await cluster.start()
        away = list(cluster.ledgers.bookies.values())[1:]
        for bookie in away:
            bookie.kill()
        await simulation.sleep(LEASE_SECONDS + 1)
        history = LogHistory()
        producer = cluster.start_client("producer", lambda client: produce(client, history, "producer", 0, 3))
        await simulation.sleep(10)
        assert all(send.offset < 0 for send in history.sends)
        for bookie in away:
            bookie.start()
        assert producer.process is not None
        with trio.fail_after(10):
            await producer.process.ended.wait()
        assert [send.offset for send in history.sends] == [0, 1, 2]
        ((_, _, partition),) = cluster.serving[1].broker.partitions.with_own_log()
        assert partition.segments[-1].ledger.record.quorum == Quorum(3, 3, 2)

    simulate(1, scenario)


def test_acks_all_is_refused_if_min_insync_replicas_exceeds_the_ack_quorum() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 1, lease_seconds=LEASE_SECONDS)
        await cluster.start()

        async def ask(client: WireCluster) -> list[int]:
            connection = await at(client, 1)
            topics = [
                CreatableTopic(
                    name=f"of-{copies}",
                    num_partitions=1,
                    replication_factor=-1,
                    configs=[CreatableTopicConfig(name="min.insync.replicas", value=str(copies))],
                )
                for copies in (1, 2, 3)
            ]
            answer = await connection.request(CreateTopicsRequest(topics=topics), 7, CreateTopicsResponse)
            assert [result.error_code for result in answer.topics] == [ErrorCode.NONE] * 3
            told = []
            for topic in topics:
                data = TopicProduceData(
                    name=topic.name,
                    partition_data=[PartitionProduceData(index=0, records=build_batch([RECORD], base_timestamp=1))],
                )
                request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])
                produced = await connection.request(request, 9, ProduceResponse)
                told.append(produced.responses[0].partition_responses[0].error_code)
            return told

        none, refused = ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS
        assert await cluster.run_client("client", ask) == [none, none, refused]

    simulate(1, scenario)
