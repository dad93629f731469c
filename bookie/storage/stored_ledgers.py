"""The ledgers of one entry store: the state of each in memory, and those of them that still exist.

1. A state is loaded from the disk at its first use. It leaves the memory once its ledger is gone and its entries are
   removed, so that questions about deleted ledgers keep nothing.
2. A ledger is gone if it is not in the last list of all ledgers and its id is not newer than that list. Every session
   of it is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import trio

from gnomon.bookie.bookie import Confirmed
from gnomon.bookie.ids import ANY_SESSION, ENTRY_MAX, NO_ENTRY, SESSION_MAX, EntryId, LedgerId, SessionId
from gnomon.bookie.storage import removal
from gnomon.bookie.storage.checked_pages import CheckedPages
from gnomon.bookie.storage.store_view import end_of
from gnomon.bookie.storage.stored_ledger import StoredLedger
from gnomon.metadata.client import Revision
from gnomon.runtime.world import Environment

LEDGERS_PER_TURN: Final = 500
"""Listing ledgers yields to other tasks after this many: finding one takes some 3 us."""


class StoredLedgers:
    """The ledgers of one store; see the module's invariants."""

    def __init__(self, environment: Environment, entries: Any, states: Any, pages: CheckedPages) -> None:
        """No ledger is known to be gone.

        Args:
            entries, states: the store's databases in the environment.
        """
        self._environment = environment
        self._entries = entries
        self._states = states
        self._pages = pages
        self.known: dict[LedgerId, StoredLedger] = {}
        """The states in memory."""
        self._owned: Collection[LedgerId] = ()
        self._owned_as_of = Revision(0)

    def get(self, ledger: LedgerId) -> StoredLedger:
        """The state of a ledger; the empty one for a ledger without stored data."""
        return self.known.get(ledger) or self._load(ledger)

    def _load(self, ledger: LedgerId) -> StoredLedger:
        with self._environment.read() as transaction:
            hidden = None if self._pages.sound else self._pages.check_ledger(transaction, ledger)
            promised = removal.read_number(transaction, self._states, removal.PROMISED, ledger)
            kept_from = removal.read_number(transaction, self._states, removal.GOING, ledger)
            bound = removal.read_bound(transaction, self._states, ledger)
            _, sound = end_of(transaction, self._entries, ledger)
            confirmed = Confirmed(NO_ENTRY, ANY_SESSION)
            if sound is not None:
                confirmed = Confirmed(sound.last_add_confirmed, sound.session)
        if kept_from == ENTRY_MAX or self.is_gone(ledger):
            promised = SESSION_MAX  # ENTRY_MAX: the node stopped during the deletion of the ledger
        state = StoredLedger(SessionId(promised), EntryId(kept_from), confirmed, bound, hidden)
        self.known[ledger] = state
        return state

    # --- existence ---

    def owned(self, ledgers: Collection[LedgerId], as_of: Revision) -> None:
        """Reports that these were all ledgers at this revision of the metadata: other ledgers up to it are deleted."""
        self._owned, self._owned_as_of = ledgers, as_of
        gone = [each for each in self.known.keys() - ledgers if self.is_gone(each)]
        for ledger in set(gone).difference(self.given_up() if gone else ()):
            del self.known[ledger]

    def is_gone(self, ledger: LedgerId) -> bool:
        """Whether the ledger was deleted, as far as the last list says."""
        return ledger <= self._owned_as_of and ledger not in self._owned

    def removed(self, ledger: LedgerId) -> None:
        """The deleted entries of a ledger are removed: if it was deleted whole, its state leaves the memory.

        `owned` does so later if the call that removed them was cancelled.
        """
        state = self.known.get(ledger)
        if state is not None and state.kept_from == ENTRY_MAX:
            del self.known[ledger]

    # --- on the disk ---

    def given_up(self) -> list[LedgerId]:
        """Ledgers with deleted entries that are still to be removed."""
        with self._environment.read() as transaction:
            return [ledger for ledger, _end in removal.marked_ranges(transaction, self._states)]

    def some(self, first: LedgerId) -> list[LedgerId]:
        """Up to LEDGERS_PER_TURN ledgers with stored data from `first` on, in order."""
        with self._environment.read() as transaction:
            return removal.stored_ledgers(transaction, self._entries, self._states, first, LEDGERS_PER_TURN)

    async def all(self) -> list[LedgerId]:
        """Every ledger with stored data, in order; adds run while a long list is built."""
        found: list[LedgerId] = []
        while True:
            some = self.some(LedgerId(found[-1] + 1) if found else LedgerId(0))
            found += some
            if len(some) < LEDGERS_PER_TURN:
                return found
            await trio.lowlevel.checkpoint()
