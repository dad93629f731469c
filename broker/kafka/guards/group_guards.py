"""Guards of the APIs about consumer groups and their offsets.

Offsets are stored by topic name, as in Kafka's own records; from version 10 on OffsetCommit and OffsetFetch name topics
by id. The guards turn ids into names and back, and refuse partitions that do not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from gnomon.broker.authorization.operation import DENIED, Operation, Resource, ResourceType, group, topic
from gnomon.broker.kafka.guards.guard import Guards, Question
from gnomon.broker.kafka.guards.topic_ids import TopicIds
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fields import NO_UUID, ProtocolMessage
from gnomon.wire.kafka.messages.group import Coordinator
from gnomon.wire.kafka.messages.group_admin import DeletableGroupResult, DescribedGroup
from gnomon.wire.kafka.messages.modern_group import DescribedConsumerGroup, DescribedShareGroup
from gnomon.wire.kafka.messages.offsets import (
    FETCH_GROUPS_SINCE,
    OffsetCommitRequestTopic,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

TOPIC_DENIED = DENIED[ResourceType.TOPIC]
GROUP_DENIED = DENIED[ResourceType.GROUP]
COORDINATORS_SINCE = 4
"""FindCoordinator answers several keys from this version on."""
TOPIC_IDS_SINCE = 10
"""OffsetCommit and OffsetFetch name topics by id from this version on."""
GROUP_OPERATIONS = (Operation.READ, Operation.DELETE, Operation.DESCRIBE)
_COORDINATED = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}


def _read(question: Question) -> ProtocolMessage | None:
    """JoinGroup, SyncGroup, heartbeats: READ on the group."""
    allowed = question.allows(Operation.READ, group(question.message.group_id))
    return None if allowed else question.answer(error_code=GROUP_DENIED)


def _find_coordinator(question: Question) -> ProtocolMessage | None:
    message, batched = question.message, question.request.version >= COORDINATORS_SINCE
    kind = _COORDINATED.get(message.key_type)
    if kind is None:
        return None  # the handler refuses types without coordinators
    keys = message.coordinator_keys if batched else [message.key]
    kept, refused = question.split(keys, Operation.DESCRIBE, lambda key: Resource(kind, key))
    if refused and not batched:
        return question.answer(error_code=DENIED[kind], node_id=-1, port=-1)
    message.coordinator_keys = kept
    found = [Coordinator(key=key, node_id=-1, port=-1, error_code=DENIED[kind]) for key in refused]
    return question.refuse_some(kept, found, "coordinators")


def _describe_groups(question: Question) -> ProtocolMessage | None:
    def operations(response: Any) -> None:
        for described in response.groups:
            if described.error_code == ErrorCode.NONE:
                described.authorized_operations = question.operations(group(described.group_id), GROUP_OPERATIONS)

    if question.message.include_authorized_operations:
        question.request.amend(operations)
    return _each("groups", Operation.DESCRIBE, DescribedGroup, "groups", question)


def _each(
    groups: str, operation: Operation, result: type[Any], answers: str, question: Question
) -> ProtocolMessage | None:
    """An error code for each group that is refused."""

    def refusal(name: str) -> object:
        return result(group_id=name, error_code=GROUP_DENIED)

    return question.refuse_items(groups, operation, group, refusal, answers)


def _list_groups(question: Question) -> None:
    if question.allows(Operation.DESCRIBE):
        return

    def hide(response: Any) -> None:
        response.groups, _ = question.split(response.groups, Operation.DESCRIBE, lambda each: group(each.group_id))

    question.request.amend(hide)


# --- offsets ------------------------------------------------------------------------------------------------------


def _offset_commit(topic_ids: TopicIds, question: Question) -> ProtocolMessage | None:
    message = question.message
    if not question.allows(Operation.READ, group(message.group_id)):
        return question.answer(topics=[_committed(each, GROUP_DENIED) for each in message.topics])
    named, unknown = topic_ids.named(message.topics)
    allowed, refused = question.split(named, Operation.READ, lambda each: topic(each.name))
    message.topics, missing = _existing(topic_ids, allowed)
    found = [_committed(each, TOPIC_DENIED) for each in refused]
    found += [_committed(each, ErrorCode.UNKNOWN_TOPIC_ID) for each in unknown]
    found += [_committed(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for each in missing]
    return question.refuse_some(message.topics, found, "topics")


def _existing(topic_ids: TopicIds, topics: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The topics with their partitions that exist, and with those that do not."""
    existing, missing = [], []
    for each in topics:
        count = topic_ids.partitions_of(each.name)
        wrong = [part for part in each.partitions if not 0 <= part.partition_index < count]
        if wrong:
            missing.append(type(each)(name=each.name, partitions=wrong))
            if isinstance(each, OffsetCommitRequestTopic):
                missing[-1].topic_id = each.topic_id
            each.partitions = [part for part in each.partitions if 0 <= part.partition_index < count]
        if each.partitions or not wrong:
            existing.append(each)
    return existing, missing


def _committed(item: Any, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=item.name,
        topic_id=item.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in item.partitions
        ],
    )


