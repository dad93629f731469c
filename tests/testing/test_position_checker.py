"""The checker inside brokers: what it calls a lost position, and what is none."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledger import Quorum
from gnomon.broker.partition.entry import Offset
from gnomon.broker.shadow.cursors import ReplicatorCursors
from gnomon.broker.shadow.outbox import Cursor
from gnomon.broker.stores import Stores, open_stores
from gnomon.broker.subscriptions.dlsn import BEGINNING, Dlsn
from gnomon.broker.subscriptions.record import SubscriberRecord
from gnomon.broker.subscriptions.store import (
    Position,
    deletion_of_subscriptions,
    replicators_prefix,
    subscriptions_prefix,
)
from gnomon.broker.topics import Topic, topic_key
from gnomon.metadata.client import Delete, DeletePrefix, Operation, Put
from gnomon.metadata.embedded import EmbeddedMetadata
from gnomon.runtime.settings import Settings
from gnomon.testing.position_checker import position_checker
from gnomon.testing.simulated_world import SimulatedWorld
from gnomon.testing.simulation import Simulation, SimulationFailed, simulate

TOPIC_ID = uuid.UUID(int=7)
FURTHER = Dlsn(0, 5, 0)
CURSOR = Cursor(Offset(0), EntryId(5))


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
    """As where the service dies, or the caller, before the answer is there."""
    before = (await metadata.range("")).revision
    with trio.move_on_after(1e-6) as caller:
        await metadata.txn((), then)
    assert caller.cancelled_caught
    await trio.sleep(1)
    assert (await metadata.range("")).revision == before + 1


def record(dlsn: Dlsn, resets: int = 0) -> Put:
    key = f"{subscriptions_prefix(TOPIC_ID, 0)}billing"
    return Put(key, SubscriberRecord("billing", Position(dlsn), resets=resets).encode())


def test_a_record_that_goes_back_is_found_unless_it_was_reset() -> None:
    async def was_reset(_: SimulatedWorld, stores: Stores) -> None:
        await do(stores.metadata, record(FURTHER))
        await do(stores.metadata, record(BEGINNING, resets=1))

    async def was_not(_: SimulatedWorld, stores: Stores) -> None:
        await do(stores.metadata, record(FURTHER))
        await do(stores.metadata, record(BEGINNING))

    looked_inside(was_reset)
    with pytest.raises(SimulationFailed, match="went back"):
        looked_inside(was_not)


def test_a_subscription_that_was_deleted_unheard_may_begin_anew() -> None:
    async def act(_: SimulatedWorld, stores: Stores) -> None:
        await do(stores.metadata, record(FURTHER))
        await do_unheard(stores.metadata, *deletion_of_subscriptions(TOPIC_ID))
        await do(stores.metadata, record(BEGINNING))

    looked_inside(act)


async def _told_then(world: SimulatedWorld, stores: Stores, then: Callable[[], Awaitable[None]]) -> Cursor | None:
    """What a replicator's next owner finds if `then` happens after it was stored."""
    key = topic_key("shadow")
    await do(stores.metadata, Put(key, Topic("shadow", TOPIC_ID, 1, {}).encode()))
    item = await stores.metadata.get(key)
    assert item is not None
    told: Any = SimpleNamespace(shadow=Topic.decode(item), index=0, outbox=SimpleNamespace(cursor=CURSOR))
    broker: Any = SimpleNamespace(
        world=world, metadata=stores.metadata, bookies=stores.bookies, quorum=Quorum(), log=world.logger
    )
    await ReplicatorCursors(broker, 0.0).flush(float("inf"), [told])
    await then()
    return await ReplicatorCursors(broker, 0.0).load(told)


def removing(*then: Operation, unheard: bool = False) -> Callable[[SimulatedWorld, Stores], Awaitable[None]]:
    async def act(world: SimulatedWorld, stores: Stores) -> None:
        remove = do_unheard if unheard else do
        assert await _told_then(world, stores, lambda: remove(stores.metadata, *then)) is None

    return act


def test_a_cursor_of_a_replicator_that_was_lost_is_found() -> None:
    with pytest.raises(SimulationFailed, match="how far shadow shadow was told was stored as"):
        looked_inside(removing(DeletePrefix(replicators_prefix(TOPIC_ID))))


@pytest.mark.parametrize("unheard", [False, True])
def test_a_cursor_of_a_replicator_goes_with_its_shadow(unheard: bool) -> None:
    deletion: Sequence[Operation] = [Delete(topic_key("shadow")), *deletion_of_subscriptions(TOPIC_ID)]
    looked_inside(removing(*deletion, unheard=unheard))
