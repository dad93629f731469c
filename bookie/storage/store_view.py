"""Zero-copy reading from a bookie's store: slices of LMDB's memory, valid until their read transaction ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from gnomon.bookie.entry import StoredEntry, decode_entry, session_of, verify_entry
from gnomon.bookie.errors import DigestMismatch, EntryUnknown, LedgerError, NoSuchEntry
from gnomon.bookie.ids import ANY_SESSION, ENTRY_MAX, NO_ENTRY, EntryId, LedgerId, SessionId
from gnomon.bookie.storage.checked_pages import CheckedPages
from gnomon.bookie.storage.damaged_entries import DamagedEntries
from gnomon.bookie.storage.removal import ENTRY_KEY
from gnomon.runtime.disk.commit import PAGE_ERRORS
from gnomon.runtime.disk.page_tree import DamagedKeys, KeyGap

_pack_key = ENTRY_KEY.pack


class StoreView:
    """One read transaction over the store."""

    __slots__ = ("_damaged", "_entries", "_gap", "_get", "_pages", "_read", "_transaction", "_why_absent")

    def __init__(
        self,
        read: AbstractContextManager[Any],
        entries: Any,
        why_absent: Callable[[LedgerId, EntryId], LedgerError],
        damaged: DamagedEntries,
        pages: CheckedPages,
    ) -> None:
        self._read, self._entries, self._why_absent, self._damaged = read, entries, why_absent, damaged
        self._pages = pages
        self._gap: KeyGap | None = None
        """The last proved gap between entries: a long range of missing entries is looked up once."""

    def __enter__(self) -> StoreView:
        self._transaction = self._read.__enter__()
        self._get = self._transaction.get
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._read.__exit__(kind, error, traceback)

    def entry(self, ledger: LedgerId, entry: EntryId, minimum_session: SessionId = ANY_SESSION) -> StoredEntry:
        """One entry with its header, digest checked; copies below `minimum_session` read as absent.

        Raises:
            NoSuchEntry, EntryUnknown, EntryShrunk, DigestMismatch.
        """
        value = self._found(ledger, entry)
        if value is not None:
            try:
                stored = decode_entry(ledger, entry, value)
            except DigestMismatch:
                self._damaged.found(ledger, entry)
                raise
            if stored.session >= minimum_session:
                return stored
        raise self._absent(ledger, entry, value is None)

    def _absent(self, ledger: LedgerId, entry: EntryId, is_missing: bool) -> LedgerError:
        """The error for an entry that is missing here, or of a lower session; `NoSuchEntry` on sound pages' word
        alone."""
        error = self._why_absent(ledger, entry)
        if not is_missing or self._pages.sound or type(error) is not NoSuchEntry:
            return error
        key, gap = _pack_key(ledger, entry), self._gap
        if gap is None or not (gap.before or b"") < key or (gap.after is not None and key >= gap.after):
            try:
                gap = self._pages.gap(self._transaction, key)
            except DamagedKeys as damage:
                return EntryUnknown(ledger, entry, f"this bookie's file is damaged: {damage}")
            if gap.here:
                return EntryUnknown(ledger, entry, "it is being added just now")
            self._gap = gap
        return error

    def _found(self, ledger: LedgerId, entry: EntryId) -> memoryview | None:
        try:
            value: memoryview | None = self._get(_pack_key(ledger, entry), None, self._entries)
        except PAGE_ERRORS as error:
            self._damaged.found(ledger, entry)
            raise EntryUnknown(ledger, entry, f"a page of this bookie's file is damaged ({error})") from error
        return value

    def range(
        self, ledger: LedgerId, first: EntryId, last: EntryId, minimum_session: SessionId, bytes_max: int
    ) -> tuple[list[tuple[EntryId, StoredEntry]], EntryId]:
        """The entries here among `first` to `last`, at least one and up to `bytes_max` bytes of them.

        Returns:
            The entries with their headers, and the first entry that was not examined: entries below it that are missing
                in the list are not here.

        Raises:
            EntryShrunk, EntryUnknown, DigestMismatch: about `first`; at a later entry the range ends before it.
        """
        found: list[tuple[EntryId, StoredEntry]] = []
        size_bytes = 0
        for entry in map(EntryId, range(first, last + 1)):
            try:
                stored = self.entry(ledger, entry, minimum_session)
            except NoSuchEntry:
                continue
            except LedgerError:
                if entry == first:
                    raise
                return found, entry
            size_bytes += len(stored.value)
            if found and size_bytes > bytes_max:
                return found, entry
            found.append((entry, stored))
        return found, EntryId(last + 1)

    def present(
        self, ledger: LedgerId, first: EntryId, last: EntryId, minimum_session: SessionId
    ) -> list[tuple[EntryId, EntryId]]:
        """The runs (from, to inclusive) of entries here among `first` to `last`, without those known to be damaged.

        Their payloads are not read.
        """
        damaged = self._damaged.of(ledger)
        runs: list[tuple[EntryId, EntryId]] = []
        start = end = first  # the current run, `end` exclusive
        with self._transaction.cursor(db=self._entries) as cursor:
            for key, value in cursor if cursor.set_range(_pack_key(ledger, first)) else ():
                at_ledger, entry = ENTRY_KEY.unpack(key)
                if at_ledger != ledger or entry > last:
                    break
                if session_of(value) < minimum_session or entry in damaged:
                    continue
                if entry != end:
                    if start < end:
                        runs.append((start, EntryId(end - 1)))
                    start = EntryId(entry)
                end = EntryId(entry + 1)
        if start < end:
            runs.append((start, EntryId(end - 1)))
        return runs

    def get(self, ledger: LedgerId, entry: EntryId, minimum_session: SessionId = ANY_SESSION) -> memoryview:
        """The payload of `entry`, as `entry` returns it; valid inside the block only."""
        value = self._found(ledger, entry)
        if value is not None:
            try:
                session, _, _, payload = verify_entry(ledger, entry, value)
            except DigestMismatch:
                self._damaged.found(ledger, entry)
                raise
            if session >= minimum_session:
                return payload
        raise self._absent(ledger, entry, value is None)

    def end(self, ledger: LedgerId) -> tuple[EntryId, int]:
        """The last entry here, and the payload bytes of the ledger up to the last undamaged one."""
        last, sound = end_of(self._transaction, self._entries, ledger)
        return last, 0 if sound is None else sound.length_bytes


def end_of(transaction: Any, entries: Any, ledger: LedgerId) -> tuple[EntryId, StoredEntry | None]:
    """The highest entry of a ledger, and the last undamaged one."""
    with transaction.cursor(db=entries) as cursor:
        at = cursor.prev() if cursor.set_range(_pack_key(ledger, ENTRY_MAX)) else cursor.last()
        last = NO_ENTRY
        while at:
            at_ledger, entry = ENTRY_KEY.unpack(cursor.key())
            if at_ledger != ledger:
                break
            last = EntryId(max(last, entry))
            try:
                return last, decode_entry(ledger, entry, memoryview(cursor.value()))
            except LedgerError:
                at = cursor.prev()  # a damaged entry confirms nothing; the LAC of the one before it is valid as well
        return last, None
