from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
import trio
from numbered_entries import contents, entries, fill
from with_cluster import with_cluster

from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.record import Quorum
from gnomon.bookie.registration import BOOKIES, COOKIES, DISMISSED, DRAINING, BookieRegistration
from gnomon.bookie.registry import RegisteredBookies
from gnomon.bookie.remote import RemoteBookie
from gnomon.metadata.client import Delete, Metadata, Operation, Put, RangeResult, Revision
from gnomon.metadata.node import MetadataNodeSettings, run_metadata
from gnomon.runtime.rpc.errors import NotSent, RpcRefused
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.ledgers.ledger_cluster import (
    BOOKIE_PORT,
    MAP_BYTES,
    METADATA_PORT,
    LedgerClient,
    LedgerCluster,
)

FIRST_DISK = Revision(2)
"""The disk of the first bookie that writes to the metadata, after the cluster id."""


async def metadata_of_another_cluster(world: SimulatedWorld) -> None:
    settings = MetadataNodeSettings(Path("/other"), host="", port=METADATA_PORT, map_bytes=MAP_BYTES)
    await run_metadata(world, settings, world.logger, ready=lambda _: None, stop=world.stop_requested)


def test_entries_are_kept_while_the_address_serves_the_metadata_of_another_cluster() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=3, garbage_interval_seconds=2)
        await cluster.start()

        async def write(client: LedgerClient) -> None:
            ledger = await client.create("ledger", Quorum(3, 3, 2))
            await fill(ledger, 20)
            await ledger.close()

        async def grow(client: LedgerClient) -> None:
            for _ in range(100):
                await client.metadata.txn([], [Put("beside", b"")])
            await client.world.clock.sleep(30)
            assert dict(client.bookies.known()) == {}, "no bookie went over"

        async def read(client: LedgerClient) -> None:
            assert await contents(await client.claim("ledger")) == entries(20)

        await cluster.run_client("writer", write)
        simulation.machine("metadata").kill()
        simulation.machine("metadata").start(metadata_of_another_cluster)
        await cluster.run_client("client of the other", grow)
        simulation.machine("metadata").kill()
        simulation.machine("metadata").start(cluster.nodes()["metadata"])
        await cluster.run_client("reader", read)

    simulate(1, scenario)


def test_a_bookie_refuses_calls_from_another_cluster() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=1)
        await cluster.start()
        simulation.machine("metadata").kill()
        simulation.machine("metadata").start(metadata_of_another_cluster)

        async def ask(client: LedgerClient) -> None:
            at = BookieRegistration("bookie-1", BOOKIE_PORT, FIRST_DISK)
            await client.metadata.txn([], [Put(f"{BOOKIES}bookie-1", at.encode())])
            while (bookie := client.bookies.get(BookieId("bookie-1"))) is None:
                await client.bookies.changed()
            with pytest.raises(RpcRefused, match=r"of cluster .*; this is service .* of cluster .*: check the address"):
                await bookie.last_add_confirmed(LedgerId(1))

        await cluster.run_client("client", ask)

    simulate(1, scenario)


def test_a_bookie_refuses_calls_for_another_bookie_at_its_address() -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        at = BookieRegistration("bookie-1", BOOKIE_PORT, FIRST_DISK)
        await client.metadata.txn([], [Put(f"{BOOKIES}bookie-2", at.encode())])
        while (bookie := client.bookies.get(BookieId("bookie-2"))) is None:
            await client.bookies.changed()
        with pytest.raises(
            RpcRefused,
            match="asks for service 'bookie bookie-2, disk 2'; this is service 'bookie bookie-1, disk 2'",
        ):
            await bookie.last_add_confirmed(LedgerId(1))

    with_cluster(work, bookies=1)


