"""The checker inside brokers finds lost positions, and accepts resets and deletions."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledgers.catalog import EntryCache, Quorum
from gnomon.broker.replication.cursors import ReplicatorCursors
from gnomon.broker.replication.outbox import ReplicatorCursor
from gnomon.broker.storage import Storage
from gnomon.broker.stores import Stores, open_stores
from gnomon.broker.subscriptions.positions.record import SubscriberRecord
from gnomon.broker.subscriptions.positions.store import Position
from gnomon.log.dlsn import AT_BEGINNING, CommitPoint
from gnomon.log.entry import Offset
from gnomon.log.subscription_keys import deletion_of_subscriptions, replicators_prefix, subscriptions_prefix
from gnomon.log.topic import Topic, topic_key
from gnomon.metadata.client import Delete, DeletePrefix, Operation, Put
from gnomon.metadata.embedded import EmbeddedMetadata
from gnomon.runtime.settings.settings import Settings
from gnomon.testing.simulation.ground import SimulationFailed
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.subscriptions.position_checker import position_checker

TOPIC_ID = uuid.UUID(int=7)
FURTHER = CommitPoint(0, 5, 0, 50)
CURSOR = ReplicatorCursor(Offset(0), EntryId(5))


def looked_inside(act: Callable[[SimulatedWorld, Stores], Awaitable[None]]) -> None:
    async def scenario(simulation: Simulation) -> None:
        over = trio.Event()

        async def node(world: SimulatedWorld) -> None:
            async with open_stores(world, Settings(data_dir=Path("/data"))) as stores:
                await act(world, stores)
                over.set()

        with position_checker(simulation):
            simulation.machine("node").start(node)
            await over.wait()

    simulate(1, scenario)


async def do(metadata: EmbeddedMetadata, *then: Operation) -> None:
    assert (await metadata.txn((), then)).succeeded


async def do_unheard(metadata: EmbeddedMetadata, *then: Operation) -> None:
    """Makes a transaction that takes effect without an answer, as if the service or the caller died before it."""
    before = (await metadata.range("")).revision
    with trio.move_on_after(1e-6) as caller:
        await metadata.txn((), then)
    assert caller.cancelled_caught
    await trio.sleep(1)
    assert (await metadata.range("")).revision == before + 1


def record(point: CommitPoint, resets: int = 0) -> Put:
    key = f"{subscriptions_prefix(TOPIC_ID, 0)}billing"
    return Put(key, SubscriberRecord("billing", Position(point), resets=resets).encode())


def test_a_record_that_goes_back_is_found_unless_it_was_reset() -> None:
    async def was_reset(_: SimulatedWorld, stores: Stores) -> None:
        await do(stores.metadata, record(FURTHER))
        await do(stores.metadata, record(AT_BEGINNING, resets=1))

    async def was_not(_: SimulatedWorld, stores: Stores) -> None:
        await do(stores.metadata, record(FURTHER))
        await do(stores.metadata, record(AT_BEGINNING))

    looked_inside(was_reset)
    with pytest.raises(SimulationFailed, match="went back"):
        looked_inside(was_not)


def test_a_subscription_whose_deletion_was_not_reported_may_begin_again() -> None:
    async def act(_: SimulatedWorld, stores: Stores) -> None:
        await do(stores.metadata, record(FURTHER))
        await do_unheard(stores.metadata, *deletion_of_subscriptions(TOPIC_ID))
        await do(stores.metadata, record(AT_BEGINNING))

    looked_inside(act)


async def _stored_then(
    world: SimulatedWorld, stores: Stores, then: Callable[[], Awaitable[None]]
) -> ReplicatorCursor | None:
    """The cursor that a replicator's next owner loads if `then` happens after it was stored."""
    key = topic_key("shadow")
    await do(stores.metadata, Put(key, Topic("shadow", TOPIC_ID, 1, {}).encode()))
    item = await stores.metadata.get(key)
    assert item is not None
    notified: Any = SimpleNamespace(shadow=Topic.decode(item), index=0, outbox=SimpleNamespace(cursor=CURSOR))
    storage = Storage(stores.metadata, stores.bookies, EntryCache(stores.bookies, 0), Quorum())
    cursors = ReplicatorCursors(storage, world.clock, world.logger, 0.0)
    await cursors.flush(float("inf"), [notified])
    await then()
    return await ReplicatorCursors(storage, world.clock, world.logger, 0.0).load(notified)


def removing(*then: Operation, unheard: bool = False) -> Callable[[SimulatedWorld, Stores], Awaitable[None]]:
    async def act(world: SimulatedWorld, stores: Stores) -> None:
        remove = do_unheard if unheard else do
        assert await _stored_then(world, stores, lambda: remove(stores.metadata, *then)) is None

    return act


def test_a_cursor_of_a_replicator_that_was_lost_is_found() -> None:
    with pytest.raises(SimulationFailed, match="the cursor of shadow shadow was stored as"):
        looked_inside(removing(DeletePrefix(replicators_prefix(TOPIC_ID))))


@pytest.mark.parametrize("unheard", [False, True])
def test_a_cursor_of_a_replicator_is_deleted_with_its_shadow(unheard: bool) -> None:
    deletion: Sequence[Operation] = [Delete(topic_key("shadow")), *deletion_of_subscriptions(TOPIC_ID)]
    looked_inside(removing(*deletion, unheard=unheard))
