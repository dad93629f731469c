"""Positions in the metadata: each advance writes the subscription's record, many of them in one transaction.

In use with `log_segment_based_subscriptions_store_enabled` false, the default. The guarantees are those of `store`. A
segment that another store left is recovered when its subscription is first read, and the segment's position moves to
the record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import trio

from gnomon.broker.subscriptions.positions.record_changes import (
    advance,
    beginning,
    reset,
    resolve_advance,
    resolve_beginning,
    resolve_reset,
)
from gnomon.broker.subscriptions.positions.records import SubscriberRecords
from gnomon.broker.subscriptions.positions.segments import Segments, for_each
from gnomon.broker.subscriptions.positions.store import Position, raise_refused
from gnomon.log.dlsn import AT_BEGINNING, CommitPoint


class MetadataSubscriptionsStore:
    """A `SubscriptionsStore` with positions in the metadata; concurrent calls run one after the other."""

    def __init__(self, records: SubscriberRecords, segments: Segments) -> None:
        """A store of the records below one prefix.

        Args:
            segments: recovers the segments that other stores left.
        """
        self._records = records
        self._segments = segments
        self._lock = trio.Lock()

    async def get_last_commit_position(self, subscriber: str) -> CommitPoint:
        """See `SubscriptionsStore`: reads the metadata each time."""
        async with self._lock:
            self._records.refused.discard(subscriber)
            await self._records.read(subscriber)
            await self._settle([subscriber])
            held = self._records.held.get(subscriber)
            return AT_BEGINNING if held is None else held.position.point

    async def get_last_commit_positions(self) -> dict[str, CommitPoint]:
        """See `SubscriptionsStore`."""
        return {name: position.point for name, position in (await self.load()).items()}

    async def load(self) -> dict[str, Position]:
        """See `SubscriptionsStore`."""
        async with self._lock:
            await self._records.read_all()
            await self._settle(self._records.held)
            return {name: held.position for name, held in self._records.held.items()}

    async def create(self, points: Mapping[str, CommitPoint]) -> dict[str, Position]:
        """See `SubscriptionsStore`."""
        async with self._lock:
            self._records.refused.difference_update(points)
            await self._records.change(points, beginning(points), resolve_beginning)
            await self._settle(points)
            held = self._records.held
            raise_refused(name for name in points if name not in held)
            return {name: held[name].position for name in points}

    async def advance_commit_position(self, subscriber: str, point: CommitPoint) -> None:
        """See `SubscriptionsStore`."""
        async with self._lock:
            await self._read([subscriber])
            held = self._records.held.get(subscriber)
            ranges = () if held is None else held.position.ranges
            raise_refused(await self._advance({subscriber: Position(point, ranges)}))

    async def advance_many(self, positions: Mapping[str, Position]) -> tuple[str, ...]:
        """See `SubscriptionsStore`."""
        async with self._lock:
            await self._read(positions)
            return await self._advance(positions)

    async def reset_commit_position(self, subscriber: str, point: CommitPoint) -> None:
        """See `SubscriptionsStore`."""
        async with self._lock:
            await self._read([subscriber])
            raise_refused(await self._records.change([subscriber], reset(point), resolve_reset))

    async def delete_subscriber(self, subscriber: str) -> None:
        """See `SubscriptionsStore`."""
        async with self._lock:
            await self._records.delete(subscriber)

    def cursor_epoch(self, subscriber: str) -> int:
        """See `SubscriptionsStore`."""
        return self._records.held[subscriber].cursor_epoch

    async def close(self) -> None:
        """See `SubscriptionsStore`: everything is stored already."""

    async def _advance(self, positions: Mapping[str, Position]) -> tuple[str, ...]:
        return await self._records.change(positions, advance(positions), resolve_advance)

    async def _read(self, subscribers: Collection[str]) -> None:
        await self._records.read_missing(subscribers)
        await self._settle(subscribers)

    async def _settle(self, subscribers: Iterable[str]) -> None:
        """Claims the segments that another store left, and writes their positions to the records."""
        held = self._records.held
        left = [name for name in subscribers if name in held and held[name].segment_id is not None]
        if left:
            refused = await for_each(left, self._segments.settle)
            for name in refused:
                self._records.refuse(name)
            raise_refused(refused)
