"""Several brokers over one metadata service and one set of bookies, on simulated machines."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import pytest
import trio

from gnomon.bookie.ledger import Quorum
from gnomon.runtime.world import Unreachable
from gnomon.testing.broker_cluster import KAFKA_PORT, BrokerCluster
from gnomon.testing.log_checker import LogHistory, check_log
from gnomon.testing.log_clients import SimulatedConsumer, SimulatedProducer
from gnomon.testing.simulation import Simulation, SimulationFailed, simulate
from gnomon.testing.storm_clients import ask_until, commit_offsets, create_topic, delete_topic
from gnomon.testing.wire_client import METADATA_VERSION, KafkaCluster, KafkaConnection
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from gnomon.wire.kafka.messages.group import FindCoordinatorRequest, FindCoordinatorResponse
from gnomon.wire.kafka.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from gnomon.wire.kafka.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from gnomon.wire.kafka.messages.positions import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from gnomon.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from gnomon.wire.kafka.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from gnomon.wire.kafka.records import Record, build_batch

LEASE_SECONDS = 3.0


async def produce(client: KafkaCluster, history: LogHistory, name: str, partition: int, count: int) -> None:
    producer = SimulatedProducer(client, "orders", {partition: history}, name=name)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(producer.run)
        for number in range(count):
            producer.send(f"{name}/{number}".encode(), partition)
            await client.world.clock.sleep(0.01)
        await producer.flush()
        nursery.cancel_scope.cancel()


async def read_all(client: KafkaCluster, history: LogHistory, partition: int) -> None:
    history.final = await SimulatedConsumer(client, "orders", partition, history, name="final").read_all()


def test_a_killed_broker_s_partitions_are_served_by_another_within_the_lease_and_a_second() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS)
        await cluster.start()
        history = LogHistory()
        await cluster.run_client("first", lambda client: produce(client, history, "first", 0, 20))
        victim = cluster.leader("orders", 0)
        cluster.brokers[victim].kill()
        killed_at = simulation.clock.monotonic()
        await cluster.run_client("second", lambda client: produce(client, history, "second", 0, 1))
        taken = simulation.clock.monotonic() - killed_at
        print(f"served elsewhere after {taken:.2f} s")
        assert taken <= LEASE_SECONDS + 1
        await cluster.run_client("reader", lambda client: read_all(client, history, 0))
        assert check_log(history) == []
        assert len(history.final) == 21

    simulate(1, scenario)


def test_idempotent_producers_go_on_while_brokers_are_killed_and_nothing_is_lost_or_doubled() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, lease_seconds=LEASE_SECONDS)
        await cluster.start()
        history = LogHistory()
        producer = cluster.start_client("producer", lambda client: produce(client, history, "producer", 0, 1200))

        async def consume(client: KafkaCluster) -> None:
            await SimulatedConsumer(client, "orders", 0, history, name="consumer").run()

        cluster.start_client("consumer", consume)
        await simulation.clock.sleep(3)
        for _ in range(2):
            victim = cluster.leader("orders", 0)
            cluster.brokers[victim].kill()
            await simulation.clock.sleep(LEASE_SECONDS + 2)
            cluster.start_broker(victim)
            await simulation.clock.sleep(2)
        if producer.process is not None:
            await producer.process.ended.wait()
        await cluster.run_client("reader", lambda client: read_all(client, history, 0))
        assert check_log(history) == []
        assert len(history.final) == 1200

    simulate(2, scenario)


def test_a_rolling_restart_is_seen_by_no_client_as_more_than_a_new_leader() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, lease_seconds=LEASE_SECONDS, kafka={"num.partitions": "4"})
        await cluster.start()
        histories = [LogHistory() for _ in range(4)]
        producers = [
            cluster.start_client(
                f"producer-{index}", partial(produce, history=history, name="p", partition=index, count=600)
            )
            for index, history in enumerate(histories)
        ]
        await simulation.clock.sleep(1)
        for number, machine in cluster.brokers.items():
            process = machine.process
            assert process is not None
            machine.terminate()
            await process.ended.wait()
            assert not any(used.partition.log for used in cluster.serving[number].broker.partitions.with_own_log())
            cluster.start_broker(number)
            await cluster.settled(*cluster.brokers)
        for producer in producers:
            if producer.process is not None:
                await producer.process.ended.wait()
        for index, history in enumerate(histories):
            await cluster.run_client(f"reader-{index}", partial(read_all, history=history, partition=index))
            assert check_log(history) == []
            assert len(history.final) == 600

    simulate(3, scenario)


async def at(client: KafkaCluster, number: int) -> KafkaConnection:
    return await KafkaConnection.open(client.world, f"broker-{number}", KAFKA_PORT)


async def create(client: KafkaCluster, partitions: int) -> None:
    connection = await client.connect()
    topic = CreatableTopic(name="orders", num_partitions=partitions, replication_factor=1)
    answer = await connection.request(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE


async def produce_one(connection: KafkaConnection, partition: int = 0) -> ErrorCode:
    batch = build_batch([Record(offset_delta=0, value=b"v")], base_timestamp=1)
    data = TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=partition, records=batch)])
    answer = await connection.request(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9, ProduceResponse)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


async def latest(connection: KafkaConnection) -> tuple[ErrorCode, int, int]:
    wanted = ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    answer = await connection.request(ListOffsetsRequest(topics=[wanted]), 6, ListOffsetsResponse)
    found = answer.topics[0].partitions[0]
    return ErrorCode(found.error_code), found.offset, found.leader_epoch


def test_every_broker_tells_the_same_brokers_and_leaders_and_sends_away_what_is_another_s() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3)
        await cluster.start()

        async def work(client: KafkaCluster) -> None:
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


def test_leader_epochs_rise_with_each_claim_and_old_ones_end_where_they_did() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS)
        await cluster.start()

        async def work(client: KafkaCluster) -> None:
            await create(client, 1)
            first = cluster.leader("orders", 0)
            connection = await at(client, first)
            assert await produce_one(connection) is ErrorCode.NONE
            assert await latest(connection) == (ErrorCode.NONE, 1, 0)
            cluster.brokers[first].kill()
            second = 3 - first
            await cluster.settled(second)
            connection = await at(client, second)
            assert await latest(connection) == (ErrorCode.NONE, 1, 1)
            assert await produce_one(connection) is ErrorCode.NONE
            for current, error in ((-1, 0), (0, 0), (1, 0), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)):
                # librdkafka takes the epoch of the record it read last for the current one, which it was not told.
                wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=0)
                topic = OffsetForLeaderTopic(topic="orders", partitions=[wanted])
                answer = await connection.request(
                    OffsetForLeaderEpochRequest(topics=[topic]), 4, OffsetForLeaderEpochResponse
                )
                found = answer.topics[0].partitions[0]
                assert found.error_code == error
                assert error or (found.leader_epoch, found.end_offset) == (0, 1)

        await cluster.run_client("client", work)

    simulate(5, scenario)


def test_groups_move_with_their_partition_and_no_commit_goes_back() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS, kafka={"offsets.topic.num.partitions": "1"})
        await cluster.start()

        async def prepare(client: KafkaCluster) -> int:
            await create(client, 1)
            return await coordinator(client)

        async def coordinator(client: KafkaCluster) -> int:
            async def ask(connection: KafkaConnection) -> FindCoordinatorResponse:
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


def test_two_brokers_that_both_believe_to_lead_never_acknowledge_divergent_data() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS)
        await cluster.start()
        history = LogHistory()
        await cluster.run_client("first", lambda client: produce(client, history, "first", 0, 5))
        old = cluster.leader("orders", 0)
        new = 3 - old

        async def stubborn(client: KafkaCluster) -> None:
            """Knows the old leader alone."""
            only = KafkaCluster(client.world, [(f"broker-{old}", KAFKA_PORT)], "stubborn")
            await produce(only, history, "stubborn", 0, 1000)

        producer = cluster.start_client("stubborn", stubborn)
        await simulation.clock.sleep(1)
        for link in ((f"broker-{old}", "metadata"), ("metadata", f"broker-{old}")):
            simulation.network.block(*link)
        while cluster.serving[new].broker.leadership.leader(topic_id(cluster, new), 0) != new:
            await simulation.clock.sleep(0.1)
        believed = cluster.serving[old].broker
        assert believed.leadership.leader(topic_id(cluster, old), 0) == old
        assert not believed.lease_lives()
        await cluster.run_client("second", lambda client: produce_at(client, new, history))

        async def ask_the_old_one(client: KafkaCluster) -> None:
            assert (await latest(await at(client, old)))[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER

        await cluster.run_client("reader", ask_the_old_one)
        for link in ((f"broker-{old}", "metadata"), ("metadata", f"broker-{old}")):
            simulation.network.unblock(*link)
        if producer.process is not None:
            await producer.process.ended.wait()
        await cluster.run_client("final", lambda client: read_all(client, history, 0))
        assert check_log(history) == []
        assert len(history.final) == 5 + 1000 + 50

    simulate(7, scenario)


def test_segments_that_are_due_to_roll_go_on_while_the_metadata_is_away_and_roll_when_it_is_back() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 1, kafka={"log.segment.bytes": "2048"})
        await cluster.start()
        history = LogHistory()
        await cluster.run_client("first", lambda client: produce(client, history, "first", 0, 20))

        broker = cluster.serving[1].broker
        partition = broker.partition_of("orders", 0)
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
        assert len(broker.partition_of("orders", 0).segments) > before + 1  # of another term, as the lease was over

    simulate(8, scenario)


def topic_id(cluster: BrokerCluster, number: int) -> UUID:
    topic = cluster.serving[number].broker.image.get("orders")
    assert topic is not None
    return topic.id


async def produce_at(client: KafkaCluster, number: int, history: LogHistory) -> None:
    only = KafkaCluster(client.world, [(f"broker-{number}", KAFKA_PORT)], "second")
    await produce(only, history, "second", 0, 50)


def test_taking_a_partition_over_costs_one_read_and_one_write() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS)
        await cluster.start()

        async def work(client: KafkaCluster) -> None:
            await create(client, 1)
            first = cluster.leader("orders", 0)
            assert await produce_one(await at(client, first)) is ErrorCode.NONE
            cluster.brokers[first].kill()
            second = 3 - first
            await cluster.settled(second)
            await client.world.clock.sleep(1)
            with cluster.counting[second].measure() as cost:
                assert await produce_one(await at(client, second)) is ErrorCode.NONE
            print(f"taking a partition over: {cost.reads} reads, {cost.writes} writes")
            assert (cost.reads, cost.writes) == (1, 1)

        await cluster.run_client("client", work)

    simulate(8, scenario)


def test_starting_a_broker_costs_the_same_with_100_000_partitions_as_with_one() -> None:
    async def cost_of(simulation: Simulation, partitions: int) -> tuple[int, int]:
        cluster = BrokerCluster(simulation, 1, lease_seconds=LEASE_SECONDS)
        await cluster.start()

        async def work(client: KafkaCluster) -> None:
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
    assert few[0] <= 10
    assert few[1] <= 1


def test_no_broker_ever_tells_clients_that_there_is_none() -> None:
    """One that was told so forgets the whole cluster, and where it began."""

    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS)
        await cluster.start()
        told: dict[int, list[list[int]]] = {number: [] for number in cluster.brokers}

        async def ask(client: KafkaCluster, number: int) -> None:
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
        await simulation.clock.sleep(3 * LEASE_SECONDS)  # both registrations end, which both hear of before they renew
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


def test_a_second_broker_with_the_id_of_a_live_one_is_refused() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS)
        await cluster.ledgers.start()
        cluster.start_broker(1)
        await cluster.settled(1)
        cluster.start_broker(2, broker_id=1)
        process = cluster.brokers[2].process
        assert process is not None
        await process.ended.wait()

    with pytest.raises(SimulationFailed, match=r"BrokerIdTaken.*broker id 1 is taken: .* at broker-1:9092"):
        simulate(10, scenario)


def test_a_deleted_topic_s_offsets_are_forgotten_by_all_brokers_before_its_name_is_free() -> None:
    groups = [f"group-{number}" for number in range(12)]

    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, kafka={"offsets.topic.num.partitions": "6"})
        await cluster.start()

        async def work(client: KafkaCluster) -> None:
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


async def ask_coordinator(client: KafkaCluster, group: str) -> KafkaConnection:
    connection = await client.connect()
    request = FindCoordinatorRequest(key=group, key_type=0)
    found = await connection.request(request, 3, FindCoordinatorResponse)
    connection.close()
    assert found.error_code == 0
    return await KafkaConnection.open(client.world, found.host, found.port)


def test_a_partition_is_begun_only_when_there_are_bookies_for_all_its_copies() -> None:
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
