"""Ledgers on several bookies, over the simulated network."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from audits import WIDE
from numbered_entries import contents, entries, fill
from with_cluster import with_cluster

from gnomon.bookie.errors import EntryTooLarge, LedgerError, LedgerFenced
from gnomon.bookie.ids import BookieId, EntryId, SessionId
from gnomon.bookie.ledgers import blocking_ledgers, claim, copies
from gnomon.bookie.ledgers.catalog import OpenMode, Quorum
from gnomon.bookie.ledgers.ledgers import connect_ledgers
from gnomon.bookie.storage import removal
from gnomon.metadata.client import MetadataError
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.ledgers.ledger_cluster import METADATA, METADATA_PORT, LedgerClient, LedgerCluster
from gnomon.testing.storms.rest.sizes import sizes_of


def test_a_ledger_outlives_its_writer_and_any_one_bookie() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation)
        await cluster.start()

        async def write(client: LedgerClient) -> tuple[str, ...]:
            ledger = await client.create("ledger", WIDE)
            await fill(ledger, 20)
            return ledger.record.fragments[0].bookies

        ensemble = await cluster.run_client("writer", write)
        simulation.machine(ensemble[0]).power_off()

        async def take_over(client: LedgerClient) -> None:
            ledger = await client.claim("ledger")
            await fill(ledger, 10)
            assert await contents(ledger) == entries(30)
            assert ensemble[0] not in ledger.record.fragments[-1].bookies

        await cluster.run_client("second", take_over)

    simulate(1, scenario)


def test_a_writer_replaces_a_dead_bookie_and_no_append_fails() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        await fill(ledger, 5)
        victim = ledger.record.fragments[0].bookies[1]
        cluster.bookies[victim].kill()
        await fill(ledger, 30)
        while victim in ledger.record.fragments[-1].bookies:
            await fill(ledger, 1)
            await client.world.clock.sleep(0.1)
        await fill(ledger, 5)
        assert await contents(ledger) == entries(ledger.next_entry)
        assert [fragment.session for fragment in ledger.record.fragments] == [1, 1]

    with_cluster(work, seed=2)


def test_a_ledger_on_three_bookies_continues_without_one_and_uses_it_again_after_its_return() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        await fill(ledger, 5)
        victim = cluster.simulation.machine("bookie-2")
        victim.kill()
        await fill(ledger, 50)
        second = await client.create("made while one is away", WIDE)
        await fill(second, 5)
        victim.start()
        await client.world.clock.sleep(10)
        cluster.simulation.machine("bookie-1").kill()  # now the restarted bookie is needed
        await fill(ledger, 5)
        await fill(second, 5)
        assert await contents(ledger) == entries(60)
        assert await contents(second) == entries(10)

    with_cluster(work, bookies=3, seed=3)


@pytest.mark.parametrize("ending", ["sealed", "rolled", "fenced"])
def test_a_writer_that_ended_keeps_no_lost_bookie(ending: str) -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        cluster.bookies[cluster.names[1]].kill()
        await client.world.clock.sleep(30)  # its lease ends
        await fill(ledger, 3)
        await client.world.clock.sleep(1)
        assert sizes_of(ledger).held["LedgerWriter._lost"] == 1
        if ending == "sealed":
            await ledger.seal()
        elif ending == "rolled":
            await ledger.roll("next", properties={})
        else:
            await client.claim("ledger")
            with pytest.raises(LedgerFenced):
                await ledger.add([b"late"])
        assert sizes_of(ledger).held["LedgerWriter._lost"] == 0

    with_cluster(work, bookies=3)


def test_a_ledger_without_metadata_continues_while_one_bookie_after_another_is_unreachable() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        clock = client.world.clock
        ledger = await client.create("ledger", WIDE)
        await fill(ledger, 1)
        first, second, _ = ledger.record.fragments[0].bookies
        cluster.metadata.kill()
        for victim in (first, second, first):
            cluster.simulation.network.block("client", victim)
            with trio.fail_after(31):
                for _ in range(30):
                    await clock.sleep(1)
                    await fill(ledger, 1)
            cluster.simulation.network.unblock("client", victim)
            await clock.sleep(30)
        cluster.simulation.network.block("client", first)
        cluster.metadata.start()
        while first in ledger.record.fragments[-1].bookies:
            await fill(ledger, 1)
            await clock.sleep(1)
        assert await contents(ledger) == entries(ledger.next_entry)

    with_cluster(work, seed=14)


def test_a_ledger_without_an_ack_quorum_continues_when_the_metadata_returns() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        await fill(ledger, 1)
        lost = ledger.record.fragments[0].bookies[:2]
        cluster.metadata.kill()
        for victim in lost:
            cluster.bookies[victim].kill()
        with trio.move_on_after(60) as scope:
            await ledger.add([b"entry 1"])
        assert scope.cancelled_caught
        cluster.metadata.start()
        with trio.fail_after(10):
            await ledger.drained()
        assert not {*lost} & {*ledger.record.fragments[-1].bookies}
        await fill(ledger, 1)
        assert await contents(ledger) == entries(3)

    with_cluster(work, bookies=5, seed=15)


def test_a_writer_that_was_cut_off_during_a_claim_is_refused_afterwards() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation)
        await cluster.start()
        cut, woken = trio.Event(), trio.Event()

        async def write(client: LedgerClient) -> None:
            ledger = await client.create("ledger", WIDE)
            await fill(ledger, 10)
            for name in ledger.record.fragments[0].bookies:
                simulation.network.block("writer", name)
            cut.set()
            errors: list[LedgerError | None] = []
            ledger.append([b"late"], lambda _entry, error: errors.append(error))
            await woken.wait()
            for name in ledger.record.fragments[0].bookies:
                simulation.network.unblock("writer", name)
            await client.world.clock.sleep(20)
            assert isinstance(errors[0], LedgerError)
            assert errors[0].outcome_unknown
            with pytest.raises(LedgerError):
                ledger.append([b"later"], lambda _entry, _error: None)

        async def take_over(client: LedgerClient) -> None:
            await cut.wait()
            ledger = await client.claim("ledger")
            assert ledger.next_entry == 10
            await fill(ledger, 3)
            woken.set()
            await client.world.clock.sleep(30)
            assert await contents(ledger) == entries(13)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.run_client, "writer", write)
            nursery.start_soon(cluster.run_client, "second", take_over)

    simulate(4, scenario)


def test_a_reader_follows_the_tail_across_a_dead_bookie_and_a_change_of_writer() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation)
        await cluster.start()
        created = trio.Event()

        async def write(client: LedgerClient) -> None:
            ledger = await client.create("ledger", WIDE)
            created.set()
            await fill(ledger, 10)
            simulation.machine(ledger.record.fragments[0].bookies[0]).kill()
            await fill(ledger, 10)

        async def both_writers() -> None:
            await cluster.run_client("writer", write)
            await cluster.run_client("second", finish)

        async def finish(client: LedgerClient) -> None:
            ledger = await client.claim("ledger")
            await fill(ledger, 10)
            await ledger.seal()

        async def read(client: LedgerClient) -> None:
            await created.wait()
            ledger = await client.follow("ledger")
            seen: list[bytes] = []
            while not (ledger.record.sealed and len(seen) == ledger.record.last_entry + 1):
                last = await ledger.wait_for_lac(EntryId(len(seen)))
                if last >= len(seen):
                    seen += await ledger.read(EntryId(len(seen)), last)
            assert seen == entries(30)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(both_writers)
            nursery.start_soon(cluster.run_client, "reader", read)

    simulate(5, scenario)


def test_a_reader_with_an_outdated_record_never_returns_an_orphan() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=3)
        await cluster.start()
        network = simulation.network
        followed, orphaned, claimed = trio.Event(), trio.Event(), trio.Event()

        def cut(one: str, other: str) -> None:
            network.block(one, other)
            network.block(other, one)

        async def write(client: LedgerClient) -> None:
            ledger = await client.create("ledger", WIDE)
            await fill(ledger, 3)
            await followed.wait()
            holder, *others = ledger.record.fragments[0].bookies  # readers ask `holder` first for entry 3
            for name in others:
                cut("writer", name)
            cut("second", holder)
            cut("reader", "metadata")
            ledger.append([b"orphan"], lambda _entry, _error: None)
            await client.world.clock.sleep(0.5)
            orphaned.set()
            await claimed.wait()

        async def take_over(client: LedgerClient) -> None:
            await orphaned.wait()
            ledger = await client.claim("ledger")
            await fill(ledger, 3)
            claimed.set()
            await client.world.clock.sleep(5)
            network.heal()

        async def read(client: LedgerClient) -> None:
            await client.world.clock.sleep(1)
            ledger = await client.follow("ledger")
            followed.set()
            while ledger.last_add_confirmed < 4:
                try:
                    await ledger.wait_for_lac(EntryId(4))
                except MetadataError:
                    await client.world.clock.sleep(0.5)
            assert await ledger.read(EntryId(0), EntryId(4)) == entries(5)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.run_client, "writer", write)
            nursery.start_soon(cluster.run_client, "second", take_over)
            await cluster.run_client("reader", read)

    simulate(12, scenario)


@pytest.mark.parametrize("explicit_lac_seconds", [0.01, 3.0])
def test_a_reader_sees_the_last_entry_once_the_explicit_lac_is_due(explicit_lac_seconds: float) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation)
        await cluster.start()
        appended, seen = trio.Event(), trio.Event()
        address = f"{METADATA}:{METADATA_PORT}"

        async def write(client: LedgerClient) -> None:
            async with connect_ledgers(
                address, world=client.world, explicit_lac_seconds=explicit_lac_seconds
            ) as ledgers:
                ledger = await ledgers.open("ledger", OpenMode.O_CREATE)
                await ledger.add([b"last"])
                appended.set()
                await seen.wait()

        async def read(client: LedgerClient) -> None:
            await appended.wait()
            began = client.world.clock.monotonic()
            ledger = await client.follow("ledger")
            await ledger.wait_for_lac(EntryId(0))
            waited = client.world.clock.monotonic() - began
            assert explicit_lac_seconds - 0.1 < waited < explicit_lac_seconds + 0.5
            assert (await client.follow("ledger")).last_add_confirmed == 0
            seen.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.run_client, "writer", write)
            await cluster.run_client("reader", read)

    simulate(13, scenario)


def test_at_least_one_of_two_concurrent_claims_succeeds() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation)
        await cluster.start()

        async def write(client: LedgerClient) -> None:
            await fill(await client.create("ledger", WIDE), 10)

        await cluster.run_client("writer", write)
        winners: list[str] = []

        async def claim(client: LedgerClient) -> None:
            try:
                ledger = await client.claim("ledger")
                await fill(ledger, 5)
            except LedgerFenced:
                return
            winners.append("one")

        async with trio.open_nursery() as nursery:
            for name in ("left", "right"):
                nursery.start_soon(cluster.run_client, name, claim)

        async def look(client: LedgerClient) -> None:
            ledger = await client.claim("ledger")
            assert (await contents(ledger))[:10] == entries(10)

        await cluster.run_client("looker", look)
        assert winners, "both were told that the other one had it"

    for seed in range(6, 12):
        simulate(seed, scenario)


@pytest.mark.parametrize("slow", ["bookie-1", "bookie-2", "bookie-3"])
def test_a_bookie_that_promises_late_accepts_the_copies_of_the_claim(slow: str) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=3)
        await cluster.start()

        async def write(client: LedgerClient) -> None:
            await fill(await client.create("ledger", Quorum(3, 2, 2)), 10)

        async def claim(client: LedgerClient) -> None:
            simulation.network.clog("second", slow, 1.0)
            assert await contents(await client.claim("ledger")) == entries(10)

        await cluster.run_client("writer", write)
        await cluster.run_client("second", claim)

    simulate(1, scenario)


def test_a_roll_changes_the_quorum_only_if_there_are_enough_bookies() -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        first = await client.create("first", Quorum(1, 1, 1))
        second = await first.roll("second", properties={}, quorum=WIDE)
        third = await second.roll("third", properties={}, quorum=Quorum(4, 4, 3))
        fourth = await third.roll("fourth", properties={})
        await fill(fourth, 5)
        assert [ledger.record.quorum for ledger in (second, third, fourth)] == [WIDE, WIDE, WIDE]
        assert len(fourth.record.fragments[0].bookies) == 3

    with_cluster(work, bookies=3)


def test_a_search_for_orphans_continues_after_its_caller_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "CHUNK_ENTRIES", 1)

    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", Quorum())
        await fill(ledger, 200)
        bookie = client.bookies.get(ledger.record.fragments[0].bookies[0])
        assert bookie is not None
        bounds = [(EntryId(0), SessionId(1)), (EntryId(10), SessionId(2))]
        with trio.move_on_after(0.05) as patience:
            await bookie.begin_session(ledger.id, SessionId(2), bounds)
        assert patience.cancelled_caught
        assert (await bookie.fence(ledger.id, SessionId(2))).bound == 0
        await client.world.clock.sleep(5)
        assert await bookie.fence(ledger.id, SessionId(2)) == (9, 8, 2)

    with_cluster(work)


def test_an_invalid_payload_is_refused_and_the_ledger_stays_writable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.bookie.ledgers.appender.ENTRY_BYTES_MAX", 100)

    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        senseless: list[Any] = [b"bytes", ["text"], [5], None]
        for payload in senseless:
            with pytest.raises(TypeError):
                await ledger.add(payload)
        with pytest.raises(EntryTooLarge, match="101 bytes"):
            await ledger.add([bytes(50), bytes(51)])
        await fill(ledger, 2)
        assert await contents(ledger) == entries(2)

    with_cluster(work)


def test_a_claim_recovers_a_tail_larger_than_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "AHEAD_BYTES_MAX", 1 << 17)
    monkeypatch.setattr(copies, "BATCH_BYTES_MAX", 1 << 18)

    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=3)
        await cluster.start()

        async def write(client: LedgerClient) -> None:
            ledger = await client.create("ledger", WIDE)
            for _ in range(40):
                ledger.append([bytes(50_000)], lambda entry, error: None)
            await ledger.drained()
            for name in cluster.names:  # before the last add confirmed reaches them
                simulation.machine(name).power_off()

        await cluster.run_client("writer", write)
        for name in cluster.names:
            simulation.machine(name).start()

        async def take_over(client: LedgerClient) -> None:
            await client.world.clock.sleep(10)
            for name in cluster.names:
                client.bookies.get(BookieId(name)).client.frame_bytes_max = 1 << 20
            assert (await client.claim("ledger")).next_entry == 40

        await cluster.run_client("second", take_over)

    simulate(1, scenario)


@pytest.mark.parametrize("away", [False, True])
def test_a_forced_shrink_removes_entries_at_every_running_bookie_also_of_dropped_fragments(away: bool) -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        await fill(ledger, 10)
        left = ledger.record.bookies[0]
        cluster.simulation.network.block("client", left)
        while left in ledger.record.fragments[-1].bookies:
            await fill(ledger, 1)
            await client.world.clock.sleep(0.2)
        cluster.simulation.network.unblock("client", left)
        await client.world.clock.sleep(10)
        await fill(ledger, 5)
        if away:
            cluster.simulation.machine(ledger.record.fragments[-1].bookies[0]).kill()
        await ledger.shrink(ledger.next_entry, force=True)
        for name in map(BookieId, cluster.names):
            if cluster.bookies[name].running:
                assert await client.bookies.get(name).present(ledger.id, EntryId(0), EntryId(100), SessionId(1)) == []

    with_cluster(work, bookies=4, garbage_interval_seconds=10_000)


def test_a_large_add_all_limits_its_bytes_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking_ledgers, "UNDER_WAY_BYTES_MAX", 1 << 18)

    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        for name in map(BookieId, cluster.names):
            client.bookies.get(name).client._unsent_bytes_max = 1 << 20
        payloads = [b"%d" % number * 20_000 for number in range(60)]
        assert await blocking_ledgers._add_all(ledger, payloads) == list(range(60))
        assert await ledger.read(EntryId(0), EntryId(59)) == payloads

    with_cluster(work, bookies=3)
