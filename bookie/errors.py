"""Errors of ledgers and their entries; every error here is a `LedgerError`.

`outcome_unknown` is true if an append that failed with this error may still be in the ledger.
"""

from __future__ import annotations

from gnomon.bookie.ids import SESSION_MAX, EntryId, LedgerId, SessionId


class LedgerError(Exception):
    """A ledger operation was not done; the text says why and what to do."""

    outcome_unknown: bool = False

    def __init__(self, text: str = "", advice: str = "") -> None:
        """`advice` is for programs; other callers, such as the command line, have advice of their own."""
        super().__init__(f"{text}: {advice}" if advice else text)
        self.text = text


class Fenced(LedgerError):
    """A bookie has promised a higher session, or the ledger is deleted."""

    outcome_unknown = True

    def __init__(self, ledger: LedgerId, session: SessionId, promised: SessionId) -> None:
        why = "it was deleted" if promised == SESSION_MAX else f"session {promised} has claimed it since"
        super().__init__(f"session {session} of ledger {ledger} is fenced: {why}")
        self.ledger, self.session, self.promised = ledger, session, promised

    @property
    def deleted(self) -> bool:
        """Whether the ledger is deleted, so that none of it can be acknowledged or read any more."""
        return self.promised == SESSION_MAX


class BookieLeaving(LedgerError):
    """The bookie is about to end and did not accept the request; it still answers entries that it accepted before."""

    def __init__(self, text: str = "the bookie is about to end and takes no entries: give them to another one") -> None:
        super().__init__(text)


class NoSuchEntry(LedgerError):
    """An explicit negative answer: this bookie does not have the entry and never confirmed it."""

    def __init__(self, ledger: LedgerId, entry: EntryId) -> None:
        super().__init__(f"no such entry: {entry} of ledger {ledger}")
        self.ledger, self.entry = ledger, entry


class EntryUnknown(LedgerError):
    """The entry is not here, but this bookie may have lost synced data, so this is not a negative answer."""

    def __init__(self, ledger: LedgerId, entry: EntryId, why: str) -> None:
        super().__init__(f"entry {entry} of ledger {ledger} is not here, and may have been lost: {why}")
        self.ledger, self.entry, self.why = ledger, entry, why


class EntryAltered(LedgerError):
    """The add has other bytes than the copy of the same session that is here and confirmed: nothing was stored."""

    def __init__(self, ledger: LedgerId, entry: EntryId) -> None:
        super().__init__(
            f"entry {entry} of ledger {ledger} is confirmed, and is here with other bytes: two writers use one session"
        )
        self.ledger, self.entry = ledger, entry


class DigestMismatch(LedgerError):
    """A stored entry does not match its digest: bits flipped, or somebody without the password wrote it."""

    def __init__(self, ledger: LedgerId, entry: EntryId) -> None:
        super().__init__(f"entry {entry} of ledger {ledger} is damaged: its digest does not match; read another copy")
        self.ledger, self.entry = ledger, entry


class EntryShrunk(LedgerError):
    """The entry was deleted by a shrink."""

    def __init__(self, ledger: LedgerId, entry: EntryId, start_entry: EntryId) -> None:
        super().__init__(f"entry {entry} of ledger {ledger} was shrunk away: its first entry is now {start_entry}")
        self.ledger, self.entry, self.start_entry = ledger, entry, start_entry


class EntryNotConfirmed(LedgerError):
    """The entry is above the last add confirmed: whether it will exist is undecided."""

    def __init__(self, ledger: LedgerId, entry: EntryId, last_add_confirmed: EntryId) -> None:
        super().__init__(
            f"entry {entry} of ledger {ledger} is not confirmed, the last add confirmed is {last_add_confirmed}",
            "wait for it with wait_for_lac",
        )
        self.ledger, self.entry, self.last_add_confirmed = ledger, entry, last_add_confirmed


class NotEnoughBookies(LedgerError):
    """Too few bookies exist, or answered, to create, claim or read a ledger; nothing was created or appended."""


class EntryTooLarge(LedgerError):
    """The payload is too long for one entry; nothing was appended, and the handle stays usable."""


class SessionUnknown(LedgerError):
    """The metadata has not given the session of a request to a bookie, or could not be asked; nothing was done."""


class InvalidCall(LedgerError):
    """A peer sent an invalid request to a bookie; nothing was done."""


class LedgerExists(LedgerError):
    """O_CREATE of a name that is taken."""


class NoSuchLedger(LedgerError):
    """No ledger has this name, or the open one was deleted, with all of its entries."""


class UnreadableRecord(LedgerError, ValueError):
    """This version cannot read the metadata record of a ledger."""


class WrongDigestType(LedgerError):
    """The ledger has another digest type than the one given; nothing was read, written or fenced."""


class UnauthorizedAccess(LedgerError):
    """The password is not the ledger's; nothing was read, written or fenced."""


class LedgerFenced(LedgerError):
    """Another writer has claimed the ledger; pending entries may or may not be in it."""

    outcome_unknown = True

    def __init__(self, text: str, promised: SessionId | None = None) -> None:
        """`promised`: the session that a bookie reported, if one did."""
        super().__init__(text)
        self.promised = promised


class LedgerSealed(LedgerError):
    """The ledger accepts no more appends."""


class LedgerClosed(LedgerError):
    """This handle was closed, or opened for reading only."""


class LedgerFailed(LedgerError):
    """A bookie could not store an entry; the handle accepts no more appends, opening the ledger again recovers it."""

    def __init__(self, text: str, *, outcome_unknown: bool) -> None:
        super().__init__(text)
        self.outcome_unknown = outcome_unknown


class ForeignDisk(LedgerError):
    """The bookie's disk and the metadata do not belong together."""
