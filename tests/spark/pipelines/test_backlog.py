"""The backlog of a pipeline, on a simulated cluster."""

from __future__ import annotations

from spark_client import SparkClient, with_topics

from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.pipelines.backlog import backlog_of


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
