"""The protocols that a ledger client uses: `Bookie`, one storage node in this or another process, and `Bookies`, all
storage nodes that the process knows; with the values that their methods take and return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

from gnomon.bookie.entry import StoredEntry
from gnomon.bookie.errors import LedgerError, NotEnoughBookies
from gnomon.bookie.ids import ANY_SESSION, BookieId, EntryId, LedgerId, SessionId
from gnomon.metadata.client import Compare
from gnomon.runtime.world import Clock, WorldError

PRESENT_ENTRIES_MAX = 10_000
Copies = Sequence[tuple[EntryId, bytes]]
"""Entries and their stored values."""
Bounds = Sequence[tuple[EntryId, SessionId]]
"""First entry and session of each fragment of a record."""
StoreError: TypeAlias = LedgerError | WorldError
Added: TypeAlias = Callable[[EntryId, StoreError | None], None]
"""Called with the entry, and None or the error, when an add is done."""


class Confirmed(NamedTuple):
    """A last add confirmed, and the session of the writer that confirmed it.

    A reader needs the record of that session or a later one: with an older record it may take an orphan for the entry.
    """

    entry: EntryId
    session: SessionId


class FenceResult(NamedTuple):
    """The end of a fenced ledger on one bookie; both entries are NO_ENTRY if the bookie has no entry of the ledger."""

    last_entry: EntryId
    last_add_confirmed: EntryId
    bound: SessionId = ANY_SESSION
    """The last session whose bounds were applied here (`begin_session`)."""


class ReadableStore(Protocol):
    """One read transaction over the store of a bookie of this process."""

    def __enter__(self) -> Self:
        """Begins the transaction."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends the transaction: payloads are not valid any more."""

    def get(self, ledger: LedgerId, entry: EntryId, minimum_session: SessionId) -> memoryview:
        """The payload of an entry, digest checked; copies below `minimum_session` read as absent.

        Raises:
            NoSuchEntry, EntryUnknown, EntryShrunk, DigestMismatch.
        """

    def end(self, ledger: LedgerId) -> tuple[EntryId, int]:
        """The last stored entry, and the payload bytes of the ledger up to the last undamaged one."""


class RangeRead(NamedTuple):
    """The entries of a range on a bookie; an entry below `scanned_to` that is not in `entries` is explicitly absent."""

    entries: list[tuple[EntryId, StoredEntry]]
    scanned_to: EntryId


class Bookie(Protocol):
    """A storage node. Any call may end with an error that is not an answer: the outcome is then unknown."""

    def add(
        self,
        ledger: LedgerId,
        entry: EntryId,
        session: SessionId,
        last_add_confirmed: EntryId,
        value: bytes,
        done: Added,
    ) -> None:
        """Stores an encoded entry; `done(entry, error)` is called in the Trio thread, never before this returns."""

    def confirm(self, ledger: LedgerId, session: SessionId, last_add_confirmed: EntryId) -> None:
        """Sends the last add confirmed when there is no add to carry it."""

    async def put_copies(self, ledger: LedgerId, session: SessionId, copies: Copies) -> None:
        """Stores entries as another bookie has them, for a recovery or a repair under `session`.

        Raises:
            Fenced: a higher session has claimed the ledger, or wrote one of the entries; nothing was stored.
        """

    async def begin_session(self, ledger: LedgerId, session: SessionId, bounds: Bounds) -> None:
        """Removes the orphans that the record of `session` excludes; takes a while for a large ledger.

        Raises:
            Fenced: a higher session was promised before, or meanwhile.
        """

    async def fence(self, ledger: LedgerId, session: SessionId) -> FenceResult:
        """Durably promises to refuse adds below `session`.

        Raises:
            Fenced: a higher session was promised before.
        """

    async def read(self, ledger: LedgerId, entry: EntryId, minimum_session: SessionId) -> StoredEntry:
        """A copy of one entry.

        Raises:
            NoSuchEntry: explicitly not here, or only below `minimum_session`.
            LedgerError: any other error, which is not a negative answer.
        """

    async def read_range(
        self, ledger: LedgerId, first: EntryId, last: EntryId, minimum_session: SessionId, bytes_max: int
    ) -> RangeRead:
        """Copies of the entries from `first` to `last` that are here, at least one and up to `bytes_max` bytes of them.

        Raises:
            LedgerError: the state of `first` is unknown or bad, such as DigestMismatch, EntryShrunk or EntryUnknown.
        """

    async def present(
        self, ledger: LedgerId, first: EntryId, last: EntryId, minimum_session: SessionId
    ) -> list[tuple[EntryId, EntryId]]:
        """The runs, both ends inclusive, of entries that are here among `first` to `last` (at most
        PRESENT_ENTRIES_MAX); all of them are durable."""

    async def last_add_confirmed(self, ledger: LedgerId) -> Confirmed:
        """The highest last add confirmed that this bookie knows."""

    async def wait_for_lac(self, ledger: LedgerId, entry: EntryId) -> Confirmed:
        """Waits for a last add confirmed of at least `entry`."""

    async def shrink(self, ledger: LedgerId, end: EntryId) -> None:
        """Removes the entries below `end` now."""

    async def delete(self, ledger: LedgerId) -> None:
        """Removes the ledger now."""

    def view(self) -> ReadableStore | None:
        """A new read transaction on the store, if the store is in this process; else None."""


class Bookies(Protocol):
    """The bookies that a process knows, by their names in records."""

    clock: Clock

    def get(self, name: BookieId) -> Bookie | None:
        """The bookie of this name, None for an unknown name; it need not be alive."""

    def available(self) -> Mapping[BookieId, str]:
        """The bookies that accept entries now, each with its domain ("" for none)."""

    def known(self) -> Mapping[BookieId, str]:
        """All members of the cluster that are not leaving, including those that are away."""

    def absent(self) -> Set[BookieId]:
        """The members of the cluster that are away, including those that are leaving."""

    def membership(self, names: Iterable[BookieId]) -> tuple[Compare, ...]:
        """The comparisons for a transaction that adds these bookies to a record.

        The comparisons hold as long as the bookies are members of the cluster, with the disks that are known here, and
        none is leaving. Without them a bookie could be dismissed although a ledger needs it: a dismissal searches for
        such ledgers first, and would miss one that is written later.
        """

    def start_soon(self, run: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Runs work of an open ledger in the background, as long as this process lives."""


def known_bookie(bookies: Bookies, name: BookieId) -> Bookie:
    """A bookie by name.

    Raises:
        NotEnoughBookies: the name is unknown to this process.
    """
    bookie = bookies.get(name)
    if bookie is None:
        raise NotEnoughBookies(f"bookie {name!r} is not known here: start it")
    return bookie


def ensemble_of(bookies: Bookies, names: Iterable[BookieId]) -> Mapping[BookieId, Bookie]:
    """The bookies of a fragment, in order; call it before writing the fragment's record, see `Ledger.write_on`.

    Raises:
        NotEnoughBookies: one of the names is unknown to this process.
    """
    return {name: known_bookie(bookies, name) for name in names}
