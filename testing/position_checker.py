"""Looks inside brokers while a storm rages: a position of a subscription that was stored is never lost.

    with position_checker(simulation):
        ...

Where a store said that a subscription stands, each later owner finds it there or further on, until somebody resets or
deletes it; no record is overwritten by an older one; and how far a shadow was told is kept in the same way.

The product has no trace of it; a finding ends the simulation.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from gnomon.broker.shadow.cursors import ReplicatorCursors
from gnomon.broker.shadow.outbox import Cursor
from gnomon.broker.subscriptions.dlsn import Dlsn
from gnomon.broker.subscriptions.metadata_store import MetadataSubscriptionsStore
from gnomon.broker.subscriptions.record import SubscriberRecord
from gnomon.broker.subscriptions.segment_store import SegmentSubscriptionsStore
from gnomon.broker.subscriptions.store import SUBSCRIPTIONS, Position
from gnomon.broker.topics import Topic, topic_key
from gnomon.metadata.client import KeyValue, Operation, Revision, TxnResult
from gnomon.metadata.embedded import EmbeddedMetadata
from gnomon.metadata.state import State
from gnomon.testing.patches import Patches, follow_transactions
from gnomon.testing.simulation import Simulation

COUNTERS = ("positions/stored", "positions/loaded", "positions/replicator loaded")
"""What a sweep has to reach."""


@contextmanager
def position_checker(simulation: Simulation) -> Iterator[None]:
    """Looks inside during the block."""
    with ExitStack() as stack:
        patch = Patches(stack)
        _follow_stores(patch, simulation)
        _follow_replicators(patch, simulation)
        _follow_records(patch, simulation)
        yield


def _fail(simulation: Simulation, text: str) -> None:
    simulation.fail("position checker", AssertionError(text))


def _follow_stores(patch: Patches, simulation: Simulation) -> None:
    stored: dict[tuple[str, str], Dlsn] = {}

    def stands(store: Any, name: str, dlsn: Dlsn) -> None:
        key = store._records.prefix, name
        stored[key] = max(dlsn, stored.get(key, dlsn))

    def advance_many(before: Callable[..., Awaitable[tuple[str, ...]]]) -> Any:
        async def followed(store: Any, positions: Mapping[str, Position]) -> tuple[str, ...]:
            refused = await before(store, positions)
            for name in positions:
                if name not in refused:
                    stands(store, name, positions[name].dlsn)
            simulation.coverage.count("positions/stored", len(positions) - len(refused))
            return refused

        return followed

    def load(before: Callable[..., Awaitable[dict[str, Position]]]) -> Any:
        async def followed(store: Any) -> dict[str, Position]:
            expected = dict(stored)
            found = await before(store)
            for name, position in found.items():
                said = expected.get((store._records.prefix, name))
                if said is not None:
                    simulation.coverage.count("positions/loaded")
                    if position.dlsn < said:
                        text = f"subscription {name!r} was stored at {said}, and its next owner finds {position.dlsn}"
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
    told: dict[tuple[uuid.UUID, int], Cursor] = {}
    services: list[EmbeddedMetadata] = []

    def init(before: Callable[..., None]) -> Any:
        def followed(metadata: EmbeddedMetadata, *args: Any) -> None:
            before(metadata, *args)
            services.append(metadata)

        return followed

    def lives(shadow: Topic) -> bool:
        item = services[-1]._state.get(topic_key(shadow.name))
        return item is not None and item.create_revision == shadow.create_revision

    def flush_one(before: Callable[..., Awaitable[None]]) -> Any:
        async def followed(cursors: ReplicatorCursors, group: Sequence[Any]) -> None:
            await before(cursors, group)
            for each in group:
                key = each.shadow.id, each.index
                cursor = cursors._stored.get(key)
                if cursor is not None:
                    told[key] = max(cursor, told.get(key, cursor))

        return followed

    def load_cursor(before: Callable[..., Awaitable[Cursor | None]]) -> Any:
        async def followed(cursors: ReplicatorCursors, each: Any) -> Cursor | None:
            said = told.get((each.shadow.id, each.index))
            found = await before(cursors, each)
            if said is not None and lives(each.shadow):
                simulation.coverage.count("positions/replicator loaded")
                if found is None or found < said:
                    text = f"how far shadow {each.shadow.name} was told was stored as {said}, and found as {found}"
                    _fail(simulation, text)
            return found

        return followed

    patch(ReplicatorCursors, "_flush_one", flush_one)
    patch(ReplicatorCursors, "load", load_cursor)
    patch(EmbeddedMetadata, "__init__", init)


def _follow_records(patch: Patches, simulation: Simulation) -> None:
    records: dict[str, tuple[Revision, SubscriberRecord]] = {}

    def transaction(_: Sequence[Operation], result: TxnResult, __: State) -> None:
        for item in result.results:
            if isinstance(item, KeyValue) and item.key.startswith(SUBSCRIPTIONS):
                written = SubscriberRecord.decode(item.value)
                life, known = records.get(item.key, (item.create_revision, written))
                records[item.key] = item.create_revision, written
                went_back = written.position.dlsn < known.position.dlsn and written.resets == known.resets
                if went_back and life == item.create_revision:
                    _fail(simulation, f"{item.key} went back from {known.position.dlsn} to {written.position.dlsn}")

    follow_transactions(patch, transaction)
