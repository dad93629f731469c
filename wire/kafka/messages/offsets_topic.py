"""Records of `__consumer_offsets`, as Kafka writes them."""

from __future__ import annotations

from gnomon.wire.kafka.schema import Message, Struct, array, int32, int64, octets, string


class OffsetCommitKey(Message, versions=(0, 1)):
    """Key of a stored offset, in v0 or v1."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, versions=(0, 4), flexible=4):
    """A stored offset."""

    offset: int = int64()
    leader_epoch: int = int32(since=3, default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(since=1, until=1, default=-1)


class GroupMetadataKey(Message, versions=(2, 2)):
    """Key of a group; its version, 2, tells it from `OffsetCommitKey`."""

    group: str = string()


class MemberMetadata(Struct):
    member_id: str = string()
    group_instance_id: str | None = string.nullable(since=3)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(since=1, default=-1)
    session_timeout: int = int32()
    subscription: bytes = octets()
    assignment: bytes = octets()


class GroupMetadataValue(Message, versions=(0, 4), flexible=4):
    """State of a group."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string.nullable()
    leader: str | None = string.nullable()
    current_state_timestamp: int = int64(since=2, default=-1)
    members: list[MemberMetadata] = array(MemberMetadata)
