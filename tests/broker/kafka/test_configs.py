"""Configs of topics and brokers: described with their sources, altered at run time, refused with reasons."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.broker.configs.broker_configs import BROKER_CONFIGS
from gnomon.broker.configs.config_key import ConfigSource, ConfigType, InvalidConfig
from gnomon.broker.configs.topic_configs import TOPIC_CONFIGS, check_topic_configs, log_settings
from gnomon.broker.kafka.configs import RESOURCES_PER_TURN
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import ApiVersionsRequest
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
from gnomon.wire.kafka.records import Record, build_batch

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)


async def _value(client: BrokerClient, kind: int, name: str, key: str) -> tuple[str, int, list[tuple[str, str, int]]]:
    (found,) = (await client.describe_configs(kind, name, [key])).configs
    return found.value, found.config_source, [(item.name, item.value, item.source) for item in found.synonyms]


def _batch(size: int = 1) -> bytes:
    return build_batch([Record(offset_delta=0, key=None, value=bytes(size))], base_timestamp=1)


@pytest.mark.parametrize("version", range(1, 5))
def test_every_key_is_described_with_source_and_type(version: int) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t", configs={"retention.ms": "5000"})
        for keys in (None, []):
            topic = await client.describe_configs(TOPIC, "t", keys, version)
            assert {item.name for item in topic.configs} == set(TOPIC_CONFIGS)
        node = await client.describe_configs(BROKER, "1", None, version)
        assert {item.name for item in node.configs} == set(BROKER_CONFIGS)
        for item in topic.configs:
            assert item.config_source in set(ConfigSource)
            assert version < 3 or item.config_type == TOPIC_CONFIGS[item.name].type
        some = await client.describe_configs(TOPIC, "t", ["retention.ms", "no.such.key"], version)
        assert [(item.name, item.value, item.config_source) for item in some.configs] == [("retention.ms", "5000", 1)]

    simulate_broker(scenario)


def test_a_value_comes_from_the_most_specific_source_that_has_one() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        hours = ("log.retention.hours", "1", 4), ("log.retention.hours", "168", 5)
        # Kafka names no source for a value that only an older name gives.
        assert await _value(client, TOPIC, "t", "retention.ms") == ("3600000", 5, [])
        assert await _value(client, BROKER, "1", "log.retention.hours") == ("1", 4, list(hours))
        assert await client.alter_configs(BROKER, "", ("log.retention.ms", SET, "30")) == (0, None)
        assert (await _value(client, TOPIC, "t", "retention.ms"))[:2] == ("30", 3)
        assert await client.alter_configs(BROKER, "1", ("log.retention.ms", SET, "20")) == (0, None)
        assert (await _value(client, TOPIC, "t", "retention.ms"))[:2] == ("20", 2)
        assert await client.alter_configs(TOPIC, "t", ("retention.ms", SET, "10")) == (0, None)
        value, source, synonyms = await _value(client, TOPIC, "t", "retention.ms")
        assert (value, source) == ("10", 1)
        assert synonyms == [
            ("retention.ms", "10", 1),
            ("log.retention.ms", "20", 2),
            ("log.retention.ms", "30", 3),
            *hours,
        ]
        await broker.restart()
        client = await broker.connect()
        assert (await _value(client, TOPIC, "t", "retention.ms"))[2] == synonyms
        for kind, name, key in ((TOPIC, "t", "retention.ms"), (BROKER, "1", "log.retention.ms")):
            assert await client.alter_configs(kind, name, (key, DELETE, None)) == (0, None)
        assert (await _value(client, TOPIC, "t", "retention.ms"))[:2] == ("30", 3)

    simulate_broker(scenario, kafka={"log.retention.hours": "1"})


def test_a_repeated_resource_is_answered_once_and_a_long_list_yields_to_other_requests() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client, other = await broker.connect(), await broker.connect()
        await client.create_topic("t")
        names = ["t", *(f"missing-{number}" for number in range(3 * RESOURCES_PER_TURN))]
        request = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name=name) for name in names * 100]
        )
        asked, began = client.connection.send(request, 4), other.connection.send(ApiVersionsRequest(), 0)
        await other.connection.wait(began)
        response: Any = await client.connection.wait(asked)
        assert [result.resource_name for result in response.results] == names
        assert [result.error_code for result in response.results[:2]] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    simulate_broker(scenario)


def test_a_topic_key_has_an_effect_or_refuses_values_or_documents_that_it_keeps_all() -> None:
    class Lookup(dict[str, str]):
        def __getitem__(self, name: str) -> str:
            obeyed.add(name)
            return super().__getitem__(name)

    obeyed: set[str] = set()
    log_settings(Lookup({name: key.default or "" for name, key in TOPIC_CONFIGS.items()}), 1, copies=1)
    others = {ConfigType.BOOLEAN: "true", ConfigType.DOUBLE: "0.25", ConfigType.LIST: "compact"}
    for name in TOPIC_CONFIGS.keys() - obeyed:
        key = TOPIC_CONFIGS[name]
        if "every value is kept" in key.documentation:
            key.check(key.default if "compression" in name else others.get(key.type, "1000"))
        else:
            with pytest.raises(InvalidConfig):
                check_topic_configs({name: others.get(key.type, "1000")})


def test_a_value_that_cannot_be_honoured_is_refused_with_its_reason() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        before = (await client.describe_configs(TOPIC, "t")).configs
        for key, value, word in [
            ("cleanup.policy", "compact", "compaction"),
            ("compression.type", "lzma", "one of uncompressed, gzip, snappy, lz4, zstd"),
            ("compression.zstd.level", "23", "-131072 to 22"),
            ("remote.storage.enable", "true", "tiered storage"),
            ("min.insync.replicas", "0", "at least 1"),
            ("retention.ms", "-2", "at least -1"),
            ("retention.ms", "soon", "whole number"),
            ("retention.ms", "9" * 20, "of 64 bits"),
            ("segment.bytes", "99999999999", "32 bits"),
            ("message.timestamp.type", "Whenever", "CreateTime or LogAppendTime"),
            ("preallocate", "yes", "true or false"),
            ("no.such.key", "1", "Unknown topic config name"),
        ]:
            code, text = await client.alter_configs(TOPIC, "t", ("max.message.bytes", SET, "5"), (key, SET, value))
            assert code == ErrorCode.INVALID_CONFIG
            assert word in str(text)
        assert (await client.describe_configs(TOPIC, "t")).configs == before

    simulate_broker(scenario)


@pytest.mark.parametrize("of", ["1", ""])
def test_a_broker_config_that_cannot_be_altered_is_an_invalid_request(of: str) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        for key, value, word in [
            ("num.partitions", "3", "settings file"),
            ("listeners", "PLAINTEXT://:9092", "settings file"),
            ("no.such.key", "1", "Unknown broker config name"),
            ("log.retention.ms", "soon", "whole number"),
            ("log.retention.ms", None, "Null value"),
            ("num.io.threads", "0", "at least 1"),
            ("background.threads", "many", "whole number"),
            ("unclean.leader.election.enable", "maybe", "true or false"),
            ("log.cleaner.min.cleanable.ratio", "1.5", "from 0 to 1"),
            ("log.cleanup.policy", "compact", "compaction"),
            ("max.connection.creation.rate", "10", "max.connections.per.ip"),
            ("max.connections.per.ip.overrides", "10.0.0.7", "10.0.0.7:100"),
            ("listener.name.external.ssl.keystore.location", "/key", "TLS and SASL are not built"),
        ]:
            code, text = await client.alter_configs(BROKER, of, ("num.io.threads", SET, "9"), (key, SET, value))
            if key == "num.io.threads":  # named twice
                code, text = await client.alter_configs(BROKER, of, (key, SET, value))
            assert (key, code) == (key, ErrorCode.INVALID_REQUEST)
            assert word in str(text)
        assert (await client.alter_configs(BROKER, of, ("log.retention.ms", APPEND, "1")))[0] == (
            ErrorCode.INVALID_CONFIG
        )
        assert (await _value(client, BROKER, "1", "num.io.threads"))[:2] == ("8", ConfigSource.DEFAULT)

    simulate_broker(scenario)


UNUSED = {
    "background.threads": "4",
    "compression.gzip.level": "9",
    "log.cleaner.io.max.bytes.per.second": "1000000.5",
    "log.cleaner.threads": "2",
    "log.cleanup.policy": "delete",
    "log.flush.interval.messages": "1",
    "log.index.interval.bytes": "8192",
    "log.preallocate": "true",
    "log.roll.jitter.ms": "1000",
    "num.io.threads": "16",
    "num.network.threads": "6",
    "num.replica.fetchers": "2",
    "remote.log.reader.threads": "4",
    "transaction.partition.verification.enable": "false",
    "unclean.leader.election.enable": "true",
}


def test_a_broker_config_without_effect_is_accepted_and_documented_as_such() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        for name, value in UNUSED.items():
            assert await client.alter_configs(BROKER, "1", (name, SET, value)) == (0, None), name
        await broker.restart()
        client = await broker.connect()
        described = {item.name: item for item in (await client.describe_configs(BROKER, "1")).configs}
        for name, value in UNUSED.items():
            assert (described[name].value, described[name].config_source) == (value, ConfigSource.DYNAMIC_BROKER)
            assert not described[name].read_only
            if name != "log.cleanup.policy":  # this one has an effect
                assert described[name].documentation.startswith("Without effect: ")
            assert await client.alter_configs(BROKER, "1", (name, DELETE, None)) == (0, None)
            assert (await _value(client, BROKER, "1", name))[0] == BROKER_CONFIGS[name].default or (
                BROKER_CONFIGS[name].default is None
            )

    simulate_broker(scenario)


KAFKAS_SYNONYMS = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""The synonyms of ServerTopicConfigSynonyms in Kafka 4; each may be altered while the broker runs."""


