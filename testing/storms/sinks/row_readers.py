"""The readers of a sink's target in a storm: a Kafka client, the tasks of a Spark job, and a subscription.

1. Each returns the values of each partition in the order of offsets, from the start of the log to its end.
2. The tasks read the ranges of a plan: from bookies if the plan names any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing

from gnomon.client.addresses import Address
from gnomon.client.client import NativeClient
from gnomon.client.errors import RecordsMissed
from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.fetching import read_batches
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.log.plans.planned_bookies import PlannedBookies
from gnomon.spark.options import SourceOptions
from gnomon.spark.planning import bounds_of, plan
from gnomon.spark.reading import batches_of, decoded
from gnomon.spark.task import decode_task, encode_task
from gnomon.testing.storms.kafka.log_clients import ProduceRefused
from gnomon.testing.storms.sinks.written_rows import PARTITIONS
from gnomon.wire.kafka.records import iterate_records

HOLD_SECONDS = 60
RECORD_BYTES_MAX = 1 << 20


async def fetched_rows(brokers: KafkaBrokers, topic: str) -> list[list[str]]:
    """The rows that a Kafka client reads.

    Raises:
        RequestRefused, Unreachable: as `read_batches`.
    """
    topic_id = (await brokers.topics([topic]))[topic].id
    found = {TopicPartition(topic, partition): list[str]() for partition in range(PARTITIONS)}
    starts, ends = await bounds_of(brokers, found)
    for place, rows in found.items():
        async with aclosing(read_batches(brokers, place, topic_id, starts[place], ends[place])) as parts:
            async for part in parts:
                for batch in part.batches:
                    rows += [(record.value or b"").decode() for record in iterate_records(batch, RECORD_BYTES_MAX)]
    return list(found.values())


def source_options(addresses: Sequence[Address], topic: str, tasks_min: int) -> SourceOptions:
    """The options of a batch read of a topic.

    Args:
        addresses: of brokers.
        tasks_min: the lowest number of tasks.
    """
    given = {
        "kafka.bootstrap.servers": ",".join(f"{host}:{port}" for host, port in addresses),
        "subscribe": topic,
        "minpartitions": str(tasks_min),
        "holdseconds": str(HOLD_SECONDS),
    }
    return SourceOptions.parse(given, streaming=False)


async def planned_rows(
    brokers: KafkaBrokers, bookies: PlannedBookies, options: SourceOptions, warn: Callable[[str], None]
) -> tuple[list[list[str]], bool]:
    """The rows that the tasks of a batch read of `gnomon.spark` read, and whether a task had a plan of bookies.

    Raises:
        ProduceRefused: the offsets of the rows have a gap, or the number of a row's partition is wrong.
        DataLost, UnreadableEntry, WrongRowCount: the target loses no record.
        RequestRefused, Unreachable: brokers are away.
    """
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    planned = False
    for task in await plan(brokers, options, ["value", "partition", "offset"], warn):
        planned |= task.plan is not None
        task = decode_task(encode_task(task))
        async with aclosing(batches_of(brokers, bookies, task, warn)) as parts:
            batches = [part async for part in parts]
        for rows in decoded(task, batches):
            for row in rows.to_pylist():
                if row["partition"] != task.range.partition or row["offset"] != len(found[row["partition"]]):
                    raise ProduceRefused(f"task {task.range} has a row at {row['partition']}/{row['offset']}")
                found[row["partition"]].append(row["value"].decode())
    return found, planned


async def subscribed_rows(client: NativeClient, topic: str, name: str, counts: Sequence[int]) -> list[list[str]]:
    """The rows that a new subscription receives; one that is received again counts once.

    Args:
        name: of the subscription.
        counts: the number of rows of each partition; more are not waited for.

    Raises:
        NativeError, Unreachable: the subscription could not be created, or its consumer was closed.
        ProduceRefused: records are missed, or one offset has two values.
    """
    consumer = await client.subscribe(topic, name, type="exclusive", initial_position="earliest")
    found: list[dict[int, str]] = [{} for _ in counts]
    while any(len(values) < count for values, count in zip(found, counts, strict=True)):
        try:
            message = await consumer.receive()
        except RecordsMissed as missed:
            raise ProduceRefused(f"a subscription of {topic}: {missed}") from missed
        value = (message.value or b"").decode()
        if found[message.partition].setdefault(message.offset, value) != value:
            raise ProduceRefused(f"offset {message.offset} of {topic} has two values")
        consumer.ack(message)
    await consumer.close()
    return [[values[offset] for offset in sorted(values)] for values in found]
