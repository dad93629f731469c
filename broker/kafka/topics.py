"""Topic administration: CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from gnomon.broker.authorization.authorizer import Access
from gnomon.broker.authorization.operation import Operation
from gnomon.broker.authorization.operation import topic as topic_resource
from gnomon.broker.configs.broker_configs import BrokerConfigs
from gnomon.broker.configs.topic_configs import TOPIC_CONFIGS
from gnomon.broker.errors import KafkaError
from gnomon.broker.kafka.connections.request import Handler, Request
from gnomon.broker.placement.placement import Placement
from gnomon.broker.storage import Storage
from gnomon.broker.topics.cast import BROKER_DEFAULT, SHADOW_SOURCE, described_source, source_name
from gnomon.broker.topics.topic_admin import TopicAdmin
from gnomon.broker.topics.topic_records import TopicRecords
from gnomon.broker.topics.topics import Topics
from gnomon.log.topic import Topic
from gnomon.runtime.loop.paced import paced
from gnomon.runtime.world import Clock
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

T = TypeVar("T")

TOPIC_ID_SINCE = 6
TOPICS_PER_TURN = 64


class TopicHandlers:
    """Answers the topic administration requests of one broker."""

    def __init__(
        self,
        topics: Topics,
        placement: Placement,
        storage: Storage,
        records: TopicRecords,
        admin: TopicAdmin,
        configs: BrokerConfigs,
        access: Access[ApiKey],
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._placement = placement
        self._storage = storage
        self._records = records
        self._admin = admin
        self._configs = configs
        self._access = access
        self._clock = clock

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
        each = _each_once(message.topics, lambda item: item.name)
        async for item, twice in paced(each, TOPICS_PER_TURN, self._clock):
            try:
                if twice:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic '{item.name}' is named twice in one request.")
                results.append(await self._create(request, item, message.validate_only))
            except KafkaError as error:
                results.append(
                    CreatableTopicResult(name=item.name, error_code=error.code, error_message=error.text, configs=[])
                )
        return CreateTopicsResponse(topics=results)

    async def _create(self, request: Request, item: CreatableTopic, validate_only: bool) -> CreatableTopicResult:
        partitions, copies = self._numbers_asked(item)
        configs = {config.name: config.value for config in item.configs}
        source = configs.get(SHADOW_SOURCE)
        if source is not None:
            await self._records.find(source_name(source, item.name))
        if self._topics.image.get(item.name) is not None:
            await self._records.current(item.name)
        topic = self._with_copies(self._admin.check_new(item.name, partitions, configs), copies)
        self._check_cast(ApiKey.CREATE_TOPICS, request, topic)
        if not validate_only:
            topic = await self._admin.create(topic)
        return CreatableTopicResult(
            name=topic.name,
            topic_id=NO_UUID if validate_only else topic.id,
            num_partitions=topic.partitions,
            replication_factor=self._storage.quorum_of(topic.copies).write_quorum,
            configs=self._configs_of(topic),
        )

    def _with_copies(self, topic: Topic, copies: int | None) -> Topic:
        """A new topic with the copies that it asks for; a shadow has those of its source, and may ask for no others."""
        if topic.source is None:
            return topic.with_copies(copies)
        if copies not in (None, self._storage.quorum_of(topic.copies).write_quorum):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"A shadow has the copies of its source '{topic.source.name}': ask for {BROKER_DEFAULT}.",
            )
        return topic

    def _check_cast(self, api: ApiKey, request: Request, topic: Topic) -> None:
        """Raises KafkaError where the session may not cast or delete the shadows of a shadow's source."""
        if topic.source is not None:
            self._access.check(api, request.session, Operation.CAST, topic_resource(topic.source.name))

    def _numbers_asked(self, item: CreatableTopic) -> tuple[int, int | None]:
        """The partitions and copies that a topic asks for: BROKER_DEFAULT and None for the defaults."""
        brokers = list(self._placement.leadership.brokers)
        if not brokers:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "No broker is registered at the moment: ask again in a second.")
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
            return len(indexes), 1
        if item.replication_factor == BROKER_DEFAULT:
            return item.num_partitions, None
        self._check_copies(item.replication_factor)
        return item.num_partitions, item.replication_factor

    def _check_copies(self, copies: int) -> None:
        bookies = len(self._storage.bookies.known())
        if 1 <= copies <= bookies:
            return
        text = f"Replication factor {copies}: it is 1 or more, or -1 for the default."
        if copies > 0:
            noun = "bookie keeps" if bookies == 1 else "bookies keep"
            text = f"Replication factor {copies}: {bookies} {noun} the copies, each at most one."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)

    def _check_assignment(self, broker_ids: list[int]) -> None:
        brokers = list(self._placement.leadership.brokers)
        if len(brokers) != 1 or broker_ids != brokers:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Assignment {broker_ids}: the only broker is {brokers[0]}, once per partition."
                if len(brokers) == 1
                else f"Assignment {broker_ids}: the brokers place partitions themselves; create the topic without it.",
            )

    def _configs_of(self, topic: Topic) -> list[CreatableTopicConfigs]:
        configs = self._topics.configs_of(topic)
        values = (self._configs.topic_synonyms(name, configs)[0] for name in TOPIC_CONFIGS)
        own = [
            CreatableTopicConfigs(name=key.name, value=text, config_source=source, read_only=True)
            for key, text, source in described_source(topic)
        ]
        return own + [
            CreatableTopicConfigs(name=name, value=value.text, config_source=value.source)
            for name, value in zip(TOPIC_CONFIGS, values, strict=True)
        ]

    async def delete_topics(self, request: Request) -> DeleteTopicsResponse:
        """Deletes each topic, by name or by id: shadows first, so that the same request can delete their sources."""
        message: DeleteTopicsRequest = request.message
        asked = (
            message.topics
            if request.version >= TOPIC_ID_SINCE
            else [DeleteTopicState(name=name) for name in message.topic_names]
        )
        each = _each_once(asked, lambda item: (item.name, item.topic_id))
        topics = [await self._to_delete(item) for item, _ in each]
        answers: dict[int, DeletableTopicResult] = {}
        for at in sorted(range(len(each)), key=lambda at: not _is_shadow(topics[at])):
            answers[at] = await self._delete(request, *each[at], topics[at])
        return DeleteTopicsResponse(responses=[answers[at] for at in range(len(each))])

    async def _to_delete(self, item: DeleteTopicState) -> Topic | None:
        if item.topic_id != NO_UUID:
            return self._topics.image.get_by_id(item.topic_id)
        return await self._records.current(item.name or "")

    async def _delete(
        self, request: Request, item: DeleteTopicState, twice: bool, topic: Topic | None
    ) -> DeletableTopicResult:
        by_id = item.topic_id != NO_UUID
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
            if not self._configs.flag("delete.topic.enable"):
                raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled: delete.topic.enable.")
            self._check_cast(ApiKey.DELETE_TOPICS, request, topic)
            await self._admin.delete(topic)
        except KafkaError as error:
            return DeletableTopicResult(
                name=name, topic_id=item.topic_id, error_code=error.code, error_message=error.text
            )
        return DeletableTopicResult(name=name, topic_id=topic.id)

    async def create_partitions(self, request: Request) -> CreatePartitionsResponse:
        """Adds partitions to topics."""
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
        topic = await self._records.current(item.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic.")
        if topic.internal:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The broker keeps its own state in '{topic.name}'.")
        self._admin.check_growth(topic, item.count)
        if item.assignments is not None:
            if len(item.assignments) != item.count - topic.partitions:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{item.count - topic.partitions} assignments are needed, {len(item.assignments)} were given.",
                )
            for assignment in item.assignments:
                self._check_assignment(assignment.broker_ids)
        if not validate_only:
            await self._admin.grow(item.name, item.count)


def _is_shadow(topic: Topic | None) -> bool:
    return topic is not None and topic.source is not None


def _each_once(items: Sequence[T], named: Callable[[T], Hashable]) -> list[tuple[T, bool]]:
    """Each distinct item, and whether it is named twice; librdkafka accepts no topic twice in an answer."""
    count = Counter(map(named, items))
    return [(item, count[key] > 1) for key, item in {named(item): item for item in items}.items()]
