"""Checks inside the brokers of a storm that a stored position of a subscription is never lost.

    with position_checker(simulation):
        ...

1. After a store has confirmed a position, each later owner loads that position or a higher one, until the subscription
   is reset or deleted.
2. No record of a subscription is overwritten by an older one.
3. The cursors of replicators, which record how far each shadow was notified, follow rule 1.

The product has no hook for the checker: its functions are wrapped from outside. A finding ends the simulation.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from gnomon.broker.replication.cursors import ReplicatorCursors
from gnomon.broker.replication.outbox import ReplicatorCursor
from gnomon.broker.subscriptions.positions.metadata_store import MetadataSubscriptionsStore
from gnomon.broker.subscriptions.positions.record import SubscriberRecord
from gnomon.broker.subscriptions.positions.segment_store import SegmentSubscriptionsStore
from gnomon.broker.subscriptions.positions.store import Position
from gnomon.log.dlsn import CommitPoint
from gnomon.log.subscription_keys import SUBSCRIPTIONS
from gnomon.log.topic import Topic, topic_key
from gnomon.metadata.client import KeyValue, Operation, Revision, TxnOutcome
from gnomon.metadata.embedded import EmbeddedMetadata
from gnomon.metadata.state import State
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.patches import Patches, follow_transactions

COUNTERS = ("positions/stored", "positions/loaded", "positions/replicator loaded")
"""The counters that a sweep has to reach."""


@contextmanager
def position_checker(simulation: Simulation) -> Iterator[None]:
    """Checks during the block."""
    with ExitStack() as stack:
        patch = Patches(stack)
        _follow_stores(patch, simulation)
        _follow_replicators(patch, simulation)
        _follow_records(patch, simulation)
        yield


def _fail(simulation: Simulation, text: str) -> None:
    simulation.fail("position checker", AssertionError(text))


def _follow_stores(patch: Patches, simulation: Simulation) -> None:
    stored: dict[tuple[str, str], CommitPoint] = {}

    def confirmed(store: Any, name: str, point: CommitPoint) -> None:
        key = store._records.prefix, name
        stored[key] = max(point, stored.get(key, point))

    def advance_many(before: Callable[..., Awaitable[tuple[str, ...]]]) -> Any:
        async def followed(store: Any, positions: Mapping[str, Position]) -> tuple[str, ...]:
            refused = await before(store, positions)
            for name in positions:
                if name not in refused:
                    confirmed(store, name, positions[name].point)
            simulation.coverage.count("positions/stored", len(positions) - len(refused))
            return refused

        return followed

    def load(before: Callable[..., Awaitable[dict[str, Position]]]) -> Any:
        async def followed(store: Any) -> dict[str, Position]:
            expected = dict(stored)
            found = await before(store)
            for name, position in found.items():
                point = expected.get((store._records.prefix, name))
                if point is not None:
                    simulation.coverage.count("positions/loaded")
                    if position.point < point:
                        text = f"subscription {name!r} was stored at {point}, and its next owner loads {position.point}"
                        _fail(simulation, text)
            return found

        return followed

    def moved(before: Callable[..., Awaitable[None]]) -> Any:
        async def followed(store: Any, name: str, *args: Any) -> None:
            stored.pop((store._records.prefix, name), None)
            await before(store, name, *args)
            stored.pop((store._records.prefix, name), None)

        return followed

    for store in (MetadataSubscriptionsStore, SegmentSubscriptionsStore):
        patch(store, "advance_many", advance_many)
        patch(store, "load", load)
        patch(store, "reset_commit_position", moved)
        patch(store, "delete_subscriber", moved)


def _follow_replicators(patch: Patches, simulation: Simulation) -> None:
    notified: dict[tuple[uuid.UUID, int], ReplicatorCursor] = {}
    services: list[EmbeddedMetadata] = []

    def init(before: Callable[..., None]) -> Any:
        def followed(metadata: EmbeddedMetadata, *args: Any) -> None:
            before(metadata, *args)
            services.append(metadata)

        return followed

    def lives(shadow: Topic) -> bool:
        item = services[-1]._state.get(topic_key(shadow.name))
        return item is not None and item.create_revision == shadow.create_revision

    def flush_shadow(before: Callable[..., Awaitable[None]]) -> Any:
        async def followed(cursors: ReplicatorCursors, group: Sequence[Any]) -> None:
            await before(cursors, group)
            for each in group:
                key = each.shadow.id, each.index
                cursor = cursors._stored.get(key)
                if cursor is not None:
                    notified[key] = max(cursor, notified.get(key, cursor))

        return followed

    def load_cursor(before: Callable[..., Awaitable[ReplicatorCursor | None]]) -> Any:
        async def followed(cursors: ReplicatorCursors, each: Any) -> ReplicatorCursor | None:
            cursor = notified.get((each.shadow.id, each.index))
            found = await before(cursors, each)
            if cursor is not None and lives(each.shadow):
                simulation.coverage.count("positions/replicator loaded")
                if found is None or found < cursor:
                    text = f"the cursor of shadow {each.shadow.name} was stored as {cursor}, and loaded as {found}"
                    _fail(simulation, text)
            return found

        return followed

    patch(ReplicatorCursors, "flush_shadow", flush_shadow)
    patch(ReplicatorCursors, "load", load_cursor)
    patch(EmbeddedMetadata, "__init__", init)


def _follow_records(patch: Patches, simulation: Simulation) -> None:
    records: dict[str, tuple[Revision, SubscriberRecord]] = {}

    def transaction(_: Sequence[Operation], result: TxnOutcome, __: State) -> None:
        for item in result.results:
            if isinstance(item, KeyValue) and item.key.startswith(SUBSCRIPTIONS):
                written = SubscriberRecord.decode(item.value)
                life, known = records.get(item.key, (item.create_revision, written))
                records[item.key] = item.create_revision, written
                went_back = written.position.point < known.position.point and written.resets == known.resets
                if went_back and life == item.create_revision:
                    _fail(simulation, f"{item.key} went back from {known.position.point} to {written.position.point}")

    follow_transactions(patch, transaction)
