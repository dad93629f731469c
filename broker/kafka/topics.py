"""Topic administration: CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar

from gnomon.broker.authorizer import Permission, check
from gnomon.broker.errors import KafkaError
from gnomon.broker.kafka.request import Handler, Request
from gnomon.broker.shadow.cast import BROKER_DEFAULT, SHADOW_SOURCE, described_source, source_name
from gnomon.broker.topic_configs import TOPIC_CONFIGS
from gnomon.broker.topics import Topic
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fields import NO_UUID
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker

T = TypeVar("T")

TOPIC_ID_SINCE = 6


class TopicHandlers:
    """Answers the topic administration requests of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        """The handler of each API key."""
        return {
            ApiKey.CREATE_TOPICS: self.create_topics,
            ApiKey.DELETE_TOPICS: self.delete_topics,
            ApiKey.CREATE_PARTITIONS: self.create_partitions,
        }

    async def create_topics(self, request: Request) -> CreateTopicsResponse:
        """Creates each topic, or says why not; with `validate_only` nothing is created."""
        message: CreateTopicsRequest = request.message
        results = []
        for item, twice in _each_once(message.topics, lambda item: item.name):
            try:
                if twice:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic '{item.name}' is named twice in one request.")
                results.append(await self._create(item, message.validate_only))
            except KafkaError as error:
                results.append(
                    CreatableTopicResult(name=item.name, error_code=error.code, error_message=error.text, configs=[])
                )
        return CreateTopicsResponse(topics=results)

    async def _create(self, item: CreatableTopic, validate_only: bool) -> CreatableTopicResult:
        partitions = self._partitions_asked(item)
        configs = {config.name: config.value for config in item.configs}
        source = configs.get(SHADOW_SOURCE)
        if source is not None:
            await self._broker.topic_admin.find(source_name(source, item.name))
        if self._broker.image.get(item.name) is not None:
            await self._broker.topic_admin.current(item.name)
        topic = self._broker.topic_admin.check_new(item.name, partitions, configs)
        self._check_shadow_policy(topic)
        if not validate_only:
            topic = await self._broker.topic_admin.create(topic)
        return CreatableTopicResult(
            name=topic.name,
            topic_id=NO_UUID if validate_only else topic.id,
            num_partitions=topic.partitions,
            replication_factor=1,
            configs=self._configs_of(topic),
        )

    def _check_shadow_policy(self, topic: Topic) -> None:
        """Raises KafkaError where a shadow is not to come or go by the will of who asks."""
        if topic.source is not None:
            check(self._broker.authorizer, Permission.WRITE_SHADOW_TOPIC, topic.source.name)

    def _partitions_asked(self, item: CreatableTopic) -> int:
        if item.assignments:
            if item.num_partitions != BROKER_DEFAULT or item.replication_factor != BROKER_DEFAULT:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "A request with assignments must leave both numbers at -1.")
            indexes = sorted(assignment.partition_index for assignment in item.assignments)
            if indexes != list(range(len(indexes))):
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Assignments must name the partitions from 0 on, each once."
                )
            for assignment in item.assignments:
                self._check_assignment(assignment.broker_ids)
            return len(indexes)
        brokers = len(self._broker.leadership.brokers)
        if not brokers:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "No broker is registered at the moment: ask again in a second.")
        if item.replication_factor != BROKER_DEFAULT and not 1 <= item.replication_factor <= brokers:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Replication factor {item.replication_factor} is larger than the {brokers} available "
                f"broker{'s' if brokers > 1 else ''}."
                if item.replication_factor > 0
                else f"Replication factor {item.replication_factor}: it is 1 or more, or -1 for the default.",
            )
        return item.num_partitions

    def _check_assignment(self, broker_ids: list[int]) -> None:
        brokers = list(self._broker.leadership.brokers)
        if len(brokers) != 1 or broker_ids != brokers:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Assignment {broker_ids}: the only broker is {brokers[0]}, once per partition."
                if len(brokers) == 1
                else f"Assignment {broker_ids}: the brokers place partitions themselves; create the topic without it.",
            )

    def _configs_of(self, topic: Topic) -> list[CreatableTopicConfigs]:
        configs = self._broker.configs_of(topic)
        values = (self._broker.configs.topic_synonyms(name, configs)[0] for name in TOPIC_CONFIGS)
        own = [
            CreatableTopicConfigs(name=key.name, value=text, config_source=source, read_only=True)
            for key, text, source in described_source(topic)
        ]
        return own + [
            CreatableTopicConfigs(name=name, value=value.text, config_source=value.source)
            for name, value in zip(TOPIC_CONFIGS, values, strict=True)
        ]

    async def delete_topics(self, request: Request) -> DeleteTopicsResponse:
        """Deletes each topic, by name or by id."""
        message: DeleteTopicsRequest = request.message
        asked = (
            message.topics
            if request.version >= TOPIC_ID_SINCE
            else [DeleteTopicState(name=name) for name in message.topic_names]
        )
        each = _each_once(asked, lambda item: (item.name, item.topic_id))
        return DeleteTopicsResponse(responses=[await self._delete(item, twice) for item, twice in each])

    async def _delete(self, item: DeleteTopicState, twice: bool) -> DeletableTopicResult:
        image = self._broker.image
        by_id = item.topic_id != NO_UUID
        topic = image.get_by_id(item.topic_id) if by_id else await self._broker.topic_admin.current(item.name or "")
        name = topic.name if topic is not None else (None if by_id else item.name)
        try:
            if twice or by_id == (item.name is not None):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "A topic to delete is named once, by its name or by its id: not by both."
                )
            if topic is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise KafkaError(code, "This server does not host this topic.")
            if topic.internal:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"The broker keeps its own state in '{topic.name}'.")
            if not self._broker.configs.flag("delete.topic.enable"):
                raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled: delete.topic.enable.")
            self._check_shadow_policy(topic)
            await self._broker.topic_admin.delete(topic)
        except KafkaError as error:
            return DeletableTopicResult(
                name=name, topic_id=item.topic_id, error_code=error.code, error_message=error.text
            )
        return DeletableTopicResult(name=name, topic_id=topic.id)

    async def create_partitions(self, request: Request) -> CreatePartitionsResponse:
        """Grows topics."""
        message: CreatePartitionsRequest = request.message
        results = []
        for item, twice in _each_once(message.topics, lambda item: item.name):
            try:
                if twice:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic '{item.name}' is named twice in one request.")
                await self._grow(item, message.validate_only)
                results.append(CreatePartitionsTopicResult(name=item.name))
            except KafkaError as error:
                results.append(
                    CreatePartitionsTopicResult(name=item.name, error_code=error.code, error_message=error.text)
                )
        return CreatePartitionsResponse(results=results)

    async def _grow(self, item: CreatePartitionsTopic, validate_only: bool) -> None:
        topic = await self._broker.topic_admin.current(item.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic.")
        if topic.internal:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The broker keeps its own state in '{topic.name}'.")
        admin = self._broker.topic_admin
        admin.check_growth(topic, item.count)
        if item.assignments is not None:
            if len(item.assignments) != item.count - topic.partitions:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{item.count - topic.partitions} assignments are needed, {len(item.assignments)} were given.",
                )
            for assignment in item.assignments:
                self._check_assignment(assignment.broker_ids)
        if not validate_only:
            await admin.grow(item.name, item.count)


def _each_once(items: Sequence[T], named: Callable[[T], Hashable]) -> list[tuple[T, bool]]:
    """Each, and whether it is named twice; answered once, as in Kafka: librdkafka takes no topic twice in an answer."""
    count = Counter(map(named, items))
    return [(item, count[key] > 1) for key, item in {named(item): item for item in items}.items()]
