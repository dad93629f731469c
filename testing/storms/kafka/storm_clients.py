"""Clients that run beside the producers and consumers of a storm. Each judges the answers about objects that no other
client uses.

    scenario = LogScenario(..., beside={"offsets": commit_offsets, "topics": recreate_topics, "short": keep_short_log})

1. A client raises `ProduceRefused` if a broker gives an answer that a correct broker does not give. Otherwise the
   client ends by itself some time after `seconds`, the duration of the storm, once the faults are over.
2. An unknown outcome stays possible for ever: the request may still be in flight.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

import trio

from gnomon.runtime.world import Clock, Unreachable
from gnomon.testing.storms.kafka.log_checker import LogHistory, check_log
from gnomon.testing.storms.kafka.log_clients import (
    EARLIEST,
    RETRY_SECONDS,
    ProduceRefused,
    SimulatedConsumer,
    SimulatedProducer,
)
from gnomon.testing.storms.kafka.wire_client import METADATA_VERSION, WireCluster, WireConnection
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import MetadataRequest, MetadataRequestTopic, MetadataResponse
from gnomon.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

T = TypeVar("T")
StormClient: TypeAlias = Callable[[WireCluster, float], Awaitable[None]]
"""Called with its cluster and the duration of the storm in virtual seconds."""

OFFSET_COMMIT_VERSION = 8
OFFSET_FETCH_VERSION = 7
CREATE_TOPICS_VERSION = 7
DELETE_TOPICS_VERSION = 6
DELETE_RECORDS_VERSION = 2
ENTRY_HEADER_BYTES = 54
"""Bytes that a broker may count for a batch beyond those of the batch."""
ASKED_AGAIN_RATE = 0.05
"""The probability that a client looks up its coordinator again although the current one still answers."""
RETENTION_SECONDS_MAX = 60.0
"""The longest time until retention has dropped all that is due, once nothing is written."""
SNAPSHOT_BYTES = 160
"""Bytes that a broker may count for a segment beyond those of its batches."""


def one_of(*clients: StormClient) -> StormClient:
    """A client that runs one of these, drawn by each seed; it can be pickled if they can."""
    return partial(_one_of, clients)


async def _one_of(clients: Sequence[StormClient], cluster: WireCluster, seconds: float) -> None:
    await cluster.world.random("one of").choice(clients)(cluster, seconds)


async def ask_until(
    cluster: WireCluster,
    ask: Callable[[WireConnection], Awaitable[T]],
    connect: Callable[[], Awaitable[WireConnection]] | None = None,
) -> tuple[T, bool]:
    """Asks on new connections until one answers; returns the answer, and whether an earlier try may take effect too.

    Args:
        connect: connects to the broker to ask; any broker if it is None.
    """
    doubtful = False
    while True:
        connection: WireConnection | None = None
        try:
            connection = await (connect or cluster.connect)()
            return await ask(connection), doubtful
        except Unreachable:
            doubtful = doubtful or connection is not None
            await cluster.world.clock.sleep(RETRY_SECONDS)
        finally:
            if connection is not None:
                connection.close()


def expect(code: int, what: str, *allowed: ErrorCode) -> ErrorCode:
    """The error code of an answer.

    Raises:
        Unreachable: a retry may help.
        ProduceRefused: the error is neither NONE nor among `allowed`, and a retry does not help.
    """
    error = ErrorCode(code)
    if error is ErrorCode.NONE or error in allowed:
        return error
    if error.retriable:
        raise Unreachable(f"{what}: {error.name}")
    raise ProduceRefused(f"{what}: {error.name}: {error.text}")


class OffsetsHistory:
    """The possible committed offsets of a group; offsets are committed in rising order.

    1. After an offset was acknowledged or seen, no older one is seen, except one of unknown outcome.
    2. No offset is seen above the highest that was committed.
    """

    def __init__(self) -> None:
        self.floor = -1
        self.highest = -1
        self.doubtful: set[int] = set()

    def check(self, seen: int, floor: int) -> None:
        """Judges an offset that was fetched; `floor` is the floor at the time of the request."""
        if seen < floor and seen not in self.doubtful:
            raise ProduceRefused(f"the group's offset went back to {seen} after {floor} had been acknowledged or seen")
        if seen > self.highest:
            raise ProduceRefused(f"the group's offset is {seen}, although none above {self.highest} was ever committed")
        self.floor = max(self.floor, seen)


async def fetch_offset(connection: WireConnection, group: str, topic: str) -> int:
    """The group's offset of the first partition of a topic, as its coordinator answers, -1 for none; see `expect`."""
    topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    request = OffsetFetchRequest(group_id=group, topics=topics)
    answer = await connection.request(request, OFFSET_FETCH_VERSION, OffsetFetchResponse)
    expect(answer.error_code, "fetch of offsets")
    found = answer.topics[0].partitions[0]
    expect(found.error_code, "fetch of an offset")
    return found.committed_offset


