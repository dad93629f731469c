"""A client's first requests: SaslHandshake, ApiVersions, Metadata, DescribeCluster."""

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

NULL_NAMES_SINCE = 12
"""The first version of Metadata whose answer has no name, instead of an empty one, for a topic id that no topic has."""


class SaslHandshakeRequest(ProtocolMessage, key=17, versions=(0, 1)):
    """Names the mechanism that a client wants to authenticate with."""

    mechanism: str = string()


class SaslHandshakeResponse(ProtocolMessage, key=17, versions=(0, 1)):
    """The supported mechanisms; they are listed on success too."""

    error_code: int = int16()
    mechanisms: list[str] = array(string)


class ApiVersionsRequest(ProtocolMessage, key=18, versions=(0, 4), flexible=3):
    """Asks which keys and versions are served."""

    client_software_name: str = string(since=3)
    client_software_version: str = string(since=3)


class ApiVersion(Struct):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeatureKey(Struct):
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class ApiVersionsResponse(ProtocolMessage, key=18, versions=(0, 4), flexible=3):
    """The table of keys and versions; its header is always v0."""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, since=3, tag=0)
    finalized_features_epoch: int = int64(since=3, default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, since=3, tag=2)
    zk_migration_ready: bool = boolean(since=3, tag=3)


class MetadataRequestTopic(Struct):
    topic_id: UUID = uuid(since=10)
    name: str | None = string.nullable(nullable_since=10, default="")


class MetadataRequest(ProtocolMessage, key=3, versions=(0, 13), flexible=9):
    """Asks for brokers and topics; null topics (empty ones in v0) are all topics."""

    topics: list[MetadataRequestTopic] | None = nullable_array(MetadataRequestTopic, nullable_since=1)
    allow_auto_topic_creation: bool = boolean(since=4, default=True, essential=True)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10, essential=True)
    include_topic_authorized_operations: bool = boolean(since=8, essential=True)


class MetadataResponseBroker(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string.nullable(since=1)


class MetadataResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(since=7, default=-1)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, since=5)


class MetadataResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = string.nullable(nullable_since=12, default="")
    topic_id: UUID = uuid(since=10)
    is_internal: bool = boolean(since=1)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(since=8, default=-(2**31))


class MetadataResponse(ProtocolMessage, key=3, versions=(0, 13), flexible=9):
    """Brokers, topics, partitions and their leaders."""

    throttle_time_ms: int = int32(since=3)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string.nullable(since=2)
    controller_id: int = int32(since=1, default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(since=8, until=10, default=-(2**31))
    error_code: int = int16(since=13)


class DescribeClusterRequest(ProtocolMessage, key=60, versions=(0, 2), flexible=0):
    """Asks for the brokers and the controller."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(since=1, default=1, essential=True)
    include_fenced_brokers: bool = boolean(since=2, essential=True)


class DescribeClusterBroker(Struct):
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string.nullable()
    is_fenced: bool = boolean(since=2)


class DescribeClusterResponse(ProtocolMessage, key=60, versions=(0, 2), flexible=0):
    """The brokers and the controller."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string.nullable()
    endpoint_type: int = int8(since=1, default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-(2**31))
