"""What can go wrong with ledgers and their entries; every error here is a `LedgerError`.

`outcome_unknown` says whether an append that ended so may still turn out to be in the ledger.
"""

from __future__ import annotations

from gnomon.bookie.ids import EntryId, LedgerId, Session


class LedgerError(Exception):
    """A ledger operation was not done; the text says why and what to do."""

    outcome_unknown: bool = False

    def __init__(self, text: str = "", advice: str = "") -> None:
        """`advice` is what a program can do; other callers, such as the command line, have their own."""
        super().__init__(f"{text}: {advice}" if advice else text)
        self.text = text


class Fenced(LedgerError):
    """A bookie has promised a higher session."""

    outcome_unknown = True

    def __init__(self, ledger: LedgerId, session: Session, promised: Session) -> None:
        super().__init__(f"session {session} of ledger {ledger} is fenced: session {promised} has claimed it since")
        self.ledger, self.session, self.promised = ledger, session, promised


class BookieLeaving(LedgerError):
    """The bookie is about to end and took nothing of this; what it was given before is answered."""

    def __init__(self, text: str = "the bookie is about to end and takes no entries: give them to another one") -> None:
        super().__init__(text)


class NoSuchEntry(LedgerError):
    """An explicit negative answer: this bookie does not have the entry and never confirmed it."""

    def __init__(self, ledger: LedgerId, entry: EntryId) -> None:
        super().__init__(f"no such entry: {entry} of ledger {ledger}")
        self.ledger, self.entry = ledger, entry


class EntryUnknown(LedgerError):
    """The entry is not here, but this bookie may have lost synced data, so that is no negative answer."""

    def __init__(self, ledger: LedgerId, entry: EntryId, why: str) -> None:
        super().__init__(f"entry {entry} of ledger {ledger} is not here, and may have been lost: {why}")
        self.ledger, self.entry, self.why = ledger, entry, why


class DigestMismatch(LedgerError):
    """A stored entry does not match its digest: bits flipped, or somebody without the password wrote it."""

    def __init__(self, ledger: LedgerId, entry: EntryId) -> None:
        super().__init__(f"entry {entry} of ledger {ledger} is damaged: its digest does not match; read another copy")
        self.ledger, self.entry = ledger, entry


class EntryShrunk(LedgerError):
    """The entry was given up by a shrink."""

    def __init__(self, ledger: LedgerId, entry: EntryId, start_entry: EntryId) -> None:
        super().__init__(f"entry {entry} of ledger {ledger} was shrunk away: its first entry is now {start_entry}")
        self.ledger, self.entry, self.start_entry = ledger, entry, start_entry


class EntryNotConfirmed(LedgerError):
    """The entry lies above the last add confirmed: whether it will exist is not decided."""

    def __init__(self, ledger: LedgerId, entry: EntryId, last_add_confirmed: EntryId) -> None:
        super().__init__(
            f"entry {entry} of ledger {ledger} is not confirmed, the last add confirmed is {last_add_confirmed}",
            "wait for it with wait_for_lac",
        )
        self.ledger, self.entry, self.last_add_confirmed = ledger, entry, last_add_confirmed


class NotEnoughBookies(LedgerError):
    """Too few bookies are there, or answered, to create, claim or read a ledger; nothing was created or appended."""


class EntryTooLarge(LedgerError):
    """What was to be appended is too long for one entry; nothing was appended, and the ledger goes on."""


class InvalidCall(LedgerError):
    """What a peer asked of a bookie makes no sense; nothing was done."""


class LedgerExists(LedgerError):
    """O_CREATE of a name that is taken."""


class NoSuchLedger(LedgerError):
    """No ledger has this name."""


class UnreadableRecord(LedgerError, ValueError):
    """What the metadata has of a ledger is nothing that this version can read."""


class UnauthorizedAccess(LedgerError):
    """The password is not the ledger's; nothing was read, written or fenced."""


class LedgerFenced(LedgerError):
    """Another writer has claimed the ledger; what was pending may or may not be in it."""

    outcome_unknown = True

    def __init__(self, text: str, promised: Session | None = None) -> None:
        """`promised`: the session by which a bookie told it."""
        super().__init__(text)
        self.promised = promised


class LedgerSealed(LedgerError):
    """The ledger takes no more appends."""


class LedgerClosed(LedgerError):
    """This handle was closed, or opened for reading only."""


class LedgerFailed(LedgerError):
    """A bookie could not store an entry; the handle takes no more appends, opening the ledger anew recovers it."""

    def __init__(self, text: str, *, outcome_unknown: bool) -> None:
        super().__init__(text)
        self.outcome_unknown = outcome_unknown


class ForeignDisk(LedgerError):
    """The bookie's disk and the metadata do not belong together."""