def test_topic_configs_fall_back_to_the_broker_configs_that_kafka_names() -> None:
    assert {key.name: key.synonym for key in TOPIC_CONFIGS.values() if key.synonym} == KAFKAS_SYNONYMS
    assert all(BROKER_CONFIGS[name].alterable for name in KAFKAS_SYNONYMS.values())

    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        assert await _value(client, TOPIC, "t", "cleanup.policy") == (
            "delete",
            ConfigSource.DEFAULT,
            [("log.cleanup.policy", "delete", ConfigSource.DEFAULT)],
        )
        assert (await _value(client, TOPIC, "t", "flush.ms"))[:2] == (str(2**63 - 1), ConfigSource.DEFAULT)
        assert await client.alter_configs(BROKER, "", ("log.preallocate", SET, "true")) == (0, None)
        assert (await _value(client, TOPIC, "t", "preallocate"))[:2] == ("true", ConfigSource.DYNAMIC_DEFAULT_BROKER)

    simulate_broker(scenario)


def test_invalid_requests_are_refused() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        twice = ("retention.ms", SET, "1"), ("retention.ms", SET, "2")
        assert (await client.alter_configs(TOPIC, "t", *twice))[0] == ErrorCode.INVALID_REQUEST
        assert (await client.alter_configs(TOPIC, "t", ("retention.ms", 9, "1")))[0] == ErrorCode.INVALID_REQUEST
        groups = 32
        code, text = await client.alter_configs(groups, "t", ("consumer.session.timeout.ms", SET, "1"))
        assert (code, "no configs of groups" in str(text)) == (ErrorCode.INVALID_REQUEST, True)
        described = await client.describe_configs(groups, "t")
        assert (described.error_code, described.error_message) == (code, text)
        assert (await client.alter_configs(TOPIC, "t", ("retention.ms", SET, None)))[0] == ErrorCode.INVALID_REQUEST
        assert (await client.alter_configs(TOPIC, "t", ("retention.ms", APPEND, "1")))[0] == ErrorCode.INVALID_CONFIG
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await client.alter_configs(TOPIC, "missing", ("retention.ms", SET, "1")))[0] == missing
        for kind, name, code in [(TOPIC, "missing", missing), (BROKER, "2", 42), (LOGGER, "1", 42), (77, "x", 42)]:
            assert (await client.describe_configs(kind, name)).error_code == code
            if kind != TOPIC:
                assert (await client.alter_configs(kind, name, ("log.retention.ms", SET, "1")))[0] == 42

    simulate_broker(scenario)


