"""The connections of one process, in a cluster of real processes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NoReturn, TypeVar

import pytest
import trio
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from planned_topic import plan_of

from gnomon import connect_ledgers
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.log.plans.read_plan import ReadPlan
from gnomon.spark.columns import Range
from gnomon.spark.options import SourceOptions
from gnomon.spark.planning import tasks_of
from gnomon.spark.process import cluster_of, each
from gnomon.spark.reading import batches_of, decoded
from gnomon.spark.task import Task, parts_of
from gnomon.testing import KafkaCluster

T = TypeVar("T")

RECORDS = 6_000
CHILD_SECONDS = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=1) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        topic = NewTopic("orders", num_partitions=2, config={"segment.bytes": "10000"})
        for created in admin.create_topics([topic]).values():
            created.result()
        settings = {"bootstrap.servers": running.bootstrap_servers, "linger.ms": 0, "batch.num.messages": 50}
        producer = Producer(settings)
        for number in range(RECORDS):
            producer.produce("orders", b"value %d" % number, partition=number % 2)
        assert producer.flush(30) == 0
        yield running


def planned(cluster: KafkaCluster) -> ReadPlan:
    async def plan() -> ReadPlan:
        async with connect_ledgers(cluster.metadata_address) as ledgers:
            while True:  # a broker sends the last add confirmed to the bookies some time after the last add
                found = await plan_of(ledgers, "orders", partitions=2)
                if sum(each.high_watermark for each in found.partitions.values()) == RECORDS:
                    return found

    return trio.run(plan)


def tasks(cluster: KafkaCluster, task_bytes_max: int) -> list[Task]:
    plan = planned(cluster)
    given = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "subscribe": "orders",
        "maxbytespertask": str(task_bytes_max),
    }
    options = SourceOptions.parse(given, streaming=False)
    ranges = [Range("orders", number, 0, found.high_watermark) for number, found in plan.partitions.items()]
    ids = {TopicPartition("orders", number): plan.topic_id for number in plan.partitions}
    return tasks_of(ranges, ids, options, ["offset"], parts_of("orders", plan))


async def at_rest(call: Callable[[], T]) -> T:
    """Calls in the thread of the connections."""
    return call()


def offsets(task: Task) -> list[int]:
    connections, thread = cluster_of(task.addresses)
    with closing(each(thread, batches_of(*connections[:2], task, pytest.fail))) as parts:
        return [offset for rows in decoded(task, parts) for offset in rows["offset"].to_pylist()]


def test_a_process_reads_bookies_over_connections_that_it_keeps_while_the_broker_is_dead(
    cluster: KafkaCluster,
) -> None:
    found = tasks(cluster, 10_000)
    assert len(found) > 4
    connections, thread = cluster_of(found[0].addresses)
    with closing(each(thread, batches_of(*connections[:2], found[0], pytest.fail))) as parts:
        next(parts)  # and no more of them
    plan = found[0].plan
    assert plan is not None
    names = [bookie.name for bookie in plan.bookies]
    bookies = thread.call(at_rest, lambda: connections.bookies.of(plan.cluster, plan.bookies))
    clients = [bookies.get(name) for name in names]
    assert len(clients) == 3
    cluster.brokers[0].kill()
    try:
        for number in range(2):
            read = [offset for task in found if task.range.partition == number for offset in offsets(task)]
            assert read == list(range(RECORDS // 2))
    finally:
        cluster.brokers[0].start()
    assert cluster_of(found[0].addresses) == (connections, thread)
    assert [bookies.get(name) for name in names] == clients


def test_a_bookie_that_stops_during_a_task_does_not_end_it(cluster: KafkaCluster) -> None:
    task = tasks(cluster, 1 << 30)[0]
    assert task.plan is not None
    assert len(task.plan.segments) > 3
    connections, thread = cluster_of(task.addresses)
    with closing(each(thread, batches_of(*connections[:2], task, pytest.fail))) as parts:
        first = next(parts)
        cluster.bookies[1].pause()
        try:
            rest = list(parts)
        finally:
            cluster.bookies[1].resume()
    rows = [offset for part in decoded(task, [first, *rest]) for offset in part["offset"].to_pylist()]
    assert rows == list(range(RECORDS // 2))


def in_a_forked_process(call: Callable[[], Any]) -> Any:
    """The result of a call in a fork of this process, which ends with it; None if it does not end in time."""
    read, written = os.pipe()
    child = os.fork()
    if not child:
        answer_and_exit(call, written)
    os.close(written)
    with os.fdopen(read) as answer:
        found = answer.read()
    os.waitpid(child, 0)
    return json.loads(found or "null")


def answer_and_exit(call: Callable[[], Any], written: int) -> NoReturn:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, whatever waits in it
    signal.alarm(CHILD_SECONDS)
    try:
        os.write(written, json.dumps(call()).encode())
    finally:
        os._exit(0)


def test_a_forked_process_makes_connections_of_its_own_once_and_keeps_them(cluster: KafkaCluster) -> None:
    found = tasks(cluster, 1 << 30)
    task = next(each for each in found if each.range.partition == 0)
    parents = cluster_of(task.addresses)
    assert offsets(task) == list(range(RECORDS // 2))

    def read_twice() -> list[Any]:
        own = cluster_of(task.addresses)
        read = [len(offsets(task)) for _ in range(2)]
        return [own[0] is parents[0], own[1] is parents[1], cluster_of(task.addresses) == own, read]

    for _ in range(2):
        assert in_a_forked_process(read_twice) == [False, False, True, [RECORDS // 2] * 2]
    assert cluster_of(task.addresses) == parents
    assert offsets(task) == list(range(RECORDS // 2))
