"""Positions in segments: each advance is an entry of the subscription's own ledger, and costs the metadata nothing.

In use with `log_segment_based_subscriptions_store_enabled` true. The guarantees are those of `store`.

1. The metadata record of a subscription is written when a segment begins (with the first advance, after `entries_max`
   entries, with a reset) and when the segment is closed. The position in the record is never ahead of the segment's.
2. A subscription's segment is claimed when it is first read here; from then on this store knows its position.
3. A store whose segment is claimed by another one has lost the subscription, until it reads the subscription again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import islice

import trio

from gnomon.bookie.errors import LedgerError, LedgerFenced, NoSuchLedger
from gnomon.broker.subscriptions.positions.record import encode_commit
from gnomon.broker.subscriptions.positions.record_changes import (
    advances,
    beginning,
    next_resets,
    reset,
    resolve_beginning,
    resolve_reset,
    same_life,
)
from gnomon.broker.subscriptions.positions.records import SubscriberRecords
from gnomon.broker.subscriptions.positions.segments import PositionSegment, Segments, for_each
from gnomon.broker.subscriptions.positions.store import Position, SubscriberChanged, raise_refused
from gnomon.log.dlsn import CommitPoint
from gnomon.log.subscription_keys import SubscriptionsError
from gnomon.metadata.client import MetadataError

APPENDS_MAX = 200
"""Limit of the entries in flight to the bookies: all are sent in one turn, at some 40 us each, while others wait."""


class _SegmentAppends:
    """A group of entries in flight, of several segments."""

    def __init__(self) -> None:
        self.failed: dict[str, LedgerError] = {}
        self._pending = 0
        self._all_done = trio.Event()
        self._position = Position()
        self._payload = encode_commit(self._position)

    def append(self, subscriber: str, segment: PositionSegment, position: Position) -> None:
        """Sends one entry."""
        if position is not self._position:  # many positions are equal, and share one object
            self._position, self._payload = position, encode_commit(position)
        segment.ledger.append((self._payload,), partial(self._done, subscriber, segment, position))
        self._pending += 1

    def _done(
        self, subscriber: str, segment: PositionSegment, position: Position, _: int, error: LedgerError | None
    ) -> None:
        if error is None:
            segment.position = position
        else:
            self.failed[subscriber] = error
        self._pending -= 1
        if not self._pending:
            self._all_done.set()

    async def wait(self) -> None:
        """Waits until every entry is stored or has failed."""
        if self._pending:
            await self._all_done.wait()


class SegmentSubscriptionsStore:
    """A `SubscriptionsStore` with positions in segments; concurrent calls run one after the other."""

    def __init__(self, records: SubscriberRecords, segments: Segments, entries_max: int) -> None:
        """A store of the records below one prefix.

        Args:
            entries_max: entries of a segment before the next segment begins.
        """
        self._records = records
        self._segments = segments
        self._entries_max = entries_max
        self._owned: dict[str, PositionSegment] = {}
        self._doubtful: set[str] = set()
        """Subscriptions whose record may differ from the held one, because an operation on it failed."""
        self._lock = trio.Lock()

    async def get_last_commit_position(self, subscriber: str) -> CommitPoint:
        """See `SubscriptionsStore`: claims the segment first, then answers from memory."""
        async with self._lock:
            self._records.refused.discard(subscriber)
            await self._enter(subscriber)
            return self._position(subscriber).point

    async def get_last_commit_positions(self) -> dict[str, CommitPoint]:
        """See `SubscriptionsStore`."""
        return {name: position.point for name, position in (await self.load()).items()}

    async def load(self) -> dict[str, Position]:
        """See `SubscriptionsStore`."""
        async with self._lock:
            before = dict(self._records.held)
            await self._records.read_all()
            self._doubtful.clear()
            for name in list(self._owned):
                if before.get(name) != self._records.held.get(name):
                    await self._disown(name)
            raise_refused(await for_each(list(self._records.held), self._enter))
            return {name: self._position(name) for name in self._records.held}

    async def create(self, points: Mapping[str, CommitPoint]) -> dict[str, Position]:
        """See `SubscriptionsStore`."""
        async with self._lock:
            self._records.refused.difference_update(points)
            await self._records.change(points, beginning(points), resolve_beginning)
            raise_refused(await for_each(points, self._enter))
            raise_refused(name for name in points if name not in self._records.held)
            return {name: self._position(name) for name in points}

    async def advance_commit_position(self, subscriber: str, point: CommitPoint) -> None:
        """See `SubscriptionsStore`."""
        async with self._lock:
            await self._enter(subscriber)
            position = Position(point, self._position(subscriber).ranges)
            raise_refused(await self._advance({subscriber: position}))

    async def advance_many(self, positions: Mapping[str, Position]) -> tuple[str, ...]:
        """See `SubscriptionsStore`."""
        refused: list[str] = []
        async with self._lock:
            await self._records.read_missing(positions)
            items = iter(positions.items())
            while group := dict(islice(items, APPENDS_MAX)):
                refused += await self._advance(group)
        return tuple(refused)

    async def reset_commit_position(self, subscriber: str, point: CommitPoint) -> None:
        """See `SubscriptionsStore`."""
        async with self._lock:
            await self._enter(subscriber)
            held = self._records.held.get(subscriber)
            if held is not None and held.segment_id is not None:
                await self._begin(subscriber, Position(point), next_resets(held))
            else:
                raise_refused(await self._records.change([subscriber], reset(point), resolve_reset))

    async def delete_subscriber(self, subscriber: str) -> None:
        """See `SubscriptionsStore`."""
        async with self._lock:
            await self._records.delete(subscriber)
            await self._disown(subscriber)

    def cursor_epoch(self, subscriber: str) -> int:
        """See `SubscriptionsStore`."""
        return self._records.held[subscriber].cursor_epoch

    async def close(self) -> None:
        """See `SubscriptionsStore`: the next owner recovers the segments that cannot be closed now."""
        async with self._lock:
            with suppress(MetadataError, LedgerError, SubscriptionsError):
                await for_each(list(self._owned), lambda name: self._segments.finish(name, self._owned[name]))
            for name in list(self._owned):
                await self._disown(name)

    # --- one subscription ---

    def _position(self, subscriber: str) -> Position:
        segment = self._owned.get(subscriber)
        if segment is not None:
            return segment.position
        held = self._records.held.get(subscriber)
        return Position() if held is None else held.position

    async def _enter(self, subscriber: str) -> None:
        """Reads a record that is not known for certain, and claims its segment.

        Raises:
            SubscriberChanged: the subscription was deleted or reset since the last read, or another store claims it.
        """
        if subscriber in self._records.refused:
            raise SubscriberChanged(subscriber)
        before = self._records.held.get(subscriber)
        try:
            if before is None or subscriber in self._doubtful:
                await self._records.read(subscriber)
            if subscriber in self._owned:
                return
            segment = await self._segments.claim(subscriber)
            if not same_life(before, self._records.held.get(subscriber)):
                raise SubscriberChanged(subscriber)
        except SubscriberChanged:
            self._refuse(subscriber)
            raise
        except BaseException:
            # The record that was read must not count as known to this store: another process may have reset it.
            self._records.hold(subscriber, before)
            self._doubtful.add(subscriber)
            raise
        self._doubtful.discard(subscriber)
        if segment is not None:
            self._owned[subscriber] = segment

    async def _begin(self, subscriber: str, position: Position, resets: int) -> None:
        """Begins a subscription's next segment, at `position`."""
        before = self._owned.pop(subscriber, None)
        self._doubtful.add(subscriber)
        try:
            segment = await self._segments.begin(subscriber, position, before, resets)
        except SubscriberChanged:
            self._refuse(subscriber)
            raise
        self._doubtful.discard(subscriber)
        self._owned[subscriber] = segment

    def _refuse(self, subscriber: str) -> None:
        self._owned.pop(subscriber, None)
        self._doubtful.discard(subscriber)
        self._records.refuse(subscriber)

    async def _disown(self, subscriber: str) -> None:
        segment = self._owned.pop(subscriber, None)
        if segment is not None:
            await segment.ledger.close()

    def _lost(self, subscriber: str) -> None:
        """Forgets a segment that accepts no more entries; it must be claimed again."""
        self._owned.pop(subscriber, None)
        self._doubtful.add(subscriber)

    # --- advancing ---

    async def _advance(self, positions: Mapping[str, Position]) -> list[str]:
        """Appends to all segments with room concurrently, and begins the other segments; returns the refused names."""
        refused = set(await for_each([name for name in positions if not self._known(name)], self._enter))
        appends, full = _SegmentAppends(), []
        for name, position in positions.items():
            if name in refused or not advances(position, self._position(name)):
                continue
            segment = self._owned.get(name)
            if segment is None or segment.ledger.next_entry >= self._entries_max:
                full.append(name)
            else:
                appends.append(name, segment, position)
        await appends.wait()
        for name, error in appends.failed.items():
            if isinstance(error, LedgerFenced | NoSuchLedger):
                self._refuse(name)
                refused.add(name)
            else:
                self._lost(name)
        refused.update(await for_each(full, lambda name: self._begin_at(name, positions[name])))
        for name, error in appends.failed.items():
            if name not in refused:
                raise error
        return [name for name in positions if name in refused]

    def _known(self, subscriber: str) -> bool:
        """Whether the subscription's position is known for certain, and its segment, if it has one, accepts entries."""
        segment = self._owned.get(subscriber)
        if segment is not None:
            if segment.ledger.failure is None:
                return True
            self._lost(subscriber)
        held = self._records.held.get(subscriber)
        return held is not None and held.segment_id is None and subscriber not in self._doubtful

    async def _begin_at(self, subscriber: str, position: Position) -> None:
        """Advances a subscription by beginning its next segment."""
        held = self._records.held.get(subscriber)
        try:
            await self._begin(subscriber, position, 0 if held is None else held.resets)
        except SubscriberChanged:
            after = await self._records.read(subscriber)
            self._refuse(subscriber)
            if after is None or after.position.point < position.point:
                raise
