"""Metrics of single topics and groups (numbers: invariants of `topic_metrics`)."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import trio
from prometheus_client.parser import text_string_to_metric_families

from gnomon.broker.topic_metrics import COLLECT_SECONDS, TopicMetrics
from gnomon.broker.topics.topic_image import TopicImage
from gnomon.log.topic import Topic
from gnomon.runtime.metrics import Metrics, TopicTraffic
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gnomon.wire.kafka.messages.topics import DeleteTopicsRequest
from gnomon.wire.kafka.records import Record, build_batch


def samples(broker: EmbeddedBroker) -> dict[tuple[str, ...], float]:
    """The metrics of topics and groups by name and labels."""
    page = broker.serving.metrics.render()[0].decode()
    found = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    return {
        (each.name.removeprefix("gnomon_"), *each.labels.values()): each.value
        for each in found
        if each.name.startswith(("gnomon_topic", "gnomon_group_lag", "gnomon_group_topics"))
    }


async def commit(client: BrokerClient, group: str, topic: str, offset: int) -> None:
    """Commits an offset for a group without members."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])])
    answer = await client.ask(request, 7)
    assert answer.topics[0].partitions[0].error_code == 0


async def produce(client: BrokerClient, topic: str, records: int, version: int = 9) -> int:
    """Produces one batch; returns its bytes."""
    batch = build_batch([Record(offset_delta=each, value=b"x") for each in range(records)], base_timestamp=1)
    assert (await client.produce(topic, batch, version=version)).error_code == 0
    return len(batch)


def test_topics_have_their_traffic_and_size_and_groups_their_lag() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        for name in ("orders", "flights"):
            await client.create_topic(name)
        count = await produce(client, "orders", 3)
        count += await produce(client, "orders", 2)  # takes the shortcut of equal requests
        count += await produce(client, "orders", 1, version=13)  # names the topic by its id
        fetched = await client.fetch("orders", 0)
        fetched_by_id = await client.fetch("orders", 0, version=13)
        await commit(client, "billing", "orders", 4)
        await commit(client, "billing", "flights", 0)  # was not used since the start
        await trio.sleep(2 * COLLECT_SECONDS)
        found = samples(broker)
        assert found["topic_bytes_in_total", "orders"] == count
        assert found["topic_records_in_total", "orders"] == 6
        assert fetched.records is not None
        assert fetched_by_id.records is not None
        assert found["topic_bytes_out_total", "orders"] == len(fetched.records) + len(fetched_by_id.records)
        assert found["topic_size_bytes", "orders"] >= count
        assert found["group_lag_records", "billing", "orders"] == 2
        assert found["group_lag_unknown_partitions", "billing", "orders"] == 0
        assert found["group_lag_unknown_partitions", "billing", "flights"] == 1
        assert found["topics_left_out",] == 0

    simulate_broker(scenario, label_sets_max=10)


def test_topics_and_groups_beyond_the_bound_are_summed_and_counted() -> None:  # invariant 2
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        for name in ("first", "second", "third"):
            await client.create_topic(name)
            await produce(client, name, 2)
            await commit(client, "billing", name, 1)
        await trio.sleep(2 * COLLECT_SECONDS)
        found = samples(broker)
        labelled = [labels for name, *labels in found if name == "topic_records_in_total"]
        assert labelled == [["first"], ["(others)"]]
        assert found["topic_records_in_total", "first"] == 2
        assert found["topic_records_in_total", "(others)"] == 4
        assert found["topics_left_out",] == 3  # with __consumer_offsets
        assert [labels for name, *labels in found if name == "group_lag_records"] == [
            ["billing", "first"],
            ["(others)", "(others)"],
        ]
        assert found["group_lag_records", "(others)", "(others)"] == 2
        assert found["group_topics_left_out",] == 2

    simulate_broker(scenario, label_sets_max=1)


def test_a_deleted_topic_gives_its_place_to_another() -> None:  # invariant 2
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        for name in ("first", "second"):
            await client.create_topic(name)
            await produce(client, name, 2)
        await trio.sleep(2 * COLLECT_SECONDS)
        assert "first" in {labels[0] for name, *labels in samples(broker) if labels}
        deleted = await client.ask(DeleteTopicsRequest(topic_names=["first"], timeout_ms=1000), 5)
        assert deleted.responses[0].error_code == 0
        await trio.sleep(2 * COLLECT_SECONDS)
        assert {labels[0] for name, *labels in samples(broker) if labels} == {"second"}

    simulate_broker(scenario, label_sets_max=1)


def test_without_the_setting_nothing_is_counted_by_topic() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        await produce(client, "orders", 2)
        await trio.sleep(2 * COLLECT_SECONDS)
        assert samples(broker) == {}
        assert broker.serving.metrics.traffic is None

    simulate_broker(scenario)


class SlowLeaders:
    """The other parts of a broker: its topic gets a record during each question to other leaders."""

    def __init__(self) -> None:
        self.traffic = TopicTraffic()
        self.image = TopicImage()
        self.image.put(Topic("orders", UUID(int=1), 1, {}))
        self.batch = memoryview(build_batch([Record(value=b"x")], base_timestamp=1))

    async def elsewhere(self, topics: list[Topic]) -> dict[tuple[str, int], int]:
        """See `LogEnds.elsewhere`."""
        self.traffic.received("orders", self.batch)
        self.traffic.sent("orders", 7)
        return {}

    def committed(self) -> list[tuple[str, str, int, int]]:
        """See `GroupCoordinator.committed`."""
        return []

    def with_own_log(self) -> list[tuple[UUID, int, object]]:
        """See `PartitionsInUse.with_own_log`."""
        return []


def test_the_numbers_of_a_collection_are_not_older_than_the_answers_of_other_leaders() -> None:
    parts = SlowLeaders()
    some = cast("Any", parts)
    collecting = TopicMetrics(Metrics(label_sets_max=1), parts.traffic, some, some, some, some, some)
    trio.run(collecting.collect)
    collected = collecting.collected
    assert (collected.records_in, collected.bytes_in) == ({"orders": 1}, {"orders": len(parts.batch)})
    assert collected.bytes_out == {"orders": 7}
