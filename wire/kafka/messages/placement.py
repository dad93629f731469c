"""The placement of partitions: DescribeTopicPartitions, ElectLeaders, partition reassignments."""

from __future__ import annotations

from uuid import UUID

from gnomon.wire.kafka.schema import (
    ProtocolMessage,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    nullable_array,
    nullable_struct,
    string,
    uuid,
)


class ElectLeadersTopic(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ElectLeadersRequest(ProtocolMessage, key=43, versions=(0, 2), flexible=2):
    """Asks for elections, of the preferred replicas (type 0) or of any (1); null topics are all."""

    election_type: int = int8(since=1, essential=True)
    topic_partitions: list[ElectLeadersTopic] | None = nullable_array(ElectLeadersTopic)
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string.nullable()


class ReplicaElectionResult(Struct):
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(ProtocolMessage, key=43, versions=(0, 2), flexible=2):
    """The outcome of each election."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)


class ReassignablePartition(Struct):
    partition_index: int = int32()
    replicas: list[int] | None = nullable_array(int32)


class ReassignableTopic(Struct):
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(ProtocolMessage, key=45, versions=(0, 1), flexible=0):
    """Asks for partitions to move; null replicas end a move."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(since=1, default=True, essential=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string.nullable()


class ReassignableTopicResponse(Struct):
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(ProtocolMessage, key=45, versions=(0, 1), flexible=0):
    """The outcome of each move."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    error_code: int = int16()
    error_message: str | None = string.nullable()
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)


class ListPartitionReassignmentsTopics(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class ListPartitionReassignmentsRequest(ProtocolMessage, key=46, versions=(0, 0), flexible=0):
    """Asks for the moves under way; null topics are all."""

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = nullable_array(ListPartitionReassignmentsTopics)


class OngoingPartitionReassignment(Struct):
    partition_index: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)


class OngoingTopicReassignment(Struct):
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(ProtocolMessage, key=46, versions=(0, 0), flexible=0):
    """The moves under way."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string.nullable()
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)


class Cursor(Struct):
    topic_name: str = string()
    partition_index: int = int32()


class TopicRequest(Struct):
    name: str = string()


class DescribeTopicPartitionsRequest(ProtocolMessage, key=75, versions=(0, 0), flexible=0):
    """Asks for topics a page at a time, in the order of their names; no topics are all."""

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = nullable_struct(Cursor)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    eligible_leader_replicas: list[int] | None = nullable_array(int32)
    last_known_elr: list[int] | None = nullable_array(int32)
    offline_replicas: list[int] = array(int32)


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = string.nullable()
    topic_id: UUID = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = int32(default=-(2**31))


class DescribeTopicPartitionsResponse(ProtocolMessage, key=75, versions=(0, 0), flexible=0):
    """One page of topics, and where the next one begins."""

    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = nullable_struct(Cursor)
