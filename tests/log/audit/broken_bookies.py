"""Bookies that seem to have lost or changed copies: the answers of real ones, with faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gnomon.bookie.bookie import Bookie, Bookies, RangeRead
from gnomon.bookie.entry import StoredEntry, decode_entry, encode_entry
from gnomon.bookie.errors import DigestMismatch, EntryShrunk, EntryUnknown
from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId


class Broken(NamedTuple):
    """The fault of one copy: a kind of `CopyFaultKind`, or "shrunk"."""

    bookie: BookieId
    ledger: LedgerId
    entry: EntryId
    kind: str


class BrokenBookies:
    """The bookies of a process; `faults` may change while they are read."""

    def __init__(self, sound: Bookies, *faults: Broken) -> None:
        self.sound = sound
        self.clock = sound.clock
        self.faults = list(faults)
        self.calls: list[tuple[BookieId, EntryId, EntryId]] = []
        """The ranges that were read."""
        self.before_read: Callable[[BookieId], None] = lambda _: None

    def get(self, name: BookieId) -> Bookie | None:
        found = self.sound.get(name)
        return None if found is None else BrokenBookie(self, name, found)  # type: ignore[return-value]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sound, name)


class BrokenBookie:
    """One bookie of `BrokenBookies`."""

    def __init__(self, bookies: BrokenBookies, name: BookieId, sound: Bookie) -> None:
        self._bookies, self._name, self._sound = bookies, name, sound

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sound, name)

    async def read_range(
        self, ledger: LedgerId, first: EntryId, last: EntryId, minimum_session: SessionId, bytes_max: int
    ) -> RangeRead:
        bookies = self._bookies
        bookies.before_read(self._name)
        bookies.calls.append((self._name, first, last))
        faults = {
            fault.entry: fault.kind for fault in bookies.faults if (fault.bookie, fault.ledger) == (self._name, ledger)
        }
        if faults.get(first) == "damaged":
            raise DigestMismatch(ledger, first)
        if faults.get(first) == "unknown":
            raise EntryUnknown(ledger, first, "the disk was replaced")
        if faults.get(first) == "shrunk":
            raise EntryShrunk(ledger, first, EntryId(first + 1))
        found = await self._sound.read_range(ledger, first, last, minimum_session, bytes_max)
        stops = [entry for entry, kind in faults.items() if entry >= first and kind not in ("missing", "different")]
        stop = EntryId(min([found.scanned_to, *stops]))
        entries = [
            (entry, other(ledger, entry, stored) if faults.get(entry) == "different" else stored)
            for entry, stored in found.entries
            if entry < stop and faults.get(entry) != "missing"
        ]
        return RangeRead(entries, stop)


def other(ledger: LedgerId, entry: EntryId, stored: StoredEntry) -> StoredEntry:
    """A copy with another payload of the same length, and a digest that matches."""
    payload = bytes(stored.payload[:-1]) + bytes([stored.payload[-1] ^ 1])
    value = encode_entry(ledger, entry, stored.session, stored.last_add_confirmed, stored.length_bytes, (payload,))
    return decode_entry(ledger, entry, memoryview(value))
