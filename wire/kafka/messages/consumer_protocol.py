"""The payloads of consumers in JoinGroup and SyncGroup: opaque to a coordinator, except for the subscribed topics.

Each payload begins with its version, an int16 (`schema.encode_prefixed`). A new version only appends fields.
"""

from __future__ import annotations

from struct import Struct as Packed

from gnomon.wire.kafka.schema import (
    Buffer,
    MalformedMessage,
    ProtocolMessage,
    Struct,
    array,
    decode,
    int32,
    octets,
    string,
)

TOPICS_MAX = 10_000
"""Topics of one subscription; Kafka has no bound."""
_VERSION = Packed(">h")


class TopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(ProtocolMessage, versions=(0, 3)):
    """A consumer's subscription: the metadata of its protocol in JoinGroup."""

    topics: list[str] = array(string)
    user_data: bytes | None = octets.nullable()
    owned_partitions: list[TopicPartition] = array(TopicPartition, since=1)
    generation_id: int = int32(since=2, default=-1)
    rack_id: str | None = string.nullable(since=3)


class ConsumerProtocolAssignment(ProtocolMessage, versions=(0, 3)):
    """A consumer's partitions: its assignment in SyncGroup."""

    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = octets.nullable()


def subscribed_topics(metadata: Buffer) -> list[str]:
    """The topics of a subscription of any version.

    Every version begins as version 0 does, so only topics and user_data are read, as Kafka's coordinator does: a client
    may be newer than this broker, or end before the fields of the version that it names.

    Raises:
        MalformedMessage: the bytes end before user_data does, or there are more than TOPICS_MAX topics.
    """
    if len(metadata) < _VERSION.size:
        raise MalformedMessage(f"subscription: {len(metadata)} bytes hold no version")
    message, _ = decode(ConsumerProtocolSubscription, 0, metadata, _VERSION.size, elements_max=TOPICS_MAX)
    return message.topics
