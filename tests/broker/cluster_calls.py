"""What clients ask of the brokers of a cluster."""

from __future__ import annotations

import trio

from gnomon.testing.broker_cluster import KAFKA_PORT, BrokerCluster
from gnomon.testing.log_checker import LogHistory
from gnomon.testing.log_clients import SimulatedConsumer, SimulatedProducer
from gnomon.testing.wire_client import KafkaCluster, KafkaConnection
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from gnomon.wire.kafka.messages.positions import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
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


async def at(client: KafkaCluster, number: int) -> KafkaConnection:
    return await KafkaConnection.open(client.world, f"broker-{number}", KAFKA_PORT)


async def create(client: KafkaCluster, partitions: int) -> None:
    connection = await client.connect()
    topic = CreatableTopic(name="orders", num_partitions=partitions, replication_factor=1)
    answer = await connection.request(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE


async def lose_leader(cluster: BrokerCluster) -> int:
    """Kills the broker that leads the first partition; which one of the two leads it then."""
    first = cluster.leader("orders", 0)
    cluster.brokers[first].kill()
    await cluster.settled(3 - first)
    return 3 - first


async def produce_one(
    connection: KafkaConnection, partition: int = 0, *, producer_id: int = -1, sequence: int = -1
) -> ErrorCode:
    """One record; with a `producer_id` it is of an idempotent producer's first epoch."""
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


async def latest(connection: KafkaConnection) -> tuple[ErrorCode, int, int]:
    wanted = ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    answer = await connection.request(ListOffsetsRequest(topics=[wanted]), 6, ListOffsetsResponse)
    found = answer.topics[0].partitions[0]
    return ErrorCode(found.error_code), found.offset, found.leader_epoch


async def fetch(connection: KafkaConnection, offset: int) -> tuple[ErrorCode, int]:
    """The error and high watermark of a fetch from the first partition."""
    wanted = FetchTopic(topic="orders", partitions=[FetchPartition(partition=0, fetch_offset=offset)])
    answer = await connection.request(FetchRequest(max_wait_ms=0, topics=[wanted]), 12, FetchResponse)
    (topic,) = answer.responses
    return ErrorCode(topic.partitions[0].error_code), topic.partitions[0].high_watermark
