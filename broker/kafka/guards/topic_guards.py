"""Guards of the APIs about topics, their records and their configs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from gnomon.broker.authorization.operation import CLUSTER, DENIED, Operation, Resource, ResourceType, group, topic
from gnomon.broker.kafka.guards.cluster_guards import cluster_operations
from gnomon.broker.kafka.guards.guard import Guards, Question
from gnomon.broker.kafka.guards.topic_ids import TopicIds
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fields import NO_UUID, ProtocolMessage
from gnomon.wire.kafka.messages.cluster import NULL_NAMES_SINCE, MetadataResponseTopic
from gnomon.wire.kafka.messages.configs import (
    AlterConfigsResourceResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsResourceResponse,
)
from gnomon.wire.kafka.messages.placement import DescribeTopicPartitionsResponseTopic
from gnomon.wire.kafka.messages.positions import (
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderTopicResult,
)
from gnomon.wire.kafka.messages.topics import (
    CreatableTopicResult,
    CreatePartitionsTopicResult,
    DeletableTopicResult,
    DeleteRecordsPartitionResult,
    DeleteRecordsTopicResult,
    DeleteTopicState,
)

TOPIC_DENIED = DENIED[ResourceType.TOPIC]
TEXT = "Authorization failed."
TOPIC_OPERATIONS = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
"""The operations in the bit field of an answer (KIP-430)."""
DELETE_BY_ID_SINCE = 6
CONFIGS_SINCE = 5
"""CreateTopics answers with the topic's configs from this version on."""
_CONFIG_RESOURCES: dict[int, Callable[[str], Resource]] = {2: topic, 32: group}
"""Kafka's types of config resources; every other one belongs to the cluster."""


def _list_offsets(question: Question) -> ProtocolMessage | None:
    def refusal(item: Any) -> ListOffsetsTopicResponse:
        return ListOffsetsTopicResponse(
            name=item.name,
            partitions=[
                ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=TOPIC_DENIED)
                for each in item.partitions
            ],
        )

    return question.refuse_items("topics", Operation.DESCRIBE, _named, refusal, "topics")


def _offset_for_leader_epoch(question: Question) -> ProtocolMessage | None:
    def refusal(item: Any) -> OffsetForLeaderTopicResult:
        return OffsetForLeaderTopicResult(
            topic=item.topic,
            partitions=[EpochEndOffset(partition=each.partition, error_code=TOPIC_DENIED) for each in item.partitions],
        )

    if question.allows(Operation.CLUSTER_ACTION):
        return None
    return question.refuse_items("topics", Operation.DESCRIBE, lambda each: topic(each.topic), refusal, "topics")


def _delete_records(question: Question) -> ProtocolMessage | None:
    def refusal(item: Any) -> DeleteRecordsTopicResult:
        return DeleteRecordsTopicResult(
            name=item.name,
            partitions=[
                DeleteRecordsPartitionResult(
                    partition_index=each.partition_index, low_watermark=-1, error_code=TOPIC_DENIED
                )
                for each in item.partitions
            ],
        )

    return question.refuse_items("topics", Operation.DELETE, _named, refusal, "topics")


def _create_partitions(question: Question) -> ProtocolMessage | None:
    message = question.message
    message.topics, refused = question.split(message.topics, Operation.ALTER, _named)
    denied = [
        CreatePartitionsTopicResult(name=name, error_code=TOPIC_DENIED, error_message=TEXT)
        for name in dict.fromkeys(each.name for each in refused)
    ]
    return question.refuse_some(message.topics, denied, "results")


def _named(item: Any) -> Resource:
    """The topic that an item names."""
    return topic(item.name or "")


def _init_producer_id(question: Question) -> ProtocolMessage | None:
    name = question.message.transactional_id
    if name is not None:
        transactional = Resource(ResourceType.TRANSACTIONAL_ID, name)
        if question.allows(Operation.WRITE, transactional):
            return None
        return question.answer(error_code=DENIED[ResourceType.TRANSACTIONAL_ID])
    if question.allows(Operation.IDEMPOTENT_WRITE) or question.allows_any(Operation.WRITE, ResourceType.TOPIC):
        return None
    return question.answer(error_code=DENIED[ResourceType.CLUSTER])


