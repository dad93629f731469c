"""Zero-copy views of a ledger's entries: slices of the LMDB memory of a bookie in this process."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from gnomon.bookie.bookie import ReadableStore
from gnomon.bookie.digest import Mac
from gnomon.bookie.errors import EntryNotConfirmed, EntryShrunk
from gnomon.bookie.ids import BookieId, EntryId, LedgerId
from gnomon.bookie.record import LedgerRecord


class ViewedLedger(Protocol):
    """A ledger handle, as views of its entries use it."""

    record: LedgerRecord
    last_add_confirmed: EntryId
    mac: Mac | None
    """Opens entries where the ledger has a keyed digest."""

    @property
    def id(self) -> LedgerId:
        """The ledger's id."""

    def store_view(self, name: BookieId) -> ReadableStore | None:
        """A new read transaction on the store of a bookie; None where the store is not in this process."""


def is_local(ledger: ViewedLedger) -> bool:
    """Whether every entry of a ledger is in the store of one bookie of this process."""
    names = ledger.record.bookies
    return len(names) == 1 and ledger.store_view(names[0]) is not None


class LocalViews:
    """One read transaction for views of many ledgers: LMDB has room for only some hundred readers at a time."""

    def __init__(self) -> None:
        self._stores: dict[BookieId, ReadableStore] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for store in self._stores.values():
            store.__exit__(kind, error, traceback)

    def of(self, ledger: ViewedLedger) -> LocalView | None:
        """A view that is valid until the block ends; None where no copy of the ledger is in this process."""
        for name in ledger.record.fragments[-1].bookies:
            store = self._stores.get(name)
            if store is None:
                view = ledger.store_view(name)
                if view is None:
                    continue
                store = self._stores[name] = view.__enter__()
            return LocalView(ledger, store)
        return None


class LocalView:
    """A ledger's entries in the memory of a bookie in this process."""

    __slots__ = ("_floor", "_ledger", "_minimum", "_view")

    def __init__(self, ledger: ViewedLedger, view: ReadableStore) -> None:
        self._ledger, self._view = ledger, view
        floor = ledger.record.fragments[-1]
        self._floor, self._minimum = floor.first_entry, floor.session

    def __enter__(self) -> LocalView:
        self._view.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._view.__exit__(kind, error, traceback)

    def payload(self, entry: EntryId) -> memoryview:
        """An entry's payload, digest checked; valid inside the `with` block only.

        Raises:
            EntryNotConfirmed, EntryShrunk, NoSuchEntry, EntryUnknown, DigestMismatch.
        """
        ledger = self._ledger
        if entry > ledger.last_add_confirmed:
            raise EntryNotConfirmed(ledger.id, entry, ledger.last_add_confirmed)
        if entry < ledger.record.start_entry:
            raise EntryShrunk(ledger.id, entry, ledger.record.start_entry)
        minimum = self._minimum if entry >= self._floor else ledger.record.fragment_of(entry).session
        payload = self._view.get(ledger.id, entry, minimum)
        return payload if ledger.mac is None else ledger.mac.open(entry, payload)

    def end(self) -> tuple[EntryId, int]:
        """The last entry that this bookie has, confirmed or not, and the payload bytes of all entries up to it."""
        return self._view.end(self._ledger.id)
