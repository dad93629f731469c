"""Committed offsets: commits, fetches, deletions and expiry.

1. An offset is visible once its record is durable: `GroupOffsets.stored` changes only by the replay of records.
2. A deletion also covers commits that are not durable yet: the records of the deletion follow those of the commits in
   the log.
3. Offsets of a group that is not Empty do not expire, except those of topics that a stable consumer group does not
   read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TypeVar

from gnomon.broker.groups.call import GroupCall, ManyOffsets, Reply
from gnomon.broker.groups.group import CONSUMER_PROTOCOL, Group, GroupState
from gnomon.broker.groups.parts import OFFSETS_MAX
from gnomon.broker.groups.records import OffsetRecord, StoredOffset
from gnomon.broker.groups.turn import Turn
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.offsets import (
    FETCH_GROUPS_SINCE,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

T = TypeVar("T")

NO_OFFSET = StoredOffset(-1, -1, "", -1)
RECORD_BYTES = 64
"""Size of an offset's record without its texts."""
COMMIT_BYTES_MAX = 8 << 20
"""Bound on the records of one commit; Kafka's bound is that of a batch, 1 MiB by default."""
NEVER_MS = (1 << 63) - 1
"""The latest expiry that a record can hold."""


class GroupOffsets:
    """The durable offsets of one group, and how many commits to each partition are under way (soft state)."""

    def __init__(self) -> None:
        self.stored: dict[str, dict[int, StoredOffset]] = {}
        self._under_way: dict[tuple[str, int], int] = {}

    def begin(self, record: OffsetRecord) -> None:
        """The record is being appended."""
        place = (record.topic, record.partition)
        self._under_way[place] = self._under_way.get(place, 0) + 1

    def replay(self, record: OffsetRecord) -> None:
        """Applies a durable record, which is no longer under way."""
        place = (record.topic, record.partition)
        under_way = self._under_way.get(place, 0)
        if under_way > 1:
            self._under_way[place] = under_way - 1
        elif under_way:
            del self._under_way[place]
        self.apply(record)

    def apply(self, record: OffsetRecord) -> None:
        """Changes the durable offsets as the record says."""
        if record.stored is not None:
            self.stored.setdefault(record.topic, {})[record.partition] = record.stored
            return
        partitions = self.stored.get(record.topic, {})
        partitions.pop(record.partition, None)
        if not partitions:
            self.stored.pop(record.topic, None)

    def get(self, topic: str, partition: int) -> StoredOffset:
        """The durable offset, or NO_OFFSET."""
        return self.stored.get(topic, {}).get(partition, NO_OFFSET)

    def places(self, most: int | None = None) -> list[tuple[str, int]]:
        """Topic and partition of every offset, durable or under way, or of the first `most` ones."""
        return list(islice(chain(self.durable_places(), self._only_under_way()), most))

    def places_of(self, topics: Collection[str], most: int) -> list[tuple[str, int]]:
        """The first `most` places of some topics, durable or under way."""
        durable = ((topic, partition) for topic in topics for partition in self.stored.get(topic, ()))
        under_way = (place for place in self._only_under_way() if place[0] in topics)
        return list(islice(chain(durable, under_way), most))

    def _only_under_way(self) -> Iterator[tuple[str, int]]:
        return (place for place in self._under_way if place[1] not in self.stored.get(place[0], ()))

    def durable_places(self) -> Iterator[tuple[str, int]]:
        """Topic and partition of every durable offset; records may be replayed meanwhile."""
        for topic in list(self.stored):
            for partition in list(self.stored.get(topic, ())):
                yield topic, partition

    def consists_of(self, count: int) -> bool:
        """Whether `count` is the number of all offsets, and no commit is under way."""
        return not self._under_way and count == sum(map(len, self.stored.values()))

    def has(self, topic: str, partition: int) -> bool:
        """Whether an offset of the partition is durable or under way."""
        return partition in self.stored.get(topic, {}) or self.busy(topic, partition)

    def busy(self, topic: str, partition: int) -> bool:
        """Whether a commit to the partition is under way."""
        return (topic, partition) in self._under_way

    def empty(self) -> bool:
        """Whether no offset is durable or under way."""
        return not self.stored and not self._under_way


NO_OFFSETS = GroupOffsets()
"""The offsets of a group that has none; never changed."""


def commit(group: Group | None, call: GroupCall, turn: Turn) -> None:
    """Stores offsets for a member of the group, or for any client while the group has no members."""
    request: OffsetCommitRequest = call.request
    error = _check_commit(group, request)
    if error:
        turn.refuse(call, error)
        return
    if group is not None and request.member_id in group.members:
        group.restart_session(group.members[request.member_id], turn)
    if _size(request) > COMMIT_BYTES_MAX:
        turn.refuse(call, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        return
    records: list[OffsetRecord] = []
    topics = []
    for topic in request.topics:
        results = []
        for part in topic.partitions:
            too_large = len(part.committed_metadata or "") > turn.settings.offset_metadata_bytes_max
            if not too_large:
                stored = _stored(part, request.retention_time_ms, turn.wall_ms)
                records.append(OffsetRecord(request.group_id, topic.name, part.partition_index, stored))
            code = ErrorCode.OFFSET_METADATA_TOO_LARGE if too_large else ErrorCode.NONE
            results.append(OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code))
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=results))
    response = OffsetCommitResponse(topics=topics)
    if records:
        turn.append(records, [Reply(call, response)])
    else:
        turn.reply(call, response)


def _size(request: OffsetCommitRequest) -> int:
    """About how many bytes the records of a commit take: each names its group and its topic again."""
    return sum(
        RECORD_BYTES + len(request.group_id) + len(topic.name) + len(part.committed_metadata or "")
        for topic in request.topics
        for part in topic.partitions
    )


