"""The hold on a topic's records: the unread records of durable subscriptions of the topic and of its shadows, and the
records of read holds.

1. `hold_key` is read first, then the topics that have subscriptions, then the positions of these. Each creation of a
   subscription, and each move backward, writes that key too. So a transaction that compares the key covers every
   subscription, on any broker: a subscription that is unknown here fails the transaction, or is created after it and
   begins after the deleted records.
2. Stored positions count. They may be lower than the acknowledged positions, never higher.
3. A record that cannot be read counts as a position at the beginning.
4. If a subscription has a segment (a ledger with its positions), the position in its record is a lower bound. The
   segment is read before a decision depends on it; the owner of the segment, on any broker, is neither asked nor
   fenced.
5. A position that was read from a segment is a lower bound in later holds, as long as the subscription is neither
   deleted nor reset. So a segment is read again only if the position that was read last would prevent a deletion.
6. The creation of a read hold, and each move backward, writes `hold_key` as well. So invariant 1 covers read holds: one
   that is unknown here fails the transaction, or begins after the deleted records.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

import trio

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ledgers.catalog import Bookies
from gnomon.broker.subscriptions.positions.record import RECORDS_PER_TURN
from gnomon.broker.subscriptions.positions.record_changes import Held
from gnomon.broker.subscriptions.positions.segments import AT_ONCE, for_each, read_segment
from gnomon.broker.subscriptions.positions.store import Ranges, UnreadablePosition
from gnomon.log.dlsn import AT_BEGINNING, CommitPoint
from gnomon.log.entry import Offset
from gnomon.log.plans.read_hold import HoldPlace, ReadHold, reads_prefix
from gnomon.log.subscription_keys import hold_key, read_readers, subscriber_of_key, subscriptions_prefix
from gnomon.log.topic import Topic
from gnomon.metadata.client import Compare, KeyField, KeyValue, Metadata, Revision


class Holder(NamedTuple):
    """A subscription that holds records, of the topic or of a shadow; holders sort by their known positions."""

    position: CommitPoint
    unread: bool
    """Whether the position may be higher, because the segment was not read."""
    key: str
    """The key of the subscription's record."""
    topic: str
    ranges: Ranges
    segment_id: int | None
    cursor_epoch: int
    modified: Revision
    """The revision of the subscription's record."""
    damage: str | None
    """The reason why the stored position is unreadable."""
    out_of_reach: LedgerError | None = None
    """The reason why the segment cannot be read now."""

    @classmethod
    def of(cls, topic: str, item: KeyValue) -> Holder:
        """A holder with the position in its record."""
        try:
            held = Held.of(item)
        except UnreadablePosition as error:
            return cls(AT_BEGINNING, False, item.key, topic, (), None, 0, item.mod_revision, str(error))
        unread = held.segment_id is not None
        position, ranges = held.position
        return cls(position, unread, item.key, topic, ranges, held.segment_id, held.cursor_epoch, held.modified, None)

    @property
    def subscription(self) -> str:
        """The name of the subscription."""
        return subscriber_of_key(self.key)

    def at_least_at(self, before: Holder | None) -> Holder:
        """The same holder, with the position of `before` if that is higher: see invariant 5."""
        if before is None or before.cursor_epoch != self.cursor_epoch or before.position <= self.position:
            return self
        return self._replace(position=before.position, ranges=before.ranges)


HoldsUp: TypeAlias = Callable[[Holder], Awaitable[bool]]
"""Decides whether a holder with this position prevents the deletion that the caller plans."""


