"""The backlog of a pipeline, on a simulated cluster."""

from __future__ import annotations

from spark_client import SparkClient, with_topics

from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.offsets import Offsets
from gnomon.spark.pipelines.backlog import backlog_of, first_offsets


def test_a_backlog_ends_where_the_log_or_the_source_does() -> None:
    async def work(client: SparkClient) -> None:
        options = client.options(streaming=True, startingOffsets="earliest")
        found = await backlog_of(client.cluster, options, None)
        assert [(each.position, each.end, each.records) for each in found] == [(0, 30, 30), (0, 20, 20), (0, 0, 0)]
        ends = {"endingOffsets": '{"orders":{"0":7,"1":99,"2":-1}}'}
        options = client.options(streaming=True, startingOffsets="earliest", **ends)
        read = {TopicPartition("orders", 0): 9, TopicPartition("orders", 1): 4}
        found = await backlog_of(client.cluster, options, read)
        assert [(each.position, each.end, each.records) for each in found] == [(9, 7, 0), (4, 20, 16), (0, 0, 0)]

    with_topics(work)


def test_a_pipeline_that_has_finished_no_batch_starts_where_its_first_driver_did() -> None:
    async def work(client: SparkClient) -> None:
        async def first(recorded: Offsets | None) -> list[int]:
            found = await first_offsets(client.cluster, client.options(streaming=True), recorded)
            return [offset for _, offset in sorted(found.items())]

        assert await first(None) == [30, 20, 0], "at the latest offsets"
        recorded = {TopicPartition("orders", partition): offset for partition, offset in enumerate([30, 20, 0])}
        await client.produce("orders", 2, 0)
        await client.grow("orders", 4)
        await client.produce("orders", 3, 0)
        assert await first(recorded) == [30, 20, 0, 0], "and at the beginning of a partition that was added"
        assert await first(None) == [30, 20, 5, 5]

    with_topics(work)