async def delete_offset(connection: WireConnection, group: str, topic: str, partition: int) -> ErrorCode:
    """Deletes an offset of a group, asking its coordinator once; see `expect`.

    Returns:
        NONE, GROUP_ID_NOT_FOUND or GROUP_SUBSCRIBED_TO_TOPIC.
    """
    parts = [OffsetDeleteRequestPartition(partition_index=partition)]
    request = OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=parts)])
    answer = await connection.request(request, 0, OffsetDeleteResponse)
    what = f"deletion of the offset of {topic}"
    error = expect(answer.error_code, what, ErrorCode.GROUP_ID_NOT_FOUND)
    if error:
        return error
    return expect(answer.topics[0].partitions[0].error_code, what, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)


async def commit_offsets(
    cluster: WireCluster, seconds: float, *, group: str = "readers", commits_a_second: float = 10.0
) -> None:
    """Commits rising offsets to a group while another connection fetches them, and fetches the last one at the end."""
    history = OffsetsHistory()
    clock, stream = cluster.world.clock, cluster.world.random("offsets")

    async def commit(connection: WireConnection, offset: int) -> None:
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = OffsetCommitRequestTopic(name="orders", partitions=[part])
        request = OffsetCommitRequest(group_id=group, topics=[topic])
        answer = await connection.request(request, OFFSET_COMMIT_VERSION, OffsetCommitResponse)
        expect(answer.topics[0].partitions[0].error_code, f"commit of offset {offset}")

    fetch = partial(fetch_offset, group=group, topic="orders")

    async def watch() -> None:
        while True:
            connection: WireConnection | None = None
            try:
                connection = await cluster.coordinator(group)
                while stream.random() > ASKED_AGAIN_RATE:
                    floor = history.floor
                    history.check(await fetch(connection), floor)
                    await clock.sleep(stream.choice([0.0, stream.expovariate(10.0)]))
            except Unreachable:
                await clock.sleep(RETRY_SECONDS)
            if connection is not None:
                connection.close()

    async def commit_next(connection: WireConnection) -> None:
        history.highest = offset = history.highest + 1
        history.doubtful.add(offset)
        await commit(connection, offset)
        history.doubtful.discard(offset)
        history.floor = max(history.floor, offset)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        end = clock.monotonic() + seconds
        while clock.monotonic() < end:
            connection: WireConnection | None = None
            try:
                connection = await cluster.coordinator(group)
                while clock.monotonic() < end and stream.random() > ASKED_AGAIN_RATE:
                    await commit_next(connection)
                    await clock.sleep(stream.expovariate(commits_a_second))
            except Unreachable:
                await clock.sleep(RETRY_SECONDS)
            if connection is not None:
                connection.close()
        find = partial(cluster.coordinator, group)
        await ask_until(cluster, commit_next, find)
        floor = history.floor
        last, _ = await ask_until(cluster, fetch, find)
        history.check(last, floor)
        nursery.cancel_scope.cancel()


