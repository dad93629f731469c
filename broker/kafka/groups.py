"""Groups and their offsets: every request to the coordinator, with topic ids turned into names and back.

Offsets are kept by topic name, as in Kafka's own records; from version 10 on OffsetCommit and OffsetFetch name topics
by id. A topic id that is not known here is answered with UNKNOWN_TOPIC_ID and never reaches the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from gnomon.broker.groups.coordinator import GroupCoordinator
from gnomon.broker.kafka.connections.request import Handler, Request
from gnomon.broker.topics.topics import Topics
from gnomon.wire.kafka.api import ELEMENTS_MAX, ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fields import NO_UUID, ProtocolMessage
from gnomon.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

TOPIC_IDS_SINCE = 10


class GroupHandlers:
    """Passes the group requests of one broker to its coordinator."""

    def __init__(self, topics: Topics, coordinator: GroupCoordinator) -> None:
        self._topics = topics
        self._coordinator = coordinator

    def handlers(self) -> dict[int, Handler]:
        """The handler of each API key."""
        plain = (
            ApiKey.JOIN_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.LEAVE_GROUP,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.LIST_GROUPS,
            ApiKey.DELETE_GROUPS,
        )
        return {
            **dict.fromkeys(plain, self.handle),
            ApiKey.OFFSET_COMMIT: self.commit,
            ApiKey.OFFSET_FETCH: self.fetch,
            ApiKey.OFFSET_DELETE: self.delete,
        }

    def handle(self, request: Request) -> None:
        """Passes a request to the coordinator unchanged."""
        self._ask(request, request.message, request.reply)

    def _ask(self, request: Request, message: ProtocolMessage, reply: Callable[[Any], None]) -> None:
        self._coordinator.handle(message, request.version, request.client_id, request.client_host, reply)

    def commit(self, request: Request) -> OffsetCommitResponse | None:
        """OffsetCommit; partitions that do not exist are refused here, the others are passed on."""
        message: OffsetCommitRequest = request.message
        by_id = request.version >= TOPIC_IDS_SINCE
        refused: list[OffsetCommitResponseTopic] = []
        kept = []
        for topic in message.topics:
            known = self._topics.image.get_by_id(topic.topic_id) if by_id else self._topics.image.get(topic.name)
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            count = 0 if known is None else known.partitions
            wrong = [part for part in topic.partitions if not 0 <= part.partition_index < count]
            if wrong:
                missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known is not None else code
                refused.append(
                    OffsetCommitResponseTopic(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=[
                            OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=missing)
                            for part in wrong
                        ],
                    )
                )
            if known is not None:
                topic.name = known.name
                topic.partitions = [part for part in topic.partitions if 0 <= part.partition_index < count]
                if topic.partitions:
                    kept.append(topic)
        if not kept and refused:
            return OffsetCommitResponse(topics=refused)
        message.topics = kept

        def reply(response: OffsetCommitResponse) -> None:
            response.topics += refused
            request.reply(response)

        self._ask(request, message, reply)
        return None

    def fetch(self, request: Request) -> None:
        """OffsetFetch; an unknown topic id is answered here."""
        message: OffsetFetchRequest = request.message
        if len(message.groups) > ELEMENTS_MAX:
            reason = f"{len(message.groups)} groups in one request: at most {ELEMENTS_MAX}, ask for fewer"
            request.exchange.connection.refuse(reason)
            return
        if request.version < TOPIC_IDS_SINCE:
            self._ask(request, message, request.reply)
            return
        unknown: dict[str, list[OffsetFetchResponseTopics]] = {}
        for group in message.groups:
            for topic in group.topics or []:
                known = self._topics.image.get_by_id(topic.topic_id)
                if known is not None:
                    topic.name = known.name
                else:
                    unknown.setdefault(group.group_id, []).append(_unknown(topic.topic_id, topic.partition_indexes))
            if group.topics is not None:
                group.topics = [topic for topic in group.topics if topic.name]

        def reply(response: OffsetFetchResponse) -> None:
            for group in response.groups:
                for topic in group.topics:
                    topic.topic_id = self._id_of(topic.name)
                group.topics = [topic for topic in group.topics if topic.topic_id != NO_UUID]
                group.topics += unknown.get(group.group_id, [])
            request.reply(response)

        self._ask(request, message, reply)

    def delete(self, request: Request) -> None:
        """OffsetDelete; partitions that do not exist are refused here, the others are passed on."""
        message: OffsetDeleteRequest = request.message
        refused: dict[str, list[OffsetDeleteResponsePartition]] = {}
        for topic in message.topics:
            known = self._topics.image.get(topic.name)
            count = 0 if known is None else known.partitions
            refused.setdefault(topic.name, []).extend(
                OffsetDeleteResponsePartition(
                    partition_index=part.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                for part in topic.partitions
                if not 0 <= part.partition_index < count
            )
            topic.partitions = [part for part in topic.partitions if 0 <= part.partition_index < count]
        message.topics = [topic for topic in message.topics if topic.partitions]

        def reply(response: OffsetDeleteResponse) -> None:
            if response.error_code == ErrorCode.NONE:
                for topic in response.topics:
                    topic.partitions += refused.pop(topic.name, [])
                response.topics += [
                    OffsetDeleteResponseTopic(name=name, partitions=parts) for name, parts in refused.items() if parts
                ]
            request.reply(response)

        if message.topics or not any(refused.values()):
            self._ask(request, message, reply)
        else:
            reply(OffsetDeleteResponse())

    def _id_of(self, name: str) -> UUID:
        topic = self._topics.image.get(name)
        return NO_UUID if topic is None else topic.id


def _unknown(topic_id: UUID, partitions: list[int]) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, error_code=ErrorCode.UNKNOWN_TOPIC_ID
            )
            for index in partitions
        ],
    )
