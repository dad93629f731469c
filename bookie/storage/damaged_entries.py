"""The entries of a bookie that a read has found damaged, until other bookies' copies of them are stored.

1. A damaged entry counts as missing: the auditor copies it again (`repair`), once its ledger was reported.
2. A ledger is to be reported once for each entry that is found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gnomon.bookie.ids import EntryId, LedgerId


class DamagedEntries:
    """Those of one store."""

    def __init__(self) -> None:
        self._entries: dict[LedgerId, set[EntryId]] = {}
        self._unreported: set[LedgerId] = set()

    def found(self, ledger: LedgerId, entry: EntryId) -> None:
        """A read found an entry damaged."""
        entries = self._entries.setdefault(ledger, set())
        if entry not in entries:
            entries.add(entry)
            self._unreported.add(ledger)

    def replaced(self, ledger: LedgerId, entries: Iterable[EntryId]) -> None:
        """Copies of entries were stored."""
        left = self._entries.get(ledger)
        if left is not None:
            left.difference_update(entries)
            if not left:
                self.forget(ledger)

    def forget(self, ledger: LedgerId) -> None:
        """The ledger has no damaged entry any more, or is deleted."""
        self._entries.pop(ledger, None)
        self._unreported.discard(ledger)

    def of(self, ledger: LedgerId) -> Collection[EntryId]:
        """The damaged entries of a ledger."""
        return self._entries.get(ledger, ())

    @property
    def unreported(self) -> list[LedgerId]:
        """The ledgers to report."""
        return sorted(self._unreported)

    def reported(self, ledger: LedgerId) -> None:
        """A ledger was reported to the auditor."""
        self._unreported.discard(ledger)