def test_a_resource_named_twice_in_one_request_keeps_its_configs() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t", configs={"retention.ms": "1"})
        older = [
            AlterConfigsResource(
                resource_type=TOPIC, resource_name="t", configs=[AlterableConfig(name=name, value="2")]
            )
            for name in ("retention.ms", "segment.ms")
        ]
        newer = [
            IncrementalAlterConfigsResource(
                resource_type=TOPIC, resource_name="t", configs=[IncrementalAlterableConfig(name=name, value="2")]
            )
            for name in ("retention.ms", "segment.ms")
        ]
        for request, version in [
            (AlterConfigsRequest(resources=older), 2),
            (IncrementalAlterConfigsRequest(resources=newer), 1),
        ]:
            answered = (await client.ask(request, version)).responses
            assert [item.error_code for item in answered] == [ErrorCode.INVALID_REQUEST] * 2
        assert (await _value(client, TOPIC, "t", "retention.ms"))[:2] == ("1", ConfigSource.TOPIC)
        assert (await _value(client, TOPIC, "t", "segment.ms"))[1] == ConfigSource.DEFAULT

    simulate_broker(scenario)


def test_validate_only_changes_nothing() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        assert await client.alter_configs(TOPIC, "t", ("retention.ms", SET, "1"), validate=True) == (0, None)
        assert (await client.alter_configs(TOPIC, "t", ("retention.ms", SET, "x"), validate=True))[0] == 40
        assert await client.alter_configs(BROKER, "1", ("log.retention.ms", SET, "1"), validate=True) == (0, None)
        assert (await _value(client, TOPIC, "t", "retention.ms"))[1] == ConfigSource.DEFAULT

    simulate_broker(scenario)


