"""The state of one ledger in a bookie's memory: the session promised, and the last add confirmed."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.bookie.bookie import Confirmed
from gnomon.bookie.errors import Fenced
from gnomon.bookie.ids import EntryId, LedgerId, SessionId
from gnomon.runtime.signal import Signal


class StoredLedger:
    """One ledger; the store sets `promised`, `kept_from` and `bound`, and reads attributes directly on hot paths."""

    __slots__ = ("_confirmed_more", "bound", "confirmed", "confirmed_in", "hidden", "kept_from", "promised")

    def __init__(
        self,
        promised: SessionId,
        kept_from: EntryId,
        confirmed: Confirmed,
        bound: tuple[SessionId, EntryId],
        hidden: str | None = None,
    ) -> None:
        """A ledger as it is stored.

        Args:
            promised: adds of lower sessions are refused.
            kept_from: entries below this one are deleted.
            confirmed: the last add confirmed in the newest readable entry.
            bound: the last session whose bounds are known, and the first entry of that session.
            hidden: why its last entries, or facts about it, may be hidden by a damaged page; None if they are not.
        """
        self.promised = promised
        self.kept_from = kept_from
        self.bound = bound
        self.hidden = hidden
        self.confirmed, self.confirmed_in = confirmed
        self._confirmed_more = Signal()

    def fenced(self, ledger: LedgerId, session: SessionId) -> Fenced | None:
        """The refusal of entries from a session below the promised one; None for any other session."""
        return Fenced(ledger, session, self.promised) if session < self.promised else None

    def excluded(
        self, ledger: LedgerId, copies: Sequence[tuple[EntryId, bytes]], written_by: Sequence[SessionId]
    ) -> Fenced | None:
        """The refusal if one of these copies is an orphan by the last known bounds; None if none is."""
        bound, first_entry = self.bound
        for (entry, _), session in zip(copies, written_by, strict=True):
            if session < bound and entry >= first_entry:
                return Fenced(ledger, session, bound)
        return None

    @property
    def last_add_confirmed(self) -> Confirmed:
        """The highest last add confirmed that a writer has sent."""
        return Confirmed(self.confirmed, self.confirmed_in)

    def confirm(self, session: SessionId, last_add_confirmed: EntryId) -> None:
        """Takes a last add confirmed that is higher than all before."""
        self.confirmed, self.confirmed_in = last_add_confirmed, session
        self._confirmed_more.notify()

    async def wait_for_lac(self, entry: EntryId) -> Confirmed:
        """Waits until at least `entry` is confirmed; returns the last add confirmed then."""
        while self.confirmed < entry:
            await self._confirmed_more.wait()
        return self.last_add_confirmed
