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

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Any

import trio

from gnomon.bookie import record as records
from gnomon.bookie.appender import Appended, Appender
from gnomon.bookie.claim import ensemble_of
from gnomon.bookie.client import Bookie, Bookies
from gnomon.bookie.copies import SPECULATIVE_SECONDS, known_bookie, read_entry, read_run
from gnomon.bookie.digest import Mac, Secret, password_digest
from gnomon.bookie.entry import Buffer
from gnomon.bookie.entry_store import Confirmed, StoreView
from gnomon.bookie.errors import (
    EntryNotConfirmed,
    EntryShrunk,
    LedgerClosed,
    LedgerError,
    LedgerFailed,
    LedgerFenced,
    LedgerSealed,
    NoSuchLedger,
)
from gnomon.bookie.ids import FIRST_ENTRY, FIRST_SESSION, NO_ENTRY, BookieId, EntryId, LedgerId, Session
from gnomon.bookie.local_view import LocalView
from gnomon.bookie.placement import ensemble_for
from gnomon.bookie.record import DigestType, LedgerRecord, decode_record, ledger_key
from gnomon.metadata.client import (
    Compacted,
    Compare,
    Field,
    KeyValue,
    Metadata,
    MetadataError,
    MetadataUnavailable,
    Operation,
    Put,
    Revision,
)
from gnomon.runtime.world import WorldError

MISSING = "missing/"
"""Prefix of the metadata keys that name ledgers of which a bookie may lack entries, for the auditor."""
METADATA_RETRY_SECONDS = 0.5
LISTEN_AGAIN_SECONDS = 0.5
READ_BYTES_MAX = 1 << 20
READ_BYTES_MIN = 1 << 14
NO_SECRET = Secret(b"")