def test_alter_configs_replaces_all_configs_of_a_topic() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t", configs={"retention.ms": "1", "segment.ms": "2"})
        configs = [AlterableConfig(name="segment.ms", value="3")]
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=configs)
        for version in range(3):
            response = await client.ask(AlterConfigsRequest(resources=[resource]), version)
            assert response.responses[0].error_code == 0
        assert (await _value(client, TOPIC, "t", "segment.ms"))[:2] == ("3", 1)
        assert (await _value(client, TOPIC, "t", "retention.ms"))[1] == ConfigSource.DEFAULT

    simulate_broker(scenario)


def test_a_changed_size_limit_applies_from_the_next_batch_on() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        await client.create_topic("own", configs={"max.message.bytes": "100000"})

        async def error(topic: str, size: int) -> int:
            return (await client.produce(topic, _batch(size))).error_code

        too_large = ErrorCode.MESSAGE_TOO_LARGE
        assert await error("t", 2000) == 0
        await client.alter_configs(TOPIC, "t", ("max.message.bytes", SET, "1000"))
        assert [await error("t", 2000), await error("t", 500)] == [too_large, 0]
        await client.alter_configs(TOPIC, "t", ("max.message.bytes", DELETE, None))
        assert await error("t", 2000) == 0
        await client.alter_configs(BROKER, "", ("message.max.bytes", SET, "1000"))
        assert [await error("t", 2000), await error("own", 2000)] == [too_large, 0]

    simulate_broker(scenario)


