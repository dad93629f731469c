"""A read of a partition through its leader: the batches of a range, without a consumer or a group."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from sent_requests import SentRequests
from spark_client import SIZES, SparkClient, with_topics

from gnomon.client.kafka.fetching import read_batches
from gnomon.client.kafka.groups import commit_offsets
from gnomon.client.kafka.offsets import find_offsets
from gnomon.client.kafka.producing import append
from gnomon.client.kafka.topic_partition import EARLIEST, LATEST, TopicPartition
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.records import Record, build_batch

PLACE = TopicPartition("orders", 0)


async def read(client: SparkClient, start: int, stop: int) -> list[tuple[int, int]]:
    """The first and the next offset of each batch."""
    topic_id = (await client.cluster.topic(PLACE.topic)).id
    async with aclosing(read_batches(client.cluster, PLACE, topic_id, start, stop)) as parts:
        headers = [parse_batch(batch) async for part in parts for batch in part.batches]
    return [(header.base_offset, header.next_offset) for header in headers]


def test_the_batches_of_a_range_are_read_and_the_first_and_the_last_may_have_more() -> None:
    async def work(client: SparkClient) -> None:
        whole = [(base, base + 5) for base in range(0, SIZES["orders"][0], 5)]
        assert await read(client, 0, 30) == whole
        assert await read(client, 7, 16) == whole[1:4]
        assert await read(client, 7, 7) == []

    with_topics(work)


def test_a_read_of_a_partition_asks_for_leaders_and_records_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: SparkClient) -> None:
        sent = SentRequests(monkeypatch)
        client.cluster.forget(PLACE.topic)
        await find_offsets(client.cluster, {PLACE: EARLIEST})
        await find_offsets(client.cluster, {PLACE: LATEST})
        assert sent.keys == {ApiKey.METADATA, ApiKey.LIST_OFFSETS}
        await read(client, 0, 30)
        assert sent.of_groups == set()
        assert sent.keys == {ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.FETCH}

    with_topics(work)


def test_a_long_range_is_fetched_one_mebibyte_at_a_time() -> None:
    async def work(client: SparkClient) -> None:
        place = TopicPartition("others", 0)
        records = [Record(0, 0, None, b"x" * 100_000)]
        for _ in range(32):
            await append(client.cluster, place, build_batch(records, base_timestamp=0))
        topic_id = (await client.cluster.topic(place.topic)).id
        async with aclosing(read_batches(client.cluster, place, topic_id, 5, 37)) as parts:
            sizes = [sum(map(len, part.batches)) async for part in parts]
        assert sum(sizes) > 3 << 20
        assert max(sizes) <= 1 << 20
        assert min(sizes[:-1]) > (1 << 20) - 101_000

    with_topics(work)


def test_the_requests_of_groups_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: SparkClient) -> None:
        sent = SentRequests(monkeypatch)
        await commit_offsets(client.cluster, "readers", {PLACE: 7})
        assert sent.of_groups == {ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_COMMIT}

    with_topics(work)