async def create_topic(cluster: WireCluster, name: str, configs: dict[str, str], partitions: int = 1) -> bool:
    """Creates a topic that did not exist; returns whether an earlier try may still be in flight."""

    async def create(connection: WireConnection) -> None:
        given = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=given)
        answer = await connection.request(
            CreateTopicsRequest(topics=[topic]), CREATE_TOPICS_VERSION, CreateTopicsResponse
        )
        # The request of an earlier try may have created the topic: only at the first try would this be an error.
        expect(answer.topics[0].error_code, f"creation of {name}", ErrorCode.TOPIC_ALREADY_EXISTS)

    return (await ask_until(cluster, create))[1]


async def delete_topic(cluster: WireCluster, name: str) -> bool:
    """Deletes a topic that exists; returns as `create_topic`."""

    async def delete(connection: WireConnection) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        answer = await connection.request(request, DELETE_TOPICS_VERSION, DeleteTopicsResponse)
        code = answer.responses[0].error_code
        if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            expect(code, f"deletion of {name}")

    return (await ask_until(cluster, delete))[1]


async def recreate_topics(cluster: WireCluster, seconds: float, *, lag_seconds: float = 0.0) -> None:
    """Creates a topic, fills, reads and deletes it, again and again: each life has only its own records.

    Args:
        lag_seconds: the time for which brokers may still show a topic that another broker has deleted.
    """
    clock, stream = cluster.world.clock, cluster.world.random("topics")
    end = clock.monotonic() + seconds
    life, name = 0, "reborn-0"
    while clock.monotonic() < end or not life:
        life += 1
        doubtful = await create_topic(cluster, name, {})
        await _fill_and_read(cluster, name, f"life-{life}", stream.choice([1, 5, 30]))
        doubtful |= await delete_topic(cluster, name)
        await expect_gone(cluster, name, lag_seconds)
        if doubtful:
            name = f"reborn-{life}"  # a late deletion or creation would affect the next life
        await clock.sleep(stream.expovariate(2.0))


