"""What a bookie remembers of one ledger between calls: whom it has promised what, and how far it is confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import trio

from gnomon.bookie.errors import Fenced
from gnomon.bookie.ids import EntryId, LedgerId, Session


class Confirmed(NamedTuple):
    """A last add confirmed, and the session of the writer that told it.

    Who reads has to know that session's record or a later one: by an older one it might take an orphan for the entry.
    """

    entry: EntryId
    session: Session


class LedgerState:
    """One ledger; its store sets `promised`, `kept_from` and `bound`, and reads all of it where it is asked often."""

    __slots__ = ("_confirmed_more", "bound", "confirmed", "confirmed_in", "kept_from", "promised")

    def __init__(
        self, promised: Session, kept_from: EntryId, confirmed: Confirmed, bound: tuple[Session, EntryId]
    ) -> None:
        """A ledger as it is stored.

        Args:
            promised: adds of lower sessions are refused.
            kept_from: what lies below was given up.
            confirmed: by the newest entry that can be read.
            bound: the last session whose bounds are known, and the first entry of its own.
        """
        self.promised = promised
        self.kept_from = kept_from
        self.bound = bound
        self.confirmed, self.confirmed_in = confirmed
        self._confirmed_more: trio.Event | None = None

    def excluded(
        self, ledger: LedgerId, copies: Sequence[tuple[EntryId, bytes]], written_by: Sequence[Session]
    ) -> Fenced | None:
        """Why some of these copies are orphans by the last bounds heard of; None where none is."""
        bound, first_entry = self.bound
        for (entry, _), session in zip(copies, written_by, strict=True):
            if session < bound and entry >= first_entry:
                return Fenced(ledger, session, bound)
        return None

    @property
    def last_add_confirmed(self) -> Confirmed:
        """The highest that was told."""
        return Confirmed(self.confirmed, self.confirmed_in)

    def confirm(self, session: Session, last_add_confirmed: EntryId) -> None:
        """A writer has told one that is higher than all before."""
        self.confirmed, self.confirmed_in = last_add_confirmed, session
        if self._confirmed_more is not None:
            self._confirmed_more.set()
            self._confirmed_more = None

    async def wait_for_lac(self, entry: EntryId) -> Confirmed:
        """Waits until at least `entry` is confirmed; what is then."""
        while self.confirmed < entry:
            if self._confirmed_more is None:
                self._confirmed_more = trio.Event()
            await self._confirmed_more.wait()
        return self.last_add_confirmed
