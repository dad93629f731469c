"""Entries kept in memory (numbers: invariants of `entry_cache`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from audits import auditor_of
from with_cluster import with_cluster

from gnomon.bookie.errors import EntryNotConfirmed, EntryShrunk, LedgerError, NotEnoughBookies
from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledgers.catalog import DigestType, Ledger, Quorum
from gnomon.bookie.ledgers.entry_cache import ENTRY_BYTES, EntryCache, NotInMemory, Reading, read_from_memory
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster

COPIES = Quorum(3, 3, 2)
ENTRY_SIZE = 1000


def payload(entry: int) -> bytes:
    return b"%0*d" % (ENTRY_SIZE, entry)


def play(work: Callable[[LedgerCluster, LedgerClient, Ledger], Awaitable[None]], **options: object) -> None:
    """Runs `work` with a ledger of 20 entries of 1,000 bytes."""

    async def filled(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", COPIES, **options)
        for entry in range(20):
            await ledger.add([payload(entry)])
        await work(cluster, client, ledger)

    with_cluster(filled, bookies=3)


def missing(cache: EntryCache, ledger: Ledger, entries: range = range(20)) -> list[int]:
    """The entries that are not in memory; asserts that the others are right."""
    absent = []
    for entry in entries:
        try:
            assert cache.view(ledger).payload(EntryId(entry)) == payload(entry)
        except NotInMemory:
            absent.append(entry)
    return absent


async def load(cache: EntryCache, ledger: Ledger, entry: int) -> None:
    assert await read_from_memory(lambda: bytes(cache.view(ledger).payload(EntryId(entry)))) == payload(entry)


def test_the_oldest_entries_are_evicted_when_there_is_no_room() -> None:  # invariant 2
    async def work(_cluster: LedgerCluster, client: LedgerClient, ledger: Ledger) -> None:
        cache = EntryCache(client.bookies, 3 * (ENTRY_SIZE + ENTRY_BYTES))
        ledger.keep = cache.keeper(ledger)
        for entry in range(20, 26):
            await ledger.add([payload(entry)])
        assert missing(cache, ledger, range(20, 26)) == [20, 21, 22]
        assert cache.size_bytes == 3 * (ENTRY_SIZE + ENTRY_BYTES)
        assert cache.reads == 0

    play(work)


def test_entries_that_an_operation_loads_stay_until_it_ends() -> None:  # invariants 1 and 2
    async def work(_cluster: LedgerCluster, client: LedgerClient, ledger: Ledger) -> None:
        cache = EntryCache(client.bookies, 1)
        runs = []

        def operation() -> list[bytes]:
            runs.append(missing(cache, ledger, range(0, 20, 5)))
            return [bytes(cache.view(ledger).payload(EntryId(entry))) for entry in (15, 0, 10, 5)]

        assert await read_from_memory(operation) == [payload(entry) for entry in (15, 0, 10, 5)]
        assert runs == [[0, 5, 10, 15], [0, 5, 10], [5, 10], [5], []]
        assert missing(cache, ledger) == list(range(20))
        assert (cache.size_bytes, cache.pins) == (0, {})

    play(work)


def test_a_cancelled_operation_pins_no_entry() -> None:  # invariant 2
    async def work(cluster: LedgerCluster, client: LedgerClient, ledger: Ledger) -> None:
        cache = EntryCache(client.bookies, 1)
        for name in cluster.names:
            cluster.simulation.network.block("client", name)
        with trio.move_on_after(1) as waiting:
            await load(cache, ledger, 3)
        assert waiting.cancelled_caught
        assert cache.pins == {}
        for name in cluster.names:
            cluster.simulation.network.unblock("client", name)
        await client.world.clock.sleep(20)
        assert cache.size_bytes == 0
        await load(cache, ledger, 3)

    play(work)


def test_concurrent_operations_share_the_read_of_an_entry() -> None:
    async def work(_cluster: LedgerCluster, client: LedgerClient, ledger: Ledger) -> None:
        cache = EntryCache(client.bookies, 1 << 20)
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(load, cache, ledger, 7)
        assert cache.reads == 1
        told: list[int] = []
        reading = Reading()
        for number in range(3):
            reading.load(NotInMemory(cache, ledger, EntryId(2)), lambda number=number: told.append(number))
        assert reading.waiting == 1
        await client.world.clock.sleep(1)
        assert (reading.waiting, told) == (0, [0])
        reading.close()
        assert cache.pins == {}

    play(work)


def test_a_sequential_reader_gets_a_growing_read_ahead() -> None:
    async def work(_cluster: LedgerCluster, client: LedgerClient, ledger: Ledger) -> None:
        for entry in range(20, 200):
            await ledger.add([payload(entry)])
        cache = EntryCache(client.bookies, 1 << 20)
        lengths = []
        entry = 0
        while entry < 200:
            await load(cache, ledger, entry)
            end = min(missing(cache, ledger, range(entry, 200)), default=200)
            lengths.append(end - entry)
            entry = end
        assert lengths == sorted(lengths[:-1]) + lengths[-1:]
        assert lengths[0] < 20
        assert len(lengths) <= 5

    play(work)


def test_a_failed_read_is_an_error_only_for_its_operation() -> None:  # invariant 4
    async def work(cluster: LedgerCluster, client: LedgerClient, ledger: Ledger) -> None:
        cache = EntryCache(client.bookies, 1 << 20)
        seen: list[str] = []

        def operation() -> None:
            for entry in (4, 5):
                try:
                    cache.view(ledger).payload(EntryId(entry))
                except LedgerError as error:
                    seen.append(str(error))

        for machine in cluster.bookies.values():
            machine.kill()
        await read_from_memory(operation)
        assert len(set(seen)) == 2
        assert missing(cache, ledger) == list(range(20))
        assert (cache.size_bytes, cache.pins) == (0, {})
        for machine in cluster.bookies.values():
            machine.start()
        await client.world.clock.sleep(10)
        await load(cache, ledger, 4)

    play(work)


@pytest.mark.parametrize("kept", [False, True])
def test_entries_with_a_mac_are_returned_without_it(kept: bool) -> None:  # invariant 3
    async def work(_cluster: LedgerCluster, client: LedgerClient, ledger: Ledger) -> None:
        cache = EntryCache(client.bookies, 1 << 20)
        if kept:
            ledger.keep = cache.keeper(ledger)
        await ledger.add([payload(20)])
        await load(cache, ledger, 20)
        assert cache.reads == (0 if kept else 1)

    play(work, digest_type=DigestType.MAC, password=b"secret")


def test_shrunk_and_unconfirmed_entries_are_never_shown() -> None:  # invariant 3
    async def work(cluster: LedgerCluster, client: LedgerClient, ledger: Ledger) -> None:
        cache = EntryCache(client.bookies, 1 << 20)
        ledger.keep = cache.keeper(ledger)
        await load(cache, ledger, 0)
        await ledger.shrink(EntryId(5))
        with pytest.raises(EntryShrunk):
            cache.view(ledger).payload(EntryId(0))
        for machine in cluster.bookies.values():
            machine.kill()
        ledger.append([payload(20)], lambda _entry, _error: None)
        with pytest.raises(EntryNotConfirmed):
            cache.view(ledger).payload(EntryId(20))

    play(work)


def test_entries_that_an_auditor_moved_are_found() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", Quorum(3, 2, 2))
        for entry in range(20):
            await ledger.add([payload(entry)])
        await ledger.seal()
        reader = await client.follow("ledger")
        cache = EntryCache(client.bookies, 1)
        before = reader.record.fragments[0].bookies
        async with trio.open_nursery() as nursery:
            nursery.start_soon(auditor_of(client).run)
            for victim in before[:2]:
                cluster.bookies[victim].kill()
                await client.world.clock.sleep(60)
            nursery.cancel_scope.cancel()
        for entry in range(20):
            await load(cache, reader, entry)
        assert not set(before[:2]) & set(reader.record.fragments[0].bookies)

    with_cluster(work, bookies=5)


def test_an_entry_loaded_by_another_read_stays_when_its_own_read_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(_: LedgerCluster, client: LedgerClient, ledger: Ledger) -> None:
        cache = EntryCache(client.bookies, 1 << 20)
        read, failed = cache._read, trio.Event()

        async def read_or_fail(ledger: Ledger, first: EntryId, bytes_max: int) -> list[memoryview]:
            if first == 5 and not failed.is_set():
                failed.set()
                await client.world.clock.sleep(1)
                raise NotEnoughBookies("away")
            return await read(ledger, first, bytes_max)

        monkeypatch.setattr(cache, "_read", read_or_fail)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load, cache, ledger, 5)
            await failed.wait()
            await load(cache, ledger, 4)  # this read loads 5, too
        held = [payload for payload in cache._entries.values() if isinstance(payload, memoryview)]
        assert cache.size_bytes == sum(len(payload) + ENTRY_BYTES for payload in held)

    play(work)
