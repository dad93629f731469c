"""The table of the APIs that the broker serves: API keys, their versions and their message classes.

1. Every advertised key is answered, and its advertised versions are those of its request class, except for rule 2.
2. Produce is also advertised in versions 0 to 2, which are answered with UNSUPPORTED_VERSION. (KIP-896: from a higher
   minimum, librdkafka up to 2.0 concludes that the broker does not support compression.)
3. The keys of KIP-848 and share groups are advertised and refused, as by a Kafka broker with both switched off: if they
   are missing, librdkafka waits silently for a coordinator; if they are refused, it ends with the error.
4. The keys of ACLs are advertised and refused too, as by a Kafka broker without an authorizer: tools that always ask
   for ACLs then continue without them.
5. Every version of the ApiVersions response has a header of v0, because the client does not know our versions yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from gnomon.wire.kafka.messages import (
    acls,
    cluster,
    configs,
    fetch,
    group,
    group_admin,
    log_dirs,
    modern_group,
    offsets,
    placement,
    positions,
    produce,
    topics,
)
from gnomon.wire.kafka.schema import ProtocolMessage


class ApiKey(IntEnum):
    """Kafka's API keys, by Kafka's names."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77


@dataclass(frozen=True, slots=True)
class Api:
    """One served key. `min_version` is the lowest advertised version; `request.VERSIONS` are the versions that can be
    decoded. `elements_max` bounds the array elements of a request that `schema` decodes."""

    key: ApiKey
    min_version: int
    max_version: int
    flexible_since: int
    request: type[ProtocolMessage]
    response: type[ProtocolMessage]
    elements_max: int

    def serves(self, version: int) -> bool:
        """Whether a request of this version can be decoded and answered."""
        first, last = self.request.VERSIONS
        return first <= version <= last


ELEMENTS_MAX = 10_000
"""Array elements of a request: more than a tool that names each topic, group or member at once sends."""
PARTITION_ELEMENTS_MAX = 20_000
"""Array elements of a request about partitions, of which a broker may lead some thousands."""
REFUSED_ELEMENTS_MAX = 1_000
"""Array elements of a request that changes nothing, whatever it names: answered within one turn of the event loop."""
_REFUSED = {
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ELECT_LEADERS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
}
_OF_PARTITIONS = {
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.DELETE_RECORDS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.OFFSET_DELETE,
}


def _api(key: ApiKey, request: type[ProtocolMessage], response: type[ProtocolMessage]) -> Api:
    first, last = request.VERSIONS
    advertised_from = 0 if key is ApiKey.PRODUCE else first
    return Api(key, advertised_from, last, request.FLEXIBLE, request, response, _elements_max(key))


def _elements_max(key: ApiKey) -> int:
    if key in _REFUSED:
        return REFUSED_ELEMENTS_MAX
    return PARTITION_ELEMENTS_MAX if key in _OF_PARTITIONS else ELEMENTS_MAX