def test_bookies_are_listed_again_after_a_compacted_history() -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        metadata = client.metadata
        at = [BookieId(name) for name in ("stays", "goes", "drains", "returns")]
        said = BookieRegistration("nowhere", 1, Revision(1), "rack").encode()
        await metadata.txn([], [*(Put(BOOKIES + name, said) for name in at), Put(f"{DRAINING}returns", b"")])
        await metadata.txn([], [Put(f"{COOKIES}{name}", b"cookie") for name in (*at, "away", "dismissed")])
        async with trio.open_nursery() as nursery:
            bookies = RegisteredBookies(client.world, metadata, client.world.logger, nursery)
            await bookies.load()
            assert dict(bookies.available()) == {"bookie-1": "", "stays": "rack", "goes": "rack", "drains": "rack"}
            assert {"away", "dismissed"} <= set(bookies.known())
            changes = [Delete(f"{BOOKIES}goes"), Delete(f"{DRAINING}returns"), Put(f"{DRAINING}drains", b"")]
            change = await metadata.txn([], [*changes, Put(f"{BOOKIES}new", said), Put(f"{COOKIES}new", b"")])
            await metadata.txn([], [Put(f"{DRAINING}dismissed", b"")])
            await metadata.txn([], [Delete(f"{COOKIES}dismissed"), Delete(f"{DRAINING}dismissed")])
            after = await metadata.txn([], [Put("beside", b"")])
            await metadata.compact(after.revision)
            assert change.revision < after.revision
            nursery.start_soon(bookies.run)
            await bookies.changed()
            assert dict(bookies.available()) == {"bookie-1": "", "stays": "rack", "returns": "rack", "new": "rack"}
            known = {"bookie-1", "stays", "goes", "away", "returns", "new"}
            assert set(bookies.known()) == known, (
                "those that went may still hold entries, none that leaves counts, and none that was let go"
            )
            nursery.cancel_scope.cancel()

    with_cluster(work, bookies=1)


def test_a_bookie_with_an_unreadable_registration_is_alive_but_not_available() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        metadata, bookies = client.metadata, client.bookies

        async def change(operation: Operation) -> None:
            await bookies._follower.reached((await metadata.txn([], [operation])).revision)

        async def said(value: object) -> None:
            await change(Put(f"{BOOKIES}newer", msgpack.packb(value)))

        async def shows(available: set[str], alive: set[str]) -> None:
            assert (set(bookies.available()), set(bookies.alive())) == (available, alive)
            assert "newer" in bookies.known()

        fields = msgpack.unpackb(BookieRegistration("nowhere", 1, Revision(1)).encode())
        await said(fields)
        both = {"bookie-1", "newer"}
        await shows(both, both)
        for unreadable in ([*fields, "more"], "elsewhere", 5):
            await said(unreadable)
            await shows({"bookie-1"}, both)
        assert cluster.simulation.coverage.counts["log/registration_unreadable"] == 1
        await said(fields)
        await shows(both, both)
        await said([])
        await change(Delete(f"{BOOKIES}newer"))
        await shows({"bookie-1"}, {"bookie-1"})

    with_cluster(work, bookies=1)


def test_a_bookie_that_was_dismissed_is_no_bookie_with_an_unreadable_registration() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        dismissed = await client.metadata.txn([], [Put(f"{DISMISSED}gone", b"17")])
        await client.bookies._follower.reached(dismissed.revision)
        assert set(client.bookies.alive()) == {"bookie-1"}
        assert not cluster.simulation.coverage.counts["log/registration_unreadable"]

    with_cluster(work, bookies=1)


async def dismiss(client: LedgerClient, name: BookieId, disk: Revision) -> None:
    """Ends the membership of a bookie as the auditor does."""
    gone = [Delete(f"{prefix}{name}") for prefix in (COOKIES, DRAINING, BOOKIES)]
    done = await client.metadata.txn([], [*gone, Put(f"{DISMISSED}{name}", str(disk).encode())])
    await client.bookies._follower.reached(done.revision)


