"""Metadata requests: topics, brokers, leader epochs, and the creation of topics on first use."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
import trio

from gnomon.broker.kafka import metadata
from gnomon.broker.kafka.metadata import WEIGHT_PER_TURN
from gnomon.broker.topics.creation_budget import CONNECTION_BURST, CONNECTION_PER_SECOND
from gnomon.runtime.loop.paced import PAUSE_SECONDS
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import MetadataRequest, MetadataRequestTopic
from gnomon.wire.kafka.messages.topics import DeleteTopicsRequest


async def _asked(client: BrokerClient, *names: str, version: int = 12, create: bool = True) -> Any:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return await client.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=create), version)


@pytest.mark.parametrize("version", range(14))
def test_a_request_for_all_topics_differs_from_one_for_none(version: int) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("a")
        await client.create_topic("b", 3)
        everything = await client.ask(MetadataRequest(topics=[] if version == 0 else None), version)
        assert sorted((topic.name, len(topic.partitions)) for topic in everything.topics) == [("a", 1), ("b", 3)]
        if version > 0:
            assert (await client.ask(MetadataRequest(topics=[]), version)).topics == []
        (node,) = everything.brokers
        assert (node.node_id, node.host, node.port) == (1, "broker", 9092)
        for topic in everything.topics:
            for partition in topic.partitions:
                assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1], [1])

    simulate_broker(scenario)


def test_a_topic_is_created_by_its_first_request_if_that_is_allowed() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        refused = (await _asked(client, "new", create=False)).topics[0]
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        created = (await _asked(client, "new")).topics[0]
        assert (created.error_code, len(created.partitions)) == (0, 4)
        assert (await _asked(client, "new", create=False)).topics[0].topic_id == created.topic_id

    simulate_broker(scenario, kafka={"num.partitions": "4"})


def test_no_topic_is_created_by_a_request_if_the_broker_does_not_allow_it() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        assert (await _asked(client, "new")).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        internal = (await _asked(client, "__consumer_offsets")).topics[0]
        assert (internal.error_code, internal.is_internal) == (0, True)

    simulate_broker(scenario, kafka={"auto.create.topics.enable": "false"})


@pytest.mark.parametrize("create", [True, False])
def test_invalid_names_of_topics_are_answered_as_such(create: bool) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        names = ["", ".", "..", "a b", "a/b", "\u00e4", "x" * 250, "public/default/a", "a/../b"]
        errors = {topic.error_code for topic in (await _asked(client, *names, create=create)).topics}
        assert errors == {ErrorCode.INVALID_TOPIC_EXCEPTION}

    simulate_broker(scenario)


def test_concurrent_requests_for_one_new_topic_get_the_same_topic() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        clients = [await broker.connect() for _ in range(5)]
        request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
        answers = [client.connection.send(request, 12) for client in clients]
        found: list[Any] = [
            await client.connection.wait(answer) for client, answer in zip(clients, answers, strict=True)
        ]
        described = [message.topics[0] for message in found]
        assert {topic.error_code for topic in described} == {0}
        assert len({topic.topic_id for topic in described}) == 1

    simulate_broker(scenario)


def test_an_id_names_one_life_of_a_topic() -> None:  # KIP-516
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        first = await client.create_topic("t")
        await broker.restart()
        client = await broker.connect()

        async def by_id(topic_id: UUID) -> Any:
            return (
                await client.ask(MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)]), 12)
            ).topics[0]

        assert (await by_id(first)).name == "t"
        await client.ask(DeleteTopicsRequest(topic_names=["t"]), 4)
        second = await client.create_topic("t")
        assert second != first
        gone = await by_id(first)
        assert (gone.error_code, gone.name, gone.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, first)

    simulate_broker(scenario)


def test_leader_epochs_are_known_once_a_partition_is_open_and_grow_with_each_restart() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")

        async def epoch() -> int:
            found: int = (await _asked(client, "t")).topics[0].partitions[0].leader_epoch
            return found

        assert await epoch() == -1
        await client.fetch("t", 0)
        assert await epoch() == 0
        await broker.restart()
        client = await broker.connect()
        await client.fetch("t", 0)
        assert await epoch() == 1

    simulate_broker(scenario)


def test_a_topic_named_many_times_is_described_once() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        names = ["t", "missing", *["t"] * 1000, *(f"missing-{number}" for number in range(600))]
        found = [topic.name for topic in (await _asked(client, *names, create=False)).topics]
        assert found == list(dict.fromkeys(names))

    simulate_broker(scenario)


def test_a_connection_creates_a_bounded_number_of_topics_and_later_requests_create_the_others() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client, other = await broker.connect(), await broker.connect()
        names = [f"new-{number:03}" for number in range(CONNECTION_BURST + 40)]
        found = (await _asked(client, *names)).topics
        assert [topic.name for topic in found] == names
        codes = [topic.error_code for topic in found]
        created = codes.count(0)
        assert CONNECTION_BURST <= created < CONNECTION_BURST + 20
        assert codes == [0] * created + [ErrorCode.LEADER_NOT_AVAILABLE] * (len(names) - created)
        codes = [topic.error_code for topic in (await _asked(client, *names)).topics]
        assert codes.count(0) < created + 5
        assert {topic.error_code for topic in (await _asked(other, "a-topic-of-another-client")).topics} == {0}
        await broker.simulation.sleep((len(names) - created) / CONNECTION_PER_SECOND)
        assert {topic.error_code for topic in (await _asked(client, *names)).topics} == {0}

    simulate_broker(scenario)


def test_all_connections_of_a_broker_create_a_bounded_number_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "BROKER_BURST", 25)
    monkeypatch.setattr(metadata, "BROKER_PER_SECOND", 1)

    async def scenario(broker: EmbeddedBroker) -> None:
        codes = []
        for number in range(5):
            client = await broker.connect()
            found = await _asked(client, *(f"new-{number}-{each}" for each in range(10)))
            codes += [topic.error_code for topic in found.topics]
        assert 25 <= codes.count(0) < 30
        assert set(codes) == {0, ErrorCode.LEADER_NOT_AVAILABLE}

    simulate_broker(scenario)


def test_a_name_that_is_refused_or_exists_takes_nothing_from_the_budget() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        for _ in range(3):
            await _asked(client, "known", *("/" * length for length in range(1, CONNECTION_BURST)))
        codes = [topic.error_code for topic in (await _asked(client, *map(str, range(CONNECTION_BURST - 1)))).topics]
        assert codes == [0] * (CONNECTION_BURST - 1)

    simulate_broker(scenario)


def test_creating_topics_ends_with_the_connection_that_asked_for_it() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        gone, client = await broker.connect(), await broker.connect()
        names = [f"new-{number:03}" for number in range(CONNECTION_BURST)]
        asked = [MetadataRequestTopic(name=name) for name in names]
        gone.connection.send(MetadataRequest(topics=asked, allow_auto_topic_creation=True), 9)
        while not list(broker.serving.broker.topics.image):
            await broker.simulation.sleep(0.001)
        gone.connection.close()
        await broker.simulation.sleep(5)
        created = [topic.name for topic in (await client.ask(MetadataRequest(topics=None), 9)).topics]
        assert 0 < len(created) < CONNECTION_BURST

    simulate_broker(scenario)


def test_a_topic_with_many_partitions_is_described_in_several_turns() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("wide", partitions=2 * WEIGHT_PER_TURN + 1)
        began = trio.current_time()
        (topic,) = (await _asked(client, "wide")).topics
        assert [each.partition_index for each in topic.partitions] == list(range(2 * WEIGHT_PER_TURN + 1))
        assert trio.current_time() - began >= 2 * PAUSE_SECONDS

    simulate_broker(scenario)
