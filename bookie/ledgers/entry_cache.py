"""A memory cache for entries of bookies in other processes: synchronous code searches a ledger in it.

    header = await read_from_memory(lambda: search(cache.view(ledger)))

1. An operation that needs a missing entry ends with `NotInMemory`; its driver (such as `read_from_memory`) loads the
   entry and runs the operation again.
2. An entry that an operation needed stays until the operation is over, even if the cache is full. So each run of the
   operation gets further than the one before. All other entries are evicted, oldest first, when space is needed.
3. The cache contains only confirmed entries, which never change. The digest and session of an entry, and its MAC if the
   ledger has MACs, were checked when it arrived from a bookie.
4. A failed read is remembered as long as an operation needs the entry; a later operation reads the entry again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import trio

from gnomon.bookie.bookie import Bookies
from gnomon.bookie.digest import MAC_BYTES
from gnomon.bookie.entry import HEADER_BYTES, StoredEntry
from gnomon.bookie.errors import EntryNotConfirmed, EntryShrunk, LedgerError
from gnomon.bookie.ids import EntryId, LedgerId
from gnomon.bookie.ledgers.copies import read_entry, read_run
from gnomon.bookie.ledgers.local_view import LocalView

if TYPE_CHECKING:
    from gnomon.bookie.ledgers.ledger import Ledger

T = TypeVar("T")

ENTRY_BYTES: Final = 500
"""Memory of an entry besides its payload: its key, its view, its place in the dictionary."""
AHEAD_BYTES_MIN: Final = 16 << 10
AHEAD_BYTES_MAX: Final = 1 << 20
"""Limit of a run read ahead, which doubles when a reader continues at its end: a search reads little, a lagging
consumer much."""
RUNS_MAX: Final = 1024
"""The number of remembered ends of runs."""

_Key = tuple[LedgerId, EntryId]


class NotInMemory(Exception):
    """An operation needs an entry that is not in memory: load it and run the operation again."""

    def __init__(self, cache: EntryCache, ledger: Ledger, entry: EntryId) -> None:
        super().__init__(f"entry {entry} of ledger {ledger.name!r} is not in memory")
        self.cache, self.ledger, self.entry = cache, ledger, entry


class EntryCache:
    """The entries in the memory of one process; see the module's invariants."""

    def __init__(self, bookies: Bookies, bytes_max: int) -> None:
        """A cache of `bytes_max` bytes, besides the entries held by operations under way."""
        self._bookies = bookies
        self._bytes_max = bytes_max
        self._entries: OrderedDict[_Key, memoryview | LedgerError] = OrderedDict()
        self.pins: dict[_Key, int] = {}
        """Entries that operations need, with the number of operations."""
        self._loads: dict[_Key, list[Callable[[], None]]] = {}
        self._runs: dict[_Key, int] = {}
        """By the end of a run read from bookies: the size that was requested for it, in bytes."""
        self.get = self._entries.get
        self.size_bytes = 0
        """The size of all cached entries."""
        self.reads = 0
        """The number of requests to bookies."""

    def view(self, ledger: Ledger) -> CachedView:
        """The cached part of a ledger; valid as long as the ledger is."""
        return CachedView(self, ledger)

    def keeper(self, ledger: Ledger) -> Callable[[EntryId, bytes], None]:
        """The callback by which a ledger adds its own appended entries, in stored form, once they are confirmed."""
        payload_at = HEADER_BYTES if ledger.mac is None else HEADER_BYTES + MAC_BYTES
        number = ledger.id

        def keep(entry: EntryId, value: bytes) -> None:
            self._put((number, entry), memoryview(value)[payload_at:])
            self._make_room()

        return keep

    def load(self, missing: NotInMemory, done: Callable[[], None]) -> _Key:
        """Reads an entry, and those after it, and keeps it until `release`; `done()` is called later, once."""
        key = (missing.ledger.id, missing.entry)
        self.pins[key] = self.pins.get(key, 0) + 1
        waiting = self._loads.get(key)
        if waiting is None:
            self._loads[key] = [done]
            self._bookies.start_soon(self._load, missing.ledger, key)
        else:
            waiting.append(done)
        return key

    def release(self, key: _Key) -> None:
        """Undoes one `load`."""
        self.pins[key] -= 1
        if not self.pins[key]:
            del self.pins[key]
            if isinstance(self._entries.get(key), LedgerError):
                del self._entries[key]
            self._make_room()

    async def end(self, ledger: Ledger) -> tuple[EntryId, int]:
        """The last entry that bookies know as confirmed, and the payload bytes of all up to it: see `LocalView.end`.

        Raises:
            LedgerError: it could not be read.
        """
        last = await ledger.ask_bookies()
        if last < ledger.start_entry:
            return last, ledger.length_bytes
        return last, (await read_entry(self._bookies, ledger.id, ledger.record, last)).length_bytes

    async def _load(self, ledger: Ledger, key: _Key) -> None:
        _, entry = key
        ahead_bytes = min(max(2 * self._runs.pop(key, 0), AHEAD_BYTES_MIN), AHEAD_BYTES_MAX, self._bytes_max // 4)
        try:
            run = await self._read(ledger, entry, ahead_bytes)
        except LedgerError as error:
            if key in self.pins and key not in self._entries:  # otherwise another run has brought it meanwhile
                self._entries[key] = error
        else:
            if len(run) > 1:
                run[0] = memoryview(bytes(run[0]))  # it may outlive the run, whose entries share one block of memory
            for number, payload in enumerate(run, entry):
                self._put((ledger.id, EntryId(number)), payload)
            if len(self._runs) >= RUNS_MAX:
                del self._runs[next(iter(self._runs))]
            # If much less arrived than requested, the rest came too late: over a slow link less is requested.
            in_time = 2 * sum(map(len, run)) >= ahead_bytes
            self._runs[ledger.id, EntryId(entry + len(run))] = ahead_bytes if in_time else ahead_bytes // 8
            self._make_room()
        for done in self._loads.pop(key):
            done()

    async def _read(self, ledger: Ledger, first: EntryId, bytes_max: int) -> list[memoryview]:
        self.reads += 1
        last, mac, record = ledger.last_add_confirmed, ledger.mac, ledger.record
        run: list[StoredEntry] = []
        while not run:
            try:
                run = await read_run(self._bookies, ledger.id, record, first, last, bytes_max)
            except LedgerError as error:
                # An auditor may have copied the entries to other bookies since the record was read.
                record = await ledger.newer_record(record, error)
        if mac is None:
            return [stored.payload for stored in run]
        payloads: list[memoryview] = []
        for number, stored in enumerate(run, first):
            try:
                payloads.append(mac.open(EntryId(number), stored.payload))
            except LedgerError:
                if not payloads:
                    raise
                break
        return payloads

    def _put(self, key: _Key, payload: memoryview) -> None:
        if isinstance(self._entries.get(key), memoryview):
            return
        self._entries[key] = payload
        self.size_bytes += len(payload) + ENTRY_BYTES

    def _make_room(self) -> None:
        entries, pins = self._entries, self.pins
        looked_at = 0
        while self.size_bytes > self._bytes_max and looked_at < len(entries):
            key = next(iter(entries))
            if key in pins:
                entries.move_to_end(key)
                looked_at += 1
                continue
            payload = entries.pop(key)
            assert isinstance(payload, memoryview), "an error is here only while it is needed"
            self.size_bytes -= len(payload) + ENTRY_BYTES


class CachedView:
    """The cached entries of a ledger: the counterpart of `LocalView` for bookies in other processes."""

    __slots__ = ("_cache", "_get", "_id", "_ledger")

    def __init__(self, cache: EntryCache, ledger: Ledger) -> None:
        self._cache, self._ledger = cache, ledger
        self._get, self._id = cache.get, ledger.id

    def __enter__(self) -> CachedView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    def payload(self, entry: EntryId) -> memoryview:
        """An entry's payload, digest checked; it may be kept.

        Raises:
            NotInMemory: load it, then ask again. EntryNotConfirmed, EntryShrunk, NoSuchEntry, DigestMismatch,
                NotEnoughBookies.
        """
        ledger = self._ledger
        if entry > ledger.last_add_confirmed:
            raise EntryNotConfirmed(ledger.id, entry, ledger.last_add_confirmed)
        if entry < ledger.record.start_entry:
            raise EntryShrunk(ledger.id, entry, ledger.record.start_entry)
        found = self._get((self._id, entry))
        if isinstance(found, memoryview):
            return found
        if found is None:
            raise NotInMemory(self._cache, ledger, entry)
        raise found.with_traceback(None)


EntryView: TypeAlias = LocalView | CachedView
"""The view for code that searches a ledger, wherever its bookies are."""


class Reading:
    """One operation under way: entries loaded for it stay in memory until it is closed."""

    __slots__ = ("_loaded", "waiting")

    def __init__(self) -> None:
        self._loaded: dict[_Key, EntryCache] = {}
        self.waiting = 0
        """Loads that are not done."""

    def load(self, missing: NotInMemory, done: Callable[[], None]) -> None:
        """Loads an entry, unless it was requested before; `done()` is called later."""
        if (missing.ledger.id, missing.entry) in self._loaded:
            return

        def loaded() -> None:
            self.waiting -= 1
            done()

        self.waiting += 1
        self._loaded[missing.cache.load(missing, loaded)] = missing.cache

    def close(self) -> None:
        """Ends the operation, completed or cancelled."""
        for key, cache in self._loaded.items():
            cache.release(key)
        self._loaded.clear()


async def read_from_memory(operation: Callable[[], T]) -> T:
    """Runs an operation until everything that it needs is in memory; it must be able to restart, or to continue.

    Raises:
        LedgerError: the operation's error for an entry that could not be read.
    """
    reading = Reading()
    try:
        while True:
            try:
                return operation()
            except NotInMemory as error:
                missing = error
            loaded = trio.Event()
            reading.load(missing, loaded.set)
            await loaded.wait()
    finally:
        reading.close()
