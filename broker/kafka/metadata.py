"""Metadata: brokers, topics, partitions and their leaders; creates topics where that is allowed."""

from __future__ import annotations

import uuid

from gnomon.broker.errors import KafkaError
from gnomon.broker.in_use.partitions_in_use import PartitionsInUse
from gnomon.broker.kafka.connections.request import Handler, Request
from gnomon.broker.placement.leadership import NOBODY
from gnomon.broker.placement.placement import Placement
from gnomon.broker.topics.topic_admin import TopicAdmin
from gnomon.broker.topics.topics import Topics
from gnomon.log.topic import Topic
from gnomon.log.topic_name import is_topic_name
from gnomon.runtime.loop.paced import paced
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fields import NO_UUID
from gnomon.wire.kafka.messages.cluster import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPICS_PER_TURN = 256


class MetadataHandler:
    """Answers the Metadata requests of one broker."""

    def __init__(
        self, topics: Topics, placement: Placement, partitions: PartitionsInUse, admin: TopicAdmin, cluster_id: str
    ) -> None:
        self._topics = topics
        self._placement = placement
        self._partitions = partitions
        self._admin = admin
        self._cluster_id = cluster_id

    def handlers(self) -> dict[int, Handler]:
        """The handler by API key."""
        return {ApiKey.METADATA: self.handle}

    async def handle(self, request: Request) -> MetadataResponse:
        """Describes the topics asked for, or all of them."""
        message: MetadataRequest = request.message
        if message.topics is None or (request.version == 0 and not message.topics):
            every = list(self._topics.image)
            topics = [self._describe(topic, request) async for topic in paced(every, TOPICS_PER_TURN)]
        else:
            topics = []
            once = {(item.topic_id, item.name): item for item in message.topics}  # as in Kafka
            async for item in paced(once.values(), TOPICS_PER_TURN):
                topics.append(await self._find(item, message.allow_auto_topic_creation, request))
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=one.id, host=one.host, port=one.port, rack=one.rack or None)
                for one in self._placement.advertised()
            ],
            cluster_id=self._cluster_id,
            controller_id=self._placement.leadership.controller,
            topics=topics,
        )

    async def _find(self, item: MetadataRequestTopic, create: bool, request: Request) -> MetadataResponseTopic:
        image = self._topics.image
        if item.topic_id != NO_UUID:
            topic = image.get_by_id(item.topic_id)
            if topic is None:
                return MetadataResponseTopic(
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                    name=None if request.version >= 12 else "",
                    topic_id=item.topic_id,
                )
            return self._describe(topic, request)
        name = item.name or ""
        topic = image.get(name)
        if topic is None:
            try:
                topic = await self._admin.auto_create(name, create)
            except KafkaError as error:
                code = error.code if is_topic_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
                return MetadataResponseTopic(error_code=code, name=name)
        return self._describe(topic, request)

    def _describe(self, topic: Topic, request: Request) -> MetadataResponseTopic:
        placement = self._placement
        nodes: dict[int, list[int]] = {NOBODY: [], **{node: [node] for node in placement.leadership.leading}}
        if self._topics.image.has_ended(topic):
            # Clients report this error to their users; after other errors they wait for the topic to be created.
            return MetadataResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=topic.name)
        return MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.id if request.version >= 10 else uuid.UUID(int=0),
            is_internal=topic.internal,
            partitions=[
                MetadataResponsePartition(
                    error_code=ErrorCode.NONE if leader != NOBODY else ErrorCode.LEADER_NOT_AVAILABLE,
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=self._partitions.advertised_epoch(topic, index),
                    replica_nodes=nodes[leader],
                    isr_nodes=nodes[leader],
                )
                for index, leader in enumerate(placement.leaders(topic, topic.partitions))
            ],
        )
