"""Bookies as ledger code sees them, and those that live in the same process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import trio

from gnomon.bookie.add_queue import Added
from gnomon.bookie.entry import StoredEntry
from gnomon.bookie.entry_store import EntryStore, FenceResult
from gnomon.bookie.errors import NotEnoughBookies
from gnomon.bookie.ids import BookieId, EntryId, LedgerId, Session
from gnomon.bookie.ledger_state import Confirmed
from gnomon.bookie.store_view import StoreView
from gnomon.metadata.client import Compare
from gnomon.runtime.outcome import outcome_of
from gnomon.runtime.world import Clock

T = TypeVar("T")

PRESENT_ENTRIES_MAX = 10_000
Copies = Sequence[tuple[EntryId, bytes]]
"""Entries and their stored values."""
Bounds = Sequence[tuple[EntryId, Session]]
"""First entry and session of each fragment of a record."""


class RangeRead(NamedTuple):
    """What a bookie has of a range: what is below `scanned_to` and not in `entries` is explicitly not there."""

    entries: list[tuple[EntryId, StoredEntry]]
    scanned_to: EntryId


class Bookie(Protocol):
    """A storage node. Any call may end with an error that is not an answer: the outcome is then unknown."""

    def add(
        self, ledger: LedgerId, entry: EntryId, session: Session, last_add_confirmed: EntryId, value: bytes, done: Added
    ) -> None:
        """Stores an encoded entry; `done(entry, error)` is called in the Trio thread, never before this returns."""

    def confirm(self, ledger: LedgerId, session: Session, last_add_confirmed: EntryId) -> None:
        """Tells the last add confirmed when there is no add for it to ride on."""

    async def put_copies(self, ledger: LedgerId, session: Session, copies: Copies) -> None:
        """Stores entries as another bookie has them, for a recovery or a repair under `session`.

        Raises:
            Fenced: a higher session has claimed the ledger, or wrote one of the entries; nothing was stored.
        """

    async def begin_session(self, ledger: LedgerId, session: Session, bounds: Bounds) -> None:
        """Removes the orphans that the record of `session` excludes; of a large ledger that takes a while.

        Raises:
            Fenced: a higher session was promised before, or meanwhile.
        """

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

    async def read_range(
        self, ledger: LedgerId, first: EntryId, last: EntryId, minimum_session: Session, bytes_max: int
    ) -> RangeRead:
        """Copies of the entries from `first` to `last` that are here, at least one and up to `bytes_max` bytes of them.

        Raises:
            LedgerError: nothing can be said about `first`, such as DigestMismatch, EntryShrunk or EntryUnknown.
        """

    async def present(
        self, ledger: LedgerId, first: EntryId, last: EntryId, minimum_session: Session
    ) -> list[tuple[EntryId, EntryId]]:
        """Which of the entries `first` to `last`, at most PRESENT_ENTRIES_MAX, are here: runs, both ends inclusive."""

    async def last_add_confirmed(self, ledger: LedgerId) -> Confirmed:
        """The highest last add confirmed this bookie has heard of."""

    async def wait_for_lac(self, ledger: LedgerId, entry: EntryId) -> Confirmed:
        """Waits for a last add confirmed of at least `entry`."""

    async def shrink(self, ledger: LedgerId, end: EntryId) -> None:
        """Removes the entries below `end` now."""

    async def delete(self, ledger: LedgerId) -> None:
        """Removes the ledger now."""

    def view(self) -> StoreView | None:
        """The store itself where it is in this process, else None."""


class Bookies(Protocol):
    """The bookies that a process knows, by the names that records use."""

    clock: Clock

    def get(self, name: BookieId) -> Bookie | None:
        """The bookie of this name, None where nobody ever heard of it; whether it answers is another question."""

    def available(self) -> Mapping[BookieId, str]:
        """Those that take entries now, each with its domain ("" where it says none)."""

    def known(self) -> Mapping[BookieId, str]:
        """All that belong to the cluster and stay, also those that are away."""

    def membership(self, names: Iterable[BookieId]) -> tuple[Compare, ...]:
        """What a transaction compares that names bookies in a record which did not name them before.

        It holds as long as these belong to the cluster, with the disks that are known here, and none is to leave. Else
        a bookie might be let go although a ledger needs it: whoever lets it go looks for such ledgers before.
        """

    def start_soon(self, run: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Runs work of an open ledger in the background, as long as this process lives."""