class Ledger:
    """One ledger, open in this process; made by the functions of `gnomon.bookie.ledger`."""

    def __init__(
        self,
        metadata: Metadata,
        bookies: Bookies,
        name: str,
        stored: KeyValue,
        confirmed: EntryId,
        secret: Secret = NO_SECRET,
    ) -> None:
        """A handle that reads, as of the record in `stored` and the last add confirmed known so far."""
        self.name = name
        self.id = LedgerId(stored.create_revision)
        self.record = decode_record(stored.value)
        self.last_add_confirmed = confirmed
        """The last entry that may be read, `start_entry - 1` or lower where there is none."""
        self.mac = Mac(self.id, secret) if self.record.digest_type is DigestType.MAC else None
        """Seals entries where the ledger has a keyed digest."""
        self.keep: Callable[[EntryId, bytes], None] | None = None
        """Told each entry appended here, in its stored form, once it is confirmed and before its `done`."""
        self._secret = secret
        self._metadata = metadata
        self._bookies = bookies
        self._version = stored.version
        self._revision = stored.mod_revision
        self._changing = trio.Lock()
        self._confirmed_more: trio.Event | None = None
        self._failure: LedgerError | None = LedgerClosed(f"ledger {name!r} is open for reading only")
        self._appender: Appender | None = None

    def write_on(self, length_bytes: int) -> None:
        """Turns the handle into the writer of its record's session, going on after the last add confirmed.

        Raises:
            NotEnoughBookies: a bookie of the record's last fragment is not known.
        """
        places = ensemble_of(self._bookies, self.record.fragments[-1].bookies)
        appender = Appender(self, self._bookies, places, self.last_add_confirmed)
        appender.length_bytes = length_bytes
        self._appender = appender
        self._failure = None
        if self.record.session != FIRST_SESSION:
            for bookie in places.values():
                self._bookies.start_soon(appender.begin_session, bookie)

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
    def length_bytes(self) -> int:
        """Payload bytes of all entries ever appended, as far as this handle knows."""
        return self.record.length_bytes if self._appender is None else self._appender.length_bytes

    @property
    def next_entry(self) -> EntryId:
        """The id the next append gets, or would get."""
        return EntryId(self.last_add_confirmed + 1) if self._appender is None else self._appender.next_entry

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
        appender = self._appender
        if self._failure is not None or appender is None:
            raise self._failure or LedgerClosed(f"ledger {self.name!r} is not open for appending")
        return appender.append(payload, done)

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

    def confirmed_to(self, entry: EntryId) -> None:
        """See `appender.Owner`."""
        self.last_add_confirmed = entry
        if self._confirmed_more is not None:
            self._wake_waiters()

    def appending_failed(self, error: LedgerError) -> None:
        """See `appender.Owner`."""
        self._failure = error
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
        if self._appender is not None:
            await self._appender.drained()
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
            NoSuchLedger: it was deleted.
        """
        if last > self.last_add_confirmed:
            raise EntryNotConfirmed(self.id, last, self.last_add_confirmed)
        if first < self.record.start_entry:
            raise EntryShrunk(self.id, first, self.record.start_entry)
        record, bytes_max, clock = self.record, READ_BYTES_MAX, self._bookies.clock
        payloads: list[bytes] = []
        while (entry := EntryId(first + len(payloads))) <= last:
            started = clock.monotonic()
            try:
                run = await read_run(self._bookies, self.id, record, entry, last, bytes_max)
            except LedgerError as error:
                record = await self.newer_record(record, error)
                continue
            # Over a slow link less is asked for at once: what does not come in time is thrown away.
            slow = clock.monotonic() - started >= SPECULATIVE_SECONDS
            bytes_max = max(bytes_max // 4, READ_BYTES_MIN) if slow else min(2 * bytes_max, READ_BYTES_MAX)
            payloads += [self._opened(EntryId(at), stored.payload) for at, stored in enumerate(run, entry)]
        return payloads

    async def newer_record(self, record: LedgerRecord, error: LedgerError) -> LedgerRecord:
        """The record by which to read again what could not be read by `record`; raises `error` where it is the same."""
        try:
            stored = await self._metadata.get(ledger_key(self.name))
        except MetadataError:
            raise error from None
        if stored is None or LedgerId(stored.create_revision) != self.id:
            raise NoSuchLedger(f"ledger {self.name!r} was deleted")
        newer = decode_record(stored.value)
        if newer == record:
            raise error
        if self._appender is None:
            self._refresh(stored)
        return newer

    def _opened(self, entry: EntryId, payload: memoryview) -> bytes:
        return bytes(payload if self.mac is None else self.mac.open(entry, payload))

    async def refresh_lac(self) -> EntryId:
        """Asks the bookies how far the ledger is confirmed, for a handle that reads; returns what is known then."""
        heard: list[Confirmed] = []
        for name in self.record.fragments[-1].bookies:
            with suppress(LedgerError, WorldError):
                heard.append(await known_bookie(self._bookies, name).last_add_confirmed(self.id))
        for confirmed in heard:
            await self._heard(confirmed)
        return self.last_add_confirmed

    async def _heard(self, confirmed: Confirmed) -> None:
        """A bookie has told how far a ledger is confirmed that this handle reads."""
        if self._appender is not None or confirmed.entry <= self.last_add_confirmed or self.record.sealed:
            return
        if confirmed.session > self.record.session:
            # Another writer told it, and this record knows nothing of what its claim excludes.
            self._refresh(await self._metadata.get(ledger_key(self.name)))
        if not self.record.sealed:
            self.last_add_confirmed = max(self.last_add_confirmed, confirmed.entry)

    async def wait_for_lac(self, entry: EntryId) -> EntryId:
        """Waits until `entry` is confirmed or the ledger is sealed; returns the last add confirmed.

        Raises:
            NoSuchLedger: the ledger was deleted meanwhile.
            LedgerError: the handle writes, and failed or was closed.
        """
        if self._appender is None and not isinstance(self._failure, LedgerFenced | LedgerFailed):
            return await self._follow(entry)
        while self.last_add_confirmed < entry:
            if isinstance(self._failure, LedgerFenced | LedgerFailed | LedgerClosed):
                raise self._failure
            if self.record.sealed:
                break
            if self._confirmed_more is None:
                self._confirmed_more = trio.Event()
            await self._confirmed_more.wait()
        return self.last_add_confirmed

    async def _follow(self, entry: EntryId) -> EntryId:
        """Listens to the bookies for the LAC and to the metadata for the record, whichever tells first."""
        while self.last_add_confirmed < entry and not self.record.sealed:
            changed: list[KeyValue | None] = []
            heard: list[Confirmed] = []
            problems: list[MetadataError] = []
            bookies = [known_bookie(self._bookies, name) for name in self.record.fragments[-1].bookies]
            async with trio.open_nursery() as nursery:
                for bookie in bookies:
                    nursery.start_soon(self._listen, bookie, entry, heard, nursery.cancel_scope)
                try:
                    changed.append(await self._record_changed())
                except MetadataError as error:
                    problems.append(error)
                nursery.cancel_scope.cancel()
            if problems:
                raise problems[0]
            for stored in changed:
                self._refresh(stored)
            for confirmed in heard:
                await self._heard(confirmed)
        return self.last_add_confirmed

    async def _listen(self, bookie: Bookie, entry: EntryId, heard: list[Confirmed], waiting: trio.CancelScope) -> None:
        while True:
            try:
                heard.append(await bookie.wait_for_lac(self.id, entry))
            except (LedgerError, WorldError):
                await self._bookies.clock.sleep(LISTEN_AGAIN_SECONDS)  # it may come back before the record changes
            else:
                waiting.cancel()
                return

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
        if stored.mod_revision <= self._revision:
            return  # somebody else was quicker
        self.record = decode_record(stored.value)
        self._version, self._revision = stored.version, stored.mod_revision
        if self.record.sealed:
            self.last_add_confirmed = self.record.last_entry
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
            await self._change(lambda record: replace(record, properties=properties), compare, also)

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
        if end_entry - 1 > self.last_add_confirmed:
            raise EntryNotConfirmed(self.id, EntryId(end_entry - 1), self.last_add_confirmed)
        length_bytes = await self._length_before(end_entry)
        async with self._changing:
            if end_entry > self.record.start_entry or properties is not None or compare or also:
                await self._change(
                    lambda record: self._shrunk(record, end_entry, length_bytes, properties), compare, also
                )
        if force:
            for name in self._holders():
                await known_bookie(self._bookies, name).shrink(self.id, self.record.start_entry)

    async def _length_before(self, end_entry: EntryId) -> int:
        """The length to record with a shrink: the entry that knows it may be among those that go."""
        last = self.last_add_confirmed
        if self._appender is None and not self.record.sealed and last >= max(self.record.start_entry, end_entry - 1):
            with suppress(LedgerError):
                return (await read_entry(self._bookies, self.id, self.record, last)).length_bytes
        return self.length_bytes

    @staticmethod
    def _shrunk(
        record: LedgerRecord, end_entry: EntryId, length_bytes: int, properties: dict[str, Any] | None
    ) -> LedgerRecord:
        changed = records.shrink(record, end_entry, max(record.length_bytes, length_bytes))
        return changed if properties is None else replace(changed, properties=properties)

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
        appender = await self._finish()
        async with self._changing:
            appender.finish()
            await self._change(lambda record: self._sealed(record, properties), compare, also)

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

        The next one has this one's quorum, digest and password, and the handle returned appends to it.

        Raises:
            LedgerFenced: as `update`, also where `name` exists; nothing changed, this handle stays closed.
            LedgerError: what was pending failed.
        """
        appender = await self._finish()
        async with self._changing:
            appender.finish()
            quorum = self.record.quorum
            ensemble = ensemble_for(name, quorum, self._bookies.available(), self._bookies.known())
            first = records.Fragment(FIRST_ENTRY, FIRST_SESSION, ensemble or self.record.fragments[-1].bookies)
            record = LedgerRecord(
                quorum,
                (first,),
                digest_type=self.record.digest_type,
                password_digest=password_digest(name, self._secret),
                properties=properties,
            )
            key = ledger_key(name)
            put = Put(key, record.encode())
            created = await self._change(
                lambda record: self._sealed(record, sealed_properties), (Compare.absent(key), *compare), (put, *also)
            )
        assert isinstance(created, KeyValue), f"a transaction did not say what it put at {key!r}"
        ledger = Ledger(self._metadata, self._bookies, name, created, NO_ENTRY, self._secret)
        ledger.write_on(0)
        return ledger

    async def _finish(self) -> Appender:
        """Takes no more appends and waits for those pending, which may need to change the record."""
        if self._appender is None or self._failure is not None:
            raise self._failure or LedgerClosed(f"ledger {self.name!r} is not open for appending")
        self._failure = LedgerSealed(f"ledger {self.name!r} is sealed: append to its successor")
        await self.drained()
        return self._appender

    def _sealed(self, record: LedgerRecord, properties: dict[str, Any] | None) -> LedgerRecord:
        sealed = records.seal(record, self.last_add_confirmed, self.length_bytes)
        return sealed if properties is None else replace(sealed, properties=properties)

    async def change_ensemble(self, first_entry: EntryId, bookies: tuple[BookieId, ...]) -> None:
        """See `appender.Owner`; asks until it is known whether the change was recorded."""
        async with self._changing:
            while True:
                if self.record.sealed:
                    raise LedgerSealed(f"ledger {self.name!r} is sealed: its bookies are the auditor's to replace")
                try:
                    await self._change(lambda record: records.change_ensemble(record, first_entry, bookies), (), ())
                except MetadataUnavailable:
                    await self._bookies.clock.sleep(METADATA_RETRY_SECONDS)
                else:
                    return

    async def report_missing(self) -> None:
        """See `appender.Owner`."""
        await self._metadata.txn((), (missing_report(self.id, self.name),))

    async def _change(
        self,
        modify: Callable[[LedgerRecord], LedgerRecord],
        compare: Sequence[Compare],
        also: Sequence[Operation],
    ) -> KeyValue | int | None:
        """Puts the record as `modify` makes it if its session is still this one's; gives the first result of `also`.

        Others may change a record beside its writer (the auditor does): then the change is made to theirs.
        """
        key = ledger_key(self.name)
        while True:
            changed = modify(self.record)
            result = await self._metadata.txn(
                (Compare.version(key, self._version), Compare(key, Field.CREATE_REVISION, self.id), *compare),
                (Put(key, changed.encode()), *also),
            )
            if result.succeeded:
                break
            stored = await self._metadata.get(key)
            if stored is None or not self._still_this_session(stored):
                raise LedgerFenced(
                    f"ledger {self.name!r} was not changed: another writer has claimed it, or something else that was"
                    " compared had changed; open it again"
                )
            self._refresh(stored)
        written = result.results[0]
        assert isinstance(written, KeyValue), f"a transaction did not say what it put at {key!r}"
        self._refresh(written)
        return result.results[1] if also else None

    def _still_this_session(self, stored: KeyValue) -> bool:
        """Whether a record that was changed meanwhile has the same writer as this handle's."""
        same_life = LedgerId(stored.create_revision) == self.id
        return (
            same_life and stored.version != self._version and decode_record(stored.value).session == self.record.session
        )

    async def close(self) -> None:
        """Takes no more appends and waits for the pending ones; the record is left as it is."""
        if self._failure is None:
            self._failure = LedgerClosed(f"ledger {self.name!r} was closed by its user")
        with suppress(LedgerFenced, LedgerFailed):
            await self.drained()
        if self._appender is not None:
            self._appender.finish()
        self._wake_waiters()


def missing_report(ledger: LedgerId, name: str) -> Put:
    """Tells the auditor that a bookie may lack entries of a ledger."""
    return Put(f"{MISSING}{ledger}", name.encode())
