"""The records of `__consumer_offsets`, as objects and in Kafka's format.

1. `decode_record(*record.encoded())` equals the record.
2. A record without a value (a tombstone) undoes every earlier record with the same key.
3. The written versions are those of Kafka 4. Offsets have key version 1 and value version 3 (1 if they have an expiry
   of their own); groups have key version 2 and value version 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from gnomon.broker.coordination.state_machine import Encoded
from gnomon.wire.kafka.messages.offsets_topic import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
)
from gnomon.wire.kafka.schema import decode_prefixed, encode_prefixed

_OFFSET_KEY_VERSION = 1
_OFFSET_VERSION = 3
_EXPIRING_OFFSET_VERSION = 1
_GROUP_KEY_VERSION = 2
_GROUP_VERSION = 3


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """A committed offset. Times are wall-clock milliseconds; `expire_ms` is set by clients of OffsetCommit 2 to 4."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A group's offset in one partition; `stored` is None if the offset was deleted."""

    group_id: str
    topic: str
    partition: int
    stored: StoredOffset | None

    @property
    def is_tombstone(self) -> bool:
        """Whether the record undoes earlier ones."""
        return self.stored is None

    def encoded(self) -> Encoded:
        """Key and value as Kafka stores them."""
        key = OffsetCommitKey(group=self.group_id, topic=self.topic, partition=self.partition)
        stored = self.stored
        if stored is None:
            return encode_prefixed(key, _OFFSET_KEY_VERSION), None
        value = OffsetCommitValue(
            offset=stored.offset,
            leader_epoch=stored.leader_epoch,
            metadata=stored.metadata,
            commit_timestamp=stored.commit_ms,
            expire_timestamp=-1 if stored.expire_ms is None else stored.expire_ms,
        )
        version = _OFFSET_VERSION if stored.expire_ms is None else _EXPIRING_OFFSET_VERSION
        return encode_prefixed(key, _OFFSET_KEY_VERSION), encode_prefixed(value, version)


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A group's generation with its members; `value` is None if the group is gone."""

    group_id: str
    value: GroupMetadataValue | None

    @property
    def is_tombstone(self) -> bool:
        """Whether the record undoes earlier ones."""
        return self.value is None

    def encoded(self) -> Encoded:
        """Key and value as Kafka stores them."""
        key = encode_prefixed(GroupMetadataKey(group=self.group_id), _GROUP_KEY_VERSION)
        return key, None if self.value is None else encode_prefixed(self.value, _GROUP_VERSION)


CoordinatorRecord: TypeAlias = OffsetRecord | GroupRecord


def decode_record(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """The record of stored bytes; None if it is of an unknown kind.

    Raises:
        MalformedMessage: the bytes are damaged.
    """
    known = decode_key(key)
    if isinstance(known, OffsetCommitKey):
        return OffsetRecord(known.group, known.topic, known.partition, None if value is None else _offset(value))
    if isinstance(known, GroupMetadataKey):
        return GroupRecord(known.group, None if value is None else decode_prefixed(GroupMetadataValue, value)[0])
    return None


def _offset(value: bytes) -> StoredOffset:
    read, _ = decode_prefixed(OffsetCommitValue, value)
    expire_ms = None if read.expire_timestamp == -1 else read.expire_timestamp
    return StoredOffset(read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, expire_ms)
