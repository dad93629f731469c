"""The table of operations that Kafka's APIs ask for: each rule is asked, and its refusal does what the table says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `probes`: test folders are no packages

from deciding import Only, Refusing
from probes import GROUP, SHADOW, TOPIC, requests

from gnomon.broker.authorization.authorizer import Access
from gnomon.broker.authorization.kafka_table import KAFKA_RULES
from gnomon.broker.authorization.operation import DENIED, Operation, ResourceType, topic
from gnomon.broker.authorization.rule import RefusalEffect, Rule
from gnomon.broker.authorization.session import ANONYMOUS, Session
from gnomon.broker.errors import KafkaError
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.api import APIS, ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import MetadataRequest, MetadataRequestTopic
from gnomon.wire.kafka.messages.group_admin import ListGroupsRequest
from gnomon.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

DENIALS = frozenset(DENIED.values())
RULES = [(api, rule) for api, rules in KAFKA_RULES.items() for rule in rules]
NAMED = [f"{api.name}-{rule.operation.name}-{rule.type.name}" for api, rule in RULES]
TRANSACTIONS_ARE_NOT_BUILT = ResourceType.TRANSACTIONAL_ID
"""A transactional request has the same code when it is authorized; its text differs."""


def codes(answer: Any) -> Iterator[int]:
    """Every error code in an answer."""
    for name in getattr(answer, "__dataclass_fields__", ()) or getattr(answer, "__slots__", ()):
        value = getattr(answer, name)
        if name.endswith("error_code"):
            yield value
        for item in value if isinstance(value, list) else ():
            yield from codes(item)


async def prepared(broker: EmbeddedBroker) -> tuple[BrokerClient, dict[ApiKey, list[tuple[Any, int]]]]:
    client = await broker.connect()
    topic_id = await client.create_topic(TOPIC)
    configs = {"gnomon.shadow.source": TOPIC}
    created = CreatableTopic(name=SHADOW, num_partitions=-1, replication_factor=-1)
    created.configs = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    (cast,) = (await client.ask(CreateTopicsRequest(topics=[created]), 7)).topics
    assert cast.error_code == 0
    return client, requests(topic_id)


def test_the_table_names_every_served_api_and_no_other() -> None:
    assert {key.value for key in KAFKA_RULES} == set(APIS)


def test_every_api_has_a_probe() -> None:
    assert set(requests(UUID(int=1))) == set(KAFKA_RULES)


def test_every_rule_is_asked_by_a_request_of_its_api() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        deciding = broker.authorizer = Refusing()
        await broker.restart()
        client, probes = await prepared(broker)
        for api, rules in KAFKA_RULES.items():
            asked = set()
            fallbacks = {(each.operation, each.type) for each in rules if each.refusal is RefusalEffect.FALLBACK}
            for refused in (fallbacks, set()):
                deciding.refuse(refused)
                deciding.asked.clear()
                for message, version in probes[api]:
                    if api is not ApiKey.DELETE_TOPICS or refused:
                        await client.ask(message, version)
                asked |= deciding.asked
            if api is ApiKey.DELETE_TOPICS:
                continue  # its topics are gone after a deletion: its rules are tried one by one below
            missing = {(each.operation, each.type) for each in rules} - asked
            assert missing == set(), f"{api.name} never asks for {missing}"

    simulate_broker(scenario, kafka={"auto.create.topics.enable": "true"})


@pytest.mark.parametrize(("api", "rule"), RULES, ids=NAMED)
def test_a_refusal_does_what_the_table_says(api: ApiKey, rule: Rule) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        deciding = broker.authorizer = Refusing()
        await broker.restart()
        client, probes = await prepared(broker)
        rules = KAFKA_RULES[api]
        fallbacks = {(each.operation, each.type) for each in rules if each.refusal is RefusalEffect.FALLBACK}
        this = (rule.operation, rule.type)
        if rule.refusal is RefusalEffect.FALLBACK:
            deciding.refuse({this})
        elif api is ApiKey.DELETE_TOPICS and rule.operation is Operation.DESCRIBE:
            deciding.refuse(fallbacks | {this, (Operation.DELETE, ResourceType.TOPIC)})
        else:
            deciding.refuse((fallbacks if rule.operation is not Operation.CAST else set()) | {this})
        answers = [await client.ask(message, version) for message, version in probes[api]]
        found = {code for answer in answers for code in codes(answer)}
        match rule.refusal:
            case RefusalEffect.REQUEST | RefusalEffect.ITEM:
                assert any(code in found for code in expected(api, rule)), f"{answers}"
            case RefusalEffect.FALLBACK:
                assert not found & DENIALS or TRANSACTIONS_ARE_NOT_BUILT in {each.type for each in rules}
            case RefusalEffect.HIDDEN:
                assert all(not listed(answer) for answer in answers)
            case RefusalEffect.FIELD:
                assert any(field_is_refused(answer) for answer in answers)

    simulate_broker(scenario, kafka={"auto.create.topics.enable": "true"})


def expected(api: ApiKey, rule: Rule) -> list[ErrorCode]:
    """The code of a refusal; InitProducerId returns the cluster's to a session that may write to no topic."""
    if api is ApiKey.INIT_PRODUCER_ID and rule.type is ResourceType.TOPIC:
        return [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    return [DENIED[rule.type]]


def listed(answer: Any) -> list[Any]:
    found: list[Any] = answer.groups
    return found


def field_is_refused(answer: Any) -> bool:
    if hasattr(answer, "cluster_authorized_operations"):
        return bool(answer.cluster_authorized_operations == 0)
    return all(topic.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED for topic in answer.topics)


@pytest.mark.parametrize("api", KAFKA_RULES, ids=lambda api: api.name)
def test_no_request_is_refused_when_exactly_the_rules_of_its_api_are_allowed(api: ApiKey) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client, probes = await prepared(broker)
        deciding = broker.authorizer = Only({(rule.operation, rule.type) for rule in KAFKA_RULES[api]})
        await broker.restart()
        client = await broker.connect()
        for message, version in probes[api]:
            found = set(codes(await client.ask(message, version)))
            assert not found & (DENIALS - {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}), f"{api.name}: {found}"
        assert deciding.revision == 0

    simulate_broker(scenario, kafka={"auto.create.topics.enable": "true"})


def test_an_operation_that_the_table_does_not_name_cannot_be_asked_for() -> None:
    access = Access(Refusing(), KAFKA_RULES)
    session = Session(ANONYMOUS, "PLAINTEXT", "", "")
    with pytest.raises(AssertionError, match="asks for WRITE on a TOPIC, which its table does not name"):
        access.allows(ApiKey.FETCH, session, Operation.WRITE, topic("orders"))


def test_a_refusal_names_the_principal_the_operation_and_the_resource() -> None:
    access = Access(Refusing({(Operation.READ, ResourceType.TOPIC)}), KAFKA_RULES)
    with pytest.raises(KafkaError, match="'User:ada' is not authorized for READ on topic 'orders'"):
        access.check(ApiKey.FETCH, Session("User:ada", "PLAINTEXT", "", ""), Operation.READ, topic("orders"))


def test_the_session_names_the_client_and_its_address() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        deciding = broker.authorizer = Refusing()
        await broker.restart()
        client = await broker.connect()
        await client.create_topic(TOPIC)
        session = deciding.sessions[-1]
        assert (session.principal, session.listener) == (ANONYMOUS, "PLAINTEXT")
        assert session.address
        assert ":" not in session.address

    simulate_broker(scenario)


def test_a_list_of_all_topics_leaves_out_those_that_the_session_may_not_describe() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        deciding = broker.authorizer = Refusing()
        await broker.restart()
        client = await broker.connect()
        await client.create_topic(TOPIC)
        secret_id = await client.create_topic("secret")
        deciding.refuse({(Operation.DESCRIBE, ResourceType.TOPIC)}, {"secret"})
        everything = await client.ask(MetadataRequest(topics=None), 12)
        assert [each.name for each in everything.topics] == [TOPIC]
        named = await client.ask(
            MetadataRequest(
                topics=[MetadataRequestTopic(name="secret"), MetadataRequestTopic(name=None, topic_id=secret_id)]
            ),
            12,
        )
        assert [each.error_code for each in named.topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
        assert [each.name for each in named.topics] == ["secret", None], "an id proves no knowledge of the name"

    simulate_broker(scenario)


def test_a_refused_topic_says_nothing_about_its_existence() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        deciding = broker.authorizer = Refusing()
        await broker.restart()
        client = await broker.connect()
        await client.create_topic("secret")
        deciding.refuse({(Operation.DELETE, ResourceType.CLUSTER), (Operation.DELETE, ResourceType.TOPIC)})
        answers = [
            await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]), 6)
            for name in ("secret", "none")
        ]
        first, second = (answer.responses[0] for answer in answers)
        assert (first.error_code, first.error_message) == (second.error_code, second.error_message)

    simulate_broker(scenario)


