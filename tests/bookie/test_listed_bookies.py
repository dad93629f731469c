"""The bookies of a list (numbers: invariants of `listed_bookies`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from numbered_entries import entries, fill
from with_cluster import with_cluster

from gnomon.bookie.errors import NoSuchEntry, NotEnoughBookies
from gnomon.bookie.ids import BookieId, EntryId
from gnomon.bookie.ledgers.catalog import Ledger, Quorum
from gnomon.bookie.ledgers.copies import SPECULATIVE_SECONDS, read_run
from gnomon.bookie.ledgers.listed_bookies import DOUBT_SECONDS, ListedBookie, ListedBookies
from gnomon.bookie.registration import BOOKIES, BookieRegistration
from gnomon.metadata.cluster_id import cluster_id
from gnomon.runtime.background import background
from gnomon.runtime.world import World
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster


async def list_of(client: LedgerClient) -> tuple[str, list[ListedBookie]]:
    """The id of the cluster, and its registered bookies."""
    found = await client.metadata.range(BOOKIES)
    at = {BookieId(item.key.removeprefix(BOOKIES)): BookieRegistration.decode(item.value) for item in found.items}
    listed = [ListedBookie(name, each.host, each.port, each.disk) for name, each in at.items()]
    return await cluster_id(client.metadata, client.world.random("cluster")), listed


@asynccontextmanager
async def listed_bookies(
    world: World, cluster: str, bookies: Sequence[ListedBookie], warn: Callable[[str], None] = lambda _: None
) -> AsyncIterator[ListedBookies]:
    async with background() as nursery:
        listed = ListedBookies(world, cluster, nursery, warn)
        listed.add(bookies)
        yield listed


async def written(client: LedgerClient, count: int) -> Ledger:
    ledger = await client.create("ledger", Quorum(3, 3, 2))
    await fill(ledger, count)
    await ledger.seal()
    return ledger


async def read(bookies: ListedBookies, ledger: Ledger, first: int = 0) -> list[bytes]:
    run = await read_run(bookies, ledger.id, ledger.record, EntryId(first), ledger.last_add_confirmed, 1 << 20)
    return [bytes(stored.payload) for stored in run]


def test_entries_are_read_without_metadata_and_while_a_bookie_is_dead() -> None:  # 1
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await written(client, 20)
        name, listed = await list_of(client)
        cluster.metadata.kill()
        async with listed_bookies(client.world, name, listed) as bookies:
            assert await read(bookies, ledger) == entries(20)
            cluster.bookies[BookieId("bookie-2")].kill()
            for first in range(20):
                assert await read(bookies, ledger, first) == entries(20)[first:]

    with_cluster(work, bookies=3)


def test_another_cluster_and_another_disk_are_not_read() -> None:  # 1
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await written(client, 3)
        name, listed = await list_of(client)
        others = [("another", listed), (name, [each._replace(disk=each.disk + 1) for each in listed])]
        for other, bookies_of_other in others:
            async with listed_bookies(client.world, other, bookies_of_other) as bookies:
                with pytest.raises(NotEnoughBookies, match=f"no copy of entry 0 of ledger {ledger.id} could be read"):
                    await read(bookies, ledger)
        async with listed_bookies(client.world, name, listed[:0]) as bookies:
            with pytest.raises(NotEnoughBookies, match=r"bookie 'bookie-.' is not known here"):
                await read(bookies, ledger)

    with_cluster(work, bookies=3)


def test_a_bookie_is_added_again_with_another_address() -> None:  # 1
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await written(client, 3)
        name, listed = await list_of(client)
        async with listed_bookies(client.world, name, [each._replace(port=1) for each in listed]) as bookies:
            with pytest.raises(NotEnoughBookies):
                await read(bookies, ledger)
            before = dict(bookies._bookies)
            bookies.add(listed)
            assert await read(bookies, ledger) == entries(3)
            assert [each.client for each in before.values()] == [None] * 3
            before = dict(bookies._bookies)
            bookies.add(listed)
            assert before == bookies._bookies

    with_cluster(work, bookies=3)


def test_a_silent_bookie_delays_one_read_and_is_asked_again_later() -> None:  # 2
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger, clock = await written(client, 20), client.world.clock
        fabric = cluster.simulation.network
        name, listed = await list_of(client)

        async def seconds_of_reads(bookies: ListedBookies) -> float:
            began = clock.monotonic()
            for first in range(20):
                assert await read(bookies, ledger, first) == entries(20)[first:]
            return clock.monotonic() - began

        async with listed_bookies(client.world, name, listed) as bookies:
            assert await seconds_of_reads(bookies) < SPECULATIVE_SECONDS
            fabric.block("client", "bookie-2")
            for _ in range(2):
                assert SPECULATIVE_SECONDS <= await seconds_of_reads(bookies) < 2 * SPECULATIVE_SECONDS
                assert bookies.absent() == {"bookie-2"}
                assert await seconds_of_reads(bookies) < SPECULATIVE_SECONDS
                await clock.sleep(DOUBT_SECONDS)
            fabric.unblock("client", "bookie-2")
            assert await seconds_of_reads(bookies) < SPECULATIVE_SECONDS
            assert (bookies.absent(), len(bookies.available())) == (set(), 3)

    with_cluster(work, bookies=3)


def test_a_silent_bookie_is_reported_once_in_a_while() -> None:  # 4
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger, clock, warnings = await written(client, 20), client.world.clock, list[str]()
        name, listed = await list_of(client)
        async with listed_bookies(client.world, name, listed, warnings.append) as bookies:
            assert await read(bookies, ledger) == entries(20)
            assert warnings == []
            cluster.simulation.network.block("client", "bookie-2")
            for looks in (1, 2):
                for first in range(20):
                    await read(bookies, ledger, first)
                assert len(warnings) == looks
                await clock.sleep(DOUBT_SECONDS)
        assert {text.partition(" at ")[0] for text in warnings} == {"bookie bookie-2"}
        assert {text.partition(": ")[2] for text in warnings} == {"no answer in 0.2 s; another copy is read"}

    with_cluster(work, bookies=3)


def test_a_bookie_that_answers_again_is_available_at_once() -> None:  # 2
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger, network = await written(client, 3), cluster.simulation.network
        async with listed_bookies(client.world, *await list_of(client)) as bookies:
            for name in cluster.names:
                network.block("client", name)
            with pytest.raises(NotEnoughBookies):
                await read(bookies, ledger)
            assert bookies.absent() == set(cluster.names)
            network.heal()
            assert await read(bookies, ledger) == entries(3)
            assert len(bookies.absent()) == 2

    with_cluster(work, bookies=3)


def test_a_bookie_without_the_entry_has_answered() -> None:  # 2
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await written(client, 3)
        async with listed_bookies(client.world, *await list_of(client)) as bookies:
            with pytest.raises(NoSuchEntry):
                await read_run(bookies, ledger.id, ledger.record, EntryId(3), EntryId(3), 1)
            assert bookies.absent() == set()

    with_cluster(work, bookies=3)


def test_no_ledger_is_created_on_a_list() -> None:  # 3
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        async with listed_bookies(client.world, *await list_of(client)) as bookies:
            with pytest.raises(NotEnoughBookies, match="bookie-1 are known by a list, which is for reading only"):
                bookies.membership([BookieId("bookie-1")])

    with_cluster(work, bookies=1)
