"""The messages of Produce and InitProducerId."""

from __future__ import annotations

from uuid import UUID

from gnomon.wire.kafka.schema import (
    Buffer,
    ProtocolMessage,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)


class PartitionProduceData(Struct):
    index: int = int32()
    records: Buffer | None = records.nullable()


class TopicProduceData(Struct):
    name: str = string(until=12)
    topic_id: UUID = uuid(since=13)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(ProtocolMessage, key=0, versions=(3, 13), flexible=9):
    """Record batches to append; up to v12 topics are given by name, from v13 on by id."""

    transactional_id: str | None = string.nullable()
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32()
    batch_index_error_message: str | None = string.nullable()


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionProduceResponse(Struct):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, since=8)
    error_message: str | None = string.nullable(since=8)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, since=10, tag=0)


class TopicProduceResponse(Struct):
    name: str = string(until=12)
    topic_id: UUID = uuid(since=13)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string.nullable()


class ProduceResponse(ProtocolMessage, key=0, versions=(3, 13), flexible=9):
    """Base offset or error of each partition."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=10, tag=0)


class InitProducerIdRequest(ProtocolMessage, key=22, versions=(0, 6), flexible=2):
    """Asks for a producer id and epoch."""

    transactional_id: str | None = string.nullable()
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(since=3, default=-1, essential=True)
    producer_epoch: int = int16(since=3, default=-1, essential=True)
    enable2_pc: bool = boolean(since=6, essential=True)
    keep_prepared_txn: bool = boolean(since=6, essential=True)


class InitProducerIdResponse(ProtocolMessage, key=22, versions=(0, 6), flexible=2):
    """The producer id and epoch."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64(since=6, default=-1)
    ongoing_txn_producer_epoch: int = int16(since=6, default=-1)
