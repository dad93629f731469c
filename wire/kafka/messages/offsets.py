"""Offsets stored for groups: OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from uuid import UUID

from gnomon.wire.kafka.schema import (
    ProtocolMessage,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    nullable_array,
    string,
    uuid,
)

FETCH_GROUPS_SINCE = 8
"""The first version of OffsetFetch that asks for several groups at once (KIP-709)."""


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=6, default=-1)
    committed_metadata: str | None = string.nullable()


class OffsetCommitRequestTopic(Struct):
    name: str = string(until=9)
    topic_id: UUID = uuid(since=10)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(ProtocolMessage, key=8, versions=(2, 10), flexible=8):
    """Offsets to store; up to v9 topics are given by name, from v10 on by id."""

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = string.nullable(since=7, essential=True)
    retention_time_ms: int = int64(until=4, default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Struct):
    name: str = string(until=9)
    topic_id: UUID = uuid(since=10)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(ProtocolMessage, key=8, versions=(2, 10), flexible=8):
    """Error of each partition."""

    throttle_time_ms: int = int32(since=3)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)


class OffsetFetchRequestTopic(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class OffsetFetchRequestTopics(Struct):
    name: str = string(until=9)
    topic_id: UUID = uuid(since=10)
    partition_indexes: list[int] = array(int32)


class OffsetFetchRequestGroup(Struct):
    group_id: str = string()
    member_id: str | None = string.nullable(since=9)
    member_epoch: int = int32(since=9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = nullable_array(OffsetFetchRequestTopics)


class OffsetFetchRequest(ProtocolMessage, key=9, versions=(1, 10), flexible=6):
    """Asks for stored offsets: up to v7 of one group, from v8 on of `groups`; null topics are all topics."""

    group_id: str = string(until=7, essential=True)
    topics: list[OffsetFetchRequestTopic] | None = nullable_array(
        OffsetFetchRequestTopic, until=7, nullable_since=2, essential=True
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8, essential=True)
    require_stable: bool = boolean(since=7, essential=True)


class OffsetFetchResponsePartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=5, default=-1)
    metadata: str | None = string.nullable(default="")
    error_code: int = int16()


class OffsetFetchResponseTopic(Struct):
    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1)
    metadata: str | None = string.nullable(default="")
    error_code: int = int16()


class OffsetFetchResponseTopics(Struct):
    name: str = string(until=9)
    topic_id: UUID = uuid(since=10)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


class OffsetFetchResponseGroup(Struct):
    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16()


class OffsetFetchResponse(ProtocolMessage, key=9, versions=(1, 10), flexible=6):
    """Stored offsets, -1 where there is none: in `topics` up to v7, in `groups` from v8 on."""

    throttle_time_ms: int = int32(since=3)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7, essential=True)
    error_code: int = int16(since=2, until=7, essential=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8, essential=True)


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = int32()


class OffsetDeleteRequestTopic(Struct):
    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(ProtocolMessage, key=47, versions=(0, 0)):
    """Names stored offsets to delete."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class OffsetDeleteResponseTopic(Struct):
    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(ProtocolMessage, key=47, versions=(0, 0)):
    """The outcome of each deletion."""

    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
