"""An open ledger: pipelined appends, reads up to the last add confirmed, tailing, shrink, seal and roll.

1. `append` gives the entry its id at once; `done` callbacks come in entry order, in the Trio thread, when the entry and
   all before it are durable on their ack quorum.
2. The first failure ends the handle: all that is pending gets that error, later appends raise it. After a fence the
   outcome of what was pending is unknown.
3. Nothing above the last add confirmed is ever read.
4. Each change of the record is one transaction that compares the version read before, so a writer that was claimed
   away from can change nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeAlias

import trio

from gnomon.bookie import record as records
from gnomon.bookie.client import Bookie
from gnomon.bookie.entry import Buffer, StoredEntry, encode_entry
from gnomon.bookie.entry_store import StoreError, StoreView
from gnomon.bookie.errors import (
    EntryNotConfirmed,
    EntryShrunk,
    Fenced,
    LedgerClosed,
    LedgerError,
    LedgerFailed,
    LedgerFenced,
    LedgerSealed,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
)
from gnomon.bookie.ids import FIRST_ENTRY, FIRST_SESSION, NO_ENTRY, BookieId, EntryId, LedgerId, Session
from gnomon.bookie.reader import EntryRead, Verdict
from gnomon.bookie.record import LedgerRecord, decode_record, ledger_key
from gnomon.bookie.writer import LedgerWriter
from gnomon.metadata.client import (
    Compacted,
    Compare,
    Field,
    KeyValue,
    Metadata,
    MetadataError,
    Operation,
    Put,
    Revision,
)
from gnomon.runtime.world import DiskFull, WorldError

Appended: TypeAlias = Callable[[EntryId, LedgerError | None], None]


class Ledger:
    """One ledger, open in this process; made by the functions of `gnomon.bookie.ledger`."""

    def __init__(
        self, metadata: Metadata, bookies: Mapping[BookieId, Bookie], name: str, stored: KeyValue, confirmed: EntryId
    ) -> None:
        """A handle that reads, as of the record in `stored` and the last add confirmed known so far."""
        self.name = name
        self.id = LedgerId(stored.create_revision)
        self.record = decode_record(stored.value)
        self.length_bytes = self.record.length_bytes
        """Payload bytes of all entries ever appended, as far as this handle knows."""
        self._metadata = metadata
        self._bookies = bookies
        self._version = stored.version
        self._revision = stored.mod_revision
        self._changing = trio.Lock()
        self._confirmed = confirmed
        self._confirmed_more: trio.Event | None = None
        self._failure: LedgerError | None = LedgerClosed(f"ledger {name!r} is open for reading only")
        self._writer: LedgerWriter | None = None
        self._ensemble: list[Bookie] = []
        self._answers: list[Callable[[EntryId, StoreError | None], None]] = []
        self._pending: deque[Appended] = deque()
        self._idle: trio.Event | None = None

    def write_on(self, length_bytes: int) -> None:
        """Turns the handle into the writer of its record's session, going on after the last add confirmed."""
        self.length_bytes = length_bytes
        self._writer = LedgerWriter(self.record.quorum, self._confirmed)
        self._ensemble = [self._bookie(name) for name in self.record.fragments[-1].bookies]
        self._answers = [self._answer_of(index) for index in range(len(self._ensemble))]
        self._failure = None

    def _bookie(self, name: BookieId) -> Bookie:
        try:
            return self._bookies[name]
        except KeyError:
            raise NotEnoughBookies(f"bookie {name!r} of ledger {self.name!r} is not known here: start it") from None

    # --- where the ledger stands ---

    @property
    def session(self) -> Session:
        """The session of the last claim known to this handle: its own, where it writes."""
        return self.record.session

    @property
    def properties(self) -> dict[str, Any]:
        """The record's properties; change them with `update`."""
        return self.record.properties

    @property
    def start_entry(self) -> EntryId:
        """The first entry that was not shrunk away."""
        return self.record.start_entry

    @property
    def last_add_confirmed(self) -> EntryId:
        """The last entry that may be read, `start_entry - 1` or lower where there is none."""
        return self._confirmed

    @property
    def next_entry(self) -> EntryId:
        """The id the next append gets, or would get."""
        return EntryId(self._confirmed + 1) if self._writer is None else self._writer.next_entry

    @property
    def failure(self) -> LedgerError | None:
        """Why appends are refused, None while they are taken."""
        return self._failure

    # --- appending ---

    def append(self, payload: Sequence[Buffer], done: Appended) -> EntryId:
        """Appends one entry, the concatenation of `payload`, which may be reused as soon as this returns.

        `done(entry, error)` follows later, in entry order; with an error whose `outcome_unknown` is true, the entry may
        still be in the ledger.

        Raises:
            LedgerError: the handle takes no appends (its `failure`); `done` is not called.
        """
        writer = self._writer
        if self._failure is not None or writer is None:
            raise self._failure or LedgerClosed(f"ledger {self.name!r} is not open for appending")
        entry = writer.append()
        length = self.length_bytes
        for chunk in payload:
            length += len(chunk)
        self.length_bytes = length
        session, confirmed = self.record.session, writer.confirmed
        value = encode_entry(self.id, entry, session, confirmed, length, payload)
        self._pending.append(done)
        for index in writer.write_set(entry):
            self._ensemble[index].add(self.id, entry, session, confirmed, value, self._answers[index])
        return entry

    async def add(self, payload: Sequence[Buffer]) -> EntryId:
        """Appends one entry and waits until it is durable.

        Raises:
            LedgerError: it is not; see `outcome_unknown`. Cancelled, the outcome is unknown.
        """
        answered = trio.Event()
        failures: list[LedgerError] = []

        def done(_entry: EntryId, error: LedgerError | None) -> None:
            if error is not None:
                failures.append(error)
            answered.set()

        entry = self.append(payload, done)
        await answered.wait()
        if failures:
            raise failures[0]
        return entry

    def _answer_of(self, index: int) -> Callable[[EntryId, StoreError | None], None]:
        def answered(entry: EntryId, error: StoreError | None) -> None:
            writer = self._writer
            if writer is None:
                return  # failed meanwhile: everything pending has been answered
            if error is not None:
                self._add_failed(writer, index, entry, error)
                return
            before = self._confirmed
            confirmed = writer.stored(index, entry)
            if confirmed > before:
                self._acknowledge(before, confirmed)

        return answered

    def _acknowledge(self, before: EntryId, confirmed: EntryId) -> None:
        self._confirmed = confirmed
        pending = self._pending
        for entry in range(before + 1, confirmed + 1):
            pending.popleft()(EntryId(entry), None)
        self._wake_waiters()
        if not pending:
            for bookie in self._ensemble:
                bookie.confirm(self.id, confirmed)
            if self._idle is not None:
                self._idle.set()

    def _add_failed(self, writer: LedgerWriter, index: int, entry: EntryId, error: StoreError) -> None:
        if isinstance(error, Fenced):
            self._fail(LedgerFenced(f"ledger {self.name!r} has another writer ({error}); what was pending is unknown"))
        elif writer.failed(index, entry):
            # One bookie that was full kept nothing; with several, or after a failed write, some copy may exist.
            unknown = self.record.quorum.write_quorum > 1 or not isinstance(error, DiskFull)
            text = f"ledger {self.name!r} could not store entry {entry}: {error}; open it again to go on"
            self._fail(LedgerFailed(text, outcome_unknown=unknown))

    def _fail(self, error: LedgerError) -> None:
        self._failure, self._writer = error, None
        entry = self._confirmed
        while self._pending:
            entry = EntryId(entry + 1)
            self._pending.popleft()(entry, error)
        if self._idle is not None:
            self._idle.set()
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        if self._confirmed_more is not None:
            self._confirmed_more.set()
            self._confirmed_more = None

    async def drained(self) -> None:
        """Waits until nothing is pending.

        Raises:
            LedgerError: the handle failed meanwhile.
        """
        while self._pending:
            if self._idle is None or self._idle.is_set():
                self._idle = trio.Event()
            await self._idle.wait()
        if isinstance(self._failure, LedgerFenced | LedgerFailed):
            raise self._failure

    # --- reading ---

    def view(self) -> AbstractContextManager[LocalView | None]:
        """Zero-copy reading for a `with` block that does not await; gives None where no copy is in this process."""
        for name in self.record.fragments[-1].bookies:
            view = self.store_view(name)
            if view is not None:
                return LocalView(self, view)
        return nullcontext(None)

    def store_view(self, name: BookieId) -> StoreView | None:
        """A new read transaction on the store of a bookie; None where that is not in this process."""
        bookie = self._bookies.get(name)
        return None if bookie is None else bookie.view()

    async def read(self, first: EntryId, last: EntryId) -> list[bytes]:
        """Copies of the payloads from `first` to `last` inclusive.

        Raises:
            EntryNotConfirmed, EntryShrunk, NoSuchEntry, DigestMismatch, NotEnoughBookies.
        """
        if last > self._confirmed:
            raise EntryNotConfirmed(self.id, last, self._confirmed)
        return [bytes((await self._read_entry(EntryId(entry))).payload) for entry in range(first, last + 1)]

    async def _read_entry(self, entry: EntryId) -> StoredEntry:
        if entry < self.record.start_entry:
            raise EntryShrunk(self.id, entry, self.record.start_entry)
        fragment = self.record.fragment_of(entry)
        search = EntryRead(self.record.quorum, entry)
        problem: LedgerError | WorldError | None = None
        while (index := search.next_bookie()) is not None:
            try:
                return await self._bookie(fragment.bookies[index]).read(self.id, entry, fragment.session)
            except NoSuchEntry:
                search.negative()
            except (LedgerError, WorldError) as error:
                problem = error
        if search.verdict is Verdict.ABSENT:
            raise NoSuchEntry(self.id, entry)
        if isinstance(problem, LedgerError):
            raise problem
        raise NotEnoughBookies(f"no copy of entry {entry} of ledger {self.name!r} could be read: {problem}")

    async def refresh_lac(self) -> EntryId:
        """Asks the bookies how far the ledger is confirmed, for a handle that reads; returns what is known then."""
        for name in self.record.fragments[-1].bookies:
            with suppress(LedgerError, WorldError):
                heard = await self._bookie(name).last_add_confirmed(self.id)
                if self._writer is None and not self.record.sealed:
                    self._confirmed = max(self._confirmed, heard)
        return self._confirmed

    async def wait_for_lac(self, entry: EntryId) -> EntryId:
        """Waits until `entry` is confirmed or the ledger is sealed; returns the last add confirmed.

        Raises:
            NoSuchLedger: the ledger was deleted meanwhile.
            LedgerError: the handle writes, and failed or was closed.
        """
        if self._writer is None and not isinstance(self._failure, LedgerFenced | LedgerFailed):
            return await self._follow(entry)
        while self._confirmed < entry:
            if isinstance(self._failure, LedgerFenced | LedgerFailed | LedgerClosed):
                raise self._failure
            if self.record.sealed:
                break
            if self._confirmed_more is None:
                self._confirmed_more = trio.Event()
            await self._confirmed_more.wait()
        return self._confirmed

    async def _follow(self, entry: EntryId) -> EntryId:
        """Listens to the bookies for the LAC and to the metadata for the record, whichever tells first."""
        while self._confirmed < entry and not self.record.sealed:
            changed: list[KeyValue | None] = []
            problems: list[MetadataError] = []
            bookies = [self._bookie(name) for name in self.record.fragments[-1].bookies]
            async with trio.open_nursery() as nursery:
                for bookie in bookies:
                    nursery.start_soon(self._listen, bookie, entry, nursery.cancel_scope)
                try:
                    changed.append(await self._record_changed())
                except MetadataError as error:
                    problems.append(error)
                nursery.cancel_scope.cancel()
            if problems:
                raise problems[0]
            for stored in changed:
                self._refresh(stored)
        return self._confirmed

    async def _listen(self, bookie: Bookie, entry: EntryId, waiting: trio.CancelScope) -> None:
        with suppress(LedgerError, WorldError):
            heard = await bookie.wait_for_lac(self.id, entry)
            self._confirmed = max(self._confirmed, heard)
            waiting.cancel()

    async def _record_changed(self) -> KeyValue | None:
        """Waits for another version of the record than this handle's; None when it was deleted."""
        key = ledger_key(self.name)
        try:
            async with self._metadata.watch(key, Revision(self._revision + 1)) as batches:
                async for batch in batches:
                    for event in batch.events:
                        if event.key == key:
                            return event.current
        except Compacted:
            pass
        return await self._metadata.get(key)

    def _refresh(self, stored: KeyValue | None) -> None:
        if stored is None or LedgerId(stored.create_revision) != self.id:
            raise NoSuchLedger(f"ledger {self.name!r} was deleted")
        self.record = decode_record(stored.value)
        self._version, self._revision = stored.version, stored.mod_revision
        if self.record.sealed:
            self._confirmed = self.record.last_entry
            self._wake_waiters()

    # --- changing the record ---

    async def update(
        self,
        properties: dict[str, Any],
        *,
        compare: Sequence[Compare] = (),
        also: Sequence[Operation] = (),
    ) -> None:
        """Replaces the properties; `compare` and `also` join the transaction.

        Raises:
            LedgerFenced: the record was changed by another since it was read, or a `compare` failed; nothing changed.
        """
        async with self._changing:
            await self._change(replace(self.record, properties=properties), compare, also)

    async def shrink(
        self,
        end_entry: EntryId,
        force: bool = False,
        *,
        properties: dict[str, Any] | None = None,
        compare: Sequence[Compare] = (),
        also: Sequence[Operation] = (),
    ) -> None:
        """Gives up the entries below `end_entry`, at most all that are confirmed; never moves back.

        Args:
            force: the bookies remove them before this returns, else at their next collection.
            properties: the new properties, in the same transaction.

        Raises:
            EntryNotConfirmed: `end_entry - 1` is not confirmed.
            LedgerFenced: as `update`.
        """
        if end_entry - 1 > self._confirmed:
            raise EntryNotConfirmed(self.id, EntryId(end_entry - 1), self._confirmed)
        async with self._changing:
            if end_entry > self.record.start_entry or properties is not None or compare or also:
                length = max(self.record.length_bytes, self.length_bytes)
                changed = records.shrink(self.record, end_entry, length)
                if properties is not None:
                    changed = replace(changed, properties=properties)
                await self._change(changed, compare, also)
        if force:
            for name in self._holders():
                await self._bookie(name).shrink(self.id, self.record.start_entry)

    def _holders(self) -> list[BookieId]:
        return list(dict.fromkeys(name for fragment in self.record.fragments for name in fragment.bookies))

    async def seal(
        self,
        properties: dict[str, Any] | None = None,
        *,
        compare: Sequence[Compare] = (),
        also: Sequence[Operation] = (),
    ) -> None:
        """Finishes the ledger after what is pending; no append is taken from the call on.

        Raises:
            LedgerFenced: as `update`; the handle stays closed.
            LedgerError: what was pending failed.
        """
        async with self._changing:
            sealed = await self._sealed(properties)
            await self._change(sealed, compare, also)

    async def roll(
        self,
        name: str,
        *,
        properties: dict[str, Any],
        sealed_properties: dict[str, Any] | None = None,
        compare: Sequence[Compare] = (),
        also: Sequence[Operation] = (),
    ) -> Ledger:
        """Seals this ledger and creates the next one, `name`, with `properties`, in one transaction.

        The next one has this one's quorum, bookies and digest, and the handle returned appends to it.

        Raises:
            LedgerFenced: as `update`, also where `name` exists; nothing changed, this handle stays closed.
            LedgerError: what was pending failed.
        """
        async with self._changing:
            sealed = await self._sealed(sealed_properties)
            first = records.Fragment(FIRST_ENTRY, FIRST_SESSION, self.record.fragments[-1].bookies)
            record = LedgerRecord(
                self.record.quorum, (first,), digest_type=self.record.digest_type, properties=properties
            )
            key = ledger_key(name)
            put = Put(key, record.encode())
            created = await self._change(sealed, (Compare.absent(key), *compare), (put, *also))
        assert isinstance(created, KeyValue), f"a transaction did not say what it put at {key!r}"
        ledger = Ledger(self._metadata, self._bookies, name, created, NO_ENTRY)
        ledger.write_on(0)
        return ledger

    async def _sealed(self, properties: dict[str, Any] | None) -> LedgerRecord:
        if self._writer is None or self._failure is not None:
            raise self._failure or LedgerClosed(f"ledger {self.name!r} is not open for appending")
        self._failure = LedgerSealed(f"ledger {self.name!r} is sealed: append to its successor")
        await self.drained()
        sealed = records.seal(self.record, self._confirmed, self.length_bytes)
        return sealed if properties is None else replace(sealed, properties=properties)

    async def _change(
        self, changed: LedgerRecord, compare: Sequence[Compare], also: Sequence[Operation]
    ) -> KeyValue | int | None:
        """Puts the record if nobody did since; returns the result of the first of `also`."""
        key = ledger_key(self.name)
        result = await self._metadata.txn(
            (Compare.version(key, self._version), Compare(key, Field.CREATE_REVISION, self.id), *compare),
            (Put(key, changed.encode()), *also),
        )
        if not result.succeeded:
            raise LedgerFenced(
                f"ledger {self.name!r} was not changed: its record has another version than {self._version}, or"
                " something else that was compared had changed; open it again"
            )
        written = result.results[0]
        assert isinstance(written, KeyValue), f"a transaction did not say what it put at {key!r}"
        self._refresh(written)
        return result.results[1] if also else None

    async def close(self) -> None:
        """Takes no more appends and waits for the pending ones; the record is left as it is."""
        if self._failure is None:
            self._failure = LedgerClosed(f"ledger {self.name!r} was closed by its user")
        with suppress(LedgerFenced, LedgerFailed):
            await self.drained()
        self._wake_waiters()


class LocalViews:
    """One read transaction for views of many ledgers: LMDB has room for some hundred readers at a time, not more."""

    def __init__(self) -> None:
        self._stores: dict[BookieId, StoreView] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for store in self._stores.values():
            store.__exit__(kind, error, traceback)

    def of(self, ledger: Ledger) -> LocalView | None:
        """A view that is valid until this block ends; None where no copy of the ledger is in this process."""
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
    """A ledger's entries in the memory of a bookie of this process."""

    __slots__ = ("_floor", "_ledger", "_minimum", "_view")

    def __init__(self, ledger: Ledger, view: StoreView) -> None:
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
        if entry > ledger._confirmed:
            raise EntryNotConfirmed(ledger.id, entry, ledger._confirmed)
        if entry < ledger.record.start_entry:
            raise EntryShrunk(ledger.id, entry, ledger.record.start_entry)
        minimum = self._minimum if entry >= self._floor else ledger.record.fragment_of(entry).session
        return self._view.get(ledger.id, entry, minimum)

    def end(self) -> tuple[EntryId, int]:
        """The last entry that this bookie has, confirmed or not, and the payload bytes of all entries up to it."""
        return self._view.end(self._ledger.id)