def _check_commit(group: Group | None, request: OffsetCommitRequest) -> ErrorCode:
    generation = request.generation_id_or_member_epoch
    if group is None:
        return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
    if generation < 0 and group.state is GroupState.EMPTY:
        # Consumers that assign themselves, and tools.
        return ErrorCode.NONE
    if generation < 0 and not request.member_id and request.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(request.member_id, request.group_instance_id)
    if error:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    completing = group.state is GroupState.COMPLETING_REBALANCE
    return ErrorCode.REBALANCE_IN_PROGRESS if completing else ErrorCode.NONE


def _stored(part: OffsetCommitRequestPartition, retention_ms: int, now_ms: int) -> StoredOffset:
    return StoredOffset(
        part.committed_offset,
        part.committed_leader_epoch,
        part.committed_metadata or "",
        now_ms,
        None if retention_ms < 0 else min(now_ms + retention_ms, NEVER_MS),
    )


def fetch(offsets: GroupOffsets, call: GroupCall, turn: Turn) -> None:
    """Answers with the durable offsets of the one group that the request names; an unknown group has none."""
    request: OffsetFetchRequest = call.request
    in_groups = call.version >= FETCH_GROUPS_SINCE
    topics: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None
    topics = request.groups[0].topics if in_groups else request.topics
    if topics is None:
        every = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=list(partitions))
            for topic, partitions in offsets.stored.items()
        ]
        if sum(1 + len(topic.partition_indexes) for topic in every) > OFFSETS_MAX:
            turn.reply(call, ManyOffsets(topics=every))
            return
        topics = every
    if in_groups:
        found = [_fetched_v8(offsets, topic) for topic in topics]
        group_id = request.groups[0].group_id
        turn.reply(call, OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=group_id, topics=found)]))
    else:
        turn.reply(call, OffsetFetchResponse(topics=[_fetched_v1(offsets, topic) for topic in topics]))


def _fetched_v1(
    offsets: GroupOffsets, topic: OffsetFetchRequestTopic | OffsetFetchRequestTopics
) -> OffsetFetchResponseTopic:
    partitions = _committed(OffsetFetchResponsePartition, offsets, topic)
    return OffsetFetchResponseTopic(name=topic.name, partitions=partitions)


def _fetched_v8(
    offsets: GroupOffsets, topic: OffsetFetchRequestTopic | OffsetFetchRequestTopics
) -> OffsetFetchResponseTopics:
    partitions = _committed(OffsetFetchResponsePartitions, offsets, topic)
    found = OffsetFetchResponseTopics(name=topic.name, partitions=partitions)
    if isinstance(topic, OffsetFetchRequestTopics):
        found.topic_id = topic.topic_id
    return found


def _committed(
    answer: Callable[..., T], offsets: GroupOffsets, topic: OffsetFetchRequestTopic | OffsetFetchRequestTopics
) -> list[T]:
    return [
        answer(
            partition_index=index,
            committed_offset=stored.offset,
            committed_leader_epoch=stored.leader_epoch,
            metadata=stored.metadata,
        )
        for index in topic.partition_indexes
        for stored in (offsets.get(topic.name, index),)
    ]


def delete(group: Group | None, offsets: GroupOffsets, call: GroupCall, turn: Turn) -> None:
    """Deletes the offsets of topics that no member reads."""
    request: OffsetDeleteRequest = call.request
    if group is None and offsets.empty():
        turn.refuse(call, ErrorCode.GROUP_ID_NOT_FOUND)
        return
    if group is not None and group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL:
        turn.refuse(call, ErrorCode.NON_EMPTY_GROUP)
        return
    is_read = group.topics_read() if group is not None else None
    records: dict[tuple[str, int], OffsetRecord] = {}
    topics = []
    for topic in request.topics:
        code = ErrorCode.NONE
        if is_read is not None and is_read(topic.name):
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        results = []
        for part in topic.partitions:
            results.append(OffsetDeleteResponsePartition(partition_index=part.partition_index, error_code=code))
            if not code and offsets.has(topic.name, part.partition_index):
                place = (topic.name, part.partition_index)
                records[place] = OffsetRecord(request.group_id, *place, None)
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=results))
    response = OffsetDeleteResponse(topics=topics)
    if records:
        turn.append(list(records.values()), [Reply(call, response)])
    else:
        turn.reply(call, response)


def expired(
    group_id: str, group: Group | None, offsets: GroupOffsets, places: Iterable[tuple[str, int]], turn: Turn
) -> Iterator[OffsetRecord]:
    """Tombstones for those of the durable offsets at `places` that have expired (KIP-211).

    An explicit expiry (OffsetCommit 2 to 4) counts alone. Otherwise the retention time starts when the group became
    Empty. It starts at the commit if no member ever joined the group, and for topics that a stable consumer group does
    not read.
    """
    if group is not None and not (
        group.state is GroupState.EMPTY
        or (group.state is GroupState.STABLE and group.protocol_type == CONSUMER_PROTOCOL)
    ):
        return
    empty_since_ms = -1
    if group is not None and group.protocol_type and group.state is GroupState.EMPTY:
        empty_since_ms = group.state_since_ms
    is_read = group.topics_read() if group is not None and group.members else None
    for topic, partition in places:
        stored = offsets.get(topic, partition)
        if stored is NO_OFFSET or offsets.busy(topic, partition) or (is_read is not None and is_read(topic)):
            continue
        since_ms = stored.commit_ms if empty_since_ms == -1 else empty_since_ms
        end_ms = since_ms + turn.settings.offsets_retention_ms if stored.expire_ms is None else stored.expire_ms
        if end_ms <= turn.wall_ms:
            yield OffsetRecord(group_id, topic, partition, None)
