"""Metadata: brokers, topics, partitions and their leaders; creates topics where that is allowed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from gnomon.broker.errors import KafkaError
from gnomon.broker.in_use.partitions_in_use import PartitionsInUse
from gnomon.broker.kafka.connections.request import Handler, Request
from gnomon.broker.placement.leadership import NOBODY
from gnomon.broker.placement.placement import Advertised, Placement, leader_error
from gnomon.broker.topics.copies import Copies, DescribedReplicas
from gnomon.broker.topics.creation_budget import (
    BROKER_BURST,
    BROKER_PER_SECOND,
    CONNECTION_BURST,
    CONNECTION_PER_SECOND,
    CreationBudget,
)
from gnomon.broker.topics.topic_admin import TopicAdmin
from gnomon.broker.topics.topics import Topics
from gnomon.log.topic import Topic
from gnomon.log.topic_name import is_topic_name
from gnomon.runtime.loop.paced import paced
from gnomon.runtime.world import Clock
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fields import NO_UUID
from gnomon.wire.kafka.messages.cluster import (
    NULL_NAMES_SINCE,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

WEIGHT_PER_TURN = 1_500
"""Partitions that are described in one turn of the event loop; a topic weighs TOPIC_WEIGHT of them besides its own."""
TOPIC_WEIGHT = 6


class MetadataHandler:
    """Answers the Metadata requests of one broker."""

    def __init__(
        self,
        topics: Topics,
        placement: Placement,
        copies: Copies,
        partitions: PartitionsInUse,
        admin: TopicAdmin,
        cluster_id: str,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._placement = placement
        self._copies = copies
        self._partitions = partitions
        self._admin = admin
        self._cluster_id = cluster_id
        self._clock = clock
        self._creations = CreationBudget(BROKER_BURST, BROKER_PER_SECOND, clock.monotonic())
        """Topics that all clients may create by asking for them."""

    def handlers(self) -> dict[int, Handler]:
        """The handler by API key."""
        return {ApiKey.METADATA: self.handle}

    async def handle(self, request: Request) -> MetadataResponse:
        """Describes the topics asked for, or all of them."""
        message: MetadataRequest = request.message
        found: list[Topic | MetadataResponseTopic]
        if message.topics is None or (request.version == 0 and not message.topics):
            found = list(self._topics.image)
        else:
            found = await self._find_each(message.topics, message.allow_auto_topic_creation, request)
        brokers = self._placement.advertised(request.session.listener)
        replicas = await self._copies.described((item for item in found if isinstance(item, Topic)), brokers)
        topics = [
            await self._describe(item, request, brokers, replicas) if isinstance(item, Topic) else item
            async for item in paced(found, WEIGHT_PER_TURN, self._clock, _weight)
        ]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=one.id, host=one.host, port=one.port, rack=one.rack)
                for one in brokers.values()
            ],
            cluster_id=self._cluster_id,
            controller_id=self._placement.controller(brokers),
            topics=topics,
        )

    async def _find_each(
        self, items: Sequence[MetadataRequestTopic], create: bool, request: Request
    ) -> list[Topic | MetadataResponseTopic]:
        """The topics that a request names, or the errors in their place; those that may be created are."""
        found: list[Topic | MetadataResponseTopic] = []
        once = {(item.topic_id, item.name): item for item in items}  # as in Kafka
        async for item in paced(once.values(), WEIGHT_PER_TURN // TOPIC_WEIGHT, self._clock):
            name = item.name or ""
            if item.topic_id != NO_UUID:
                found.append(self._topics.image.get_by_id(item.topic_id) or _unknown_id(item, request.version))
            elif (topic := self._topics.image.get(name)) is not None:
                found.append(topic)
            elif request.exchange.connection.closed_by_peer:
                break  # nobody asks any more
            else:
                found.append(await self._create(name, create, request))
        return found

    async def _create(self, name: str, allowed: bool, request: Request) -> Topic | MetadataResponseTopic:
        connection = request.exchange.connection

        def take() -> bool:
            now = self._clock.monotonic()
            if connection.creations is None:
                connection.creations = CreationBudget(CONNECTION_BURST, CONNECTION_PER_SECOND, now)
            return CreationBudget.take(now, connection.creations, self._creations)

        try:
            return await self._admin.auto_create(name, allowed, take)
        except KafkaError as error:
            code = error.code if is_topic_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
            return MetadataResponseTopic(error_code=code, name=name)

    async def _describe(
        self, topic: Topic, request: Request, brokers: Mapping[int, Advertised], replicas: DescribedReplicas
    ) -> MetadataResponseTopic:
        if self._topics.image.has_ended(topic):
            # Clients report this error to their users; after other errors they wait for the topic to be created.
            return MetadataResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=topic.name)
        leaders = enumerate(self._placement.leaders(topic, topic.partitions))
        if topic.partitions <= WEIGHT_PER_TURN:
            partitions = [self._describe_partition(topic, *place, brokers, replicas) for place in leaders]
        else:
            places = paced(leaders, WEIGHT_PER_TURN, self._clock)
            partitions = [self._describe_partition(topic, *place, brokers, replicas) async for place in places]
        return MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.id if request.version >= 10 else uuid.UUID(int=0),
            is_internal=topic.internal,
            partitions=partitions,
        )

    def _describe_partition(
        self,
        topic: Topic,
        index: int,
        leader: int,
        brokers: Mapping[int, Advertised],
        replicas: DescribedReplicas,
    ) -> MetadataResponsePartition:
        ids, in_sync = replicas.of(topic, index, leader)
        named = leader in brokers
        return MetadataResponsePartition(
            error_code=ErrorCode.NONE if named else leader_error(leader),
            partition_index=index,
            leader_id=leader if named else NOBODY,
            leader_epoch=self._partitions.advertised_epoch(topic, index),
            replica_nodes=ids,
            isr_nodes=in_sync,
        )


def _weight(item: Topic | MetadataResponseTopic) -> int:
    return TOPIC_WEIGHT + (item.partitions if isinstance(item, Topic) else 0)


def _unknown_id(item: MetadataRequestTopic, version: int) -> MetadataResponseTopic:
    name = None if version >= NULL_NAMES_SINCE else ""
    return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=name, topic_id=item.topic_id)
