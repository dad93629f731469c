from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gnomon.metadata.client import (
    Delete,
    HistoryCompacted,
    Metadata,
    MetadataError,
    MetadataUnavailable,
    Put,
    RangeResult,
    Revision,
    WatchBatch,
)
from gnomon.metadata.follower import RETRY_SECONDS, Follower
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster

PREFIX = "followed/"


class Failing:
    """Metadata whose watches and lists fail with the queued errors."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.watch_errors: list[MetadataError] = []
        self.range_errors: list[MetadataError] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._metadata, name)

    async def range(self, prefix: str) -> RangeResult:
        if self.range_errors:
            raise self.range_errors.pop(0)
        return await self._metadata.range(prefix)

    @asynccontextmanager
    async def watch(self, prefix: str, from_revision: Revision) -> AsyncIterator[AsyncIterator[WatchBatch]]:
        async with self._metadata.watch(prefix, from_revision) as batches:
            yield self._batches(batches)

    async def _batches(self, batches: AsyncIterator[WatchBatch]) -> AsyncIterator[WatchBatch]:
        if self.watch_errors:
            raise self.watch_errors.pop(0)
        async for batch in batches:
            yield batch


class Copy:
    """A copy of the keys that a follower maintains."""

    def __init__(self, client: LedgerClient) -> None:
        self.metadata: Any = Failing(client.metadata)
        self.values: dict[str, bytes] = {}
        self.loads = 0
        world = client.world
        self.beside: bytes | None = None
        """The value of the key `beside`, read after the followed keys."""
        self.follower = Follower(
            self.metadata, world.clock, world.logger, PREFIX, self._replace, self._apply, self._read_beside
        )

    def _replace(self, found: RangeResult) -> None:
        self.loads += 1
        self.values = {item.key: item.value for item in found.items}

    async def _read_beside(self) -> None:
        (item,) = (await self.metadata.range("beside")).items
        self.beside = item.value

    def _apply(self, batch: WatchBatch) -> None:
        for event in batch.events:
            if event.current is None:
                del self.values[event.key]
            else:
                self.values[event.key] = event.current.value

    async def put(self, key: str, value: bytes) -> None:
        await self.follower.reached((await self.metadata.txn([], [Put(PREFIX + key, value)])).revision)


def followed(work: Any) -> None:
    """Runs `work(copy, nursery)` with a follower that has loaded one key, `a`."""

    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=1)
        await cluster.start()

        async def client(client: LedgerClient) -> None:
            copy = Copy(client)
            await client.metadata.txn([], [Put(f"{PREFIX}a", b"1"), Put("beside", b"2")])
            await copy.follower.load()
            async with trio.open_nursery() as nursery:
                await work(copy, nursery)
                nursery.cancel_scope.cancel()

        with trio.fail_after(60):
            await cluster.run_client("client", client)

    simulate(1, scenario)


def test_each_change_is_applied_to_the_loaded_keys_in_order() -> None:
    async def work(copy: Copy, nursery: trio.Nursery) -> None:
        assert copy.values == {f"{PREFIX}a": b"1"}
        nursery.start_soon(copy.follower.run)
        for value in (b"3", b"4"):
            await copy.put("b", value)
            assert copy.values == {f"{PREFIX}a": b"1", f"{PREFIX}b": value}
        gone = await copy.metadata.txn([], [Delete(f"{PREFIX}a")])
        await copy.follower.reached(gone.revision)
        assert (copy.values, copy.loads, copy.follower.following) == ({f"{PREFIX}b": b"4"}, 1, True)

    followed(work)


def test_a_watch_that_ends_with_an_error_is_started_again_at_its_position() -> None:
    async def work(copy: Copy, nursery: trio.Nursery) -> None:
        copy.metadata.watch_errors = [MetadataUnavailable("another version"), MetadataError("refused")]
        nursery.start_soon(copy.follower.run)
        await wait_all_tasks_blocked()
        assert not copy.follower.following
        await copy.put("b", b"3")
        assert (copy.values, copy.loads, copy.follower.following) == (
            {f"{PREFIX}a": b"1", f"{PREFIX}b": b"3"},
            1,
            True,
        )

    followed(work)


def test_a_reload_repeats_the_extra_read_of_its_user_before_waiters_are_notified() -> None:
    async def work(copy: Copy, nursery: trio.Nursery) -> None:
        assert copy.beside == b"2"
        missed = await copy.metadata.txn([], [Put("beside", b"3")])
        read = copy.metadata.range

        async def failing_once_beside(prefix: str) -> RangeResult:
            if prefix == "beside":
                copy.metadata.range = read
                raise MetadataUnavailable("not now")
            return await read(prefix)

        copy.metadata.range = failing_once_beside
        copy.metadata.watch_errors = [HistoryCompacted(Revision(1), Revision(2))] * 2
        nursery.start_soon(copy.follower.run)
        await copy.follower.reached(missed.revision)
        assert (copy.beside, copy.loads) == (b"3", 3)

    followed(work)


@pytest.mark.parametrize("failures", [0, 2])
def test_after_a_compacted_history_the_keys_are_loaded_again_with_retries(failures: int) -> None:
    async def work(copy: Copy, nursery: trio.Nursery) -> None:
        copy.metadata.watch_errors = [HistoryCompacted(Revision(1), Revision(2))] * (failures + 1)
        copy.metadata.range_errors = [MetadataUnavailable("not now")] * failures
        missed = await copy.metadata.txn([], [Delete(f"{PREFIX}a")])
        nursery.start_soon(copy.follower.run)
        started = trio.current_time()
        await copy.follower.reached(missed.revision)
        assert trio.current_time() - started >= failures * RETRY_SECONDS
        assert (copy.values, copy.loads) == ({}, 2)

    followed(work)
