"""Replication factor, replicas and ISR of topics in a cluster whose bookies come and go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from gnomon.bookie.ids import BookieId
from gnomon.bookie.ledgers.catalog import Quorum, list_ledgers
from gnomon.bookie.record import LedgerRecord
from gnomon.bookie.repair.auditor import AuditSettings
from gnomon.broker.topics.copies import WAIT_SECONDS
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.wire_client import METADATA_VERSION, WireCluster
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import MetadataRequest, MetadataRequestTopic, MetadataResponse
from gnomon.wire.kafka.messages.placement import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from gnomon.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from gnomon.wire.kafka.records import Record, build_batch

LEASE_SECONDS = 3.0
BOOKIE = BookieId("bookie-2")
AUDIT = AuditSettings(grace_seconds=3600.0, interval_seconds=0.5, lease_seconds=2.0)
ALL, LACKING = ([1, 2, 3], 3), ([1, 2, 3], 2)
"""The replicas of a topic with three copies, and how many are in sync."""


def in_cluster(work: Callable[[BrokerCluster, WireCluster], Awaitable[None]], bookies: int = 3) -> None:
    """Runs `work` on a client of two brokers, with a limit of a minute."""

    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, bookies, lease_seconds=LEASE_SECONDS, audit=AUDIT)
        await cluster.start()

        async def client(client: WireCluster) -> None:
            with trio.fail_after(60):
                await work(cluster, client)

        await cluster.run_client("client", client)

    simulate(1, scenario)


async def create(client: WireCluster, name: str, factor: int, **configs: str) -> CreatableTopicResult:
    given = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=factor, configs=given)
    answer = await (await client.connect()).request(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    return answer.topics[0]


async def produce(client: WireCluster, name: str) -> ErrorCode:
    batch = build_batch([Record(offset_delta=0, value=b"v")], base_timestamp=1)
    data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])
    answer = await (await client.leader(name, 0)).request(request, 9, ProduceResponse)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


async def replicas(client: WireCluster, name: str) -> tuple[list[int], int]:
    """The replicas of partition 0, in order of id, and the number of those in sync, once all answers agree on them."""
    connection = await client.connect()
    while True:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        found = (await connection.request(asked, METADATA_VERSION, MetadataResponse)).topics[0].partitions[0]
        page = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])
        described = (await connection.request(page, 0, DescribeTopicPartitionsResponse)).topics[0].partitions[0]
        if (described.replica_nodes, described.isr_nodes) == (found.replica_nodes, found.isr_nodes):
            break  # otherwise the copies have changed in between
    assert found.leader_id == found.replica_nodes[0] == found.isr_nodes[0]
    return sorted(found.replica_nodes), len(found.isr_nodes)


async def shown(client: WireCluster, name: str, expected: tuple[list[int], int]) -> None:
    """Waits until the replicas of partition 0 are as expected."""
    while await replicas(client, name) != expected:
        await client.world.clock.sleep(0.1)


async def produced_without_a_bookie(cluster: BrokerCluster, client: WireCluster) -> None:
    """Makes a topic `t` with three copies and a record, and kills a bookie that has one of them."""
    await create(client, "t", 3)
    assert await produce(client, "t") is ErrorCode.NONE
    cluster.ledgers.bookies[BOOKIE].kill()


async def record_of(cluster: BrokerCluster, name: str) -> LedgerRecord:
    """The record of the only ledger of a topic."""
    topic = cluster.serving[1].broker.topics.find(name)

    async def work(client: LedgerClient) -> LedgerRecord:
        (found,) = await list_ledgers(client.metadata, f"topics/{topic.id.hex}/")
        return found[1]

    return await cluster.ledgers.run_client(f"look-{name}", work)


def test_a_topic_gets_as_many_copies_as_it_asks_for_if_there_are_so_many_bookies() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster) -> None:
        for factor, copies, quorum in [
            (-1, 3, Quorum(3, 3, 2)),
            (3, 3, Quorum(3, 3, 2)),
            (2, 2, Quorum(2, 2, 2)),
            (1, 1, Quorum(1, 1, 1)),
        ]:
            name = f"t{factor}"
            created = await create(client, name, factor)
            assert (created.error_code, created.replication_factor) == (ErrorCode.NONE, copies)
            assert await produce(client, name) is ErrorCode.NONE
            assert (await record_of(cluster, name)).quorum == quorum
            assert (await replicas(client, name))[1] == copies
        assert (await replicas(client, "t3")) == ALL  # of two brokers and three bookies
        for factor, text in [(4, "3 bookies keep the copies"), (0, "1 or more"), (-2, "1 or more")]:
            refused = await create(client, "refused", factor)
            assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
            assert text in str(refused.error_message)

    in_cluster(work)


def test_a_topic_with_fewer_acknowledged_copies_than_its_min_insync_replicas_refuses_acks_all() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster) -> None:
        for factor, min_in_sync, expected in [
            (1, "2", ErrorCode.NOT_ENOUGH_REPLICAS),
            (2, "2", ErrorCode.NONE),
            (3, "2", ErrorCode.NONE),
            (3, "3", ErrorCode.NOT_ENOUGH_REPLICAS),
        ]:
            name = f"t{factor}-{min_in_sync}"
            await create(client, name, factor, **{"min.insync.replicas": min_in_sync})
            assert await produce(client, name) is expected

    in_cluster(work)


def test_a_replica_is_out_of_sync_while_a_copy_is_missing_also_if_all_bookies_are_alive() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster) -> None:
        await create(client, "t", 3)
        await create(client, "idle", 3)  # has no ledger yet
        assert await produce(client, "t") is ErrorCode.NONE
        assert await replicas(client, "t") == ALL
        cluster.ledgers.bookies[BOOKIE].kill()
        await shown(client, "t", LACKING)
        assert await replicas(client, "idle") == ALL
        assert await produce(client, "t") is ErrorCode.NONE  # two of three acknowledge; the third copy is reported
        while not cluster.serving[1].broker.copies.reported:
            await client.world.clock.sleep(0.1)
        cluster.ledgers.stop_auditing()
        cluster.ledgers.bookies[BOOKIE].start(cluster.ledgers.nodes()[BOOKIE])
        while cluster.serving[1].broker.storage.bookies.absent():
            await client.world.clock.sleep(0.1)
        assert await replicas(client, "t") == LACKING  # the bookie is back, and its copy is not

    in_cluster(work)


def test_all_replicas_are_in_sync_again_once_the_auditor_has_filled_the_gaps() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster) -> None:
        await produced_without_a_bookie(cluster, client)
        await shown(client, "t", LACKING)
        assert await produce(client, "t") is ErrorCode.NONE
        cluster.ledgers.bookies[BOOKIE].start(cluster.ledgers.nodes()[BOOKIE])
        await shown(client, "t", ALL)

    in_cluster(work)


def test_a_topic_whose_copies_cannot_be_counted_has_an_ack_quorum_and_is_described_soon() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster) -> None:
        await produced_without_a_bookie(cluster, client)
        while not all(serving.broker.storage.bookies.absent() for serving in cluster.serving.values()):
            await client.world.clock.sleep(0.1)
        cluster.ledgers.metadata.kill()
        began = client.world.clock.monotonic()
        assert await replicas(client, "t") == LACKING
        assert client.world.clock.monotonic() - began < 2 * WAIT_SECONDS + 0.1

    in_cluster(work)


def test_a_partition_with_no_entry_on_an_absent_bookie_has_all_replicas_in_sync() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster) -> None:
        await create(client, "t", 3)
        await create(client, "u", 1)
        for name in ("t", "u"):
            assert await produce(client, name) is ErrorCode.NONE
        (elsewhere,) = set(cluster.ledgers.names) - set((await record_of(cluster, "t")).bookies)
        cluster.ledgers.bookies[elsewhere].kill()
        while not cluster.serving[1].broker.storage.bookies.absent():
            await client.world.clock.sleep(0.1)
        for _ in range(2):  # of either broker
            assert await replicas(client, "t") == ALL

    in_cluster(work, bookies=4)
