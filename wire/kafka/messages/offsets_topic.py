"""Records of `__consumer_offsets`, as Kafka writes them: each key and each value begins with its version, an int16.

Write them with `schema.encode_prefixed`, read values with `schema.decode_prefixed` and keys with `decode_key`.
"""

from __future__ import annotations

from gnomon.wire.kafka.schema import (
    Buffer,
    ProtocolMessage,
    Struct,
    array,
    decode_prefixed,
    int32,
    int64,
    octets,
    string,
)


class OffsetCommitKey(ProtocolMessage, versions=(0, 1)):
    """Key of a stored offset, in v0 or v1."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(ProtocolMessage, versions=(0, 4), flexible=4):
    """A stored offset."""

    offset: int = int64()
    leader_epoch: int = int32(since=3, default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(since=1, until=1, default=-1)


class GroupMetadataKey(ProtocolMessage, versions=(2, 2)):
    """Key of a group; its version, 2, distinguishes it from `OffsetCommitKey`."""

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


class GroupMetadataValue(ProtocolMessage, versions=(0, 4), flexible=4):
    """State of a group."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string.nullable()
    leader: str | None = string.nullable()
    current_state_timestamp: int = int64(since=2, default=-1)
    members: list[MemberMetadata] = array(MemberMetadata)


def decode_key(buffer: Buffer) -> OffsetCommitKey | GroupMetadataKey | None:
    """The key of a record; None if its version belongs to a kind of record that gnomon does not use.

    Raises:
        MalformedMessage: a damaged key of a known version.
    """
    version = int.from_bytes(buffer[:2], "big")
    if version <= OffsetCommitKey.VERSIONS[1]:
        return decode_prefixed(OffsetCommitKey, buffer)[0]
    if version == GroupMetadataKey.VERSIONS[0]:
        return decode_prefixed(GroupMetadataKey, buffer)[0]
    return None