def known_bookie(bookies: Bookies, name: BookieId) -> Bookie:
    """A bookie by name.

    Raises:
        NotEnoughBookies: this process has never heard of it.
    """
    bookie = bookies.get(name)
    if bookie is None:
        raise NotEnoughBookies(f"bookie {name!r} is not known here: start it")
    return bookie


def ensemble_of(bookies: Bookies, names: Iterable[BookieId]) -> Mapping[BookieId, Bookie]:
    """The bookies of a fragment, in order; asked for before its record is written, see `Ledger.write_on`.

    Raises:
        NotEnoughBookies: this process has never heard of one of them.
    """
    return {name: known_bookie(bookies, name) for name in names}


class LocalBookies:
    """Bookies that live in this process, or were connected to by hand; all take entries."""

    def __init__(self, bookies: Mapping[BookieId, Bookie], clock: Clock, nursery: trio.Nursery) -> None:
        self.clock = clock
        self._bookies = bookies
        self._domains = dict.fromkeys(bookies, "")
        self._nursery = nursery

    def get(self, name: BookieId) -> Bookie | None:
        """See `Bookies.get`."""
        return self._bookies.get(name)

    def available(self) -> Mapping[BookieId, str]:
        """See `Bookies.available`."""
        return self._domains

    def known(self) -> Mapping[BookieId, str]:
        """See `Bookies.known`."""
        return self._domains

    def membership(self, names: Iterable[BookieId]) -> tuple[Compare, ...]:
        """See `Bookies.membership`: they go with this process."""
        return ()

    def start_soon(self, run: Callable[..., Awaitable[object]], *args: Any) -> None:
        """See `Bookies.start_soon`."""
        self._nursery.start_soon(run, *args)


class LocalBookie:
    """The bookie of this process: direct calls on its store."""

    def __init__(self, store: EntryStore) -> None:
        self.store = store
        self.add = store.add
        self.confirm = store.confirm
        self.view = store.view
        self.wait_for_lac = store.wait_for_lac

    async def put_copies(self, ledger: LedgerId, session: Session, copies: Copies) -> None:
        """See `Bookie.put_copies`."""
        await outcome_of(lambda done: self.store.put_copies(ledger, session, copies, done))

    async def begin_session(self, ledger: LedgerId, session: Session, bounds: Bounds) -> None:
        """See `Bookie.begin_session`."""
        await self.store.begin_session(ledger, session, bounds)

    async def fence(self, ledger: LedgerId, session: Session) -> FenceResult:
        """See `Bookie.fence`."""
        result: FenceResult = await outcome_of(lambda done: self.store.fence(ledger, session, done))
        return result

    async def read(self, ledger: LedgerId, entry: EntryId, minimum_session: Session) -> StoredEntry:
        """See `Bookie.read`."""
        with self.store.view() as view:
            return view.entry(ledger, entry, minimum_session).copy()

    async def read_range(
        self, ledger: LedgerId, first: EntryId, last: EntryId, minimum_session: Session, bytes_max: int
    ) -> RangeRead:
        """See `Bookie.read_range`."""
        with self.store.view() as view:
            entries, scanned_to = view.range(ledger, first, last, minimum_session, bytes_max)
            return RangeRead([(entry, stored.copy()) for entry, stored in entries], scanned_to)

    async def present(
        self, ledger: LedgerId, first: EntryId, last: EntryId, minimum_session: Session
    ) -> list[tuple[EntryId, EntryId]]:
        """See `Bookie.present`."""
        with self.store.view() as view:
            return view.present(ledger, first, last, minimum_session)

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
