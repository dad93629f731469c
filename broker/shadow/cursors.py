"""How far each shadow was told, stored beside the shadow's subscriptions, where no user can take the name.

1. What is stored was heard. It is stored every few seconds, so that a new owner tells some of it again.
2. It goes with the shadow; that it cannot be stored stops nothing.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ids import EntryId
from gnomon.broker.partition.entry import Offset
from gnomon.broker.shadow.outbox import Cursor, Outbox
from gnomon.broker.subscriptions.dlsn import BEGINNING, Dlsn
from gnomon.broker.subscriptions.metadata_store import MetadataSubscriptionsStore
from gnomon.broker.subscriptions.records import SubscriberRecords
from gnomon.broker.subscriptions.segments import Segments
from gnomon.broker.subscriptions.store import Position, SubscriptionsError, subscriptions_prefix
from gnomon.broker.topics import Topic, topic_key
from gnomon.metadata.client import Compare, Field, MetadataError
from gnomon.runtime.world import WorldError

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker

REPLICATOR = "replicator/"
"""Stands where the number of a partition stands for its subscriptions; the partition's number is the name."""
LOAD_SECONDS = 1.0
"""How long after a failure a cursor is asked for again."""
ERRORS = (MetadataError, SubscriptionsError, LedgerError, WorldError)


class Told(Protocol):
    """One partition of a shadow, and how far it was told."""

    @property
    def shadow(self) -> Topic:
        """The shadow."""

    @property
    def index(self) -> int:
        """The partition."""

    @property
    def outbox(self) -> Outbox:
        """Has its cursor."""


class ReplicatorCursors:
    """The stored cursors of the shadows that one broker tells."""

    def __init__(self, broker: Broker, flush_seconds: float) -> None:
        self._broker = broker
        self._flush_seconds = flush_seconds
        self._flushed_at = broker.world.clock.monotonic()
        self._stores: dict[uuid.UUID, MetadataSubscriptionsStore] = {}
        self._stored: dict[tuple[uuid.UUID, int], Cursor] = {}

    def _store(self, shadow: Topic) -> MetadataSubscriptionsStore:
        store = self._stores.get(shadow.id)
        if store is None:
            broker = self._broker
            lives = Compare(topic_key(shadow.name), Field.CREATE_REVISION, shadow.create_revision)
            records = SubscriberRecords(broker.metadata, subscriptions_prefix(shadow.id) + REPLICATOR, (lives,))
            store = self._stores[shadow.id] = MetadataSubscriptionsStore(
                records, Segments(records, broker.bookies, broker.quorum)
            )
        return store

    async def load(self, told: Told) -> Cursor | None:
        """Where a replicator goes on; None where it never was anywhere. Asks until it is known."""
        while True:
            try:
                found = await self._store(told.shadow).get_last_commit_position(str(told.index))
            except ERRORS as error:
                self._say("shadow_cursor_not_read", told.shadow, error)
                await self._broker.world.clock.sleep(LOAD_SECONDS)
            else:
                return None if found == BEGINNING else Cursor(Offset(found.segment), EntryId(found.entry))

    async def flush(self, now: float, all_told: Sequence[Told]) -> None:
        """Stores what has changed, if the time has come."""
        if now - self._flushed_at < self._flush_seconds:
            return
        if now != float("inf"):
            self._flushed_at = now
            self._forget_but(all_told)
        changed: dict[uuid.UUID, list[Told]] = defaultdict(list)
        for told in all_told:
            cursor = told.outbox.cursor
            if cursor is not None and self._stored.get((told.shadow.id, told.index)) != cursor:
                changed[told.shadow.id].append(told)
        for group in changed.values():
            await self._flush_one(group)

    async def _flush_one(self, group: Sequence[Told]) -> None:
        shadow = group[0].shadow
        cursors = {str(told.index): told.outbox.cursor for told in group}
        positions = {
            name: Position(Dlsn(cursor.segment, cursor.entry, 0))
            for name, cursor in cursors.items()
            if cursor is not None
        }
        store = self._store(shadow)
        try:
            refused = await store.advance_many(positions)
            for name in refused:  # another owner has told it meanwhile
                await store.get_last_commit_position(name)
        except ERRORS as error:
            self._say("shadow_cursor_not_stored", shadow, error)
            return
        for name, cursor in cursors.items():
            if cursor is not None and name not in refused:
                self._stored[shadow.id, int(name)] = cursor

    def _forget_but(self, all_told: Sequence[Told]) -> None:
        alive = {told.shadow.id for told in all_told}
        self._stores = {shadow: store for shadow, store in self._stores.items() if shadow in alive}
        self._stored = {key: cursor for key, cursor in self._stored.items() if key[0] in alive}

    def _say(self, event: str, shadow: Topic, error: Exception) -> None:
        self._broker.log.warning(event, topic=shadow.name, reason=str(error), next="it is tried again")
