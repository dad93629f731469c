from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from numbered_entries import contents, entries, fill
from with_cluster import with_cluster

from gnomon.bookie.errors import BookieLeaving
from gnomon.bookie.ids import BookieId, EntryId
from gnomon.bookie.ledgers.catalog import Quorum
from gnomon.bookie.node import LEAVE_SECONDS_MAX, BookieNodeSettings, run_bookie
from gnomon.bookie.registration import BOOKIES
from gnomon.metadata.client import Revision
from gnomon.testing.simulation.machine import Machine
from gnomon.testing.storms.ledgers.ledger_cluster import DATA, MAP_BYTES, LedgerClient, LedgerCluster


async def until_ended(client: LedgerClient, machine: Machine) -> float:
    """Waits until the node of a machine has ended; returns the seconds that this took."""
    begun = client.world.clock.monotonic()
    while machine.running:
        await client.world.clock.sleep(0.01)
    return client.world.clock.monotonic() - begun


@pytest.mark.parametrize("seed", range(5))
def test_a_terminating_bookie_answers_accepted_adds_and_refuses_later_ones(seed: int) -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", Quorum(3, 3, 3))
        victim = ledger.record.fragments[0].bookies[1]
        bookie: Any = client.bookies.get(victim)
        add, heard, taking = bookie.add, [], True

        def listening(*args: Any) -> None:
            *sent, done = args

            def answered(entry: EntryId, error: Exception | None) -> None:
                heard.append(error)
                assert error is None or victim not in client.bookies.available(), "it was registered"
                done(entry, error)

            add(*sent, answered)

        bookie.add = listening

        async def append() -> None:
            while taking:
                ledger.append([b"entry ", b"%d" % ledger.next_entry], lambda _entry, error: failed.append(error))
                await client.world.clock.sleep(0.0005)

        failed: list[Exception | None] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(append)
            await client.world.clock.sleep(1)
            cluster.bookies[victim].terminate()
            assert await until_ended(client, cluster.bookies[victim]) < 1
            taking = False
        await fill(ledger, 1)
        assert set(failed) == {None}
        assert {type(error) for error in heard} == {type(None), BookieLeaving}
        assert victim not in ledger.record.fragments[-1].bookies
        assert await contents(ledger) == entries(ledger.next_entry)

    with_cluster(work, seed=seed)


def test_a_withdrawn_registration_does_not_return_while_the_disk_is_slow() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", Quorum(3, 3, 2))
        victim = ledger.record.fragments[0].bookies[1]
        machine = cluster.bookies[victim]
        machine.disk.conditions.slowness = 1e4
        for _ in range(5):
            ledger.append([b"entry"], lambda _entry, _error: None)
        await client.world.clock.sleep(0.1)
        before = (await client.metadata.range(BOOKIES)).revision
        machine.terminate()
        assert 3.5 < await until_ended(client, machine) < LEAVE_SECONDS_MAX + 1
        events = []
        async with client.metadata.watch(f"{BOOKIES}{victim}", Revision(before + 1)) as batches:
            with trio.move_on_after(5):
                async for batch in batches:
                    events += batch.events
        assert [event.current for event in events] == [None]

    with_cluster(work)


def test_a_bookie_terminated_before_its_registration_never_reports_ready() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        class NoLeases:
            def __getattr__(self, name: str) -> Any:
                return getattr(client.metadata, name)

            async def lease(self, ttl_seconds: float) -> Any:
                await trio.sleep_forever()

        settings, stop, ready = BookieNodeSettings(BookieId("late"), DATA, map_bytes=MAP_BYTES), trio.Event(), []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                partial(
                    run_bookie, client.world, NoLeases(), settings, client.world.logger, ready=ready.append, stop=stop
                )
            )
            await client.world.clock.sleep(10)
            stop.set()
        assert ready == []

    with_cluster(work)