# --- metadata -----------------------------------------------------------------------------------------------------


def _metadata(topic_ids: TopicIds, creates_topics: Callable[[], bool], question: Question) -> ProtocolMessage | None:
    message = question.message
    everything = message.topics is None or (question.request.version == 0 and not message.topics)
    denied: list[MetadataResponseTopic] = []
    if not everything:
        kept, denied = _metadata_of_some(topic_ids, creates_topics, question)
        if not kept and question.request.version == 0:
            # In version 0 an empty list of topics means all topics.
            return question.answer(topics=denied)
        message.topics = kept
    operations = cluster_operations(question) if message.include_cluster_authorized_operations else None

    def amend(response: Any) -> None:
        if everything:
            response.topics, _ = question.split(response.topics, Operation.DESCRIBE, _named)
        if message.include_topic_authorized_operations:
            for each in response.topics:
                if each.error_code == ErrorCode.NONE:
                    each.topic_authorized_operations = question.operations(topic(each.name), TOPIC_OPERATIONS)
        if operations is not None:
            response.cluster_authorized_operations = operations
        response.topics += denied

    question.request.amend(amend)
    return None


def _metadata_of_some(
    topic_ids: TopicIds, creates_topics: Callable[[], bool], question: Question
) -> tuple[list[Any], list[MetadataResponseTopic]]:
    """The topics of a request that it may ask for, and the answers for the others."""
    message = question.message
    nameless = None if question.request.version >= NULL_NAMES_SINCE else ""
    by_name = [each for each in message.topics if each.topic_id == NO_UUID]
    by_id = [each for each in message.topics if each.topic_id != NO_UUID]
    known = [each for each in by_id if topic_ids.name_of(each) is not None]
    kept_by_id, refused_by_id = question.split(
        known, Operation.DESCRIBE, lambda each: topic(topic_ids.name_of(each) or "")
    )
    kept, refused = question.split(by_name, Operation.DESCRIBE, _named)
    if message.allow_auto_topic_creation and creates_topics() and not question.allows(Operation.CREATE):
        there = [each for each in kept if topic_ids.exists(each.name or "")]
        missing = [each for each in kept if not topic_ids.exists(each.name or "")]
        creatable, uncreatable = question.split(missing, Operation.CREATE, _named)
        kept = there + creatable
        refused += uncreatable
    denied = [MetadataResponseTopic(error_code=TOPIC_DENIED, name=each.name) for each in refused]
    denied += [
        MetadataResponseTopic(error_code=TOPIC_DENIED, name=nameless, topic_id=each.topic_id) for each in refused_by_id
    ]
    denied += [
        MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=nameless, topic_id=each.topic_id)
        for each in by_id
        if topic_ids.name_of(each) is None
    ]
    return kept + kept_by_id, denied


def _describe_topic_partitions(question: Question) -> ProtocolMessage | None:
    message = question.message
    everything = not message.topics
    kept, refused = question.split(message.topics, Operation.DESCRIBE, _named)
    message.topics = kept
    denied = [
        DescribeTopicPartitionsResponseTopic(error_code=TOPIC_DENIED, name=name)
        for name in dict.fromkeys(each.name for each in refused)
    ]
    if not kept and not everything:
        return question.answer(topics=denied)

    def amend(response: Any) -> None:
        if everything:
            response.topics, _ = question.split(response.topics, Operation.DESCRIBE, _named)
        for each in response.topics:
            if each.error_code == ErrorCode.NONE:
                each.topic_authorized_operations = question.operations(topic(each.name), TOPIC_OPERATIONS)
        response.topics += denied

    question.request.amend(amend)
    return None


# --- creating and deleting topics ---------------------------------------------------------------------------------


