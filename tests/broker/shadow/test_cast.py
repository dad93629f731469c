"""Creating, growing, changing and deleting shadows and their sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import trio

from gnomon.broker.errors import KafkaError
from gnomon.broker.shadow.cast import SHADOW_SOURCE, as_shadow
from gnomon.broker.topics import SourceRef, Topic, topic_key
from gnomon.metadata.client import Compare, Delete, Metadata, Operation, Put, TxnResult
from gnomon.testing.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import MetadataRequest, MetadataRequestTopic
from gnomon.wire.kafka.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from gnomon.wire.kafka.messages.placement import DescribeTopicPartitionsRequest, TopicRequest
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from gnomon.wire.kafka.records import Record, build_batch

TOPIC = 2
SET, DELETE = 0, 1
Outcome = tuple[int, str | None]


async def cast(client: BrokerClient, shadow: str, source: str | None, partitions: int = -1, **configs: str) -> Outcome:
    given = {SHADOW_SOURCE: source, **{key.replace("_", "."): value for key, value in configs.items()}}
    topic = CreatableTopic(
        name=shadow,
        num_partitions=partitions,
        replication_factor=-1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in given.items()],
    )
    (result,) = (await client.ask(CreateTopicsRequest(topics=[topic]), 7)).topics
    return result.error_code, result.error_message


async def delete(client: BrokerClient, name: str) -> Outcome:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)
    (result,) = (await client.ask(request, 6)).responses
    return result.error_code, result.error_message


async def grow(client: BrokerClient, name: str, count: int) -> Outcome:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)], timeout_ms=1000
    )
    (result,) = (await client.ask(request, 3)).results
    return result.error_code, result.error_message


async def alter(client: BrokerClient, name: str, *changes: tuple[str, int, str | None]) -> Outcome:
    configs = [IncrementalAlterableConfig(name=key, config_operation=what, value=value) for key, what, value in changes]
    resource = IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=configs)
    result = (await client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)).responses[0]
    return result.error_code, result.error_message


async def replace_configs(client: BrokerClient, name: str, **configs: str) -> int:
    given = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=given)
    code: int = (await client.ask(AlterConfigsRequest(resources=[resource]), 2)).responses[0].error_code
    return code


async def described(client: BrokerClient, name: str) -> dict[str, Any]:
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name=name)])
    return {item.name: item for item in (await client.ask(request, 4)).results[0].configs}


async def told(client: BrokerClient, name: str) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return (await client.ask(request, 9)).topics[0]


def image(broker: EmbeddedBroker, name: str) -> Topic:
    topic = broker.serving.broker.image.get(name)
    assert topic is not None
    return topic


def batch(value: str) -> bytes:
    return build_batch([Record(offset_delta=0, value=value.encode())], base_timestamp=1000)


def test_a_shadow_has_the_partitions_of_its_source_and_each_the_smallest_free_place() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        source_id = await client.create_topic("orders", 3)
        assert await cast(client, "one", "orders") == (0, None)
        assert await cast(client, "two", "public/default/orders", 3) == (0, None)
        assert await cast(client, "shop/eu/three", "orders") == (0, None)
        assert image(broker, "orders").shadows == ("one", "two", "shop/eu/three")
        shadows = [image(broker, name) for name in ("one", "two", "shop/eu/three")]
        assert [shadow.source for shadow in shadows] == [SourceRef("orders", source_id, place) for place in (1, 2, 3)]
        assert {shadow.partitions for shadow in shadows} == {3}
        assert len((await told(client, "two")).partitions) == 3
        assert await delete(client, "two") == (0, None)
        assert image(broker, "orders").shadows == ("one", "shop/eu/three")
        assert await cast(client, "four", "orders") == (0, None)
        assert image(broker, "four").place == 2

    simulate_broker(scenario)


def test_what_cannot_be_a_shadow_is_refused_with_the_reason() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders", 2)
        await client.create_topic("a/b/c", 2)
        await cast(client, "copy", "orders")
        await broker.serving.broker.topic_admin.offsets_topic()
        cases = [
            (await cast(client, "x", "nowhere"), ErrorCode.INVALID_CONFIG, "'nowhere'.*does not exist"),
            (await cast(client, "x", None), ErrorCode.INVALID_CONFIG, "does not exist"),
            (await cast(client, "x", "public/default/a/b/c"), ErrorCode.INVALID_CONFIG, "tenant/namespace/topic"),
            (await cast(client, "x", "copy"), ErrorCode.INVALID_CONFIG, "'copy' is itself a shadow, of 'orders'"),
            (await cast(client, "x", "__consumer_offsets"), ErrorCode.INVALID_CONFIG, "broker's own state"),
            (await cast(client, "x", "orders", 3), ErrorCode.INVALID_PARTITIONS, "'orders' has 2, not 3"),
            (
                await cast(client, "x", "orders", retention_ms="1"),
                ErrorCode.INVALID_CONFIG,
                "set retention.ms on 'orders'",
            ),
            (await cast(client, "x", "orders", nonsense="1"), ErrorCode.INVALID_CONFIG, "nonsense"),
            (await cast(client, "a b", "orders"), ErrorCode.INVALID_TOPIC_EXCEPTION, "letters"),
            (await cast(client, "copy", "orders"), ErrorCode.TOPIC_ALREADY_EXISTS, "exists"),
        ]
        for (code, text), expected, pattern in cases:
            assert code == expected, text
            with pytest.raises(AssertionError, match=pattern):
                raise AssertionError(text)
        assert image(broker, "orders").shadows == ("copy",)

    simulate_broker(scenario)


def test_a_source_with_shadows_is_not_deleted_and_both_are_in_the_right_order() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch("a"))
        await cast(client, "two", "orders")
        await cast(client, "one", "orders")
        refused = (
            ErrorCode.POLICY_VIOLATION,
            "Topic 'orders' has shadows that show its records: delete one, two first.",
        )
        assert await delete(client, "orders") == refused
        assert await delete(client, "one") == (0, None)
        assert (await client.fetch("two", 0)).high_watermark == 1
        assert (await client.fetch("orders", 0)).high_watermark == 1
        assert await delete(client, "two") == (0, None)
        assert (await client.fetch("orders", 0)).high_watermark == 1
        assert await delete(client, "orders") == (0, None)

    simulate_broker(scenario)


def test_growing_a_source_grows_its_shadows_at_the_same_revision_and_a_shadow_does_not_grow_alone() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders", 2)
        await cast(client, "copy", "orders")
        code, text = await grow(client, "copy", 4)
        assert (code, text) == (
            ErrorCode.POLICY_VIOLATION,
            "topic 'copy' is a shadow of 'orders': it grows with the source",
        )
        assert await grow(client, "orders", 4) == (0, None)
        metadata = broker.serving.broker.metadata
        records = [await metadata.get(topic_key(name)) for name in ("orders", "copy")]
        assert len({item.mod_revision for item in records if item is not None}) == 1
        assert image(broker, "copy").partitions == image(broker, "orders").partitions == 4
        await client.produce("orders", batch("a"), 3)
        assert (await client.fetch("copy", 0, 3)).high_watermark == 1

    simulate_broker(scenario)


def test_the_configs_of_a_shadow_are_its_source_s_and_are_not_altered() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders", 1, {"retention.ms": "5000"})
        await cast(client, "copy", "orders")
        configs = await described(client, "copy")
        assert (configs[SHADOW_SOURCE].value, configs[SHADOW_SOURCE].read_only) == ("orders", True)
        assert configs["retention.ms"].value == "5000"
        assert SHADOW_SOURCE not in await described(client, "orders")
        invalid = ErrorCode.INVALID_CONFIG
        code, text = await alter(client, "copy", ("retention.ms", SET, "1"))
        assert (code, text) == (invalid, "Topic 'copy' is a shadow of 'orders': set retention.ms on the source")
        assert (await alter(client, "copy", (SHADOW_SOURCE, DELETE, None)))[0] == invalid
        assert (await alter(client, "copy", (SHADOW_SOURCE, SET, "other")))[0] == invalid
        assert (await alter(client, "copy", (SHADOW_SOURCE, SET, "orders")))[0] == 0
        assert (await alter(client, "orders", (SHADOW_SOURCE, SET, "copy")))[0] == invalid
        assert await replace_configs(client, "copy") == invalid
        assert await replace_configs(client, "copy", gnomon_shadow_source="orders") == 0
        assert await replace_configs(client, "orders", gnomon_shadow_source="copy") == invalid
        assert image(broker, "copy").source == SourceRef("orders", image(broker, "orders").id, 1)

    simulate_broker(scenario)


def test_records_are_not_deleted_through_a_shadow() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch("a"))
        await cast(client, "copy", "orders")
        wanted = DeleteRecordsTopic(name="copy", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
        answer = await client.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=1000), 2)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.POLICY_VIOLATION
        assert (await client.fetch("orders", 0)).log_start_offset == 0

    simulate_broker(scenario)


class Between:
    """Metadata in which somebody does something right before a transaction is judged, once."""

    def __init__(self, inner: Metadata, *operations: Operation) -> None:
        self._inner = inner
        self._operations = operations

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        operations, self._operations = self._operations, ()
        if operations:
            await self._inner.txn([], operations)
        return await self._inner.txn(compare, then, otherwise)


def test_a_source_that_is_deleted_while_a_shadow_is_made_has_none() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        node = broker.serving.broker
        new = node.topic_admin.check_new("copy", -1, {SHADOW_SOURCE: "orders"})
        node.metadata = Between(node.metadata, Delete(topic_key("orders")))
        with pytest.raises(KafkaError, match="was deleted meanwhile"):
            await node.topic_admin.create(new)
        assert await node.metadata.get(topic_key("copy")) is None

    simulate_broker(scenario)


def test_a_shadow_that_comes_while_its_source_is_deleted_stops_that() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        source_id = await client.create_topic("orders")
        node = broker.serving.broker
        source = image(broker, "orders")
        rival = Topic("copy", UUID(int=7), 1, {}, source=SourceRef("orders", source_id, 1))
        listed = Put(topic_key("orders"), source.with_shadows(["copy"]).encode())
        node.metadata = Between(node.metadata, Put(topic_key("copy"), rival.encode()), listed)
        with pytest.raises(KafkaError, match="delete copy first"):
            await node.topic_admin.delete(source)
        assert await node.metadata.get(topic_key("orders")) is not None

    simulate_broker(scenario)


def test_a_source_that_grows_while_a_shadow_is_made_or_gone_takes_all_along() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        node = broker.serving.broker
        grown = image(broker, "orders").with_partitions(3)
        new = node.topic_admin.check_new("copy", 1, {SHADOW_SOURCE: "orders"})
        node.metadata = Between(node.metadata, Put(topic_key("orders"), grown.encode()))
        assert (await node.topic_admin.create(new)).partitions == 3
        listed = replace(grown, shadows=("copy", "other"))
        other = Topic("other", UUID(int=8), 3, {}, source=SourceRef("orders", grown.id, 2))
        node.metadata = Between(
            node.metadata, Put(topic_key("other"), other.encode()), Put(topic_key("orders"), listed.encode())
        )
        await node.topic_admin.grow("orders", 5)
        assert [image(broker, name).partitions for name in ("orders", "copy", "other")] == [5, 5, 5]

    simulate_broker(scenario)


def test_two_shadows_made_at_once_get_two_places() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        admin = broker.serving.broker.topic_admin
        new = [admin.check_new(f"copy-{number}", -1, {SHADOW_SOURCE: "orders"}) for number in range(5)]
        async with trio.open_nursery() as nursery:
            for topic in new:
                nursery.start_soon(admin.create, topic)
        assert sorted(image(broker, topic.name).place for topic in new) == [1, 2, 3, 4, 5]
        assert sorted(image(broker, "orders").shadows) == sorted(topic.name for topic in new)

    simulate_broker(scenario)


async def put(broker: EmbeddedBroker, *operations: Operation) -> None:
    node = broker.serving.broker
    await node.topics.reached((await node.metadata.txn([], operations)).revision)


def test_deleting_a_shadow_touches_no_ledger_whatever_its_record_says() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        source_id = await client.create_topic("orders")
        await client.produce("orders", batch("a"))
        await cast(client, "copy", "orders")
        copy = image(broker, "copy")
        damaged = [replace(copy, id=source_id), replace(copy, id=source_id, source=None), replace(copy, source=None)]
        for record in damaged:
            await put(broker, Put(topic_key("copy"), record.encode()))
            code, text = await delete(client, "copy")
            assert code == 0, text
            found = await broker.serving.broker.metadata.range(f"ledgers/topics/{source_id.hex}/")
            assert len(found.items) == 1
            await put(broker, Put(topic_key("orders"), image(broker, "orders").encode()))
            await put(broker, Put(topic_key("copy"), copy.encode()))
        assert await delete(client, "copy") == (0, None)
        assert (await client.fetch("orders", 0)).high_watermark == 1

    simulate_broker(scenario)


def test_a_damaged_list_of_shadows_neither_hides_one_nor_holds_its_source() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        await client.create_topic("plain")
        await cast(client, "copy", "orders")
        source = image(broker, "orders")
        await put(broker, Put(topic_key("orders"), source.with_shadows([]).encode()))
        assert (await delete(client, "orders"))[0] == ErrorCode.POLICY_VIOLATION
        await put(broker, Put(topic_key("orders"), source.with_shadows(["plain", "gone", "copy"]).encode()))
        assert (await delete(client, "orders"))[1] == (
            "Topic 'orders' has shadows that show its records: delete copy first."
        )
        assert await delete(client, "copy") == (0, None)
        assert await delete(client, "orders") == (0, None)
        assert image(broker, "plain").partitions == 1

    simulate_broker(scenario)


def test_a_shadow_whose_source_is_gone_says_so_and_can_be_deleted() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch("a"))
        await cast(client, "copy", "orders")
        assert (await client.fetch("copy", 0)).high_watermark == 1
        poll = client.connection.send(client.fetch_request("copy", 1, max_wait_ms=60_000), 11)
        await put(broker, Delete(topic_key("orders")))
        ended = (await client.connection.wait(poll)).responses[0].partitions[0]
        assert ended.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await client.fetch("copy", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await told(client, "copy")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert [fields["topic"] for event, fields in broker.events if event == "shadow_ended"] == ["copy"]
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="copy")], response_partition_limit=10)
        assert (await client.ask(request, 0)).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        await client.create_topic("orders")
        await client.produce("orders", batch("b"))
        assert (await told(client, "copy")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert (await client.fetch("copy", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await delete(client, "copy") == (0, None)
        assert (await client.fetch("orders", 0)).high_watermark == 1

    simulate_broker(scenario)


def test_records_of_topics_from_before_there_were_shadows_are_read_and_written_as_they_were() -> None:
    plain = Topic("orders", UUID(int=7), 3, {"retention.ms": "1"})
    assert b"source" not in plain.encode()
    assert b"shadows" not in plain.encode()


def test_a_shadow_asked_for_by_its_configs_is_of_the_life_that_its_source_has_now() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        source_id = await client.create_topic("orders", 2)
        new = Topic("copy", UUID(int=9), 0, {})
        shadow = as_shadow(new, {SHADOW_SOURCE: "orders"}, -1, broker.serving.broker.image)
        assert shadow.source is not None
        assert (shadow.source.id, shadow.partitions) == (source_id, 2)

    simulate_broker(scenario)
