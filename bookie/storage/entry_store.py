"""The entries of one bookie in LMDB: added in synced groups, fenced by session, read without a copy.

1. An add is answered after its commit; a fence is answered after its own commit and that of every add accepted before.
2. A fence promises that adds of lower sessions are refused; so does the first add of a session that is higher than all
   before. The store refuses them from the moment of the promise. The promise is durable before the fence is answered,
   or no later than the add that made it.
3. A copy whose session is below the reader's minimum reads as absent. A copy from another bookie (`put_copies`) keeps
   the session that wrote it, and never replaces a copy of a higher session.
4. The promise of a deleted ledger stays until the metadata has confirmed the deletion: `StoredLedgers.owned` gets the
   list of the ledgers that exist. From then on the store refuses every session of an older ledger that is not in the
   list. So no add to a deleted ledger is acknowledged, even if its writer was paused for a long time.
5. A store that may have lost synced entries of a ledger never answers `NoSuchEntry` about it.
6. When the disk is full, the store refuses adds (`read_only` gives the reason). Once a second it accepts one, to check
   whether there is space again. After a failed write nothing is written any more, and `run` raises DiskFailed to stop
   the node.
7. A leaving store (its node is about to end) refuses further entries. Each refusal comes after the answers to all
   earlier requests.
8. A confirmed entry is never replaced by other bytes of the same session. (A copy of a lower session may be an orphan.)
9. An entry is reported as absent only on the word of sound pages (`checked_pages`). A ledger whose end may be hidden
   takes no entries and is not fenced. After damage was found, nothing is removed: LMDB might merge the damaged page.
10. A new session announces its bounds, the first entry of each fragment with the fragment's session (`begin_session`):
   from that entry on they exclude copies of lower sessions. A fence returns a session as `bound` only after the copies
   that the session's bounds exclude were removed. Once the store knows bounds, it stores no copy that they exclude.
11. An entry is listed as present only once it is durable: a repair that finds all copies in such lists deletes the
   report of missing copies. LMDB shows a transaction to readers before the last page of it is synced.

The hot path is `add`: it queues the entry, and one operation writes the entries that are queued when it runs
(`add_queue`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NoReturn

from gnomon.bookie.bookie import Added, Confirmed, FenceResult, StoreError
from gnomon.bookie.entry import HEADER_BYTES, decode_entry
from gnomon.bookie.errors import (
    BookieLeaving,
    EntryAltered,
    EntryShrunk,
    EntryUnknown,
    Fenced,
    LedgerError,
    NoSuchEntry,
)
from gnomon.bookie.ids import ENTRY_MAX, FIRST_ENTRY, NO_ENTRY, SESSION_MAX, EntryId, LedgerId, SessionId
from gnomon.bookie.storage import removal
from gnomon.bookie.storage.add_queue import AddQueue
from gnomon.bookie.storage.checked_pages import CheckedPages
from gnomon.bookie.storage.damaged_entries import DamagedEntries
from gnomon.bookie.storage.older_copy import OlderCopy
from gnomon.bookie.storage.received_copies import put_copies
from gnomon.bookie.storage.store_view import StoreView, end_of
from gnomon.bookie.storage.stored_ledger import StoredLedger
from gnomon.bookie.storage.stored_ledgers import StoredLedgers
from gnomon.runtime.disk.page_tree import DamagedKeys
from gnomon.runtime.outcome import outcome_of
from gnomon.runtime.world import Clock, Environment, Freeing, StoreReadOnly

ENTRIES: Final = "entries"
STATES: Final = "ledgers"
DATABASES: Final = (ENTRIES, STATES)
"""The named databases that the store's environment must be opened with."""

_pack_key = removal.ENTRY_KEY.pack


