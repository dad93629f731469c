"""Creating, growing, changing and deleting shadows and their sources."""

from __future__ import annotations

import re
from uuid import UUID

import msgpack
from topic_calls import TOPIC, batch, cast, delete, described, grow, image, replace_configs, shadows, topic_metadata

from gnomon.broker.topics.cast import SHADOW_SOURCE, as_shadow
from gnomon.log.topic import SourceRef, Topic, topic_key
from gnomon.metadata.client import KeyValue, Revision
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

SET, DELETE = 0, 1


def test_a_shadow_has_the_partitions_of_its_source_and_the_smallest_free_place() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        source_id = await client.create_topic("orders", 3)
        assert await cast(client, "one", "orders") == (0, None)
        assert await cast(client, "two", "public/default/orders", 3) == (0, None)
        assert await cast(client, "shop/eu/three", "orders") == (0, None)
        assert shadows(broker, "orders") == ["one", "two", "shop/eu/three"]
        cast_ones = [image(broker, name) for name in ("one", "two", "shop/eu/three")]
        assert [shadow.source for shadow in cast_ones] == [SourceRef("orders", source_id, place) for place in (1, 2, 3)]
        assert {shadow.partitions for shadow in cast_ones} == {3}
        assert len((await topic_metadata(client, "two")).partitions) == 3
        assert await delete(client, "two") == (0, None)
        assert shadows(broker, "orders") == ["one", "shop/eu/three"]
        assert await cast(client, "four", "orders") == (0, None)
        assert image(broker, "four").place == 2

    simulate_broker(scenario)


def test_a_topic_that_cannot_be_a_shadow_is_refused_with_the_reason() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders", 2)
        await client.create_topic("a/b/c", 2)
        await cast(client, "copy", "orders")
        await broker.serving.broker.offsets_topic.made()
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
            assert re.search(pattern, text or ""), text
        assert shadows(broker, "orders") == ["copy"]

    simulate_broker(scenario)


def test_a_source_can_be_deleted_only_after_its_shadows() -> None:
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


def test_growing_a_source_grows_its_shadows_with_the_same_write_and_a_shadow_does_not_grow_alone() -> None:
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
        record = await broker.serving.broker.storage.metadata.get(topic_key("copy"))
        assert record is not None
        assert record.version == 1
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
        code, text = await client.alter_configs(TOPIC, "copy", ("retention.ms", SET, "1"))
        assert (code, text) == (invalid, "Topic 'copy' is a shadow of 'orders': set retention.ms on the source")
        assert (await client.alter_configs(TOPIC, "copy", (SHADOW_SOURCE, DELETE, None)))[0] == invalid
        assert (await client.alter_configs(TOPIC, "copy", (SHADOW_SOURCE, SET, "other")))[0] == invalid
        assert (await client.alter_configs(TOPIC, "copy", (SHADOW_SOURCE, SET, "orders")))[0] == 0
        assert (await client.alter_configs(TOPIC, "orders", (SHADOW_SOURCE, SET, "copy")))[0] == invalid
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


def test_the_record_of_a_shadow_has_no_number_of_partitions() -> None:  # topics 5
    shadow = Topic("copy", UUID(int=8), 3, {}, Revision(6), 1, SourceRef("orders", UUID(int=7), 2))
    assert "partitions" not in msgpack.unpackb(shadow.encode())
    item = KeyValue(topic_key("copy"), shadow.encode(), Revision(6), Revision(6), 1)
    assert Topic.decode(item) == shadow.with_partitions(0)


def test_a_shadow_created_by_its_configs_belongs_to_the_current_life_of_its_source() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        source_id = await client.create_topic("orders", 2)
        new = Topic("copy", UUID(int=9), 0, {})
        shadow = as_shadow(new, {SHADOW_SOURCE: "orders"}, -1, broker.serving.broker.topics.image)
        assert shadow.source is not None
        assert (shadow.source.id, shadow.partitions) == (source_id, 2)

    simulate_broker(scenario)
