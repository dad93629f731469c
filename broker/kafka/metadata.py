"""Metadata: brokers, topics, partitions and their leaders; creates topics where that is allowed."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import trio

from gnomon.broker.errors import KafkaError
from gnomon.broker.kafka.request import Handler, Request
from gnomon.broker.leadership import NOBODY
from gnomon.broker.topics import Topic, is_topic_name
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

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker

TOPICS_PER_TURN = 256
CLUSTER_OPERATIONS = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12
"""Create, alter, describe, cluster action, describe and alter configs, idempotent write, by Kafka's numbers: without
access control everyone may do them (KIP-430)."""
TOPIC_OPERATIONS = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 11
"""Read, write, create, delete, alter, describe, describe and alter configs."""


class MetadataHandler:
    """Answers the Metadata requests of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        """The handler by API key."""
        return {ApiKey.METADATA: self.handle}

    async def handle(self, request: Request) -> MetadataResponse:
        """Describes the topics asked for, or all of them."""
        message: MetadataRequest = request.message
        broker = self._broker
        if message.topics is None or (request.version == 0 and not message.topics):
            topics = [self._describe(topic, request) for topic in broker.image]
        else:
            topics = []
            # Each once, as Kafka answers; and a long list leaves the others their turn.
            for number, item in enumerate({(item.topic_id, item.name): item for item in message.topics}.values()):
                topics.append(await self._find(item, message.allow_auto_topic_creation, request))
                if number % TOPICS_PER_TURN == TOPICS_PER_TURN - 1:
                    await trio.lowlevel.checkpoint()
        response = MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=one.id, host=one.host, port=one.port, rack=one.rack or None)
                for one in broker.brokers_told()
            ],
            cluster_id=broker.cluster_id,
            controller_id=broker.leadership.controller,
            topics=topics,
        )
        if message.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        return response

    async def _find(self, item: MetadataRequestTopic, create: bool, request: Request) -> MetadataResponseTopic:
        image = self._broker.image
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
                topic = await self._broker.topic_admin.auto_create(name, create)
            except KafkaError as error:
                code = error.code if is_topic_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
                return MetadataResponseTopic(error_code=code, name=name)
        return self._describe(topic, request)

    def _describe(self, topic: Topic, request: Request) -> MetadataResponseTopic:
        broker = self._broker
        nodes: dict[int, list[int]] = {NOBODY: [], **{node: [node] for node in broker.leadership.leading}}
        if topic.source is not None and broker.image.source_of(topic) is None:
            # Clients show this one to who uses them; of other errors they make that the topic is still to come.
            return MetadataResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=topic.name)
        described = MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.id if request.version >= 10 else uuid.UUID(int=0),
            is_internal=topic.internal,
            partitions=[
                MetadataResponsePartition(
                    error_code=ErrorCode.NONE if leader != NOBODY else ErrorCode.LEADER_NOT_AVAILABLE,
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=broker.leader_epoch(topic, index),
                    replica_nodes=nodes[leader],
                    isr_nodes=nodes[leader],
                )
                for index, leader in enumerate(broker.leaders(topic, topic.partitions))
            ],
        )
        if request.message.include_topic_authorized_operations:
            described.topic_authorized_operations = TOPIC_OPERATIONS
        return described