def _create_topics(question: Question) -> ProtocolMessage | None:
    message = question.message
    everywhere = question.allows(Operation.CREATE)
    kept, refused = question.split(
        message.topics, Operation.CREATE, lambda each: CLUSTER if everywhere else topic(each.name)
    )
    message.topics = kept
    denied = [
        CreatableTopicResult(name=name, error_code=TOPIC_DENIED, error_message=TEXT, configs=[])
        for name in dict.fromkeys(each.name for each in refused)
    ]

    def amend(response: Any) -> None:
        for each in response.topics:
            if not question.allows(Operation.DESCRIBE_CONFIGS, topic(each.name)):
                each.topic_config_error_code = TOPIC_DENIED
                each.num_partitions = each.replication_factor = -1
                each.configs = None if question.request.version >= CONFIGS_SINCE else []
        response.topics += denied

    if not kept:
        return question.answer(topics=denied)
    question.request.amend(amend)
    return None


def _delete_topics(topic_ids: TopicIds, question: Question) -> ProtocolMessage | None:
    message, by_state = question.message, question.request.version >= DELETE_BY_ID_SINCE
    if question.allows(Operation.DELETE):
        return None
    asked = message.topics if by_state else [DeleteTopicState(name=name) for name in message.topic_names]
    kept: list[DeleteTopicState] = []
    denied: dict[tuple[str | None, UUID], DeletableTopicResult] = {}  # no topic comes twice in an answer
    for each in asked:
        name = topic_ids.name_of(each)
        if name is not None and question.allows(Operation.DELETE, topic(name)):
            kept.append(each)
            continue
        refusal = denied[each.name, each.topic_id] = DeletableTopicResult(name=name, topic_id=each.topic_id)
        if name is None:
            refusal.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            continue
        refusal.error_code, refusal.error_message = TOPIC_DENIED, TEXT
        if each.topic_id != NO_UUID and not question.allows(Operation.DESCRIBE, topic(name)):
            refusal.name = None  # an id proves no knowledge of the name
    if by_state:
        message.topics = kept
    else:
        message.topic_names = [each.name for each in kept]
    return question.refuse_some(kept, list(denied.values()), "responses")


# --- configs ------------------------------------------------------------------------------------------------------


def _configs_of(item: Any) -> Resource:
    """The resource whose configs an item names."""
    resource = _CONFIG_RESOURCES.get(item.resource_type)
    return CLUSTER if resource is None else resource(item.resource_name)


def _configs(operation: Operation, result: type[Any], answers: str, question: Question) -> ProtocolMessage | None:
    def refusal(item: Any) -> object:
        return result(
            error_code=DENIED[_configs_of(item).type],
            error_message=TEXT,
            resource_type=item.resource_type,
            resource_name=item.resource_name,
        )

    return question.refuse_items("resources", operation, _configs_of, refusal, answers)


def topic_guards(topic_ids: TopicIds, creates_topics: Callable[[], bool]) -> Guards:
    """The guards.

    Args:
        topic_ids: finds the names of topics that requests name by id.
        creates_topics: whether Metadata may create a topic (`auto.create.topics.enable`).
    """
    alter = Operation.ALTER_CONFIGS
    return {
        ApiKey.LIST_OFFSETS: _list_offsets,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
        ApiKey.DELETE_RECORDS: _delete_records,
        ApiKey.CREATE_PARTITIONS: _create_partitions,
        ApiKey.INIT_PRODUCER_ID: _init_producer_id,
        ApiKey.METADATA: partial(_metadata, topic_ids, creates_topics),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
        ApiKey.CREATE_TOPICS: _create_topics,
        ApiKey.DELETE_TOPICS: partial(_delete_topics, topic_ids),
        ApiKey.DESCRIBE_CONFIGS: partial(_configs, Operation.DESCRIBE_CONFIGS, DescribeConfigsResult, "results"),
        ApiKey.ALTER_CONFIGS: partial(_configs, alter, AlterConfigsResourceResponse, "responses"),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: partial(
            _configs, alter, IncrementalAlterConfigsResourceResponse, "responses"
        ),
    }