def test_a_changed_timestamp_type_applies_from_the_next_batch_on() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        assert (await client.produce("t", _batch())).log_append_time_ms == -1
        await client.alter_configs(TOPIC, "t", ("message.timestamp.type", SET, "LogAppendTime"))
        assert (await client.produce("t", _batch())).log_append_time_ms > 1_000_000

    simulate_broker(scenario)


def test_changed_retention_applies_at_the_next_check_also_to_unused_partitions() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        for name in ("used", "unused", "kept"):
            await client.create_topic(name, configs={"segment.bytes": "500", "retention.ms": "-1"})
            for _ in range(6):
                await client.produce(name, _batch(300))
        await broker.simulation.sleep(20)
        assert (await client.fetch("used", 0)).error_code == 0
        await broker.restart()
        client = await broker.connect()
        await client.fetch("used", 0)
        for name in ("used", "unused"):
            assert await client.alter_configs(TOPIC, name, ("retention.ms", SET, "1000")) == (0, None)
        await broker.simulation.sleep(70)
        opened = broker.serving.broker.partitions.with_own_log()
        assert len(opened) == 2  # the partition without due records stays closed
        for name in ("used", "unused"):
            found = await client.fetch(name, 0)
            assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (await client.produce(name, _batch())).base_offset == 6
        assert (await client.fetch("kept", 0)).error_code == 0

    simulate_broker(scenario, kafka={"log.retention.check.interval.ms": "60000"})


@pytest.mark.parametrize(
    "key",
    [
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ],
)
def test_a_throttle_of_a_reassignment_can_be_removed_and_not_set(key: str) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        # kafka-reassign-partitions.sh removes it after every reassignment, with a throttle or without.
        assert await client.alter_configs(BROKER, "1", (key, DELETE, None)) == (0, None)
        code, text = await client.alter_configs(BROKER, "1", (key, SET, "1000000"))
        assert code == ErrorCode.INVALID_REQUEST
        assert "not copied by brokers" in (text or "")

    simulate_broker(scenario)


def test_conditional_writes_can_be_switched_on_at_any_time_and_never_off() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        key, other = "gnomon.conditional.write", ("segment.ms", SET, "3")
        headers = (("gnomon.expected.offset", b"9"),)
        conditional = build_batch([Record(headers=headers)], base_timestamp=1)
        await client.create_topic("t", configs={"retention.ms": "1"})
        assert (await client.produce("t", conditional)).error_code == 0
        assert (await client.alter_configs(TOPIC, "t", (key, SET, "true")))[0] == 0
        assert (await client.produce("t", conditional)).error_code == ErrorCode.INVALID_RECORD
        for change in ((key, SET, "false"), (key, DELETE, None)):
            code, text = await client.alter_configs(TOPIC, "t", change)
            assert code == ErrorCode.INVALID_CONFIG
            assert f"{key} cannot be switched off" in (text or "")
        configs = [AlterableConfig(name="segment.ms", value="3")]
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=configs)
        left_out = (await client.ask(AlterConfigsRequest(resources=[resource]), 1)).responses[0]
        assert left_out.error_code == ErrorCode.INVALID_CONFIG
        assert "nor left out of AlterConfigs" in left_out.error_message
        assert (await _value(client, TOPIC, "t", "retention.ms"))[0] == "1", "nothing was changed"
        assert (await client.alter_configs(TOPIC, "t", other, (key, SET, "true")))[0] == 0
        assert (await client.produce("t", conditional)).error_code == ErrorCode.INVALID_RECORD
        await broker.restart()
        client = await broker.connect()
        assert (await client.produce("t", conditional)).error_code == ErrorCode.INVALID_RECORD

    simulate_broker(scenario)


def test_a_shadow_has_no_conditional_writes_of_its_own() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        await client.create_topic("copy", configs={"gnomon.shadow.source": "t"})
        code, text = await client.alter_configs(TOPIC, "copy", ("gnomon.conditional.write", SET, "true"))
        assert code == ErrorCode.INVALID_CONFIG
        assert "set gnomon.conditional.write on the source" in (text or "")

    simulate_broker(scenario)