class EntryStore:
    """Entries of many ledgers in one LMDB environment; see the module's invariants."""

    def __init__(
        self,
        environment: Environment,
        clock: Clock,
        *,
        may_have_lost: OlderCopy | None = None,
        on_group: Callable[[], None] | None = None,
    ) -> None:
        """Opens the store in an environment that was opened with `DATABASES`.

        Args:
            may_have_lost: why synced entries may be missing here, and of which ledgers; None normally.
            on_group: called when a whole group of adds was reported: replies that it made ready can leave together.
        """
        self._environment = environment
        self._entries: Any = environment.databases[ENTRIES]
        self._states: Any = environment.databases[STATES]
        self._may_have_lost = may_have_lost
        self._leaving = False
        self.damaged = DamagedEntries()
        self.pages = CheckedPages(environment, ENTRIES, STATES)
        self.ledgers = StoredLedgers(environment, self._entries, self._states, self.pages)
        self.adds = AddQueue(environment, self._entries, self._states, clock, on_group)
        """Adds and promises on their way to disk."""

    @property
    def read_only(self) -> str | None:
        """The reason why adds are refused for now, None while they are accepted."""
        return self.adds.read_only

    @property
    def may_have_lost(self) -> OlderCopy | None:
        """Why synced entries may be missing here; None if none is."""
        return self._may_have_lost

    def repaired(self) -> None:
        """No synced entry is missing here any more."""
        self._may_have_lost = None

    async def run(self) -> NoReturn:
        """Waits for the device to fail. Once it has ended, nothing is written any more.

        Raises:
            DiskFailed: it failed a write: the node must stop.
        """
        try:
            await self.adds.until_failed()
        finally:
            self.adds.close()

    # --- adding ---

    def add(
        self,
        ledger: LedgerId,
        entry: EntryId,
        session: SessionId,
        last_add_confirmed: EntryId,
        value: bytes,
        done: Added,
    ) -> None:
        """Queues an encoded entry; `done(entry, error)` is called after the commit, never before this returns.

        Errors passed to `done`: Fenced, BookieLeaving, EntryAltered, DiskFull, DiskFailed. An existing entry that is
        not confirmed is replaced.
        """
        state = self.ledgers.known.get(ledger)
        if state is None:
            state = self.ledgers.get(ledger)
        adds = self.adds
        if session != state.promised or adds.read_only is not None or self._leaving or state.hidden is not None:
            refusal = self._refusal(ledger, session, state)
            if refusal is not None:
                adds.behind(lambda error: done(entry, error or refusal))
                return
            if session > state.promised:
                self._promise(ledger, session, state)
        if entry <= state.confirmed and self._altered(ledger, entry, session, value):
            altered = EntryAltered(ledger, entry)
            adds.behind(lambda error: done(entry, error or altered))
            return
        if last_add_confirmed > state.confirmed:
            state.confirm(session, last_add_confirmed)
        adds.waiting.append(((_pack_key(ledger, entry), value), entry, done))
        if not adds.submitted:
            adds.submit()

    def _altered(self, ledger: LedgerId, entry: EntryId, session: SessionId, value: bytes) -> bool:
        """Whether the store has the entry from the same session with another payload."""
        with self._environment.read() as transaction:
            found = transaction.get(_pack_key(ledger, entry), db=self._entries)
            if found is None:
                return False
            try:
                stored = decode_entry(ledger, entry, found)
            except LedgerError:
                return False  # a damaged copy may be replaced
            return stored.session == session and stored.payload != memoryview(value)[HEADER_BYTES:]

    def _refusal(self, ledger: LedgerId, session: SessionId, state: StoredLedger) -> StoreError | None:
        fenced = state.fenced(ledger, session)
        if fenced is not None:
            return fenced
        if self._leaving:
            return BookieLeaving()
        if state.hidden is not None:
            return StoreReadOnly(f"ledger {ledger} takes no entries here: {state.hidden}")
        return self.adds.refusal()

    def _promise(self, ledger: LedgerId, session: SessionId, state: StoredLedger) -> None:
        """Promises before an add is queued, so that the operation that takes the add also takes the promise."""
        state.promised = session
        self.adds.promise(ledger, session)

    async def leave(self) -> None:
        """Refuses entries from now on, before the node ends; returns when all accepted ones have been answered.

        Raises:
            DiskFull, DiskFailed: as from a commit; accepted entries were answered with that.
        """
        self._leaving = True
        await outcome_of(lambda done: self.adds.after(lambda _transaction: None, done))

    # --- copies and bounds ---

    def put_copies(
        self,
        ledger: LedgerId,
        session: SessionId,
        copies: Sequence[tuple[EntryId, bytes]],
        done: Callable[[None, StoreError | None], None],
    ) -> None:
        """Stores values as another bookie has them, for a recovery or a repair under `session`; `done` when durable.

        Errors passed to `done`: Fenced (also if a copy of a higher session is here, or a later session's bounds exclude
        one; nothing was stored then), DigestMismatch, BookieLeaving, DiskFull, DiskFailed.
        """
        state = self.ledgers.get(ledger)
        refusal: StoreError | None = None
        written_by: list[SessionId] = []
        try:
            written_by = [decode_entry(ledger, entry, memoryview(value)).session for entry, value in copies]
        except LedgerError as error:
            refusal = error
        refusal = (
            refusal
            or self._refusal(ledger, session, state)
            or state.excluded(ledger, copies, written_by)
            or self._damaged_at(ledger, [entry for entry, _ in copies])
        )
        if refusal is not None:
            self._refuse(refusal, done)
            return
        if session > state.promised:
            self._promise(ledger, session, state)

        def stored(problem: StoreError | None, error: StoreError | None) -> None:
            if error is None and problem is None:
                self.damaged.replaced(ledger, [entry for entry, _ in copies])
            done(None, error or problem)

        self.adds.after(lambda transaction: put_copies(transaction, self._entries, ledger, copies, written_by), stored)

    def _damaged_at(self, ledger: LedgerId, entries: Sequence[EntryId]) -> StoreReadOnly | None:
        """The refusal of copies, if one would be written to a damaged page."""
        if self.pages.sound or not entries:
            return None
        try:
            with self._environment.read() as transaction:
                for entry in (min(entries), max(entries)):
                    self.pages.gap(transaction, _pack_key(ledger, entry))
        except DamagedKeys as damage:
            return StoreReadOnly(f"copies of ledger {ledger} are not stored: {damage}")
        problem = next(filter(None, (self.pages.damage_at(ledger, entry) for entry in entries)), None)
        return None if problem is None else StoreReadOnly(f"copies of ledger {ledger} are not stored: {problem}")

    def _refuse(self, refusal: StoreError, done: Callable[[None, StoreError | None], None]) -> None:
        """Answers after all requests accepted before."""
        self.adds.behind(lambda error: done(None, error or refusal))

    async def begin_session(
        self, ledger: LedgerId, session: SessionId, bounds: Sequence[tuple[EntryId, SessionId]]
    ) -> None:
        """Removes the copies that the bounds of a record exclude, chunk by chunk between the adds.

        Until this call returns, a fence answers with the bounds applied before. So a claimer keeps the new bounds in
        the record, and readers skip excluded copies that are still here. After a crash the next session searches again.
        From the start of this call on, copies that its bounds exclude are refused: the search may have passed their
        place.

        Args:
            bounds: first entry and session of each fragment of the record that `session` wrote.

        Raises:
            Fenced: by a later session, also during the removal; the later session searches again.
            BookieLeaving, DiskFull, DiskFailed: as from an add.
        """
        state = self.ledgers.get(ledger)
        entries, states = self._entries, self._states
        position: EntryId | None = FIRST_ENTRY
        while position is not None:
            refusal = self._refusal(ledger, session, state)
            if refusal is not None:
                raise refusal
            if session > state.promised:
                self._promise(ledger, session, state)
            bound = removal.last_bound(bounds)
            if bound[0] > state.bound[0]:
                state.bound = bound
            chunk = partial(
                removal.remove_orphans,
                entries=entries,
                states=states,
                ledger=ledger,
                bounds=bounds,
                position=position,
            )
            _removed, position = await outcome_of(partial(self.adds.after, chunk))

    # --- fencing ---

    def promised(self, ledger: LedgerId) -> SessionId:
        """The session below which adds are refused; SESSION_MAX for a deleted ledger."""
        return self.ledgers.get(ledger).promised

    def present(
        self,
        ledger: LedgerId,
        first: EntryId,
        last: EntryId,
        minimum_session: SessionId,
        done: Callable[[list[tuple[EntryId, EntryId]] | None, StoreError | None], None],
    ) -> None:
        """Lists entries as `StoreView.present`; `done` is called once all of them are durable (invariant 11)."""
        with self.view() as view:
            runs = view.present(ledger, first, last, minimum_session)
        self.adds.behind(lambda error: done(None if error else runs, error))

    def fence(
        self, ledger: LedgerId, session: SessionId, done: Callable[[FenceResult | None, StoreError | None], None]
    ) -> None:
        """Promises to refuse adds below `session`; `done` is called once that is durable, after all earlier adds.

        Fencing again with the same session is allowed. Errors passed to `done`: Fenced, DiskFull, DiskFailed.
        """
        state = self.ledgers.get(ledger)
        if session < state.promised:
            self._refuse(Fenced(ledger, session, state.promised), done)
            return
        if state.hidden is not None:
            self._refuse(EntryUnknown(ledger, EntryId(state.confirmed + 1), state.hidden), done)
            return
        self._promise(ledger, session, state)

        def last(transaction: Any) -> FenceResult:
            bound, _ = removal.read_bound(transaction, self._states, ledger)
            return self._last(transaction, ledger)._replace(bound=bound)

        self.adds.after(last, done, small=True)

    def _last(self, transaction: Any, ledger: LedgerId) -> FenceResult:
        last, sound = end_of(transaction, self._entries, ledger)
        return FenceResult(last, NO_ENTRY if sound is None else sound.last_add_confirmed)

    # --- reading ---

    def view(self) -> StoreView:
        """A consistent view for a `with` block that does not await; payloads are valid inside the block only."""
        return StoreView(self._environment.read(), self._entries, self.why_absent, self.damaged, self.pages)

    def why_absent(self, ledger: LedgerId, entry: EntryId) -> LedgerError:
        """The error for an entry that a view does not have."""
        state = self.ledgers.get(ledger)
        if entry < state.kept_from:
            return EntryShrunk(ledger, entry, state.kept_from)
        if state.hidden is not None:
            return EntryUnknown(ledger, entry, state.hidden)
        lost = self._may_have_lost
        if lost is not None and ledger <= lost.last_ledger:
            return EntryUnknown(ledger, entry, lost.why)
        return NoSuchEntry(ledger, entry)

    def last_add_confirmed(self, ledger: LedgerId) -> Confirmed:
        """The highest last add confirmed that any add or `confirm` carried here."""
        return self.ledgers.get(ledger).last_add_confirmed

    def confirm(self, ledger: LedgerId, session: SessionId, last_add_confirmed: EntryId) -> None:
        """Stores an explicit last add confirmed, from a writer with nothing to add; kept in memory only."""
        state = self.ledgers.get(ledger)
        if last_add_confirmed > state.confirmed:
            state.confirm(session, last_add_confirmed)

    async def wait_for_lac(self, ledger: LedgerId, entry: EntryId) -> Confirmed:
        """Waits until the last add confirmed here is at least `entry`, and returns it."""
        return await self.ledgers.get(ledger).wait_for_lac(entry)

    # --- removing ---

    async def shrink(self, ledger: LedgerId, end: EntryId) -> None:
        """Deletes the entries below `end`: unreadable when it returns, removed by `remove`.

        Repeated calls delete what has arrived since: a slow add, or a copy from a repair that began before.

        Raises:
            DiskFull, DiskFailed: as from a commit.
        """
        state = self.ledgers.get(ledger)
        if end <= state.kept_from and not self._has_below(ledger, end):
            return
        self._check_removals()
        states = self._states
        await self._environment.commit(
            Freeing(lambda transaction: removal.mark_range(transaction, states, ledger, end))
        )
        state.kept_from = max(state.kept_from, end)

    def _check_removals(self) -> None:
        if self.pages.damages:
            raise StoreReadOnly(f"nothing is removed from this store: {self.pages.damages[0].problem}")

    def _has_below(self, ledger: LedgerId, end: EntryId) -> bool:
        if end == 0:
            return False
        with self._environment.read() as transaction:
            return removal.has_below(transaction, self._entries, ledger, end)

    async def delete(self, ledger: LedgerId) -> None:
        """Deletes a whole ledger: adds are refused from now on; its entries are removed by `remove`.

        Raises:
            DiskFull, DiskFailed: as from a commit.
        """
        self.ledgers.get(ledger).promised = SESSION_MAX
        self.damaged.forget(ledger)
        await self.shrink(ledger, ENTRY_MAX)

    async def remove(self, ledger: LedgerId) -> int:
        """Removes the deleted entries of a ledger, chunk by chunk between the adds; returns their number.

        Raises:
            DiskFull, DiskFailed: as from a commit; a later call removes the rest, also after a restart.
        """
        self._check_removals()
        entries, states, forget = self._entries, self._states, self.ledgers.is_gone(ledger)
        removed = 0
        while True:
            count = await self._environment.commit(
                Freeing(lambda transaction: removal.remove_chunk(transaction, entries, states, ledger))
            )
            removed += count
            if count < removal.CHUNK_ENTRIES and await self._environment.commit(
                Freeing(lambda transaction: removal.remove_mark(transaction, entries, states, ledger, forget))
            ):
                break
        self.ledgers.removed(ledger)
        return removed

    def file_bytes(self) -> int:
        """Size of the data file on disk."""
        return self._environment.file_bytes()
