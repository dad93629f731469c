"""A bookie as ledger code sees it, and the one that lives in the same process."""

from __future__ import annotations

from typing import Protocol

import trio

from gnomon.bookie.entry import StoredEntry
from gnomon.bookie.entry_store import Added, EntryStore, FenceResult, StoreError, StoreView
from gnomon.bookie.ids import EntryId, LedgerId, Session


class Bookie(Protocol):
    """A storage node. Any call may end with an error that is not an answer: the outcome is then unknown."""

    def add(
        self, ledger: LedgerId, entry: EntryId, session: Session, last_add_confirmed: EntryId, value: bytes, done: Added
    ) -> None:
        """Stores an encoded entry; `done(entry, error)` is called in the Trio thread, never before this returns."""

    def confirm(self, ledger: LedgerId, last_add_confirmed: EntryId) -> None:
        """Tells the last add confirmed when there is no add for it to ride on."""

    async def fence(self, ledger: LedgerId, session: Session) -> FenceResult:
        """Durably promises to refuse adds below `session`.

        Raises:
            Fenced: a higher session was promised before.
        """

    async def read(self, ledger: LedgerId, entry: EntryId, minimum_session: Session) -> StoredEntry:
        """A copy of one entry.

        Raises:
            NoSuchEntry: explicitly not here, or only below `minimum_session`.
            LedgerError: any other; no negative answer.
        """

    async def last_add_confirmed(self, ledger: LedgerId) -> EntryId:
        """The highest last add confirmed this bookie has heard of."""

    async def wait_for_lac(self, ledger: LedgerId, entry: EntryId) -> EntryId:
        """Waits for a last add confirmed of at least `entry`."""

    async def shrink(self, ledger: LedgerId, end: EntryId) -> None:
        """Removes the entries below `end` now."""

    async def delete(self, ledger: LedgerId) -> None:
        """Removes the ledger now."""

    def view(self) -> StoreView | None:
        """The store itself where it is in this process, else None."""


class LocalBookie:
    """The bookie of this process: direct calls on its store."""

    def __init__(self, store: EntryStore) -> None:
        self.store = store
        self.add = store.add
        self.confirm = store.confirm
        self.view = store.view
        self.wait_for_lac = store.wait_for_lac

    async def fence(self, ledger: LedgerId, session: Session) -> FenceResult:
        """See `Bookie.fence`."""
        answered = trio.Event()
        answer: list[tuple[FenceResult | None, StoreError | None]] = []

        def done(result: FenceResult | None, error: StoreError | None) -> None:
            answer.append((result, error))
            answered.set()

        self.store.fence(ledger, session, done)
        await answered.wait()
        result, error = answer[0]
        if error is not None:
            raise error
        assert result is not None, "a fence ended with neither result nor error"
        return result

    async def read(self, ledger: LedgerId, entry: EntryId, minimum_session: Session) -> StoredEntry:
        """See `Bookie.read`."""
        with self.store.view() as view:
            stored = view.entry(ledger, entry, minimum_session)
            return stored._replace(payload=memoryview(bytes(stored.payload)))

    async def last_add_confirmed(self, ledger: LedgerId) -> EntryId:
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
