"""The entries of one bookie in LMDB: added in synced groups, fenced by session, read without a copy.

1. An add is answered after the commit that holds it; so is a fence, and every add accepted before it.
2. The highest promised session of a ledger is durable before a fence answers, and in the same commit as the first add
   that implies it; adds of lower sessions are refused from the moment a promise is made.
3. A copy whose session is lower than the reader's minimum reads as absent.
4. A store that may have lost synced entries never answers `NoSuchEntry`.
5. A full disk turns the store read-only with its reason; one add a second tries whether there is room again. After a
   failed write nothing is written any more and `on_failed` is told.

The hot path is `add`: it queues, and one operation per group takes whatever is queued when it runs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeAlias

import trio

from gnomon.bookie import removal
from gnomon.bookie.entry import StoredEntry, decode_entry, verify_entry
from gnomon.bookie.errors import EntryShrunk, EntryUnknown, Fenced, LedgerError, NoSuchEntry
from gnomon.bookie.ids import ANY_SESSION, ENTRY_MAX, NO_ENTRY, SESSION_MAX, EntryId, LedgerId, Session
from gnomon.runtime.world import Clock, DiskFailed, DiskFull, Environment, WorldError

ENTRIES: Final = "entries"
STATES: Final = "ledgers"
DATABASES: Final = (ENTRIES, STATES)
"""The named databases that the store's environment must be opened with."""

RETRY_SECONDS: Final = 1.0
GROUP_BYTES_MAX: Final = 4 << 20
"""Bytes that one operation adds, so that a transaction stays within the room that its environment keeps ahead."""

StoreError: TypeAlias = LedgerError | WorldError
Added: TypeAlias = Callable[[EntryId, StoreError | None], None]

_pack_key = removal.ENTRY_KEY.pack


class FenceResult(NamedTuple):
    """What a bookie holds of a ledger once it is fenced; both NO_ENTRY where it has nothing."""

    last_entry: EntryId
    last_add_confirmed: EntryId


class _LedgerState:
    """What the store remembers of a ledger between calls."""

    __slots__ = ("confirmed", "confirmed_more", "kept_from", "promised")

    def __init__(self, promised: Session, kept_from: EntryId, confirmed: EntryId) -> None:
        self.promised = promised
        self.kept_from = kept_from
        self.confirmed = confirmed
        self.confirmed_more: trio.Event | None = None


class _Group:
    """Adds and promises that went into one commit together."""

    __slots__ = ("adds", "promises", "taken")

    def __init__(self) -> None:
        self.taken = False
        self.adds: list[tuple[tuple[bytes, bytes], EntryId, Added]] = []
        self.promises: list[tuple[LedgerId, Session]] = []


