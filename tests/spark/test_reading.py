"""Plans and tasks of batch reads, on a simulated cluster: no JVM is needed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from gnomon.client.kafka.brokers import KafkaBrokers, UnknownTopic
from gnomon.spark.columns import SCHEMA
from gnomon.spark.offsets import BadOption
from gnomon.spark.options import SourceOptions
from gnomon.spark.planning import DataLost, Task, plan
from gnomon.spark.reading import OtherVersion, read
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from gnomon.wire.kafka.records import Record, build_batch

START_MS = 1_000_000
SIZES = {"orders": (30, 20, 0), "others": (5,)}
"""Records of each partition of each topic, in batches of five; record n has the timestamp START_MS + n."""
ORDERS = [(0, offset) for offset in range(30)] + [(1, offset) for offset in range(20)]


class Client:
    """Reads of a cluster with the topics of SIZES."""

    def __init__(self, cluster: KafkaBrokers) -> None:
        self.cluster = cluster
        self.warnings: list[str] = []

    async def tasks(self, columns: Sequence[str] = SCHEMA.names, **given: str) -> list[Task]:
        options = {"kafka.bootstrap.servers": "broker-1:9092", **given}
        if not {"subscribe", "subscribePattern", "assign"} & given.keys():
            options["subscribe"] = "orders"
        parsed = SourceOptions.parse({name.lower(): value for name, value in options.items()}, streaming=False)
        return await plan(self.cluster, parsed, columns, self.warnings.append)

    async def rows(self, **given: str) -> list[dict[str, Any]]:
        found = []
        for task in await self.tasks(**given):
            found += await self.rows_of(task)
        return found

    async def rows_of(self, task: Task) -> list[dict[str, Any]]:
        found = []
        async with aclosing(read(self.cluster, task)) as parts:
            async for part in parts:
                found += part.to_pylist()
        return found

    async def places(self, **given: str) -> list[tuple[int, int]]:
        return [(row["partition"], row["offset"]) for row in await self.rows(**given)]

    async def delete_before(self, partition: int, offset: int) -> None:
        cut = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="orders", partitions=cut)], timeout_ms=9_000)
        await (await self.cluster.leader("orders", partition)).request(request, 2, DeleteRecordsResponse)

    async def fill(self) -> None:
        for topic, sizes in SIZES.items():
            created = CreatableTopic(name=topic, num_partitions=len(sizes), replication_factor=-1)
            broker = await self.cluster.any_broker()
            await broker.request(CreateTopicsRequest(topics=[created]), 7, CreateTopicsResponse)
            for partition, size in enumerate(sizes):
                for first in range(0, size, 5):
                    await self._produce(topic, partition, first)

    async def _produce(self, topic: str, partition: int, first: int) -> None:
        records = [Record(at, at, b"%d" % (first + at), topic.encode(), (("n", None),)) for at in range(5)]
        batch = build_batch(records, base_timestamp=START_MS + first)
        data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])]
        leader = await self.cluster.leader(topic, partition)
        await leader.request(ProduceRequest(acks=-1, timeout_ms=9_000, topic_data=data), 9, ProduceResponse)


def with_topics(work: Callable[[Client], Awaitable[None]]) -> None:
    async def scenario(simulation: Simulation) -> None:
        brokers = BrokerCluster(simulation, 2)
        await brokers.start()

        async def client(wire: WireCluster) -> None:
            async with KafkaBrokers(wire.world, brokers.bootstrap, patience_seconds=20) as cluster:
                reader = Client(cluster)
                await reader.fill()
                await work(reader)

        await brokers.run_client("client", client)

    simulate(1, scenario)


def test_a_topic_is_read_whole_with_all_columns() -> None:
    async def work(client: Client) -> None:
        rows = await client.rows()
        assert [(row["partition"], row["offset"]) for row in rows] == ORDERS
        for row in rows:
            assert (row["key"], row["value"], row["topic"]) == (b"%d" % row["offset"], b"orders", "orders")
            assert row["timestamp"].timestamp() * 1_000 == START_MS + row["offset"]
            assert (row["timestampType"], row["headers"]) == (0, [{"key": "n", "value": None}])
        assert [(task.range.partition, task.range.stop) for task in await client.tasks()] == [(0, 30), (1, 20)]

    with_topics(work)


def test_topics_are_chosen_by_name_by_pattern_and_by_partition() -> None:
    async def work(client: Client) -> None:
        assert len(await client.rows(subscribe="orders,others")) == 55
        assert len(await client.rows(subscribePattern="o.*s")) == 55
        assert await client.rows(subscribePattern="order") == []
        assert await client.places(assign='{"orders":[1,2]}') == ORDERS[30:]

    with_topics(work)


def test_a_range_is_given_by_offsets_and_by_times() -> None:
    async def work(client: Client) -> None:
        starts, stops = '{"orders":{"0":7,"1":-2,"2":-2}}', '{"orders":{"0":12,"1":3,"2":-1}}'
        chosen = [(0, offset) for offset in range(7, 12)] + [(1, offset) for offset in range(3)]
        assert await client.places(startingOffsets=starts, endingOffsets=stops) == chosen
        times = {"startingTimestamp": str(START_MS + 18), "endingTimestamp": str(START_MS + 22)}
        late = {"startingOffsetsByTimestampStrategy": "latest"}
        chosen = [(0, offset) for offset in range(18, 22)] + [(1, offset) for offset in range(18, 20)]
        assert await client.places(**times, **late) == chosen
        each = f'{{"orders":{{"0":{START_MS + 29},"1":{START_MS + 19},"2":0}}}}'
        assert await client.places(startingOffsetsByTimestamp=each, **late) == [(0, 29), (1, 19)]

    with_topics(work)


def test_tasks_are_cut_by_number_and_by_records() -> None:
    async def work(client: Client) -> None:
        assert len(await client.tasks(minPartitions="10")) >= 10
        assert await client.places(minPartitions="10") == ORDERS
        assert [task.range.stop - task.range.start for task in await client.tasks(maxRecordsPerPartition="7")] == [
            *(6, 6, 6, 6, 6),
            *(6, 7, 7),
        ]
        assert await client.places(maxRecordsPerPartition="7") == ORDERS

    with_topics(work)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"subscribe": "missing"}, UnknownTopic, "topic 'missing'"),
        ({"assign": '{"orders":[0,3]}'}, BadOption, "assign: topic 'orders' has no partition 3"),
        (
            {"startingOffsets": '{"orders":{"0":1,"3":1}}'},
            BadOption,
            "startingOffsets: give each partition that is read (missing: orders-1, orders-2; unknown: orders-3)",
        ),
        (
            {"startingTimestamp": str(START_MS + 25)},
            BadOption,
            f"startingTimestamp: partition 1 of topic 'orders' has no record from {START_MS + 25} ms on",
        ),
        (
            {"endingOffsets": '{"orders":{"0":31,"1":-1,"2":-1}}'},
            DataLost,
            "partition 0 of topic 'orders': the read is of offsets 0 to 31, the log has 0 to 30",
        ),
        (
            {"startingOffsets": '{"orders":{"0":9,"1":0,"2":0}}', "endingOffsets": '{"orders":{"0":8,"1":0,"2":0}}'},
            DataLost,
            "partition 0 of topic 'orders': the read is of offsets 9 to 8",
        ),
    ],
)
def test_a_read_that_cannot_be_planned_is_refused(given: dict[str, str], error: type[Exception], text: str) -> None:
    async def work(client: Client) -> None:
        with pytest.raises(error, match=re.escape(text)):
            await client.tasks(**given)

    with_topics(work)


def test_lost_records_are_an_error_or_a_warning() -> None:
    async def work(client: Client) -> None:
        await client.delete_before(0, 12)
        lost = {"startingOffsets": '{"orders":{"0":3,"1":-2,"2":-2}}'}
        with pytest.raises(
            DataLost, match=re.escape("offsets 3 to 30, the log has 12 to 30; failOnDataLoss=false reads")
        ):
            await client.tasks(**lost)
        assert await client.places(**lost, failOnDataLoss="false") == [place for place in ORDERS if place >= (0, 12)]
        (warning,) = client.warnings
        assert "the read is of offsets 3 to 30, the log has 12 to 30" in warning
        assert await client.places() == [place for place in ORDERS if place >= (0, 12)]

    with_topics(work)


def test_a_worker_refuses_the_task_of_another_version() -> None:
    async def work(client: Client) -> None:
        task = (await client.tasks())[0]
        with pytest.raises(OtherVersion, match="the driver plans tasks of version 2, this worker knows 1"):
            await client.rows_of(task._replace(version=2))

    with_topics(work)