class Hold:
    """The holders of one topic's records, at one time."""

    def __init__(self, metadata: Metadata, bookies: Bookies, source_id: uuid.UUID, unchanged: Compare) -> None:
        """A hold without holders; `unchanged` is the comparison of invariant 1."""
        self.unchanged = unchanged
        self._source_id = source_id
        self._metadata = metadata
        self._bookies = bookies
        self._certain: dict[int, Holder] = {}
        """By partition, the slowest of the holders whose positions are certain."""
        self._unread: dict[int, list[Holder]] = {}
        """By partition, a heap of the holders whose segments were not read."""
        self._in_segments: dict[str, Holder] = {}
        """All holders with a segment, by the keys of their records."""
        self._reads: dict[int, Offset] | None = None
        """By partition, the lowest offset of its read holds; None until they are read."""

    async def take(self, topic: str, topic_id: uuid.UUID, before: Hold | None) -> None:
        """Adds the subscriptions of a topic, by one range read.

        Raises:
            MetadataError: the subscriptions cannot be read.
        """
        prefix = subscriptions_prefix(topic_id)
        known = {} if before is None else before._in_segments
        found = await self._metadata.range(prefix)
        for count, item in enumerate(found.items):
            partition = int(item.key.removeprefix(prefix).partition("/")[0])
            holder = Holder.of(topic, item)
            if holder.unread:
                holder = self._in_segments[item.key] = holder.at_least_at(known.get(item.key))
                heappush(self._unread.setdefault(partition, []), holder)
            else:
                self._settle(partition, holder)
            if count % RECORDS_PER_TURN == RECORDS_PER_TURN - 1:
                await trio.lowlevel.checkpoint()

    async def lowest_read(self, partition: int) -> Offset | None:
        """The lowest offset of the read holds of a partition; None without any. The first call reads all of the topic.

        Raises:
            MetadataError: they cannot be read.
        """
        if self._reads is None:
            reads: dict[int, Offset] = {}
            for count, item in enumerate((await self._metadata.range(reads_prefix(self._source_id))).items):
                index, offset = HoldPlace.of_key(item.key).partition, ReadHold.decode(item.value).offset
                reads[index] = min(offset, reads.get(index, offset))
                if count % RECORDS_PER_TURN == RECORDS_PER_TURN - 1:
                    await trio.lowlevel.checkpoint()
            self._reads = reads
        return self._reads.get(partition)

    def _settle(self, partition: int, holder: Holder) -> None:
        known = self._certain.get(partition)
        if known is None or holder.position < known.position:
            self._certain[partition] = holder

    def lowest(self, partition: int) -> Holder | None:
        """The holder of a partition with the lowest known position, a lower bound if `unread`; None without any."""
        certain, unread = self._certain.get(partition), self._unread.get(partition)
        if not unread or (certain is not None and certain.position <= unread[0].position):
            return certain
        return unread[0]

    async def slowest(self, partition: int, holds_up: HoldsUp) -> Holder | None:
        """The slowest subscription of a partition; None without any.

        Segments are read until the slowest one is certain, or until the lowest one, still `unread`, holds up nothing.

        Raises:
            MetadataError: positions cannot be read.
            LedgerError: `holds_up` raised it.
        """
        at_once = 1  # most often the slowest subscription is the same as before
        while (lowest := self.lowest(partition)) is not None and lowest.unread and await holds_up(lowest):
            await self._read(partition, at_once)
            at_once = min(2 * at_once, AT_ONCE)
        return lowest

    async def _read(self, partition: int, count: int) -> None:
        """Reads the segments of `count` subscriptions, the slowest first."""
        unread, batch = self._unread[partition], dict[str, Holder]()
        while unread and len(batch) < count:
            holder = heappop(unread)
            batch[holder.key] = holder

        async def read(key: str) -> None:
            found = await self._as_read(batch[key])
            del batch[key]
            if found is None:
                del self._in_segments[key]
            else:
                self._in_segments[key] = found
                self._settle(partition, found)

        try:
            await for_each(list(batch), read)
        finally:
            for left in batch.values():
                heappush(unread, left)

    async def _as_read(self, holder: Holder) -> Holder | None:
        """A holder with the position in its segment; None if the subscription was deleted meanwhile."""
        while holder.segment_id is not None:
            try:
                position = await read_segment(self._metadata, self._bookies, holder.key, holder.segment_id)
            except LedgerError as error:
                return holder._replace(unread=False, out_of_reach=error)
            except UnreadablePosition as error:
                return holder._replace(unread=False, damage=str(error))
            if position is not None:
                return holder._replace(position=position.point, ranges=position.ranges, unread=False)
            item = await self._metadata.get(holder.key)
            if item is None:
                return None
            if item.mod_revision == holder.modified:  # the segment has no entry, or its ledger was deleted
                break
            holder = Holder.of(holder.topic, item)
        return holder._replace(unread=False)


async def read_hold(metadata: Metadata, bookies: Bookies, topic: Topic, before: Hold | None = None) -> Hold:
    """Reads the hold on a topic's records: one range read for the topic and for each shadow that has subscriptions.

    Args:
        before: the hold that was read last.

    Raises:
        MetadataError: the hold cannot be read.
    """
    key = hold_key(topic.id)
    changed = await metadata.get(key)
    unchanged = Compare(key, KeyField.MOD_REVISION, 0 if changed is None else changed.mod_revision)
    hold = Hold(metadata, bookies, topic.id, unchanged)
    for reader_id, name in (await read_readers(metadata, topic.id)).items():
        await hold.take(name, reader_id, before)
    return hold


async def only_advanced(metadata: Metadata, hold: Hold) -> bool:
    """Whether no subscription was created or moved back since `hold` was read: its positions are still lower bounds.

    Raises:
        MetadataError: the key of the hold cannot be read.
    """
    changed = await metadata.get(hold.unchanged.key)
    return hold.unchanged.value == (0 if changed is None else changed.mod_revision)