APIS: dict[int, Api] = {
    api.key.value: api
    for api in (
        _api(ApiKey.PRODUCE, produce.ProduceRequest, produce.ProduceResponse),
        _api(ApiKey.FETCH, fetch.FetchRequest, fetch.FetchResponse),
        _api(ApiKey.LIST_OFFSETS, positions.ListOffsetsRequest, positions.ListOffsetsResponse),
        _api(ApiKey.METADATA, cluster.MetadataRequest, cluster.MetadataResponse),
        _api(ApiKey.OFFSET_COMMIT, offsets.OffsetCommitRequest, offsets.OffsetCommitResponse),
        _api(ApiKey.OFFSET_FETCH, offsets.OffsetFetchRequest, offsets.OffsetFetchResponse),
        _api(ApiKey.FIND_COORDINATOR, group.FindCoordinatorRequest, group.FindCoordinatorResponse),
        _api(ApiKey.JOIN_GROUP, group.JoinGroupRequest, group.JoinGroupResponse),
        _api(ApiKey.HEARTBEAT, group.HeartbeatRequest, group.HeartbeatResponse),
        _api(ApiKey.LEAVE_GROUP, group.LeaveGroupRequest, group.LeaveGroupResponse),
        _api(ApiKey.SYNC_GROUP, group.SyncGroupRequest, group.SyncGroupResponse),
        _api(ApiKey.DESCRIBE_GROUPS, group_admin.DescribeGroupsRequest, group_admin.DescribeGroupsResponse),
        _api(ApiKey.LIST_GROUPS, group_admin.ListGroupsRequest, group_admin.ListGroupsResponse),
        _api(ApiKey.SASL_HANDSHAKE, cluster.SaslHandshakeRequest, cluster.SaslHandshakeResponse),
        _api(ApiKey.API_VERSIONS, cluster.ApiVersionsRequest, cluster.ApiVersionsResponse),
        _api(ApiKey.CREATE_TOPICS, topics.CreateTopicsRequest, topics.CreateTopicsResponse),
        _api(ApiKey.DELETE_TOPICS, topics.DeleteTopicsRequest, topics.DeleteTopicsResponse),
        _api(ApiKey.DELETE_RECORDS, topics.DeleteRecordsRequest, topics.DeleteRecordsResponse),
        _api(ApiKey.INIT_PRODUCER_ID, produce.InitProducerIdRequest, produce.InitProducerIdResponse),
        _api(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            positions.OffsetForLeaderEpochRequest,
            positions.OffsetForLeaderEpochResponse,
        ),
        _api(ApiKey.DESCRIBE_ACLS, acls.DescribeAclsRequest, acls.DescribeAclsResponse),
        _api(ApiKey.CREATE_ACLS, acls.CreateAclsRequest, acls.CreateAclsResponse),
        _api(ApiKey.DELETE_ACLS, acls.DeleteAclsRequest, acls.DeleteAclsResponse),
        _api(ApiKey.DESCRIBE_CONFIGS, configs.DescribeConfigsRequest, configs.DescribeConfigsResponse),
        _api(ApiKey.ALTER_CONFIGS, configs.AlterConfigsRequest, configs.AlterConfigsResponse),
        _api(ApiKey.ALTER_REPLICA_LOG_DIRS, log_dirs.AlterReplicaLogDirsRequest, log_dirs.AlterReplicaLogDirsResponse),
        _api(ApiKey.DESCRIBE_LOG_DIRS, log_dirs.DescribeLogDirsRequest, log_dirs.DescribeLogDirsResponse),
        _api(ApiKey.CREATE_PARTITIONS, topics.CreatePartitionsRequest, topics.CreatePartitionsResponse),
        _api(ApiKey.DELETE_GROUPS, group_admin.DeleteGroupsRequest, group_admin.DeleteGroupsResponse),
        _api(ApiKey.ELECT_LEADERS, placement.ElectLeadersRequest, placement.ElectLeadersResponse),
        _api(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            configs.IncrementalAlterConfigsRequest,
            configs.IncrementalAlterConfigsResponse,
        ),
        _api(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            placement.AlterPartitionReassignmentsRequest,
            placement.AlterPartitionReassignmentsResponse,
        ),
        _api(
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            placement.ListPartitionReassignmentsRequest,
            placement.ListPartitionReassignmentsResponse,
        ),
        _api(ApiKey.OFFSET_DELETE, offsets.OffsetDeleteRequest, offsets.OffsetDeleteResponse),
        _api(ApiKey.DESCRIBE_CLUSTER, cluster.DescribeClusterRequest, cluster.DescribeClusterResponse),
        _api(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            modern_group.ConsumerGroupHeartbeatRequest,
            modern_group.ConsumerGroupHeartbeatResponse,
        ),
        _api(
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            modern_group.ConsumerGroupDescribeRequest,
            modern_group.ConsumerGroupDescribeResponse,
        ),
        _api(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            placement.DescribeTopicPartitionsRequest,
            placement.DescribeTopicPartitionsResponse,
        ),
        _api(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            modern_group.ShareGroupHeartbeatRequest,
            modern_group.ShareGroupHeartbeatResponse,
        ),
        _api(
            ApiKey.SHARE_GROUP_DESCRIBE,
            modern_group.ShareGroupDescribeRequest,
            modern_group.ShareGroupDescribeResponse,
        ),
    )
}
"""Every key that the broker answers, by its number and in that order."""


def request_header_version(key: int, version: int) -> int:
    """The version of the header before a request: 2 for a flexible request, else 1.

    For keys that are not served it is 1, so that their correlation id can still be read.
    """
    api = APIS.get(key)
    return 2 if api is not None and version >= api.flexible_since else 1


def response_header_version(key: int, version: int) -> int:
    """The version of the header before a response: 1 for a flexible response, except 0 for ApiVersions."""
    if key == ApiKey.API_VERSIONS:
        return 0
    return request_header_version(key, version) - 1