def _offset_fetch(topic_ids: TopicIds, question: Question) -> ProtocolMessage | None:
    if question.request.version < FETCH_GROUPS_SINCE:
        return _offset_fetch_of_one(question)
    message = question.message
    kept, refused = question.split(message.groups, Operation.DESCRIBE, lambda each: group(each.group_id))
    message.groups = kept
    denied: dict[str, list[OffsetFetchResponseTopics]] = {}
    for each in kept:
        if each.topics is not None:
            named, unknown = topic_ids.named(each.topics)
            each.topics, topics = question.split(named, Operation.DESCRIBE, lambda one: topic(one.name))
            denied[each.group_id] = [_fetched(one, TOPIC_DENIED) for one in topics]
            denied[each.group_id] += [_fetched(one, ErrorCode.UNKNOWN_TOPIC_ID) for one in unknown]

    hidden = [OffsetFetchResponseGroup(group_id=each.group_id, error_code=GROUP_DENIED) for each in refused]

    def amend(response: Any) -> None:
        for found in response.groups:
            if question.request.version >= TOPIC_IDS_SINCE:
                for each in found.topics:
                    each.topic_id = topic_ids.id_of(each.name)
                found.topics = [each for each in found.topics if each.topic_id != NO_UUID]  # the others were deleted
            allowed, _ = question.split(found.topics, Operation.DESCRIBE, lambda each: topic(each.name))
            found.topics = allowed + (denied.get(found.group_id, []) if found.error_code == ErrorCode.NONE else [])
        response.groups += hidden

    if kept:
        question.request.amend(amend)
        return None
    return question.refuse_some(kept, hidden, "groups")


def _offset_fetch_of_one(question: Question) -> ProtocolMessage | None:
    message = question.message
    if not question.allows(Operation.DESCRIBE, group(message.group_id)):
        return question.answer(error_code=GROUP_DENIED)
    denied: list[OffsetFetchResponseTopic] = []
    if message.topics is not None:
        message.topics, refused = question.split(message.topics, Operation.DESCRIBE, lambda each: topic(each.name))
        denied = [
            OffsetFetchResponseTopic(
                name=each.name,
                partitions=[
                    OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, error_code=TOPIC_DENIED)
                    for index in each.partition_indexes
                ],
            )
            for each in refused
        ]

    def amend(response: Any) -> None:
        allowed, _ = question.split(response.topics, Operation.DESCRIBE, lambda each: topic(each.name))
        response.topics = allowed + denied

    question.request.amend(amend)
    return None


def _fetched(item: Any, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=item.name,
        topic_id=item.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=code)
            for index in item.partition_indexes
        ],
    )


def _offset_delete(topic_ids: TopicIds, question: Question) -> ProtocolMessage | None:
    message = question.message
    if not question.allows(Operation.DELETE, group(message.group_id)):
        return question.answer(error_code=GROUP_DENIED)
    allowed, refused = question.split(message.topics, Operation.READ, lambda each: topic(each.name))
    message.topics, missing = _existing(topic_ids, allowed)
    found: dict[str, OffsetDeleteResponseTopic] = {}
    for code, items in ((TOPIC_DENIED, refused), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, missing)):
        for each in items:
            found.setdefault(each.name, OffsetDeleteResponseTopic(name=each.name)).partitions += [
                OffsetDeleteResponsePartition(partition_index=part.partition_index, error_code=code)
                for part in each.partitions
            ]

    def amend(response: Any) -> None:
        if response.error_code == ErrorCode.NONE:
            for each in response.topics:
                if each.name in found:  # a topic has one entry
                    each.partitions += found.pop(each.name).partitions
            response.topics += found.values()

    if not found:
        return None
    if not message.topics:
        return question.answer(topics=list(found.values()))
    question.request.amend(amend)
    return None


def group_guards(topic_ids: TopicIds) -> Guards:
    """The guards; `topic_ids` finds the names of topics that requests name by id."""
    describe = Operation.DESCRIBE
    return {
        ApiKey.JOIN_GROUP: _read,
        ApiKey.SYNC_GROUP: _read,
        ApiKey.HEARTBEAT: _read,
        ApiKey.LEAVE_GROUP: _read,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: _read,
        ApiKey.SHARE_GROUP_HEARTBEAT: _read,
        ApiKey.FIND_COORDINATOR: _find_coordinator,
        ApiKey.DESCRIBE_GROUPS: _describe_groups,
        ApiKey.CONSUMER_GROUP_DESCRIBE: partial(_each, "group_ids", describe, DescribedConsumerGroup, "groups"),
        ApiKey.SHARE_GROUP_DESCRIBE: partial(_each, "group_ids", describe, DescribedShareGroup, "groups"),
        ApiKey.LIST_GROUPS: _list_groups,
        ApiKey.DELETE_GROUPS: partial(_each, "groups_names", Operation.DELETE, DeletableGroupResult, "results"),
        ApiKey.OFFSET_COMMIT: partial(_offset_commit, topic_ids),
        ApiKey.OFFSET_FETCH: partial(_offset_fetch, topic_ids),
        ApiKey.OFFSET_DELETE: partial(_offset_delete, topic_ids),
    }
