"""The stored state of a shard's groups: the last record of each group, and its committed offsets. Pure.

1. Only `replay` changes durable state. `begin` changes no more than the count of commits that are under way.
2. `offsets` has exactly the groups with an offset that is durable or under way.
3. The current records of all places, in any order, give the same state when they are replayed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from gnomon.broker.groups.offsets import NO_OFFSET, NO_OFFSETS, GroupOffsets
from gnomon.broker.groups.records import CoordinatorRecord, GroupRecord, OffsetRecord
from gnomon.wire.kafka.messages.offsets_topic import GroupMetadataValue

Place: TypeAlias = tuple[str, str | None, int]
"""The key of a record: group, topic and partition; without a topic, the group itself."""


class StoredGroups:
    """The durable state of the groups of one partition."""

    def __init__(self) -> None:
        self.recorded: dict[str, GroupMetadataValue] = {}
        """The last record of each group."""
        self.offsets: dict[str, GroupOffsets] = {}

    def begin(self, record: OffsetRecord) -> None:
        """The record of an offset is being appended."""
        self.offsets.setdefault(record.group_id, GroupOffsets()).begin(record)

    def replay(self, record: CoordinatorRecord) -> None:
        """Applies a durable record."""
        match record:
            case OffsetRecord(group_id):
                offsets = self.offsets.setdefault(group_id, GroupOffsets())
                offsets.replay(record)
                if offsets.empty():
                    del self.offsets[group_id]
            case GroupRecord(group_id, None):
                self.recorded.pop(group_id, None)
            case GroupRecord(group_id, value):
                assert value is not None
                self.recorded[group_id] = value

    def offsets_of(self, group_id: str) -> GroupOffsets:
        """The offsets of a group, `NO_OFFSETS` if it has none."""
        return self.offsets.get(group_id, NO_OFFSETS)

    def places(self) -> Iterator[Place]:
        """The keys of all durable records; records may be replayed meanwhile."""
        for group_id in list(self.recorded):
            yield group_id, None, -1
        for group_id, topic, partition in self._offset_places():
            yield group_id, topic, partition

    def committed(self) -> Iterator[tuple[str, str, int, int]]:
        """Group, topic, partition and offset of every durable commit; records may be replayed meanwhile."""
        for group_id, topic, partition in self._offset_places():
            yield group_id, topic, partition, self.offsets_of(group_id).get(topic, partition).offset

    def _offset_places(self) -> Iterator[tuple[str, str, int]]:
        for group_id in list(self.offsets):
            for topic, partition in self.offsets_of(group_id).durable_places():
                yield group_id, topic, partition

    def current(self, place: Place) -> CoordinatorRecord | None:
        """The last durable record with a key."""
        group_id, topic, partition = place
        if topic is None:
            value = self.recorded.get(group_id)
            return None if value is None else GroupRecord(group_id, value)
        stored = self.offsets_of(group_id).get(topic, partition)
        return None if stored is NO_OFFSET else OffsetRecord(group_id, topic, partition, stored)


def place_of(record: CoordinatorRecord) -> Place:
    """The key of a record."""
    if isinstance(record, OffsetRecord):
        return record.group_id, record.topic, record.partition
    return record.group_id, None, -1
