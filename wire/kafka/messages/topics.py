"""Creating, growing, trimming and deleting topics."""

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
    int64,
    nullable_array,
    string,
    uuid,
)


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


class CreatableTopicConfig(Struct):
    name: str = string()
    value: str | None = string.nullable()


class CreatableTopic(Struct):
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(ProtocolMessage, key=19, versions=(2, 7), flexible=5):
    """Asks for new topics; count or factor -1 is the default of the broker."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean()


class CreatableTopicConfigs(Struct):
    name: str = string()
    value: str | None = string.nullable()
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


class CreatableTopicResult(Struct):
    name: str = string()
    topic_id: UUID = uuid(since=7)
    error_code: int = int16()
    error_message: str | None = string.nullable()
    topic_config_error_code: int = int16(since=5, tag=0)
    num_partitions: int = int32(since=5, default=-1)
    replication_factor: int = int16(since=5, default=-1)
    configs: list[CreatableTopicConfigs] | None = nullable_array(CreatableTopicConfigs, since=5)


class CreateTopicsResponse(ProtocolMessage, key=19, versions=(2, 7), flexible=5):
    """The outcome for each new topic."""

    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)


class DeleteTopicState(Struct):
    name: str | None = string.nullable()
    topic_id: UUID = uuid()


class DeleteTopicsRequest(ProtocolMessage, key=20, versions=(1, 6), flexible=4):
    """Names topics to delete: `topic_names` up to v5, `topics` from v6 on."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6, essential=True)
    topic_names: list[str] = array(string, until=5)
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = string.nullable(nullable_since=6, default="")
    topic_id: UUID = uuid(since=6)
    error_code: int = int16()
    error_message: str | None = string.nullable(since=5)


class DeleteTopicsResponse(ProtocolMessage, key=20, versions=(1, 6), flexible=4):
    """The outcome of each deletion."""

    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array(int32)


class CreatePartitionsTopic(Struct):
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = nullable_array(CreatePartitionsAssignment)


class CreatePartitionsRequest(ProtocolMessage, key=37, versions=(0, 3), flexible=2):
    """Asks for a higher partition count; with null assignments the broker places them."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string.nullable()


class CreatePartitionsResponse(ProtocolMessage, key=37, versions=(0, 3), flexible=2):
    """The outcome for each topic."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)


class DeleteRecordsPartition(Struct):
    partition_index: int = int32()
    offset: int = int64()


class DeleteRecordsTopic(Struct):
    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


class DeleteRecordsRequest(ProtocolMessage, key=21, versions=(0, 2), flexible=2):
    """Asks to drop records below an offset; -1 is the high watermark."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


class DeleteRecordsTopicResult(Struct):
    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(ProtocolMessage, key=21, versions=(0, 2), flexible=2):
    """The new low watermark of each partition."""

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
