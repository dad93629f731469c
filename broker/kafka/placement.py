"""The placement of partitions: DescribeTopicPartitions, ElectLeaders, partition reassignments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gnomon.broker.errors import KafkaError
from gnomon.broker.in_use.partitions_in_use import PartitionsInUse
from gnomon.broker.kafka.connections.request import Handler, Request
from gnomon.broker.placement.leadership import NOBODY
from gnomon.broker.placement.placement import Advertised, Placement, leader_error
from gnomon.broker.topics.copies import Copies, DescribedReplicas
from gnomon.broker.topics.topics import Topics
from gnomon.log.topic import Topic
from gnomon.log.topic_name import is_topic_name
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.placement import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsResponse,
    PartitionResult,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)

PAGE_PARTITIONS_MAX = 2000
"""Kafka's `max.request.partition.size.limit`."""
ELECTION_TYPES = (0, 1)


class PlacementHandlers:
    """Answers for one broker."""

    def __init__(self, topics: Topics, placement: Placement, copies: Copies, partitions: PartitionsInUse) -> None:
        self._topics = topics
        self._placement = placement
        self._copies = copies
        self._partitions = partitions

    def handlers(self) -> dict[int, Handler]:
        """The handler of each API key."""
        return {
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: self.describe,
            ApiKey.ELECT_LEADERS: self.elect,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self.reassign,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda request: ListPartitionReassignmentsResponse(),
        }

    async def describe(self, request: Request) -> DescribeTopicPartitionsResponse:
        """One page of topics (KIP-966), from the cursor on."""
        page, cursor = self._page(request.message)
        brokers = self._placement.advertised(request.session.listener)
        replicas = await self._copies.described((topic for _, topic, _ in page if topic is not None), brokers)
        return DescribeTopicPartitionsResponse(
            topics=[
                self._unknown(name) if topic is None else self._described(topic, indexes, brokers, replicas)
                for name, topic, indexes in page
            ],
            next_cursor=cursor,
        )

    def _page(
        self, message: DescribeTopicPartitionsRequest
    ) -> tuple[list[tuple[str, Topic | None, range]], Cursor | None]:
        """The names, topics and partitions of a page, and the cursor of the next one; None for an unknown topic."""
        left = max(1, min(message.response_partition_limit, PAGE_PARTITIONS_MAX))
        image, begin = self._topics.image, message.cursor or Cursor()
        names = {item.name for item in message.topics} or {topic.name for topic in image}
        page: list[tuple[str, Topic | None, range]] = []
        for name in sorted(name for name in names if name >= begin.topic_name):
            topic = image.get(name)
            first = max(0, begin.partition_index) if name == begin.topic_name else 0
            if not left or len(page) == PAGE_PARTITIONS_MAX:
                return page, Cursor(topic_name=name, partition_index=first)
            if topic is None or image.has_ended(topic):
                page.append((name, None, range(0)))
                continue
            stop = min(topic.partitions, first + left)
            page.append((name, topic, range(first, stop)))
            left -= max(0, stop - first)
            if stop < topic.partitions:
                return page, Cursor(topic_name=name, partition_index=stop)
        return page, None

    def _described(
        self, topic: Topic, indexes: range, brokers: Mapping[int, Advertised], replicas: DescribedReplicas
    ) -> DescribeTopicPartitionsResponseTopic:
        leaders = self._placement.leaders(topic, indexes.stop)
        described = DescribeTopicPartitionsResponseTopic(name=topic.name, topic_id=topic.id, is_internal=topic.internal)
        for index in indexes:
            leader = leaders[index]
            ids, in_sync = replicas.of(topic, index, leader)
            named = leader in brokers
            described.partitions.append(
                DescribeTopicPartitionsResponsePartition(
                    error_code=ErrorCode.NONE if named else leader_error(leader),
                    partition_index=index,
                    leader_id=leader if named else NOBODY,
                    leader_epoch=self._partitions.advertised_epoch(topic, index),
                    replica_nodes=ids,
                    isr_nodes=in_sync,
                )
            )
        return described

    def _unknown(self, name: str) -> DescribeTopicPartitionsResponseTopic:
        """The answer for a topic that does not exist, or is a shadow whose source was deleted."""
        unknown = self._topics.image.get(name) is None and is_topic_name(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if unknown else ErrorCode.INVALID_TOPIC_EXCEPTION
        return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)

    def elect(self, request: Request) -> ElectLeadersResponse:
        """Elects nobody: the computed leader leads already. An election of all partitions names none, as in Kafka."""
        message: ElectLeadersRequest = request.message
        if message.election_type not in ELECTION_TYPES:
            return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
        results = []
        for item in message.topic_partitions or []:
            elections = []
            for index in item.partitions:
                try:
                    leader = self._placement.leader(self._topic(item.topic, index), index)
                    code = ErrorCode.ELECTION_NOT_NEEDED
                    text = f"Broker {leader} leads the partition."
                except KafkaError as error:
                    code, text = error.code, error.text
                elections.append(PartitionResult(partition_id=index, error_code=code, error_message=text))
            results.append(ReplicaElectionResult(topic=item.topic, partition_result=elections))
        return ElectLeadersResponse(replica_election_results=results)

    async def reassign(self, request: Request) -> AlterPartitionReassignmentsResponse:
        """Moves nothing: confirms the present replicas, and refuses any others."""
        message: AlterPartitionReassignmentsRequest = request.message
        brokers = self._placement.advertised(request.session.listener)
        replicas = await self._copies.described((), brokers)
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=message.allow_replication_factor_change,
            responses=[
                ReassignableTopicResponse(
                    name=item.name, partitions=list(self._moves(item.name, item.partitions, replicas))
                )
                for item in message.topics
            ],
        )

    def _moves(
        self, name: str, wanted: list[ReassignablePartition], replicas: DescribedReplicas
    ) -> Iterator[ReassignablePartitionResponse]:
        for item in wanted:
            moved = ReassignablePartitionResponse(partition_index=item.partition_index)
            try:
                topic = self._topic(name, item.partition_index)
                if item.replicas is None:
                    raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "The partition is not being reassigned.")
                leader = self._placement.leader(topic, item.partition_index)
                ids, _ = replicas.of(topic, item.partition_index, leader)
                if sorted(item.replicas) != sorted(ids):
                    raise KafkaError(
                        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                        f"Replicas {item.replicas}: broker {leader} leads the partition, and its {len(ids)} copies, "
                        f"which {ids} represent, are on bookies: neither can be chosen.",
                    )
            except KafkaError as error:
                moved.error_code, moved.error_message = error.code, error.text
            yield moved

    def _topic(self, name: str, index: int) -> Topic:
        topic = self._topics.image.get(name)
        if topic is None or not 0 <= index < topic.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        return topic