class Calls:
    """The calls that a client sends to a bookie from now on."""

    def __init__(self, client: LedgerClient, name: BookieId, patch: pytest.MonkeyPatch) -> None:
        bookie = client.bookies.get(name)
        assert isinstance(bookie, RemoteBookie)
        assert bookie.client is not None
        self.bookie = bookie
        self.count = 0
        for way in ("send", "tell"):
            patch.setattr(bookie.client, way, self._counted(getattr(bookie.client, way)))

    def _counted(self, before: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **named: Any) -> Any:
            self.count += 1
            return before(*args, **named)

        return counted


@pytest.mark.parametrize("seconds_before", [0.02, 3.0, 60.0])
def test_a_bookie_that_was_dismissed_gets_no_more_calls(seconds_before: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if an explicit LAC waits for it, its answer is awaited (after three seconds), or was awaited in vain."""

    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        name, clock = cluster.names[0], client.world.clock
        ledger = await client.create("ledger", Quorum(2, 2, 1))
        await fill(ledger, 1)
        await clock.sleep(2)
        calls = Calls(client, name, monkeypatch)
        cluster.simulation.network.block("client", name)
        calls.bookie.confirm(LedgerId(1_000), SessionId(5), EntryId(3))
        await clock.sleep(seconds_before)
        assert calls.count
        await dismiss(client, name, calls.bookie.disk)
        before = calls.count
        cluster.simulation.network.heal()
        calls.bookie.confirm(LedgerId(1_000), SessionId(5), EntryId(4))
        await clock.sleep(120)
        assert calls.count == before
        with pytest.raises(NotSent):
            await calls.bookie.last_add_confirmed(LedgerId(1_000))
        assert all(name not in side.process.machine_name for stream in client_streams(cluster) for side in stream)

    with_cluster(work, bookies=2)


def client_streams(cluster: LedgerCluster) -> list[Any]:
    """The connections of the client."""
    streams = cluster.simulation.network.streams()
    return [stream for stream in streams if any(side.process.machine_name == "client" for side in stream)]


def test_a_bookie_whose_earlier_disk_was_dismissed_is_called_as_before() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        word = await client.metadata.txn([], [Put(f"{DISMISSED}{cluster.names[0]}", b"1")])
        await client.bookies._follower.reached(word.revision)
        bookie = client.bookies.get(cluster.names[0])
        assert bookie is not None
        await bookie.last_add_confirmed(LedgerId(1_000))
        assert set(client.bookies.available()) == set(cluster.names)

    with_cluster(work, bookies=2)


def test_a_transaction_that_names_a_dismissed_bookie_is_refused() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        name = cluster.names[0]
        bookie = client.bookies.get(name)
        assert isinstance(bookie, RemoteBookie)
        assert (await client.metadata.txn(client.bookies.membership([name]), [Put("beside", b"")])).succeeded
        await dismiss(client, name, bookie.disk)
        assert not (await client.metadata.txn(client.bookies.membership([name]), [Put("beside", b"")])).succeeded

    with_cluster(work, bookies=2)


class DismissedBetween:
    """Metadata whose bookie "leaves" is dismissed between the first two reads of a client."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._dismissed = False

    async def range(self, prefix: str) -> RangeResult:
        found = await self._metadata.range(prefix)
        if not self._dismissed:
            self._dismissed = True
            gone = await self._metadata.txn([], [Delete(f"{COOKIES}leaves"), Delete(f"{DRAINING}leaves")])
            assert gone.succeeded
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._metadata, name)


def test_a_bookie_dismissed_while_a_client_starts_is_not_known_to_the_client() -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        await client.metadata.txn([], [Put(f"{COOKIES}leaves", b"cookie"), Put(f"{DRAINING}leaves", b"")])
        async with trio.open_nursery() as nursery:
            metadata: Any = DismissedBetween(client.metadata)
            bookies = RegisteredBookies(client.world, metadata, client.world.logger, nursery)
            await bookies.load()
            nursery.start_soon(bookies.run)
            while "leaves" in bookies._draining:
                await bookies.changed()
            assert set(bookies.known()) == {"bookie-1"}
            nursery.cancel_scope.cancel()

    with_cluster(work, bookies=1)
