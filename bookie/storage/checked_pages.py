"""The pages of a bookie's store that were checked, and those found damaged.

LMDB trusts its pages: it does not find a record that a damaged page hides, and may end the process, or hide more
records, when it writes to such a page.

1. Until every page was checked once since the start (`walk`), or if one of them is damaged, the store believes LMDB
   that it has no such record only if the pages that lead to the place of the record are sound.
2. The end of a ledger, and the promises for it, are looked up so before the store uses them the first time.
3. A walk goes from leaf to leaf in the order of the keys, some pages at a time. Between two slices it holds no read
   transaction, so LMDB reuses freed pages. Pages that are written meanwhile are LMDB's own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from gnomon.bookie.ids import ENTRY_MAX, NO_ENTRY, LedgerId
from gnomon.bookie.storage import removal
from gnomon.bookie.storage.removal import ENTRY_KEY, NUMBER
from gnomon.runtime.disk.page_tree import DamagedKeys, KeyGap, PageTree, page_tree
from gnomon.runtime.world import Environment

DAMAGES_MAX: Final = 1_000
"""Damaged pages that are kept; a file with more of them is of no use."""


class Damage(NamedTuple):
    """A damaged page, and the keys of a database that it may have."""

    problem: str
    of_entries: bool
    low: bytes
    high: bytes | None

    @property
    def ledgers(self) -> tuple[LedgerId, LedgerId | None] | None:
        """The first and the last ledger that may have entries there, None for no last one; None for another page."""
        if not self.of_entries:
            return None
        return _ledger_of(self.low), None if self.high is None else _ledger_of(self.high)

    def covers(self, key: bytes) -> bool:
        """Whether the page may have the entry with this key."""
        return self.of_entries and self.low <= key and (self.high is None or key < self.high)


def _ledger_of(key: bytes) -> LedgerId:
    return LedgerId(NUMBER.unpack(key[: NUMBER.size].ljust(NUMBER.size, b"\0"))[0])


class CheckedPages:
    """The pages of one store; see the module's invariants."""

    def __init__(self, environment: Environment, entries: str, states: str) -> None:
        """Nothing is checked yet.

        Args:
            entries, states: the names of the store's databases.
        """
        self._environment = environment
        self._entries, self._states = entries, states
        self._page_bytes = 0
        self._next: tuple[str, bytes] | None = (states, b"")
        """The place of the walk; None after its end."""
        self.damages: list[Damage] = []
        """The damaged pages, in the order in which they were found."""

    @property
    def walked(self) -> bool:
        """Whether the walk has ended."""
        return self._next is None

    @property
    def sound(self) -> bool:
        """Whether every page was checked, and none is damaged."""
        return self._next is None and not self.damages

    def gap(self, transaction: Any, key: bytes) -> KeyGap:
        """The keys of stored entries next to a key, on the word of sound pages.

        Args:
            transaction: a read transaction that is open. Entries that were added after its beginning may be in the
                answer.

        Raises:
            DamagedKeys: the pages are damaged.
        """
        return self._checked(transaction, self._entries, key)

    def check_ledger(self, transaction: Any, ledger: LedgerId) -> str | None:
        """Checks the pages that have the last entry of a ledger and the facts about it; returns a damage in words."""
        try:
            for kind in (removal.PROMISED, removal.BOUND, removal.GOING):
                self._checked(transaction, self._states, removal.state_key(kind, ledger))
            self._checked(transaction, self._entries, ENTRY_KEY.pack(ledger, ENTRY_MAX))
        except DamagedKeys as damage:
            return str(damage)
        return None

    def damage_at(self, ledger: LedgerId, entry: int) -> str | None:
        """The damage of a page that may have an entry, in words, if it was found; None if no such page was."""
        if entry <= NO_ENTRY:
            return None
        key = ENTRY_KEY.pack(ledger, entry)
        return next((damage.problem for damage in self.damages if damage.covers(key)), None)

    def hidden_ledgers(self, ledgers: Sequence[LedgerId], known: int) -> set[LedgerId]:
        """Those of some ledgers, which are in order, that may have entries in damaged pages, except the first `known`
        pages."""
        hidden: set[LedgerId] = set()
        for damage in self.damages[known:]:
            if damage.ledgers is not None:
                first, last = damage.ledgers
                end = len(ledgers) if last is None else bisect_right(ledgers, last)
                hidden.update(ledgers[bisect_left(ledgers, first) : end])
        return hidden

    def walk(self, pages_max: int) -> None:
        """Goes on with the walk for about so many pages; called again and again until `walked`."""
        pages = 0
        with self._environment.read() as transaction:
            while self._next is not None and pages < pages_max:
                database, key = self._next
                try:
                    leaf = self._tree(transaction, database).check_leaf(key)
                    pages, following = pages + max(1, leaf.pages), leaf.next_key
                except DamagedKeys as damage:
                    self._found(database, damage)
                    pages, following = pages + 1, damage.high
                if following is not None and following > key:
                    self._next = database, following
                else:
                    self._next = (self._entries, b"") if database == self._states else None

    def _checked(self, transaction: Any, database: str, key: bytes) -> KeyGap:
        try:
            return self._tree(transaction, database).gap(key)
        except DamagedKeys as damage:
            self._found(database, damage)
            raise

    def _tree(self, transaction: Any, database: str) -> PageTree:
        self._page_bytes = self._page_bytes or transaction.stat(self._environment.databases[database])["psize"]
        return page_tree(self._environment.read_bytes, transaction.id(), self._page_bytes, database)

    def _found(self, database: str, damage: DamagedKeys) -> None:
        found = Damage(str(damage), database == self._entries, damage.low, damage.high)
        if found not in self.damages and len(self.damages) < DAMAGES_MAX:
            self.damages.append(found)
