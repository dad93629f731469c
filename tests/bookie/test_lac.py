"""The last add confirmed reaches the bookies in spite of faults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from audits import WIDE
from numbered_entries import fill
from with_cluster import with_cluster

from gnomon.bookie import explicit_lacs
from gnomon.bookie.ids import EntryId, LedgerId
from gnomon.bookie.ledgers.catalog import Quorum
from gnomon.bookie.ledgers.lac import REFUSED_AGAIN_SECONDS
from gnomon.runtime.rpc import server as rpc_server
from gnomon.runtime.rpc.server import CALLS_MAX
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster
from gnomon.testing.storms.rest.sizes import sizes_of

BOUND_SECONDS = 1.0


def play(happens: Callable[[Simulation, str], Awaitable[None]]) -> None:
    """Confirms three entries of a writer, runs `happens` at once, and asserts that a reader sees all three in time."""

    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation)
        await cluster.start()
        written = trio.Event()
        bookie: list[str] = []

        async def write(client: LedgerClient) -> None:
            ledger = await client.create("ledger", Quorum())
            bookie.extend(ledger.record.fragments[0].bookies)
            await fill(ledger, 3)
            written.set()
            await trio.sleep_forever()

        async def read(client: LedgerClient) -> None:
            ledger = await client.follow("ledger")
            with trio.fail_after(BOUND_SECONDS):
                assert await ledger.wait_for_lac(EntryId(2)) == 2

        cluster.start_client("writer", write)
        await written.wait()
        await happens(simulation, bookie[0])
        await cluster.run_client("reader", read)

    simulate(1, scenario)


def test_a_lost_last_add_confirmed_is_sent_to_the_bookie_again() -> None:
    async def cut(simulation: Simulation, bookie: str) -> None:
        simulation.network.block("writer", bookie)
        await simulation.clock.sleep(0.05)
        for stream in list(simulation.network.streams()):
            simulation.network.reset(stream)
        simulation.network.unblock("writer", bookie)

    play(cut)


def test_a_restarted_bookie_receives_the_last_add_confirmed() -> None:
    async def restart(simulation: Simulation, bookie: str) -> None:
        await simulation.clock.sleep(5)
        machine = simulation.machine(bookie)
        machine.kill()
        machine.start()
        await simulation.clock.sleep(2)

    play(restart)


def test_a_bookie_receives_the_last_add_confirmed_soon_after_a_long_partition() -> None:
    async def away(simulation: Simulation, bookie: str) -> None:
        simulation.network.block("writer", bookie)
        await simulation.clock.sleep(8)
        simulation.network.unblock("writer", bookie)

    play(away)


def test_the_explicit_lacs_that_wait_for_a_bookie_are_bounded_however_long_it_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(explicit_lacs, "EXPLICIT_LACS_MAX", 5)

    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        name, clock = cluster.names[1], client.world.clock
        cluster.bookies[name].kill()
        await clock.sleep(30)  # its lease ends
        ledger = await client.create("segment-0", WIDE)
        for number in range(1, 12):
            await fill(ledger, 2)
            await clock.sleep(7)
            ledger = await ledger.roll(f"segment-{number}", properties={})
        await clock.sleep(60)
        assert sizes_of(client.bookies.get(name)).held["ExplicitLacs._unsure"] == 5
        cluster.bookies[name].start()
        await clock.sleep(30)
        newest = await client.follow("segment-10")
        bookie = client.bookies.get(name)
        assert bookie is not None
        assert (await bookie.last_add_confirmed(newest.id)).entry == 1, "those confirmed last are kept"
        assert sizes_of(bookie).held["ExplicitLacs._unsure"] == 0
        assert sizes_of(bookie).held["ExplicitLacs._acknowledged"] == 5

    with_cluster(work, bookies=3)


def test_waits_for_quiet_ledgers_do_not_delay_adds_of_their_process() -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        ledger = await client.create("written", Quorum())
        (name,) = ledger.record.fragments[0].bookies
        bookie = client.bookies.get(name)
        assert bookie is not None
        async with trio.open_nursery() as nursery:
            for quiet in range(CALLS_MAX + 100):
                nursery.start_soon(bookie.wait_for_lac, LedgerId(1_000_000 + quiet), EntryId(0))
            await client.world.clock.sleep(1)
            with trio.fail_after(0.1):
                await fill(ledger, 3)
            nursery.cancel_scope.cancel()

    with_cluster(work, bookies=1)


def test_a_reader_whose_wait_is_refused_retries_and_sees_the_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_server, "WAITING_MAX", 2)

    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation)
        await cluster.start()
        created, followed = trio.Event(), trio.Event()

        async def write(client: LedgerClient) -> None:
            ledger = await client.create("ledger", Quorum())
            created.set()
            await followed.wait()
            await fill(ledger, 1)
            await trio.sleep_forever()

        async def read(client: LedgerClient) -> None:
            await created.wait()
            ledgers = [await client.follow("ledger") for _ in range(5)]
            with trio.fail_after(1 + REFUSED_AGAIN_SECONDS + BOUND_SECONDS):
                async with trio.open_nursery() as nursery:
                    for ledger in ledgers:
                        nursery.start_soon(ledger.wait_for_lac, EntryId(0))
                    await client.world.clock.sleep(1)
                    followed.set()

        cluster.start_client("writer", write)
        await cluster.run_client("reader", read)

    simulate(1, scenario)