async def _fill_and_read(cluster: WireCluster, topic: str, life: str, records: int) -> None:
    history = LogHistory()
    producer = SimulatedProducer(cluster, topic, {0: history}, name=life, batch_records_max=5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(producer.run)
        for number in range(records):
            producer.send(f"{life}/{number}".encode(), 0)
        await producer.flush()
        nursery.cancel_scope.cancel()
    history.final = await SimulatedConsumer(cluster, topic, 0, history, name="final").read_all()
    findings = check_log(history)
    if findings or len(history.final) != records:
        found = [finding.text for finding in findings] or [f"{len(history.final)} records of {records}"]
        raise ProduceRefused(f"{topic}, {life}: {'; '.join(found)}")


async def expect_gone(cluster: WireCluster, name: str, lag_seconds: float) -> None:
    """Expects that brokers do not show a deleted topic, after `lag_seconds` at the latest."""

    async def look(connection: WireConnection) -> int:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        return (await connection.request(request, METADATA_VERSION, MetadataResponse)).topics[0].error_code

    end = cluster.world.clock.monotonic() + lag_seconds
    while (code := (await ask_until(cluster, look))[0]) == ErrorCode.NONE and cluster.world.clock.monotonic() < end:
        await cluster.world.clock.sleep(RETRY_SECONDS)
    if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise ProduceRefused(f"{name} is still there after its deletion was acknowledged: {ErrorCode(code).name}")


async def keep_short_log(
    cluster: WireCluster, seconds: float, *, retention_bytes: int = 8192, segment_bytes: int = 2048
) -> None:
    """Writes to a topic with `retention.bytes`: the log keeps these bytes, without gaps, and not many more."""
    clock, stream = cluster.world.clock, cluster.world.random("short")
    configs = {"retention.bytes": str(retention_bytes), "segment.bytes": str(segment_bytes)}
    await create_topic(cluster, "short", configs)
    history = LogHistory()
    producer = SimulatedProducer(cluster, "short", {0: history}, name="short", batch_records_max=5)
    reader = SimulatedConsumer(cluster, "short", 0, history, name="short-reader")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(producer.run)
        nursery.start_soon(reader.run)
        end, number = clock.monotonic() + seconds, 0
        while clock.monotonic() < end or number < 100:
            producer.send(f"short/{number}".encode().ljust(stream.choice([10, 100, 500]), b"."), 0)
            number += 1
            await clock.sleep(stream.expovariate(150 / seconds))
        await producer.flush()
        nursery.cancel_scope.cancel()
    final = SimulatedConsumer(cluster, "short", 0, history, name="final")
    kept_bytes_max = retention_bytes + 2 * segment_bytes
    history.final = await _read_until_kept(final, clock, kept_bytes_max)
    history.log_start_offset = history.final[0][0] if history.final else 0
    findings = [finding.text for finding in check_log(history)]
    kept, segments = final.batches_bytes, final.batches_bytes // segment_bytes + 1
    counted = kept + ENTRY_HEADER_BYTES * final.batches + SNAPSHOT_BYTES * segments
    if history.log_start_offset and counted < retention_bytes:
        findings.append(f"{kept} bytes in {final.batches} batches are left, retention.bytes is {retention_bytes}")
    if kept > kept_bytes_max:
        findings.append(f"{kept} bytes are kept, retention.bytes is {retention_bytes}")
    if findings:
        raise ProduceRefused("short log: " + "; ".join(findings))


async def _read_until_kept(consumer: SimulatedConsumer, clock: Clock, bytes_max: int) -> list[tuple[int, bytes]]:
    """The records that retention finally keeps; it runs every second once the partition is in use.

    A commit that a slow disk has begun to sync may delay it by some seconds more.
    """
    found, last = await consumer.read_all(), clock.monotonic() + RETENTION_SECONDS_MAX
    while True:
        await clock.sleep(5.0)
        before, found = found, await consumer.read_all()
        if found == before and (consumer.batches_bytes <= bytes_max or clock.monotonic() > last):
            return found


async def delete_records(
    cluster: WireCluster,
    seconds: float,
    topic: str,
    partition: int,
    history: LogHistory,
    *,
    every_seconds: float = 1.0,
    truncate_rate: float = 0.0,
) -> None:
    """Moves the start of a log forward at times; the start never goes back, and never beyond the requested offset.

    Args:
        every_seconds: the mean time between deletions.
        truncate_rate: the share of deletions up to the log's end, as `truncate` makes them; others end before it.
    """
    clock, stream = cluster.world.clock, cluster.world.random("deletions")
    reader = SimulatedConsumer(cluster, topic, partition, history, name="deletions")
    leader = partial(cluster.leader, topic, partition)
    acknowledged = 0
    end = clock.monotonic() + seconds
    while clock.monotonic() < end:
        await clock.sleep(stream.expovariate(1 / every_seconds))
        wanted = 1.0 if truncate_rate and stream.random() < truncate_rate else stream.random()

        async def delete(connection: WireConnection, wanted: float = wanted) -> int:
            start, stop = await reader.offset(connection, EARLIEST), await reader.offset(connection, -1)
            before = round(start + (stop - start) * wanted)
            history.log_start_offset = max(history.log_start_offset, before)
            part = DeleteRecordsPartition(partition_index=partition, offset=before)
            asked = DeleteRecordsTopic(name=topic, partitions=[part])
            request = DeleteRecordsRequest(topics=[asked], timeout_ms=5000)
            answer = await connection.request(request, DELETE_RECORDS_VERSION, DeleteRecordsResponse)
            found = answer.topics[0].partitions[0]
            expect(found.error_code, f"deletion of records below {before}")
            if not before <= found.low_watermark <= history.log_start_offset:
                raise ProduceRefused(
                    f"after a deletion of records below {before} the log starts at {found.low_watermark}"
                )
            return found.low_watermark

        with trio.move_on_after(max(0.0, end - clock.monotonic())):
            acknowledged = max(acknowledged, (await ask_until(cluster, delete, leader))[0])

    start, _ = await ask_until(cluster, lambda connection: reader.offset(connection, EARLIEST), leader)
    if not acknowledged <= start <= history.log_start_offset:
        raise ProduceRefused(
            f"{topic}-{partition} starts at {start}, not from {acknowledged} to {history.log_start_offset} as requested"
        )
