"""Reads the copies of a ledger at one bookie, run by run, for an audit.

1. Every copy is asked for at its own bookie; a copy is never taken in place of that of another bookie.
2. An error about an entry is a fault of that entry, and reading goes on after it. An error that is no answer makes the
   bookie silent for the whole audit, after it was asked a second time: nothing waits for it again.
3. A cursor holds at most RUN_BYTES of copies, or one larger copy, and some RUN_ENTRIES faults.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from gnomon.bookie.bookie import Bookie, Bookies, RangeRead
from gnomon.bookie.copies.compared_copies import ABSENT, Copy, CopyFault, CopyFaultKind
from gnomon.bookie.errors import DigestMismatch, EntryShrunk, EntryUnknown, LedgerError
from gnomon.bookie.ids import FIRST_ENTRY, BookieId, EntryId, LedgerId, SessionId
from gnomon.runtime.world import WorldError

RUN_BYTES: Final = 1 << 20
RUN_ENTRIES: Final = 512
"""The most entries of one call: decoding one takes some 3 us of a turn of the event loop."""
AGAIN_SECONDS: Final = 1.0
"""Pause before a bookie that gave no answer is asked a second time."""
T = TypeVar("T")


@dataclass(slots=True)
class SilentBookies:
    """The bookies that gave no answer to an audit."""

    reasons: dict[BookieId, str] = field(default_factory=dict)
    unread: dict[BookieId, set[str]] = field(default_factory=dict)
    """By bookie the names of the ledgers of which not every copy there was read."""

    async def ask(self, bookies: Bookies, name: BookieId, call: Callable[[Bookie], Awaitable[T]]) -> T | None:
        """The answer of a bookie to a call; None if it is silent, or becomes silent because a second call fails, too.

        Raises:
            LedgerError: the answer is an error.
        """
        if name in self.reasons:
            return None
        bookie = bookies.get(name)
        if bookie is None:
            self.reasons[name] = "it is no member of the cluster"
            return None
        try:
            return await call(bookie)
        except WorldError:
            await bookies.clock.sleep(AGAIN_SECONDS)
        try:
            return await call(bookie)
        except WorldError as error:
            self.reasons[name] = str(error)
            return None

    def skip(self, bookie: BookieId, ledger: str) -> None:
        """Copies of a ledger at a silent bookie are not read."""
        self.unread.setdefault(bookie, set()).add(ledger)


class CopyCursor:
    """The copies of one fragment at one bookie, in the order of entries."""

    def __init__(
        self, bookies: Bookies, silent: SilentBookies, bookie: BookieId, ledger: LedgerId, minimum_session: SessionId
    ) -> None:
        """Copies below `minimum_session` count as absent."""
        self.bookie = bookie
        self.known_to = FIRST_ENTRY
        """The copies of the entries below it are known; `take` returns them."""
        self._bookies, self._silent = bookies, silent
        self._ledger, self._minimum_session = ledger, minimum_session
        self._copies: dict[EntryId, Copy] = {}

    @property
    def silent(self) -> bool:
        """Whether the bookie gives no answers."""
        return self.bookie in self._silent.reasons

    def take(self, entry: EntryId) -> Copy:
        """The copy of an entry below `known_to`, or the reason why it does not count; once for each entry."""
        return self._copies.pop(entry, ABSENT)

    async def fill(self, first: EntryId, last: EntryId) -> None:
        """Reads the next run of copies, from `first` on up to `last`; those before were taken."""
        self.known_to = first
        self._copies.clear()  # those that are left are of entries that the bookie need not store
        while self.known_to <= last and not self.silent and len(self._copies) < RUN_ENTRIES:
            at = self.known_to
            end = EntryId(min(last, at + RUN_ENTRIES - 1))
            try:
                answer = await self._read(at, end)
            except EntryShrunk as error:
                self._fault(at, max(at + 1, min(error.start_entry, end + 1)), error)
            except LedgerError as error:
                self._fault(at, at + 1, error)
            else:
                if answer is not None:
                    self._copies.update(answer.entries)
                    self.known_to = EntryId(max(answer.scanned_to, at + 1))
                return

    async def _read(self, first: EntryId, last: EntryId) -> RangeRead | None:
        arguments = (self._ledger, first, last, self._minimum_session, RUN_BYTES)
        return await self._silent.ask(self._bookies, self.bookie, lambda bookie: bookie.read_range(*arguments))

    def _fault(self, first: EntryId, end: int, error: LedgerError) -> None:
        fault = _fault_of(error)
        self._copies.update((EntryId(entry), fault) for entry in range(first, end))
        self.known_to = EntryId(end)


def _fault_of(error: LedgerError) -> CopyFault:
    match error:
        case DigestMismatch():
            return CopyFault(CopyFaultKind.DAMAGED, "its digest does not match")
        case EntryShrunk():
            return CopyFault(CopyFaultKind.MISSING, "the bookie has deleted it with the entries before it")
        case EntryUnknown():
            return CopyFault(CopyFaultKind.UNKNOWN, error.why)
    return CopyFault(CopyFaultKind.UNKNOWN, error.text)
