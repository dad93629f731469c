"""What consumers put into JoinGroup and SyncGroup: opaque to the broker, which only looks at the topics."""

from __future__ import annotations

from gnomon.wire.kafka.schema import Message, Struct, array, int32, octets, string


class TopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(Message, versions=(0, 3)):
    """What a consumer wants: the metadata of its protocol in JoinGroup."""

    topics: list[str] = array(string)
    user_data: bytes | None = octets.nullable()
    owned_partitions: list[TopicPartition] = array(TopicPartition, since=1)
    generation_id: int = int32(since=2, default=-1)
    rack_id: str | None = string.nullable(since=3)


class ConsumerProtocolAssignment(Message, versions=(0, 3)):
    """What a consumer gets: its assignment in SyncGroup."""

    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = octets.nullable()
