"""The placement of partitions: DescribeTopicPartitions, ElectLeaders, partition reassignments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gnomon.broker.errors import KafkaError
from gnomon.broker.in_use.partitions_in_use import PartitionsInUse
from gnomon.broker.kafka.connections.request import Handler, Request
from gnomon.broker.placement.leadership import NOBODY
from gnomon.broker.placement.placement import Advertised, Placement, leader_error
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
    """Answers for one broker; the leader of a partition counts as its only replica."""

    def __init__(self, topics: Topics, placement: Placement, partitions: PartitionsInUse) -> None:
        self._topics = topics
        self._placement = placement
        self._partitions = partitions

    def handlers(self) -> dict[int, Handler]:
        """The handler of each API key."""
        return {
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: self.describe,
            ApiKey.ELECT_LEADERS: self.elect,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self.reassign,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda request: ListPartitionReassignmentsResponse(),
        }

    def describe(self, request: Request) -> DescribeTopicPartitionsResponse:
        """One page of topics (KIP-966), from the cursor on."""
        message: DescribeTopicPartitionsRequest = request.message
        left = max(1, min(message.response_partition_limit, PAGE_PARTITIONS_MAX))
        image, begin = self._topics.image, message.cursor or Cursor()
        brokers = self._placement.advertised(request.session.listener)
        names = {item.name for item in message.topics} or {topic.name for topic in image}
        response = DescribeTopicPartitionsResponse()
        for name in sorted(name for name in names if name >= begin.topic_name):
            topic = image.get(name)
            first = max(0, begin.partition_index) if name == begin.topic_name else 0
            if not left or len(response.topics) == PAGE_PARTITIONS_MAX:
                response.next_cursor = Cursor(topic_name=name, partition_index=first)
                break
            if topic is None or image.has_ended(topic):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                code = code if topic is None and is_topic_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
                response.topics.append(DescribeTopicPartitionsResponseTopic(error_code=code, name=name))
                continue
            stop = min(topic.partitions, first + left)
            response.topics.append(self._described(topic, range(first, stop), brokers))
            left -= max(0, stop - first)
            if stop < topic.partitions:
                response.next_cursor = Cursor(topic_name=name, partition_index=stop)
                break
        return response

    def _described(
        self, topic: Topic, indexes: range, brokers: Mapping[int, Advertised]
    ) -> DescribeTopicPartitionsResponseTopic:
        leaders = self._placement.leaders(topic, indexes.stop)
        return DescribeTopicPartitionsResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.internal,
            partitions=[
                DescribeTopicPartitionsResponsePartition(
                    error_code=leader_error(leaders[index], brokers),
                    partition_index=index,
                    leader_id=leaders[index] if leaders[index] in brokers else NOBODY,
                    leader_epoch=self._partitions.advertised_epoch(topic, index),
                    replica_nodes=_holders(leaders[index]),
                    isr_nodes=_holders(leaders[index]),
                )
                for index in indexes
            ],
        )

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
                    leader = self._leader(item.topic, index)
                    code = ErrorCode.ELECTION_NOT_NEEDED
                    text = f"Broker {leader} leads the partition."
                except KafkaError as error:
                    code, text = error.code, error.text
                elections.append(PartitionResult(partition_id=index, error_code=code, error_message=text))
            results.append(ReplicaElectionResult(topic=item.topic, partition_result=elections))
        return ElectLeadersResponse(replica_election_results=results)

    def reassign(self, request: Request) -> AlterPartitionReassignmentsResponse:
        """Moves nothing: confirms the present leader, and refuses any other replicas."""
        message: AlterPartitionReassignmentsRequest = request.message
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=message.allow_replication_factor_change,
            responses=[
                ReassignableTopicResponse(name=item.name, partitions=list(self._moves(item.name, item.partitions)))
                for item in message.topics
            ],
        )

    def _moves(self, topic: str, wanted: list[ReassignablePartition]) -> Iterator[ReassignablePartitionResponse]:
        for item in wanted:
            moved = ReassignablePartitionResponse(partition_index=item.partition_index)
            try:
                leader = self._leader(topic, item.partition_index)
                if item.replicas is None:
                    raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "The partition is not being reassigned.")
                if item.replicas != [leader]:
                    raise KafkaError(
                        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                        f"Replicas {item.replicas}: broker {leader} leads the partition, alone.",
                    )
            except KafkaError as error:
                moved.error_code, moved.error_message = error.code, error.text
            yield moved

    def _leader(self, name: str, index: int) -> int:
        topic = self._topics.image.get(name)
        if topic is None or not 0 <= index < topic.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        return self._placement.leader(topic, index)


def _holders(leader: int) -> list[int]:
    return [] if leader == NOBODY else [leader]
