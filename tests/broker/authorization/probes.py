"""Requests of each Kafka API that ask for every operation that its rules name."""

from __future__ import annotations

from uuid import UUID

from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.fields import ProtocolMessage
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

TOPIC, SHADOW, GROUP, TRANSACTION = "orders", "copy", "billing", "moves"


def _creatable(name: str, source: str | None = None) -> topics.CreatableTopic:
    given = [] if source is None else [topics.CreatableTopicConfig(name="gnomon.shadow.source", value=source)]
    partitions = 1 if source is None else -1
    return topics.CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=given)


def _of_configs(request: type, item: type) -> ProtocolMessage:
    """A request about the configs of a topic, of a broker and of a group."""
    kinds = [(2, TOPIC), (4, ""), (32, GROUP)]
    made: ProtocolMessage = request(resources=[item(resource_type=kind, resource_name=name) for kind, name in kinds])
    return made


def requests(topic_id: UUID) -> dict[ApiKey, list[tuple[ProtocolMessage, int]]]:
    """The requests of each API, each with its version; `topic_id` is that of TOPIC, which exists as SHADOW's source."""
    data = produce.PartitionProduceData(index=0, records=None)
    written = produce.TopicProduceData(name=TOPIC, partition_data=[data])
    leaver = group.MemberIdentity(member_id="none")
    created = [_creatable("new"), _creatable("new-copy", TOPIC)]
    followed = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    commit = offsets.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    place = positions.ListOffsetsPartition(partition_index=0, timestamp=-1)
    cut = topics.DeleteRecordsPartition(partition_index=0, offset=0)
    return {
        ApiKey.PRODUCE: [
            (produce.ProduceRequest(acks=1, topic_data=[written]), 9),
            (produce.ProduceRequest(acks=1, transactional_id=TRANSACTION, topic_data=[written]), 9),
        ],
        ApiKey.FETCH: [
            (fetch.FetchRequest(max_bytes=1000, topics=[fetch.FetchTopic(topic=TOPIC, partitions=[followed])]), 11)
        ],
        ApiKey.LIST_OFFSETS: [
            (positions.ListOffsetsRequest(topics=[positions.ListOffsetsTopic(name=TOPIC, partitions=[place])]), 7)
        ],
        ApiKey.METADATA: [
            (
                cluster.MetadataRequest(
                    topics=[cluster.MetadataRequestTopic(name=TOPIC), cluster.MetadataRequestTopic(name="yet-to-come")],
                    include_cluster_authorized_operations=True,
                ),
                9,
            ),
            (cluster.MetadataRequest(topics=[cluster.MetadataRequestTopic(name=None, topic_id=topic_id)]), 12),
        ],
        ApiKey.OFFSET_COMMIT: [
            (
                offsets.OffsetCommitRequest(
                    group_id=GROUP, topics=[offsets.OffsetCommitRequestTopic(name=TOPIC, partitions=[commit])]
                ),
                8,
            )
        ],
        ApiKey.OFFSET_FETCH: [
            (
                offsets.OffsetFetchRequest(
                    groups=[
                        offsets.OffsetFetchRequestGroup(
                            group_id=GROUP,
                            topics=[offsets.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])],
                        )
                    ]
                ),
                8,
            ),
            (
                offsets.OffsetFetchRequest(
                    group_id=GROUP, topics=[offsets.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
                ),
                7,
            ),
        ],
        ApiKey.FIND_COORDINATOR: [
            (group.FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 4),
            (group.FindCoordinatorRequest(key_type=0, key=GROUP), 3),
            (group.FindCoordinatorRequest(key_type=1, coordinator_keys=[TRANSACTION]), 4),
        ],
        ApiKey.JOIN_GROUP: [
            (
                group.JoinGroupRequest(
                    group_id=GROUP,
                    session_timeout_ms=6_000,
                    protocol_type="consumer",
                    protocols=[group.JoinGroupRequestProtocol(name="range", metadata=b"")],
                ),
                3,
            )
        ],
        ApiKey.HEARTBEAT: [(group.HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="none"), 4)],
        ApiKey.LEAVE_GROUP: [(group.LeaveGroupRequest(group_id=GROUP, members=[leaver]), 5)],
        ApiKey.SYNC_GROUP: [(group.SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="none"), 5)],
        ApiKey.DESCRIBE_GROUPS: [
            (group_admin.DescribeGroupsRequest(groups=[GROUP], include_authorized_operations=True), 5)
        ],
        ApiKey.LIST_GROUPS: [(group_admin.ListGroupsRequest(), 4)],
        ApiKey.SASL_HANDSHAKE: [(cluster.SaslHandshakeRequest(mechanism="PLAIN"), 1)],
        ApiKey.API_VERSIONS: [(cluster.ApiVersionsRequest(), 3)],
        ApiKey.CREATE_TOPICS: [
            (
                topics.CreateTopicsRequest(topics=created, validate_only=True),
                7,
            )
        ],
        ApiKey.DELETE_TOPICS: [
            (topics.DeleteTopicsRequest(topics=[topics.DeleteTopicState(name=None, topic_id=topic_id)]), 6),
            (topics.DeleteTopicsRequest(topics=[topics.DeleteTopicState(name=SHADOW)]), 6),
        ],
        ApiKey.DELETE_RECORDS: [
            (topics.DeleteRecordsRequest(topics=[topics.DeleteRecordsTopic(name=TOPIC, partitions=[cut])]), 2)
        ],
        ApiKey.INIT_PRODUCER_ID: [
            (produce.InitProducerIdRequest(transactional_id=None), 4),
            (produce.InitProducerIdRequest(transactional_id=TRANSACTION), 4),
        ],
        ApiKey.OFFSET_FOR_LEADER_EPOCH: [
            (
                positions.OffsetForLeaderEpochRequest(
                    topics=[
                        positions.OffsetForLeaderTopic(
                            topic=TOPIC, partitions=[positions.OffsetForLeaderPartition(partition=0, leader_epoch=0)]
                        )
                    ]
                ),
                4,
            )
        ],
        ApiKey.DESCRIBE_ACLS: [(acls.DescribeAclsRequest(), 3)],
        ApiKey.CREATE_ACLS: [(acls.CreateAclsRequest(creations=[acls.AclCreation()]), 3)],
        ApiKey.DELETE_ACLS: [(acls.DeleteAclsRequest(filters=[acls.DeleteAclsFilter()]), 3)],
        ApiKey.DESCRIBE_CONFIGS: [(_of_configs(configs.DescribeConfigsRequest, configs.DescribeConfigsResource), 4)],
        ApiKey.ALTER_CONFIGS: [(_of_configs(configs.AlterConfigsRequest, configs.AlterConfigsResource), 2)],
        ApiKey.INCREMENTAL_ALTER_CONFIGS: [
            (_of_configs(configs.IncrementalAlterConfigsRequest, configs.IncrementalAlterConfigsResource), 1)
        ],
        ApiKey.ALTER_REPLICA_LOG_DIRS: [
            (
                log_dirs.AlterReplicaLogDirsRequest(
                    dirs=[
                        log_dirs.AlterReplicaLogDir(
                            path="/data", topics=[log_dirs.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])]
                        )
                    ]
                ),
                2,
            )
        ],
        ApiKey.DESCRIBE_LOG_DIRS: [(log_dirs.DescribeLogDirsRequest(topics=None), 4)],
        ApiKey.CREATE_PARTITIONS: [
            (
                topics.CreatePartitionsRequest(
                    topics=[topics.CreatePartitionsTopic(name=TOPIC, count=2, assignments=None)], validate_only=True
                ),
                3,
            )
        ],
        ApiKey.DELETE_GROUPS: [(group_admin.DeleteGroupsRequest(groups_names=[GROUP]), 2)],
        ApiKey.ELECT_LEADERS: [(placement.ElectLeadersRequest(topic_partitions=None), 2)],
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: [(placement.AlterPartitionReassignmentsRequest(), 0)],
        ApiKey.LIST_PARTITION_REASSIGNMENTS: [(placement.ListPartitionReassignmentsRequest(topics=None), 0)],
        ApiKey.OFFSET_DELETE: [
            (
                offsets.OffsetDeleteRequest(
                    group_id=GROUP,
                    topics=[
                        offsets.OffsetDeleteRequestTopic(
                            name=TOPIC, partitions=[offsets.OffsetDeleteRequestPartition(partition_index=0)]
                        )
                    ],
                ),
                0,
            )
        ],
        ApiKey.DESCRIBE_CLUSTER: [(cluster.DescribeClusterRequest(include_cluster_authorized_operations=True), 1)],
        ApiKey.CONSUMER_GROUP_HEARTBEAT: [(modern_group.ConsumerGroupHeartbeatRequest(group_id=GROUP), 0)],
        ApiKey.CONSUMER_GROUP_DESCRIBE: [(modern_group.ConsumerGroupDescribeRequest(group_ids=[GROUP]), 0)],
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: [
            (placement.DescribeTopicPartitionsRequest(topics=[placement.TopicRequest(name=TOPIC)]), 0)
        ],
        ApiKey.SHARE_GROUP_HEARTBEAT: [(modern_group.ShareGroupHeartbeatRequest(group_id=GROUP), 1)],
        ApiKey.SHARE_GROUP_DESCRIBE: [(modern_group.ShareGroupDescribeRequest(group_ids=[GROUP]), 1)],
    }
