"""Client requests to the brokers of a cluster, and ways to delay what a broker follows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
import trio

from gnomon.broker.placement.registration import BrokerRegistration
from gnomon.metadata.client import WatchBatch
from gnomon.metadata.follower import Follower
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import KAFKA_PORT, BrokerCluster
from gnomon.testing.storms.kafka.log_checker import LogHistory
from gnomon.testing.storms.kafka.log_clients import SimulatedConsumer, SimulatedProducer
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from gnomon.wire.kafka.messages.positions import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from gnomon.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from gnomon.wire.kafka.records import Record, build_batch

LEASE_SECONDS = 3.0


def on_one_partition(
    seed: int, brokers: int, work: Callable[[BrokerCluster, WireCluster], Awaitable[None]], **kafka: str
) -> None:
    """Runs `work` on a client of a cluster of `brokers` brokers, whose topic `orders` has one partition."""

    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, brokers, lease_seconds=LEASE_SECONDS, kafka=kafka)
        await cluster.start()

        async def client(client: WireCluster) -> None:
            await create(client, 1)
            await work(cluster, client)

        await cluster.run_client("client", client)

    simulate(seed, scenario)


async def produce(client: WireCluster, history: LogHistory, name: str, partition: int, count: int) -> None:
    producer = SimulatedProducer(client, "orders", {partition: history}, name=name)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(producer.run)
        for number in range(count):
            producer.send(f"{name}/{number}".encode(), partition)
            await client.world.clock.sleep(0.01)
        await producer.flush()
        nursery.cancel_scope.cancel()


async def read_all(client: WireCluster, history: LogHistory, partition: int) -> None:
    history.final = await SimulatedConsumer(client, "orders", partition, history, name="final").read_all()


async def at(client: WireCluster, number: int) -> WireConnection:
    return await WireConnection.open(client.world, f"broker-{number}", KAFKA_PORT)


async def create(client: WireCluster, partitions: int, number: int | None = None) -> None:
    connection = await (client.connect() if number is None else at(client, number))
    topic = CreatableTopic(name="orders", num_partitions=partitions, replication_factor=-1)
    answer = await connection.request(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE


async def delete(client: WireCluster, number: int) -> ErrorCode:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")])
    answer = await (await at(client, number)).request(request, 6, DeleteTopicsResponse)
    return ErrorCode(answer.responses[0].error_code)


async def cut_off(cluster: BrokerCluster, old: int) -> None:
    """Cuts the links between the metadata and one of two brokers; returns when the other broker leads."""
    new = 3 - old
    for link in _links(old):
        cluster.simulation.network.block(*link)
    while cluster.leader_by(new, "orders", 0) != new:
        await cluster.simulation.clock.sleep(0.1)


def bring_back(cluster: BrokerCluster, old: int) -> None:
    """Undoes `cut_off`."""
    for link in _links(old):
        cluster.simulation.network.unblock(*link)


def _links(broker: int) -> list[tuple[str, str]]:
    return [(f"broker-{broker}", "metadata"), ("metadata", f"broker-{broker}")]


def followed_brokers(cluster: BrokerCluster, number: int) -> Follower:
    """The follower of the live brokers at one broker."""
    membership = cluster.serving[number].membership
    assert isinstance(membership, BrokerRegistration), "a broker of a cluster is registered"
    return membership.brokers.follower


@contextmanager
def unheard(cluster: BrokerCluster, number: int) -> Iterator[list[WatchBatch]]:
    """Delays the changes of live brokers at one broker until the block ends; yields the changes that wait."""
    with held_up(followed_brokers(cluster, number)) as heard:
        yield heard


@contextmanager
def held_up(follower: Follower) -> Iterator[list[WatchBatch]]:
    """Delays the batches of a follower until the block ends; yields the batches that wait."""
    heard = list[WatchBatch]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follower, "_apply", heard.append)
        yield heard
    for batch in heard:
        follower._apply(batch)


@contextmanager
def behind(follower: Follower) -> Iterator[None]:
    """Delays the batches and the revision of a follower until the block ends, as a late watch does."""
    late = list[WatchBatch]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follower, "_apply", late.append)
        patch.setattr(follower, "_move", lambda revision: None)
        yield
    for batch in late:
        follower._apply(batch)
        follower._move(batch.revision)


async def lose_leader(cluster: BrokerCluster) -> int:
    """Kills the broker, one of two, that leads the first partition; returns the next leader."""
    first = cluster.leader("orders", 0)
    cluster.brokers[first].kill()
    await cluster.settled(3 - first)
    return 3 - first


async def rejoin(cluster: BrokerCluster, number: int, topic: str = "orders") -> None:
    """Starts a broker; returns when it believes that it leads the topic's first partition."""
    cluster.start_broker(number)
    while number not in cluster.serving or cluster.leader_by(number, topic, 0) != number:
        await cluster.simulation.clock.sleep(0.01)


async def produce_one(
    connection: WireConnection, partition: int = 0, *, producer_id: int = -1, sequence: int = -1
) -> ErrorCode:
    """Produces one record; with a `producer_id`, in the first epoch of that idempotent producer."""
    epoch = -1 if producer_id < 0 else 0
    batch = build_batch(
        [Record(offset_delta=0, value=b"v")],
        base_timestamp=1,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    data = TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=partition, records=batch)])
    answer = await connection.request(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9, ProduceResponse)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


async def latest(connection: WireConnection) -> tuple[ErrorCode, int, int]:
    wanted = ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    answer = await connection.request(ListOffsetsRequest(topics=[wanted]), 6, ListOffsetsResponse)
    found = answer.topics[0].partitions[0]
    return ErrorCode(found.error_code), found.offset, found.leader_epoch


async def fetch(connection: WireConnection, offset: int, topic: str = "orders") -> tuple[ErrorCode, int]:
    """The error and high watermark of a fetch from the topic's first partition."""
    wanted = FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=offset)])
    answer = await connection.request(FetchRequest(max_wait_ms=0, topics=[wanted]), 12, FetchResponse)
    (found,) = answer.responses[0].partitions
    return ErrorCode(found.error_code), found.high_watermark
