"""The groups that Kafka calls modern: consumer groups of KIP-848, and share groups (KIP-932)."""

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
    struct,
    uuid,
)


class OwnedTopic(Struct):
    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)


class OwnedPartitions(Struct):
    topic_partitions: list[OwnedTopic] = array(OwnedTopic)


class ConsumerGroupHeartbeatRequest(ProtocolMessage, key=68, versions=(0, 1), flexible=0):
    """Joins, stays in and leaves a consumer group of KIP-848; null means unchanged."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string.nullable()
    rack_id: str | None = string.nullable()
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = nullable_array(string)
    subscribed_topic_regex: str | None = string.nullable(since=1, essential=True)
    server_assignor: str | None = string.nullable()
    topic_partitions: list[OwnedTopic] | None = nullable_array(OwnedTopic)


class ConsumerGroupHeartbeatResponse(ProtocolMessage, key=68, versions=(0, 1), flexible=0):
    """The partitions that the member owns from now on."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string.nullable()
    member_id: str | None = string.nullable()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: OwnedPartitions | None = nullable_struct(OwnedPartitions)


class AssignedTopic(Struct):
    topic_id: UUID = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class AssignedPartitions(Struct):
    topic_partitions: list[AssignedTopic] = array(AssignedTopic)


class ConsumerGroupDescribeRequest(ProtocolMessage, key=69, versions=(0, 1), flexible=0):
    """Asks for the state and members of consumer groups of KIP-848."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class ConsumerGroupMember(Struct):
    member_id: str = string()
    instance_id: str | None = string.nullable()
    rack_id: str | None = string.nullable()
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string.nullable()
    assignment: AssignedPartitions = struct(AssignedPartitions)
    target_assignment: AssignedPartitions = struct(AssignedPartitions)
    member_type: int = int8(since=1, default=-1)


class DescribedConsumerGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string.nullable()
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[ConsumerGroupMember] = array(ConsumerGroupMember)
    authorized_operations: int = int32(default=-(2**31))


class ConsumerGroupDescribeResponse(ProtocolMessage, key=69, versions=(0, 1), flexible=0):
    """State and members of each group."""

    throttle_time_ms: int = int32()
    groups: list[DescribedConsumerGroup] = array(DescribedConsumerGroup)


class ShareGroupHeartbeatRequest(ProtocolMessage, key=76, versions=(1, 1), flexible=0):
    """Joins, stays in and leaves a share group; null means unchanged."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string.nullable()
    subscribed_topic_names: list[str] | None = nullable_array(string)


class ShareGroupHeartbeatResponse(ProtocolMessage, key=76, versions=(1, 1), flexible=0):
    """The partitions that the member may read from now on."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string.nullable()
    member_id: str | None = string.nullable()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: OwnedPartitions | None = nullable_struct(OwnedPartitions)


class ShareGroupDescribeRequest(ProtocolMessage, key=77, versions=(1, 1), flexible=0):
    """Asks for the state and members of share groups."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class ShareGroupMember(Struct):
    member_id: str = string()
    rack_id: str | None = string.nullable()
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    assignment: AssignedPartitions = struct(AssignedPartitions)


class DescribedShareGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string.nullable()
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[ShareGroupMember] = array(ShareGroupMember)
    authorized_operations: int = int32(default=-(2**31))


class ShareGroupDescribeResponse(ProtocolMessage, key=77, versions=(1, 1), flexible=0):
    """State and members of each group."""

    throttle_time_ms: int = int32()
    groups: list[DescribedShareGroup] = array(DescribedShareGroup)
