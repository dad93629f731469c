"""Fetch through a whole broker: long polls, limits, sessions, errors (numbers: invariants of `fetch`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from gnomon.broker.kafka import fetch
from gnomon.broker.kafka.long_poll import PARTITIONS_PER_TURN, LongPoll
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import ApiVersionsRequest
from gnomon.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gnomon.wire.kafka.messages.positions import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gnomon.wire.kafka.records import Record, build_batch

pytestmark = pytest.mark.usefixtures("either_poll")

VERSIONS = range(4, 19)


def _batch(count: int = 1, value: bytes = b"v") -> bytes:
    records = [Record(offset_delta=number, key=None, value=value) for number in range(count)]
    return build_batch(records, base_timestamp=1)


def _offsets(records: Any) -> list[tuple[int, int]]:
    """(first, next) offset of every batch."""
    view, found = memoryview(bytes(records)), []
    while len(view):
        header = parse_batch(view)
        found.append((header.base_offset, header.next_offset))
        view = view[header.size_bytes :]
    return found


async def _filled(broker: EmbeddedBroker, *counts: int, partitions: int = 1) -> BrokerClient:
    client = await broker.connect()
    await client.create_topic("t", partitions)
    for count in counts:
        await client.produce("t", _batch(count))
    return client


@pytest.mark.parametrize("version", VERSIONS)
def test_whole_batches_are_fetched_in_every_version(version: int) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await _filled(broker, 2, 3, 1)
        found = await client.fetch("t", 0, version=version)
        assert _offsets(found.records) == [(0, 2), (2, 5), (5, 6)]
        assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 6, 6)
        assert found.log_start_offset == (0 if version >= 5 else -1)
        inside = await client.fetch("t", 3, version=version)
        assert _offsets(inside.records) == [(2, 5), (5, 6)]
        end = await client.fetch("t", 6, version=version, max_wait_ms=0)
        assert (end.error_code, end.records) == (0, b"")

    simulate_broker(scenario)


def test_a_poll_is_answered_when_records_arrive() -> None:  # invariant 2
    async def scenario(broker: EmbeddedBroker) -> None:
        client, producer = await _filled(broker, 1), await broker.connect()
        poll = client.connection.send(client.fetch_request("t", 1, max_wait_ms=8000), 11)
        await broker.simulation.sleep(1)
        assert not poll.settled.is_set()
        await producer.produce("t", _batch())
        await broker.simulation.sleep(0.1)
        assert poll.settled.is_set()
        answer: Any = poll.message
        assert _offsets(answer.responses[0].partitions[0].records) == [(1, 2)]

    simulate_broker(scenario)


def test_a_poll_is_answered_empty_at_its_deadline() -> None:  # invariant 2
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await _filled(broker, 1)
        poll = client.connection.send(client.fetch_request("t", 1, max_wait_ms=3000), 11)
        await broker.simulation.sleep(2.9)
        assert not poll.settled.is_set()
        await broker.simulation.sleep(0.2)
        assert poll.settled.is_set()

    simulate_broker(scenario)


@pytest.mark.parametrize("more", [0, 1])
def test_a_poll_opens_many_partitions_over_several_turns(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    long: list[LongPoll] = []

    class Seen(LongPoll):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            long.append(self)

    monkeypatch.setattr(fetch, "LongPoll", Seen)
    monkeypatch.setattr(fetch, "ELEMENTS_AT_ONCE", 1_000)
    count = fetch.OPENINGS_AT_ONCE + more

    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("wide", partitions=count)
        partitions = [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(count)]
        wide = [FetchTopic(topic="wide", partitions=partitions)]
        asked = FetchRequest(replica_id=-1, max_wait_ms=100, min_bytes=1, session_epoch=-1, topics=wide)
        for _ in range(2):
            (topic,) = (await client.ask(asked, 11)).responses
            assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
                (index, 0) for index in range(count)
            ]
            assert len(long) == more, "only the first poll has to open them"

    simulate_broker(scenario)


def test_a_poll_is_answered_when_another_request_arrives_after_it() -> None:  # invariant 2
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await _filled(broker, 1)
        poll = client.connection.send(client.fetch_request("t", 1, max_wait_ms=9000), 11)
        await broker.simulation.sleep(1)
        assert not poll.settled.is_set()
        assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0
        assert poll.settled.is_set()

    simulate_broker(scenario)


@pytest.mark.parametrize("openings", [0, 100])
def test_a_poll_cut_short_by_another_request_still_waits_for_its_partition_to_open(  # invariant 2
    monkeypatch: pytest.MonkeyPatch, openings: int
) -> None:
    monkeypatch.setattr(fetch, "ELEMENTS_AT_ONCE", 10)  # a long request holds its connection: none comes after it
    monkeypatch.setattr(fetch, "OPENINGS_AT_ONCE", openings)

    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        poll = client.connection.send(client.fetch_request("t", 0, max_wait_ms=9000), 11)
        client.connection.send(ApiVersionsRequest(), 0)
        await broker.simulation.sleep(1)
        assert poll.settled.is_set()
        answer: Any = poll.message
        fetched = answer.responses[0].partitions[0]
        assert (fetched.error_code, fetched.high_watermark) == (0, 0)

    for seed in range(8):  # the other request comes before the partition is open, or after
        simulate_broker(scenario, seed=seed)


def test_a_poll_whose_client_disconnects_is_removed() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await _filled(broker, 1)
        in_use = [used.partition for used in broker.serving.broker.partitions.with_own_log()]
        (partition,) = [one for one in in_use if one.log and one.log.next_offset]
        client.connection.send(client.fetch_request("t", 1, max_wait_ms=9000), 11)
        await broker.simulation.sleep(1)
        assert len(partition._waiters) == 1
        client.connection.close()
        await broker.simulation.sleep(1)
        assert len(partition._waiters) == 0
        assert broker.serving.metrics.connections == broker.server.request_bytes == 0

    simulate_broker(scenario)


def test_a_poll_waits_for_its_min_bytes_and_not_without_any() -> None:  # invariant 2
    async def scenario(broker: EmbeddedBroker) -> None:
        client, producer = await _filled(broker, 1), await broker.connect()
        size = len(_batch())
        poll = client.connection.send(client.fetch_request("t", 0, max_wait_ms=9000, min_bytes=3 * size), 11)
        await broker.simulation.sleep(0.5)
        await producer.produce("t", _batch())
        await broker.simulation.sleep(0.5)
        assert not poll.settled.is_set()
        await producer.produce("t", _batch())
        await broker.simulation.sleep(0.5)
        answer: Any = poll.message
        assert _offsets(answer.responses[0].partitions[0].records) == [(0, 1), (1, 2), (2, 3)]
        poll = client.connection.send(client.fetch_request("t", 3, max_wait_ms=9000, min_bytes=0), 11)
        await broker.simulation.sleep(0.1)
        assert poll.settled.is_set()

    simulate_broker(scenario)


def test_the_first_batch_is_returned_in_spite_of_the_limits_and_later_ones_obey_them() -> None:  # invariant 3
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await _filled(broker, 1, 1, 1, partitions=2)
        await client.produce("t", _batch(), 1)
        size = len(_batch())
        for limit, count in ((0, 1), (1, 1), (size, 1), (2 * size, 2), (2 * size + 1, 2), (1 << 20, 3)):
            assert len(_offsets((await client.fetch("t", 0, bytes_max=limit)).records)) == count
            assert len(_offsets((await client.fetch("t", 0, max_bytes=limit)).records)) == count
        request = client.fetch_request("t", 0, max_bytes=1)
        item = request.topics[0].partitions[0]
        request.topics[0].partitions.append(type(item)(partition=1, fetch_offset=0, partition_max_bytes=1 << 20))
        first, second = (await client.ask(request, 11)).responses[0].partitions
        assert (len(_offsets(first.records)), second.records) == (1, b"")

    simulate_broker(scenario)


@pytest.mark.parametrize("version", [4, 9, 12, 13, 18])
def test_a_partition_that_cannot_be_fetched_is_answered_at_once_with_its_error(version: int) -> None:  # invariant 2
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await _filled(broker, 2)
        by_id = version >= 13

        async def error(topic: str, offset: int, partition: int = 0, **fields: Any) -> int:
            found = await client.fetch(topic, offset, partition, version=version, max_wait_ms=60_000, **fields)
            assert found.records == b""
            return found.error_code

        assert await error("t", 3) == await error("t", -1) == ErrorCode.OFFSET_OUT_OF_RANGE
        assert await error("t", 0, 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await error("missing", 0) == missing
        if version >= 9:
            assert await error("t", 0, epoch=1) == ErrorCode.UNKNOWN_LEADER_EPOCH
            await broker.restart()
            again = await broker.connect()
            again.topic_ids = client.topic_ids
            client = again
            assert (await client.fetch("t", 0, version=version, epoch=1)).error_code == 0
            assert await error("t", 0, epoch=0) == ErrorCode.FENCED_LEADER_EPOCH

    simulate_broker(scenario)


def test_a_session_gets_only_changes() -> None:  # KIP-227
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await _filled(broker, 1, partitions=3)
        request = client.fetch_request("t", 0, session_epoch=0)
        item = request.topics[0].partitions[0]
        request.topics[0].partitions = [
            type(item)(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(3)
        ]
        for index in range(3):  # opened, so that their marks are known
            await client.fetch("t", 0, index, max_wait_ms=100)
        full = await client.ask(request, 11)
        assert full.session_id > 0
        assert [one.partition_index for one in full.responses[0].partitions] == [0, 1, 2]

        async def poll(epoch: int, **fields: Any) -> Any:
            given = {"topics": [], "max_wait_ms": 100, **fields}
            return await client.ask(
                client.fetch_request("t", 0, session_id=full.session_id, session_epoch=epoch, **given), 11
            )

        moved = client.fetch_request("t", 1).topics
        assert (await poll(1, topics=moved)).responses == []
        await client.produce("t", _batch(), 2)
        news = await poll(2)
        assert [one.partition_index for one in news.responses[0].partitions] == [2]
        assert (await poll(2)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        ended = await poll(-1)
        assert (ended.error_code, ended.session_id) == (0, 0)
        assert (await poll(3)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    simulate_broker(scenario)


def test_an_unopened_partition_is_fetched_after_a_restart() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await _filled(broker, 2)
        await broker.restart()
        client = await broker.connect()
        assert _offsets((await client.fetch("t", 0, max_wait_ms=5000)).records) == [(0, 2)]

    simulate_broker(scenario)


def test_a_flipped_bit_is_an_error_for_readers_of_its_partition_only() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await _filled(broker, 1)
        await client.create_topic("sound")
        broker.machine.disk.flip_bit(Path("/data/bookie"), "entries")
        await broker.simulation.sleep(1)
        assert (await client.fetch("t", 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        wanted = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=0)])
        response = await client.ask(ListOffsetsRequest(topics=[wanted]), 7)
        assert response.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.produce("sound", _batch())).error_code == 0

    simulate_broker(scenario)


def test_a_poll_of_many_partitions_is_answered_over_several_turns_and_names_each_partition() -> None:
    count = 2 * PARTITIONS_PER_TURN + 1

    async def scenario(broker: EmbeddedBroker) -> None:
        client, other = await broker.connect(), await broker.connect()
        await client.create_topic("wide", partitions=count)
        await client.produce("wide", build_batch([Record(value=b"x")], base_timestamp=1), partition=7)
        partitions = [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(count)]
        asked = FetchRequest(
            replica_id=-1,
            max_wait_ms=5_000,
            min_bytes=1,
            session_epoch=-1,
            topics=[FetchTopic(topic="wide", partitions=partitions)],
        )
        (topic,) = (await client.ask(asked, 11)).responses
        assert [each.partition_index for each in topic.partitions] == list(range(count))
        assert [each.partition_index for each in topic.partitions if each.records] == [7]
        partitions[7].fetch_offset = 1
        began = trio.current_time()
        waiting = client.connection.send(asked, 11)
        await broker.simulation.sleep(1)
        await other.produce("wide", build_batch([Record(value=b"y")], base_timestamp=1), partition=count - 1)
        answer = await client.connection.wait(waiting)
        assert 1 <= trio.current_time() - began < 1.5
        assert [each.partition_index for each in answer.responses[0].partitions if each.records] == [count - 1]

    simulate_broker(scenario)