class EntryStore:
    """Entries of many ledgers in one LMDB environment; see the module's invariants."""

    def __init__(
        self,
        environment: Environment,
        clock: Clock,
        *,
        may_have_lost: str | None = None,
        on_failed: Callable[[DiskFailed], None] | None = None,
    ) -> None:
        """Opens the store in an environment that was opened with `DATABASES`.

        Args:
            may_have_lost: why synced entries may be missing here (a new disk under an old name), None normally.
            on_failed: told once when the device failed a write; the node must stop itself.
        """
        self._environment = environment
        self._clock = clock
        self._entries: Any = environment.databases[ENTRIES]
        self._states: Any = environment.databases[STATES]
        self._may_have_lost = may_have_lost
        self._on_failed = on_failed
        self._ledgers: dict[LedgerId, _LedgerState] = {}
        # Appended to by the loop and emptied by whoever runs operations; a deque makes that safe without a lock.
        self._queue: deque[tuple[tuple[bytes, bytes], EntryId, Added]] = deque()
        # Promises that are not known to be durable: every operation writes them all, the loop alone changes the list.
        self._promises: list[tuple[LedgerId, Session]] = []
        self._group_submitted = False
        self._retry_at = 0.0
        self.read_only: str | None = None
        """Why adds are refused for now, None while they are taken."""
        self.on_group: Callable[[], None] | None = None
        """Told when a whole group of adds was answered: replies that it made ready can leave together."""

    # --- adding ---

    def add(
        self, ledger: LedgerId, entry: EntryId, session: Session, last_add_confirmed: EntryId, value: bytes, done: Added
    ) -> None:
        """Queues an encoded entry; `done(entry, error)` is called after the commit, never before this returns.

        Errors handed to `done`: Fenced, DiskFull, DiskFailed. An entry that is there already is replaced.
        """
        state = self._ledgers.get(ledger)
        if state is None:
            state = self._load(ledger)
        if session != state.promised or self.read_only is not None:
            refusal = self._refusal(ledger, session, state)
            if refusal is not None:
                self._environment.submit(_nothing, lambda _result, error: done(entry, error or refusal))
                return
        if last_add_confirmed > state.confirmed:
            self._confirm(state, last_add_confirmed)
        self._queue.append(((_pack_key(ledger, entry), value), entry, done))
        if not self._group_submitted:
            self._submit_group()

    def _refusal(self, ledger: LedgerId, session: Session, state: _LedgerState) -> StoreError | None:
        if session < state.promised:
            return Fenced(ledger, session, state.promised)
        if self.read_only is not None:
            now = self._clock.monotonic()
            if now < self._retry_at:
                return DiskFull(self.read_only)
            self._retry_at = now + RETRY_SECONDS
        if session > state.promised:
            # Queued before the add, so that whichever operation takes the add takes the promise as well.
            self._promise(ledger, session, state)
        return None

    def _promise(self, ledger: LedgerId, session: Session, state: _LedgerState) -> None:
        state.promised = session
        self._promises.append((ledger, session))

    def _submit_group(self) -> None:
        self._group_submitted = True
        group = _Group()
        self._environment.submit(
            lambda transaction: self._write(group, transaction),
            lambda _result, error: self._written(group, error),
        )

    def _write(self, group: _Group, transaction: Any, bytes_max: float = GROUP_BYTES_MAX) -> None:
        self._take(group, bytes_max)
        adds = group.adds
        group.promises = self._promises.copy()
        for ledger, session in group.promises:
            removal.save_promise(transaction, self._states, ledger, session)
        if len(adds) > 1:
            with transaction.cursor(db=self._entries) as cursor:
                cursor.putmulti([add[0] for add in adds])
        elif adds:
            key, value = adds[0][0]
            transaction.put(key, value, db=self._entries)

    def _take(self, group: _Group, bytes_max: float = GROUP_BYTES_MAX) -> None:
        group.taken = True
        # Lowered before the queue is emptied: whoever appends later sees it and submits another operation.
        self._group_submitted = False
        queue, adds = self._queue, group.adds
        left_bytes = bytes_max
        while queue:
            add = queue.popleft()
            adds.append(add)
            left_bytes -= len(add[0][1])
            if left_bytes <= 0:
                return

    def _written(self, group: _Group, error: WorldError | None) -> None:
        self._report(group, error)
        if self._queue and not self._group_submitted:
            self._submit_group()  # the group was full

    def _report(self, group: _Group, error: WorldError | None) -> None:
        if error is None:
            for promise in group.promises:
                if promise in self._promises:
                    self._promises.remove(promise)
            if group.adds:
                self.read_only = None
            for _, entry, done in group.adds:
                done(entry, None)
            self._tell_group()
            return
        if not group.taken:
            self._take(group, math.inf)  # the transaction could not even begin: what waited for it is refused with it
        self._failed(error)
        for _, entry, done in group.adds:
            done(entry, error)
        self._tell_group()

    def _tell_group(self) -> None:
        if self.on_group is not None:
            self.on_group()

    def _failed(self, error: WorldError) -> None:
        if isinstance(error, DiskFull):
            self.read_only = str(error)
            self._retry_at = self._clock.monotonic() + RETRY_SECONDS
        elif isinstance(error, DiskFailed) and self._on_failed is not None:
            told, self._on_failed = self._on_failed, None
            told(error)

    # --- fencing ---

    def fence(
        self, ledger: LedgerId, session: Session, done: Callable[[FenceResult | None, StoreError | None], None]
    ) -> None:
        """Promises to refuse adds below `session`; `done` is called once that is durable, after all earlier adds.

        Fencing again with the same session is allowed. Errors handed to `done`: Fenced, DiskFull, DiskFailed.
        """
        state = self._ledgers.get(ledger) or self._load(ledger)
        if session < state.promised:
            refusal = Fenced(ledger, session, state.promised)
            self._environment.submit(_nothing, lambda _result, error: done(None, error or refusal))
            return
        self._promise(ledger, session, state)
        group = _Group()

        def write(transaction: Any) -> FenceResult:
            self._write(group, transaction, math.inf)  # every add accepted before the fence, however many bytes
            return self._last(transaction, ledger)

        def written(result: FenceResult | None, error: WorldError | None) -> None:
            self._written(group, error)
            done(result, error)

        self._environment.submit(write, written)

    def _last(self, transaction: Any, ledger: LedgerId) -> FenceResult:
        last, sound = _end(transaction, self._entries, ledger)
        return FenceResult(last, NO_ENTRY if sound is None else sound.last_add_confirmed)

    def _load(self, ledger: LedgerId) -> _LedgerState:
        with self._environment.read() as transaction:
            promised = removal.read_number(transaction, self._states, removal.PROMISED, ledger)
            kept_from = removal.read_number(transaction, self._states, removal.GOING, ledger)
            confirmed = self._last(transaction, ledger).last_add_confirmed
        if kept_from == ENTRY_MAX:
            promised = SESSION_MAX  # its deletion was under way when the node stopped
        state = _LedgerState(Session(promised), EntryId(kept_from), confirmed)
        self._ledgers[ledger] = state
        return state

    # --- reading ---

    def view(self) -> StoreView:
        """A consistent view for a `with` block that does not await; payloads are valid inside the block only."""
        return StoreView(self, self._environment.read(), self._entries)

    def why_absent(self, ledger: LedgerId, entry: EntryId) -> LedgerError:
        """The error for an entry that a view does not have."""
        state = self._ledgers.get(ledger) or self._load(ledger)
        if entry < state.kept_from:
            return EntryShrunk(ledger, entry, state.kept_from)
        if self._may_have_lost is not None:
            return EntryUnknown(ledger, entry, self._may_have_lost)
        return NoSuchEntry(ledger, entry)

    def last_add_confirmed(self, ledger: LedgerId) -> EntryId:
        """The highest last add confirmed that any add or `confirm` has carried here."""
        return (self._ledgers.get(ledger) or self._load(ledger)).confirmed

    def confirm(self, ledger: LedgerId, last_add_confirmed: EntryId) -> None:
        """An explicit last add confirmed, from a writer with nothing to add; kept in memory only."""
        state = self._ledgers.get(ledger) or self._load(ledger)
        if last_add_confirmed > state.confirmed:
            self._confirm(state, last_add_confirmed)

    def _confirm(self, state: _LedgerState, last_add_confirmed: EntryId) -> None:
        state.confirmed = last_add_confirmed
        if state.confirmed_more is not None:
            state.confirmed_more.set()
            state.confirmed_more = None

    async def wait_for_lac(self, ledger: LedgerId, entry: EntryId) -> EntryId:
        """Waits until the last add confirmed here is at least `entry`, and returns it."""
        state = self._ledgers.get(ledger) or self._load(ledger)
        while state.confirmed < entry:
            if state.confirmed_more is None:
                state.confirmed_more = trio.Event()
            await state.confirmed_more.wait()
        return state.confirmed

    # --- removing ---

    async def shrink(self, ledger: LedgerId, end: EntryId) -> None:
        """Gives up the entries below `end`: unreadable when it returns, removed by `remove`.

        Raises:
            DiskFull, DiskFailed: as from a commit.
        """
        state = self._ledgers.get(ledger) or self._load(ledger)
        if end <= state.kept_from:
            return
        states = self._states
        await self._environment.commit(lambda transaction: removal.mark_range(transaction, states, ledger, end))
        state.kept_from = max(state.kept_from, end)

    async def delete(self, ledger: LedgerId) -> None:
        """Gives up a whole ledger: no add is taken from now on; its entries are removed by `remove`.

        Raises:
            DiskFull, DiskFailed: as from a commit.
        """
        (self._ledgers.get(ledger) or self._load(ledger)).promised = SESSION_MAX
        await self.shrink(ledger, ENTRY_MAX)

    async def remove(self, ledger: LedgerId) -> int:
        """Removes what was given up of a ledger, chunk by chunk between the adds; returns how many entries.

        Raises:
            DiskFull, DiskFailed: as from a commit; what is left is removed by a later call, also after a restart.
        """
        databases = (self._entries, self._states, ledger)
        removed = 0
        while True:
            count = await self._environment.commit(lambda transaction: removal.remove_chunk(transaction, *databases))
            removed += count
            if count < removal.CHUNK_ENTRIES and await self._environment.commit(
                lambda transaction: removal.remove_mark(transaction, *databases)
            ):
                break
        state = self._ledgers.get(ledger)
        if state is not None and state.kept_from == ENTRY_MAX:
            del self._ledgers[ledger]
        return removed

    def given_up(self) -> list[LedgerId]:
        """Ledgers of which something is still to be removed."""
        with self._environment.read() as transaction:
            return [ledger for ledger, _end in removal.marked_ranges(transaction, self._states)]

    def ledgers(self) -> list[LedgerId]:
        """Every ledger of which something is stored here."""
        with self._environment.read() as transaction:
            return removal.stored_ledgers(transaction, self._entries, self._states)

    def file_bytes(self) -> int:
        """Size of the data file on disk."""
        return self._environment.file_bytes()


