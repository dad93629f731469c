"""The stored cursors (positions) of replicators: metadata keys of the shadow that no subscription can have.

1. A stored cursor is directly after an entry that the shadow's broker has acknowledged. Cursors are stored every few
   seconds, so a new owner sends some entries again.
2. Cursors are deleted with their shadow. A failure to store a cursor is logged, and does not stop the replication.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ids import EntryId
from gnomon.broker.replication.outbox import Outbox, ReplicatorCursor
from gnomon.broker.storage import Storage
from gnomon.broker.subscriptions.positions.metadata_store import MetadataSubscriptionsStore
from gnomon.broker.subscriptions.positions.records import SubscriberRecords
from gnomon.broker.subscriptions.positions.segments import Segments
from gnomon.broker.subscriptions.positions.store import Position
from gnomon.log.dlsn import AT_BEGINNING, CommitPoint
from gnomon.log.entry import Offset
from gnomon.log.subscription_keys import SubscriptionsError, hold_key, replicators_prefix
from gnomon.log.topic import Topic, topic_key
from gnomon.metadata.client import Compare, KeyField, MetadataError
from gnomon.runtime.logs import Logger
from gnomon.runtime.world import Clock, WorldError

LOAD_SECONDS = 1.0
"""Delay after a failed read of a cursor."""
ERRORS = (MetadataError, SubscriptionsError, LedgerError, WorldError)


class ReplicatedPartition(Protocol):
    """One partition of a shadow, and its position."""

    @property
    def shadow(self) -> Topic:
        """The topic."""

    @property
    def index(self) -> int:
        """The number of the partition."""

    @property
    def outbox(self) -> Outbox:
        """The outbox, which has the cursor."""


class ReplicatorCursors:
    """The stored cursors of all replicators of one broker."""

    def __init__(self, storage: Storage, clock: Clock, log: Logger, flush_seconds: float) -> None:
        self._storage = storage
        self._clock = clock
        self._log = log
        self._flush_seconds = flush_seconds
        self._flushed_at = clock.monotonic()
        self._stores: dict[uuid.UUID, MetadataSubscriptionsStore] = {}
        self._stored: dict[tuple[uuid.UUID, int], ReplicatorCursor] = {}

    def _store(self, shadow: Topic) -> MetadataSubscriptionsStore:
        store = self._stores.get(shadow.id)
        if store is None:
            storage = self._storage
            lives = Compare(topic_key(shadow.name), KeyField.CREATE_REVISION, shadow.create_revision)
            records = SubscriberRecords(storage.metadata, replicators_prefix(shadow.id), hold_key(shadow.id), (lives,))
            store = self._stores[shadow.id] = MetadataSubscriptionsStore(
                records, Segments(records, storage.bookies, storage.quorum)
            )
        return store

    async def load(self, replicated: ReplicatedPartition) -> ReplicatorCursor | None:
        """The stored cursor of a replicator; None if there is none. Tries again until the read succeeds."""
        while True:
            try:
                found = await self._store(replicated.shadow).get_last_commit_position(str(replicated.index))
            except ERRORS as error:
                self._log_failure("shadow_cursor_not_read", replicated.shadow, error)
                await self._clock.sleep(LOAD_SECONDS)
            else:
                return None if found == AT_BEGINNING else ReplicatorCursor(Offset(found.segment), EntryId(found.entry))

    async def flush(self, now: float, partitions: Sequence[ReplicatedPartition]) -> None:
        """Stores the cursors that have changed, once in `flush_seconds`; at once if `now` is infinite."""
        if now - self._flushed_at < self._flush_seconds:
            return
        if now != float("inf"):
            self._flushed_at = now
            self._forget_except(partitions)
        changed: dict[uuid.UUID, list[ReplicatedPartition]] = defaultdict(list)
        for each in partitions:
            cursor = each.outbox.cursor
            if cursor is not None and self._stored.get((each.shadow.id, each.index)) != cursor:
                changed[each.shadow.id].append(each)
        for group in changed.values():
            await self.flush_shadow(group)

    async def flush_shadow(self, group: Sequence[ReplicatedPartition]) -> None:
        """Stores the cursors of partitions of one shadow; after a failure the next flush tries again."""
        shadow = group[0].shadow
        cursors = {str(each.index): each.outbox.cursor for each in group}
        positions = {
            # The offset of a cursor is not used; the first offset of its segment keeps positions in order.
            name: Position(CommitPoint(cursor.segment, cursor.entry, 0, cursor.segment))
            for name, cursor in cursors.items()
            if cursor is not None
        }
        store = self._store(shadow)
        try:
            refused = await store.advance_many(positions)
            for name in refused:  # another owner has stored its cursor meanwhile
                await store.get_last_commit_position(name)
        except ERRORS as error:
            self._log_failure("shadow_cursor_not_stored", shadow, error)
            return
        for name, cursor in cursors.items():
            if cursor is not None and name not in refused:
                self._stored[shadow.id, int(name)] = cursor

    def _forget_except(self, partitions: Sequence[ReplicatedPartition]) -> None:
        alive = {each.shadow.id for each in partitions}
        self._stores = {shadow: store for shadow, store in self._stores.items() if shadow in alive}
        self._stored = {key: cursor for key, cursor in self._stored.items() if key[0] in alive}

    def _log_failure(self, event: str, shadow: Topic, error: Exception) -> None:
        self._log.warning(event, topic=shadow.name, reason=str(error), next="it is tried again")
