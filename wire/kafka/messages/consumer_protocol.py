"""What consumers put into JoinGroup and SyncGroup: opaque to a group, which may look at the topics.

Both stand behind their version as int16 (`schema.encode_prefixed`). A newer version is read as the
newest one known and the rest is left, as Kafka's own readers do: clients may be newer than their broker.
"""

from __future__ import annotations

from struct import Struct as Packed
from typing import TypeVar

from gnomon.wire.kafka.schema import (
    Buffer,
    MalformedMessage,
    Message,
    Struct,
    array,
    decode,
    int32,
    octets,
    string,
)

M = TypeVar("M", bound=Message)

_VERSION = Packed(">h")


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


def decode_consumer_protocol(cls: type[M], buffer: Buffer) -> M:
    """Decodes a subscription or an assignment with its version in front, also of versions to come.

    Raises:
        MalformedMessage: the bytes are no such structure.
    """
    if len(buffer) < _VERSION.size:
        raise MalformedMessage(f"{cls.__name__}: {len(buffer)} bytes hold no version")
    (version,) = _VERSION.unpack_from(buffer)
    if version < 0:
        raise MalformedMessage(f"{cls.__name__}: version {version} is negative")
    message, _ = decode(cls, min(version, cls.VERSIONS[1]), buffer, _VERSION.size)
    return message
