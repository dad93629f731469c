"""The batches of a stream, on a simulated cluster: no JVM is needed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from sent_requests import SentRequests
from spark_client import START_MS, SparkClient, with_topics

from gnomon.client.kafka.brokers import UnknownTopic
from gnomon.client.kafka.groups import commit_offsets
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.columns import SCHEMA
from gnomon.spark.offsets import BadOption
from gnomon.spark.planning import DataLost
from gnomon.spark.streaming import StreamPlan

ENDS = {0: 30, 1: 20, 2: 0}


class Stream:
    """A driver and its tasks; `now` is its clock."""

    def __init__(self, client: SparkClient, **given: str) -> None:
        self.client, self.now = client, 100.0
        options = client.options(streaming=True, **given)
        self.plan = StreamPlan(client.cluster, options, SCHEMA.names, lambda: self.now, client.warnings.append)

    async def batch(self, start: Mapping[int, int], offsets_max: int | None = None) -> dict[int, int]:
        """The end of the batch that starts there."""
        return short(await self.plan.next_end(long(start), offsets_max))

    async def places(self, start: Mapping[int, int], end: Mapping[int, int]) -> list[tuple[int, int]]:
        found = []
        for task in await self.plan.tasks(long(start), long(end)):
            found += [(row["partition"], row["offset"]) for row in await self.client.rows_of(task)]
        return found


def long(offsets: Mapping[int, int]) -> dict[TopicPartition, int]:
    return {TopicPartition("orders", partition): offset for partition, offset in offsets.items()}


def short(offsets: Mapping[TopicPartition, int]) -> dict[int, int]:
    return {place.partition: offset for place, offset in offsets.items()}


def test_a_stream_starts_at_the_end_unless_it_is_told_where() -> None:
    async def work(client: SparkClient) -> None:
        assert short(await Stream(client).plan.initial()) == ENDS
        assert short(await Stream(client, startingOffsets="earliest").plan.initial()) == {0: 0, 1: 0, 2: 0}
        given = '{"orders":{"0":5,"1":-1,"2":-2}}'
        assert short(await Stream(client, startingOffsets=given).plan.initial()) == {0: 5, 1: 20, 2: 0}
        late = Stream(client, startingTimestamp=str(START_MS + 25), startingOffsetsByTimestampStrategy="latest")
        assert short(await late.plan.initial()) == {0: 25, 1: 20, 2: 0}
        with pytest.raises(UnknownTopic):
            await Stream(client, subscribe="missing").plan.initial()

    with_topics(work)


def test_a_stream_that_is_asked_again_for_its_start_has_the_same_one() -> None:
    async def work(client: SparkClient) -> None:
        stream = Stream(client)
        start = short(await stream.plan.initial())
        end = await stream.batch(start)
        await client.produce("orders", 0, ENDS[0])
        assert short(await stream.plan.initial()) == start
        assert await stream.places(start, end) == []
        later = await stream.batch(end)
        assert later != end
        assert {partition for partition, _ in await stream.places(end, later)} == {0}

    with_topics(work)


def test_batches_follow_each_other_within_their_limit() -> None:
    async def work(client: SparkClient) -> None:
        stream, start, sizes = Stream(client), {0: 0, 1: 0, 2: 0}, []
        while (end := await stream.batch(start, 13)) != start:
            places = await stream.places(start, end)
            assert places == [(at, offset) for at in sorted(end) for offset in range(start[at], end[at])]
            sizes.append(len(places))
            start = end
        assert (start, sizes) == (ENDS, [13, 13, 13, 11])
        await client.produce("orders", 2, 0)
        assert await stream.batch(start) == {**ENDS, 2: 5}

    with_topics(work)


def test_a_batch_waits_for_enough_records_but_not_longer_than_allowed() -> None:
    async def work(client: SparkClient) -> None:
        stream = Stream(client, minOffsetsPerTrigger="20", maxTriggerDelay="30s")
        assert await stream.batch({0: 25, 1: 20, 2: 0}) == ENDS  # the first
        await client.produce("orders", 2, 0)
        stream.now += 29
        assert await stream.batch(ENDS) == ENDS
        stream.now += 1
        assert await stream.batch(ENDS) == {**ENDS, 2: 5}
        for first in (5, 10, 15, 20):
            await client.produce("orders", 2, first)
        assert await stream.batch({**ENDS, 2: 5}) == {**ENDS, 2: 25}

    with_topics(work)


def test_a_partition_that_was_added_is_read_from_its_start() -> None:
    async def work(client: SparkClient) -> None:
        stream = Stream(client)
        assert await stream.batch(ENDS) == ENDS
        await client.grow("orders", 4)
        await client.produce("orders", 3, 0)
        assert await stream.batch(ENDS) == {**ENDS, 3: 5}
        assert await stream.places(ENDS, {**ENDS, 3: 5}) == [(3, offset) for offset in range(5)]

    with_topics(work)


def test_the_deleted_start_of_a_partition_that_was_added_is_counted() -> None:
    async def work(client: SparkClient) -> None:
        stream = Stream(client, failOnDataLoss="false")
        assert await stream.batch(ENDS) == ENDS
        await client.grow("orders", 4)
        for first in (0, 5):
            await client.produce("orders", 3, first)
        await client.delete_before(3, 7)
        end = await stream.batch(ENDS)
        assert await stream.places(ENDS, end) == [(3, offset) for offset in range(7, 10)]
        assert client.warnings == [
            "partition 3 of topic 'orders': it was added, and begins at offset 7; lost offsets: 7"
        ]

    with_topics(work)


def test_a_stream_with_a_target_ends_at_the_offsets_and_partitions_of_that_time() -> None:
    async def work(client: SparkClient) -> None:
        stream = Stream(client, minOffsetsPerTrigger="1000")
        await stream.plan.take_target()
        await client.produce("orders", 2, 0)
        await client.grow("orders", 4)
        await client.produce("orders", 3, 0)
        start, batches = {0: 0, 1: 0, 2: 0}, 0
        while (end := await stream.batch(start, 30)) != start:
            start, batches = end, batches + 1
        assert (start, batches) == (ENDS, 2)
        assert short(await stream.plan.ends()) == {**ENDS, 2: 5, 3: 5}

    with_topics(work)


def test_a_stream_with_a_target_does_not_go_beyond_its_end() -> None:
    async def work(client: SparkClient) -> None:
        ends = {"endingOffsets": '{"orders":{"0":7,"1":99,"2":-1}}'}
        stream = Stream(client, **ends)
        with pytest.raises(BadOption, match="endingOffsets: a stream has an end only with trigger"):
            await stream.batch(ENDS)
        await stream.plan.take_target()
        assert await stream.batch({0: 0, 1: 0, 2: 0}) == {0: 7, 1: 20, 2: 0}
        assert await stream.batch({0: 7, 1: 20, 2: 0}) == {0: 7, 1: 20, 2: 0}
        beyond = {0: 30, 1: 3, 2: 0}
        assert await stream.batch(beyond) == {0: 30, 1: 20, 2: 0}, "a stream that was there already stays"
        by_time = Stream(client, endingTimestamp=str(START_MS + 18))
        await by_time.plan.take_target()
        assert await by_time.batch({0: 0, 1: 0, 2: 0}) == {0: 18, 1: 18, 2: 0}
        assert not client.warnings

    with_topics(work)


def test_a_batch_that_an_earlier_driver_planned_is_read_again() -> None:
    async def work(client: SparkClient) -> None:
        found = await Stream(client).places({0: 3, 1: 20}, {0: 9, 1: 20, 2: 0})
        assert found == [(0, offset) for offset in range(3, 9)]

    with_topics(work)


def test_records_that_were_deleted_are_reported() -> None:
    async def work(client: SparkClient) -> None:
        await client.delete_before(0, 12)
        with pytest.raises(DataLost, match="the read is of offsets 3 to 20, the log has 12 to 30"):
            await Stream(client).places({0: 3}, {0: 20})
        found = await Stream(client, failOnDataLoss="false").places({0: 3}, {0: 20})
        assert found == [(0, offset) for offset in range(12, 20)]
        (warning,) = client.warnings
        assert warning.endswith("the read is of offsets 3 to 20, the log has 12 to 30; lost offsets: 9")

    with_topics(work)


def test_a_topic_that_was_deleted_is_reported_and_its_partitions_leave_the_stream() -> None:
    async def work(client: SparkClient) -> None:
        strict = Stream(client, subscribe="orders,others")
        lax = Stream(client, subscribe="orders,others", failOnDataLoss="false")
        start = await strict.plan.ends()
        await client.delete("others")
        with pytest.raises(DataLost, match="partition 0 of topic 'others': it was deleted, the stream was at offset 5"):
            await strict.plan.next_end(start, None)
        assert await lax.plan.next_end(start, None) == long(ENDS)
        place = "partition 0 of topic 'others'"
        assert client.warnings == [f"{place}: it was deleted, the stream was at offset 5; lost offsets: unknown"]
        with pytest.raises(DataLost, match="it was deleted, the batch ends at offset 5"):
            await strict.plan.tasks({}, start)
        client.warnings.clear()
        assert await lax.plan.tasks(start, start) == []
        before = {**start, TopicPartition("others", 0): 2}
        assert await lax.plan.tasks(before, start) == []
        assert client.warnings == [
            f"{place}: it was deleted, the batch ends at offset 5; lost offsets: {lost}" for lost in (0, 3)
        ]

    with_topics(work)


def test_a_topic_that_was_created_again_is_read_from_its_start() -> None:
    async def work(client: SparkClient) -> None:
        strict, lax = Stream(client), Stream(client, failOnDataLoss="false")
        for stream in (strict, lax):
            assert await stream.batch(ENDS) == ENDS
        await client.delete("orders")
        await client.create("orders", 3)
        for first in range(0, 40, 5):
            await client.produce("orders", 0, first)
        for _ in range(2):
            with pytest.raises(
                DataLost, match="partition 0 of topic 'orders': its topic was deleted and created again"
            ):
                await strict.batch(ENDS)
        again = await lax.batch(ENDS)
        assert again == {0: 0, 1: 0, 2: 0}
        assert await lax.places(ENDS, again) == []
        end = await lax.batch(again)
        assert end == {0: 40, 1: 0, 2: 0}
        assert await lax.places(again, end) == [(0, offset) for offset in range(40)]

    with_topics(work)


def test_a_stream_beyond_the_end_of_its_log_is_reported_and_read_from_the_start() -> None:
    async def work(client: SparkClient) -> None:
        beyond = {**ENDS, 1: 21}
        with pytest.raises(
            DataLost, match="partition 1 of topic 'orders': its log ends at 20, the stream was at offset 21"
        ):
            await Stream(client).batch(beyond)
        lax = Stream(client, failOnDataLoss="false")
        assert await lax.batch(beyond) == {**ENDS, 1: 0}
        assert await lax.batch({**ENDS, 1: 0}) == ENDS

    with_topics(work)


def test_a_stream_without_a_group_sends_no_request_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: SparkClient) -> None:
        sent = SentRequests(monkeypatch)
        stream = Stream(client, via="brokers", startingOffsets="earliest")
        start = short(await stream.plan.initial())
        end = await stream.batch(start)
        assert len(await stream.places(start, end)) == 50
        assert await stream.batch(end) == end
        assert sent.of_groups == set()

    with_topics(work)


def test_a_stream_with_a_group_reads_nothing_from_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group has offsets in the middle of the partitions; the stream starts where its options say."""

    async def work(client: SparkClient) -> None:
        await commit_offsets(client.cluster, "readers", long({0: 7, 1: 9}))
        sent = SentRequests(monkeypatch)
        assert short(await Stream(client, group="readers").plan.initial()) == ENDS
        stream = Stream(client, group="readers", startingOffsets="earliest")
        start = short(await stream.plan.initial())
        end = await stream.batch(start)
        assert (start, end) == ({0: 0, 1: 0, 2: 0}, ENDS)
        assert len(await stream.places(start, end)) == 50
        assert sent.of_groups == set()

    with_topics(work)
