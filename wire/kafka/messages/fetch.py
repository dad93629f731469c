"""The messages of Fetch."""

from __future__ import annotations

from uuid import UUID

from gnomon.wire.kafka.schema import (
    Buffer,
    ProtocolMessage,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    nullable_array,
    records,
    string,
    struct,
    uuid,
)


class ReplicaState(Struct):
    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(since=9, default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(since=12, default=-1, essential=True)
    log_start_offset: int = int64(since=5, default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: UUID = uuid(since=17, tag=0)
    high_watermark: int = int64(since=18, default=2**63 - 1, tag=1)


class FetchTopic(Struct):
    topic: str = string(until=12)
    topic_id: UUID = uuid(since=13)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = string(until=12)
    topic_id: UUID = uuid(since=13)
    partitions: list[int] = array(int32)


class FetchRequest(ProtocolMessage, key=1, versions=(4, 18), flexible=12):
    """Asks for record batches from offsets on; up to v12 topics are given by name, from v13 on by id."""

    cluster_id: str | None = string.nullable(since=12, tag=0)
    replica_id: int = int32(until=14, default=-1, essential=True)
    replica_state: ReplicaState = struct(ReplicaState, since=15, tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2**31 - 1)
    isolation_level: int = int8()
    session_id: int = int32(since=7)
    session_epoch: int = int32(since=7, default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7, essential=True)
    rack_id: str = string(since=11)


class EpochEndOffset(Struct):
    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class SnapshotId(Struct):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId = struct(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = nullable_array(AbortedTransaction)
    preferred_read_replica: int = int32(since=11, default=-1)
    records: Buffer | None = records.nullable(default=b"")


class FetchableTopicResponse(Struct):
    topic: str = string(until=12)
    topic_id: UUID = uuid(since=13)
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string.nullable()


class FetchResponse(ProtocolMessage, key=1, versions=(4, 18), flexible=12):
    """Record batches, high watermarks and errors of each partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=7)
    session_id: int = int32(since=7)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=16, tag=0)
