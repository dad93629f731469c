"""Bookies of this process: direct calls on their stores, without a network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from typing import Any

from gnomon.bookie.bookie import Bookie, Bounds, Confirmed, Copies, FenceResult, RangeRead
from gnomon.bookie.entry import StoredEntry
from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.storage.entry_store import EntryStore
from gnomon.metadata.client import Compare
from gnomon.runtime.outcome import outcome_of
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import Clock


class LocalBookies:
    """Bookies of this process, or connected by hand; all of them take entries."""

    def __init__(self, bookies: Mapping[BookieId, Bookie], clock: Clock, tasks: Tasks) -> None:
        self.clock = clock
        self._bookies = bookies
        self._domains = dict.fromkeys(bookies, "")
        self._tasks = tasks

    def get(self, name: BookieId) -> Bookie | None:
        """See `Bookies.get`."""
        return self._bookies.get(name)

    def available(self) -> Mapping[BookieId, str]:
        """See `Bookies.available`."""
        return self._domains

    def known(self) -> Mapping[BookieId, str]:
        """See `Bookies.known`."""
        return self._domains

    def absent(self) -> Set[BookieId]:
        """See `Bookies.absent`."""
        return frozenset()

    def membership(self, names: Iterable[BookieId]) -> tuple[Compare, ...]:
        """See `Bookies.membership`: these bookies end with this process."""
        return ()

    def start_soon(self, run: Callable[..., Awaitable[object]], *args: Any) -> None:
        """See `Bookies.start_soon`."""
        self._tasks.start_soon(run, *args)


class LocalBookie:
    """The bookie of this process: direct calls on its store."""

    def __init__(self, store: EntryStore) -> None:
        self.store = store
        self.add = store.add
        self.confirm = store.confirm
        self.view = store.view
        self.wait_for_lac = store.wait_for_lac

    async def put_copies(self, ledger: LedgerId, session: SessionId, copies: Copies) -> None:
        """See `Bookie.put_copies`."""
        await outcome_of(lambda done: self.store.put_copies(ledger, session, copies, done))

    async def begin_session(self, ledger: LedgerId, session: SessionId, bounds: Bounds) -> None:
        """See `Bookie.begin_session`."""
        await self.store.begin_session(ledger, session, bounds)

    async def fence(self, ledger: LedgerId, session: SessionId) -> FenceResult:
        """See `Bookie.fence`."""
        result: FenceResult = await outcome_of(lambda done: self.store.fence(ledger, session, done))
        return result

    async def read(self, ledger: LedgerId, entry: EntryId, minimum_session: SessionId) -> StoredEntry:
        """See `Bookie.read`."""
        with self.store.view() as view:
            return view.entry(ledger, entry, minimum_session).copy()

    async def read_range(
        self, ledger: LedgerId, first: EntryId, last: EntryId, minimum_session: SessionId, bytes_max: int
    ) -> RangeRead:
        """See `Bookie.read_range`."""
        with self.store.view() as view:
            entries, scanned_to = view.range(ledger, first, last, minimum_session, bytes_max)
            return RangeRead([(entry, stored.copy()) for entry, stored in entries], scanned_to)

    async def present(
        self, ledger: LedgerId, first: EntryId, last: EntryId, minimum_session: SessionId
    ) -> list[tuple[EntryId, EntryId]]:
        """See `Bookie.present`."""
        runs: list[tuple[EntryId, EntryId]] = await outcome_of(
            lambda done: self.store.present(ledger, first, last, minimum_session, done)
        )
        return runs

    async def last_add_confirmed(self, ledger: LedgerId) -> Confirmed:
        """See `Bookie.last_add_confirmed`."""
        return self.store.last_add_confirmed(ledger)

    async def shrink(self, ledger: LedgerId, end: EntryId) -> None:
        """See `Bookie.shrink`."""
        await self.store.shrink(ledger, end)
        await self.store.remove(ledger)

    async def delete(self, ledger: LedgerId) -> None:
        """See `Bookie.delete`."""
        await self.store.delete(ledger)
        await self.store.remove(ledger)