def test_a_refused_topic_that_is_named_twice_is_answered_once() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        deciding = broker.authorizer = Refusing()
        await broker.restart()
        client = await broker.connect()
        topic_id = await client.create_topic("secret")
        deciding.refuse({(Operation.DELETE, ResourceType.CLUSTER), (Operation.DELETE, ResourceType.TOPIC)})
        named, by_id = DeleteTopicState(name="secret"), DeleteTopicState(name=None, topic_id=topic_id)
        answer = await client.ask(DeleteTopicsRequest(topics=[named, by_id, named, by_id]), 6)
        assert [each.topic_id for each in answer.responses] == [named.topic_id, topic_id]
        assert {each.error_code for each in answer.responses} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}

    simulate_broker(scenario)


def test_a_group_list_shows_only_the_groups_that_the_session_may_describe() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        deciding = broker.authorizer = Refusing()
        await broker.restart()
        client = await broker.connect()
        await client.create_topic(TOPIC)
        for name in (GROUP, "secret"):
            part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
            request = OffsetCommitRequest(
                group_id=name, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[part])]
            )
            await client.ask(request, 8)
        describe = {(Operation.DESCRIBE, ResourceType.CLUSTER), (Operation.DESCRIBE, ResourceType.GROUP)}
        deciding.refuse(describe, {"secret", "kafka-cluster"})
        found = await client.ask(ListGroupsRequest(), 4)
        assert [each.group_id for each in found.groups] == [GROUP]

    simulate_broker(scenario)


def test_all_offsets_of_a_group_leave_out_topics_that_the_session_may_not_describe() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        deciding = broker.authorizer = Refusing()
        await broker.restart()
        client = await broker.connect()
        for name in (TOPIC, "secret"):
            await client.create_topic(name)
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topics = [OffsetCommitRequestTopic(name=name, partitions=[part]) for name in (TOPIC, "secret")]
        await client.ask(OffsetCommitRequest(group_id=GROUP, topics=topics), 8)
        deciding.refuse({(Operation.DESCRIBE, ResourceType.TOPIC)}, {"secret"})
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
        (found,) = (await client.ask(asked, 8)).groups
        assert [each.name for each in found.topics] == [TOPIC]

    simulate_broker(scenario)