class StoreView:
    """One read transaction over the store."""

    __slots__ = ("_entries", "_get", "_read", "_store", "_transaction")

    def __init__(self, store: EntryStore, read: AbstractContextManager[Any], entries: Any) -> None:
        self._store, self._read, self._entries = store, read, entries

    def __enter__(self) -> StoreView:
        self._transaction = self._read.__enter__()
        self._get = self._transaction.get
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._read.__exit__(kind, error, traceback)

    def entry(self, ledger: LedgerId, entry: EntryId, minimum_session: Session = ANY_SESSION) -> StoredEntry:
        """One entry with its header, digest checked; copies below `minimum_session` read as absent.

        Raises:
            NoSuchEntry, EntryUnknown, EntryShrunk, DigestMismatch.
        """
        value = self._get(_pack_key(ledger, entry), None, self._entries)
        if value is not None:
            stored = decode_entry(ledger, entry, value)
            if stored.session >= minimum_session:
                return stored
        raise self._store.why_absent(ledger, entry)

    def get(self, ledger: LedgerId, entry: EntryId, minimum_session: Session = ANY_SESSION) -> memoryview:
        """The payload of `entry`, as `entry` gives it; valid inside the block only."""
        value = self._get(_pack_key(ledger, entry), None, self._entries)
        if value is not None:
            session, _, _, payload = verify_entry(ledger, entry, value)
            if session >= minimum_session:
                return payload
        raise self._store.why_absent(ledger, entry)

    def end(self, ledger: LedgerId) -> tuple[EntryId, int]:
        """The last entry that is here, and the payload bytes of the ledger up to the last undamaged one."""
        last, sound = _end(self._transaction, self._entries, ledger)
        return last, 0 if sound is None else sound.length_bytes


def _end(transaction: Any, entries: Any, ledger: LedgerId) -> tuple[EntryId, StoredEntry | None]:
    """The highest entry of a ledger, and what the last undamaged one holds."""
    with transaction.cursor(db=entries) as cursor:
        at = cursor.prev() if cursor.set_range(_pack_key(ledger, ENTRY_MAX)) else cursor.last()
        last = NO_ENTRY
        while at:
            at_ledger, entry = removal.ENTRY_KEY.unpack(cursor.key())
            if at_ledger != ledger:
                break
            last = EntryId(max(last, entry))
            try:
                return last, decode_entry(ledger, entry, memoryview(cursor.value()))
            except LedgerError:
                at = cursor.prev()  # damaged, it confirms nothing; what the one before it says holds as well
        return last, None


def _nothing(_transaction: Any) -> None:
    """Keeps a refusal behind the answers to the adds that came before it."""
