"""An open ledger: pipelined appends, tailing, shrink, seal and roll; `followed_ledger` has the reading half.

1. `append` assigns the entry's id at once. Its `done` callback runs in entry order, in the Trio thread: after the entry
   and all before it are durable on their ack quorums, or with an error.
2. The first failure that cannot be repaired ends appending: all pending entries get that error, and later appends raise
   it. If another writer has fenced this one, the outcome of the pending entries is unknown.
3. A `seal` that is cancelled before it sends its metadata request changes nothing, and the handle accepts appends
   again. If it is cancelled after that, its outcome is unknown: the handle refuses appends, and `seal` may be called
   again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import trio

from gnomon.bookie import record as records
from gnomon.bookie.bookie import Bookie, Bookies, ensemble_of, known_bookie
from gnomon.bookie.digest import Secret, password_digest
from gnomon.bookie.entry import Buffer
from gnomon.bookie.errors import (
    EntryNotConfirmed,
    LedgerClosed,
    LedgerError,
    LedgerFailed,
    LedgerFenced,
    LedgerSealed,
    NoSuchLedger,
)
from gnomon.bookie.ids import FIRST_ENTRY, FIRST_SESSION, NO_ENTRY, BookieId, EntryId
from gnomon.bookie.ledgers.appender import Appended, Appender
from gnomon.bookie.ledgers.copies import read_entry
from gnomon.bookie.ledgers.followed_ledger import FollowedLedger, check_entry
from gnomon.bookie.missing_report import missing_report
from gnomon.bookie.placement import ensemble_for
from gnomon.bookie.record import LedgerRecord, Quorum, ledger_key
from gnomon.metadata.client import Compare, KeyValue, Metadata, MetadataUnavailable, Operation, Put
from gnomon.runtime.outcome import outcome_of
from gnomon.runtime.signal import Signal
from gnomon.runtime.world import WorldError

METADATA_RETRY_SECONDS = 0.5
_LOST = (LedgerFenced, LedgerFailed, NoSuchLedger)
"""Failures from outside, as opposed to calls of `seal` or `close`."""


class _Seal:
    """A seal that is under way, or whose outcome is unknown."""

    __slots__ = ("asked", "calls", "refusal")

    def __init__(self, name: str) -> None:
        self.calls = 0
        """The number of calls that work on it."""
        self.asked = False
        """Whether the metadata request may have been sent."""
        self.refusal = LedgerSealed(f"ledger {name!r} may be sealed: seal it again, or open it again, to be sure")
        """The error of appends until the outcome is known."""


class Ledger(FollowedLedger):
    """One ledger, open in this process; made by the functions of `gnomon.bookie.ledgers.catalog`."""

    def __init__(
        self, metadata: Metadata, bookies: Bookies, stored: KeyValue, confirmed: EntryId, secret: Secret
    ) -> None:
        """A handle that reads, from the record in `stored` and the last add confirmed known so far."""
        super().__init__(metadata, bookies, stored, confirmed, secret)
        self.keep: Callable[[EntryId, bytes], None] | None = None
        """Called with each entry appended here, in stored form, after its confirmation and before its `done`."""
        self._secret = secret
        self._confirmed_more = Signal()
        self._failure: LedgerError | None = LedgerClosed(f"ledger {self.name!r} is open for reading only")
        self._seal: _Seal | None = None

    def write_on(self, length_bytes: int, places: Mapping[BookieId, Bookie], *, followed: bool = True) -> None:
        """Turns the handle into the writer of its record's session, which continues after the last add confirmed.

        Args:
            places: the bookies of the record's last fragment, as known before it was written: a bookie whose disk
                changed since then has not made the promises that the record relies on.
            followed: see `create_ledger`.
        """
        appender = Appender(self, self._bookies, places, self.last_add_confirmed, followed=followed)
        appender.length_bytes = length_bytes
        self._appender = appender
        self._failure = None
        if self.record.session != FIRST_SESSION:
            for bookie in places.values():
                self._bookies.start_soon(appender.begin_session, bookie)

    # --- the state of the ledger ---

    @property
    def length_bytes(self) -> int:
        """Payload bytes of all entries ever appended, as known to this handle."""
        return self.record.length_bytes if self._appender is None else self._appender.length_bytes

    @property
    def next_entry(self) -> EntryId:
        """The id of the next append."""
        return EntryId(self.last_add_confirmed + 1) if self._appender is None else self._appender.next_entry

    @property
    def failure(self) -> LedgerError | None:
        """The reason why appends are refused, None while they are accepted."""
        return self._failure

    # --- appending ---

    def append(self, payload: Sequence[Buffer], done: Appended) -> EntryId:
        """Appends one entry, the concatenation of `payload`, which may be reused as soon as this returns.

        `done(entry, error)` follows later, in entry order; with an error whose `outcome_unknown` is true, the entry may
        still be in the ledger.

        Raises:
            LedgerError: the handle accepts no appends (its `failure`); `done` is not called.
            EntryTooLarge, TypeError: this one cannot be an entry; the next one can.
        """
        appender = self._appender
        if self._failure is not None or appender is None:
            raise self._failure or LedgerClosed(f"ledger {self.name!r} is not open for appending")
        return appender.append(payload, done)

    async def add(self, payload: Sequence[Buffer]) -> EntryId:
        """Appends one entry and waits until it is durable.

        Raises:
            LedgerError: it is not; see `outcome_unknown`. After a cancellation the outcome is unknown.
        """
        return await outcome_of(lambda done: self.append(payload, done))

    def confirmed_to(self, entry: EntryId) -> None:
        """See `appender.Owner`."""
        self.last_add_confirmed = entry
        self._confirmed_more.notify()

    def appending_failed(self, error: LedgerError) -> None:
        """See `appender.Owner`."""
        self._failure = error
        self._confirmed_more.notify()

    async def drained(self) -> None:
        """Waits until nothing is pending.

        Raises:
            LedgerError: the handle failed meanwhile.
        """
        if self._appender is not None:
            await self._appender.drained()
        if isinstance(self._failure, _LOST):
            raise self._failure

    # --- tailing ---

    async def wait_for_lac(self, entry: EntryId) -> EntryId:
        """Waits until `entry` is confirmed or the ledger is sealed; returns the last add confirmed.

        Raises:
            NoSuchLedger: the ledger was deleted meanwhile.
            LedgerError: the handle writes, and failed or was closed.
            ValueError, TypeError: `entry` is not an entry id.
        """
        check_entry("entry", entry, NO_ENTRY)
        if self._appender is None:
            return await self._follow(entry)
        while self.last_add_confirmed < entry:
            if isinstance(self._failure, (*_LOST, LedgerClosed)):
                raise self._failure
            if self.record.sealed:
                break
            if self._seal is not None and not self._seal.calls:
                raise self._seal.refusal
            await self._confirmed_more.wait()
        return self.last_add_confirmed

    def _refresh(self, stored: KeyValue | None) -> None:
        super()._refresh(stored)
        if self.record.sealed:
            self._confirmed_more.notify()

    # --- changing the record ---

    async def shrink(
        self,
        end_entry: EntryId,
        force: bool = False,
        *,
        properties: dict[str, Any] | None = None,
        compare: Sequence[Compare] = (),
        also: Sequence[Operation] = (),
    ) -> None:
        """Deletes the entries below `end_entry`, at most all that are confirmed; never moves back.

        Args:
            force: bookies that answer remove them before this returns; otherwise they do at their next collection.
            properties: the new properties, in the same transaction.

        Raises:
            EntryNotConfirmed: `end_entry - 1` is not confirmed.
            LedgerFenced, NoSuchLedger: as `update`.
            ValueError, TypeError: `end_entry` is not an entry id.
        """
        check_entry("end_entry", end_entry)
        if end_entry - 1 > self.last_add_confirmed:
            raise EntryNotConfirmed(self.id, EntryId(end_entry - 1), self.last_add_confirmed)
        length_bytes = await self._length_before(end_entry)
        holders = self.record.bookies

        def shrunk(record: LedgerRecord) -> LedgerRecord:
            nonlocal holders
            holders = record.bookies  # includes the bookies of fragments that this change drops
            shorter = records.shrink(record, end_entry, max(record.length_bytes, length_bytes))
            return shorter.with_properties(properties)

        async with self._changing:
            if end_entry > self.record.start_entry or properties is not None or compare or also:
                await self._change(shrunk, compare, also)
        if force:
            async with trio.open_nursery() as nursery:
                for name in holders:
                    nursery.start_soon(self._shrink_at, name)

    async def _shrink_at(self, name: BookieId) -> None:
        with suppress(LedgerError, WorldError):
            await known_bookie(self._bookies, name).shrink(self.id, self.record.start_entry)

    async def _length_before(self, end_entry: EntryId) -> int:
        """The length to record with a shrink: the shrink may delete the last entry, whose header has the length."""
        last = self.last_add_confirmed
        if self._appender is None and not self.record.sealed and last >= max(self.record.start_entry, end_entry - 1):
            with suppress(LedgerError):
                return (await read_entry(self._bookies, self.id, self.record, last)).length_bytes
        return self.length_bytes

    async def seal(
        self,
        properties: dict[str, Any] | None = None,
        *,
        compare: Sequence[Compare] = (),
        also: Sequence[Operation] = (),
    ) -> None:
        """Finishes the ledger after the pending entries; appends are refused from the call on.

        After MetadataUnavailable, or a cancellation, the ledger may be sealed: call it again to be sure.

        Raises:
            LedgerFenced, NoSuchLedger: as `update`; the handle stays closed.
            LedgerError: pending entries failed.
        """
        async with self._finishing():
            await self._change(
                lambda record: self._sealed(record, properties), compare, (*also, *self._report_at_end())
            )

    async def roll(
        self,
        name: str,
        *,
        properties: dict[str, Any],
        sealed_properties: dict[str, Any] | None = None,
        quorum: Quorum | None = None,
        compare: Sequence[Compare] = (),
        also: Sequence[Operation] = (),
    ) -> Ledger:
        """Seals this ledger and creates the next one, `name`, with `properties`, in one transaction.

        The next ledger has this ledger's digest and password; the returned handle appends to the next ledger.

        Args:
            quorum: of the next ledger, if there are enough bookies for it; otherwise this ledger's quorum is used.

        Raises:
            LedgerFenced: as `update`, also if `name` exists; nothing changed, this handle stays closed.
            NotEnoughBookies: one of the bookies is unknown to this process; nothing changed either.
            LedgerError: pending entries failed.
        """
        async with self._finishing():
            quorum, ensemble = self._place(name, quorum or self.record.quorum)
            places = ensemble_of(self._bookies, ensemble)
            record = LedgerRecord(
                quorum,
                (records.Fragment(FIRST_ENTRY, FIRST_SESSION, ensemble),),
                digest_type=self.record.digest_type,
                password_digest=password_digest(name, self._secret),
                properties=properties,
            )
            key = ledger_key(name)
            put = Put(key, record.encode())
            created, *_ = await self._change(
                lambda record: self._sealed(record, sealed_properties),
                (Compare.absent(key), *compare),
                (put, *also, *self._report_at_end()),
                joining=lambda: self._joining(ensemble),
            )
        assert isinstance(created, KeyValue), f"a transaction did not return the item that it put at {key!r}"
        ledger = Ledger(self._metadata, self._bookies, created, NO_ENTRY, self._secret)
        ledger.write_on(0, places)
        return ledger

    def _report_at_end(self) -> tuple[Operation, ...]:
        """The report in the transaction that seals the ledger, if bookies may lack entries of it."""
        missing = self._appender is not None and self._appender.copies_may_be_missing
        return (missing_report(self.id, self.name),) if missing else ()

    def _place(self, name: str, wanted: Quorum) -> tuple[Quorum, tuple[BookieId, ...]]:
        """Quorum and ensemble of the next ledger.

        The quorum is the wanted one, or this ledger's if there are too few bookies for that. If there are too few for
        both, the ensemble is this ledger's last one.
        """
        bookies = self._bookies
        for quorum in (wanted, self.record.quorum):
            ensemble = ensemble_for(name, quorum, bookies.available(), bookies.known())
            if ensemble is not None:
                return quorum, ensemble
        return self.record.quorum, self.record.fragments[-1].bookies

    @asynccontextmanager
    async def _finishing(self) -> AsyncIterator[None]:
        """Context for the record change that seals the ledger.

        Waits first for the pending entries: a bookie that fails meanwhile may have to be replaced in the record.
        """
        appender, seal = self._appender, self._seal
        if appender is None or self._failure is not (None if seal is None else seal.refusal):
            raise self._failure or LedgerClosed(f"ledger {self.name!r} is not open for appending")
        if seal is None:
            seal = self._seal = _Seal(self.name)
            self._failure = seal.refusal
        seal.calls += 1
        try:
            await self.drained()
            async with self._changing:
                if self._failure is not seal.refusal:  # closed, or sealed by another call
                    raise self._failure or seal.refusal
                seal.asked = True
                appender.finish()
                yield
                self._failure = LedgerSealed(f"ledger {self.name!r} is sealed: append to its successor")
                appender.end(self._failure)  # its lost bookies are reported in the transaction that sealed the ledger
        except (LedgerFenced, NoSuchLedger) as error:
            self._failure = error
            raise
        finally:
            seal.calls -= 1
            if not seal.calls and not seal.asked:
                self._seal = None
                self._failure = None if self._failure is seal.refusal else self._failure
            self._confirmed_more.notify()

    def _sealed(self, record: LedgerRecord, properties: dict[str, Any] | None) -> LedgerRecord:
        return records.seal(record, self.last_add_confirmed, self.length_bytes).with_properties(properties)

    async def change_ensemble(self, first_entry: EntryId, bookies: tuple[BookieId, ...]) -> None:
        """See `appender.Owner`; retries until it is known whether the change was recorded.

        The fragment that the change closes is reported in the same transaction: an earlier report may have been settled
        before the replaced bookie missed the last entries of it, and a later claimer looks at the last fragment only.
        """

        def changed(record: LedgerRecord) -> LedgerRecord:
            if record.sealed:
                raise LedgerSealed(f"ledger {self.name!r} is sealed: only the auditor replaces its bookies")
            return records.change_ensemble(record, first_entry, bookies)

        async with self._changing:
            while True:
                try:
                    closes = records.closes_entries(self.record, first_entry)
                    also = (missing_report(self.id, self.name),) if closes else ()
                    await self._change(changed, also=also, joining=lambda: self._joining(bookies))
                except MetadataUnavailable:
                    await self._bookies.clock.sleep(METADATA_RETRY_SECONDS)
                else:
                    return

    def _joining(self, ensemble: Iterable[BookieId]) -> tuple[Compare, ...]:
        """The comparisons for bookies of an ensemble that the record does not name yet."""
        return self._bookies.membership(name for name in ensemble if name not in self.record.bookies)

    async def report_missing(self) -> None:
        """See `appender.Owner`."""
        await self._metadata.txn((), (missing_report(self.id, self.name),))

    async def close(self) -> None:
        """Refuses further appends and waits for the pending ones; does not change the record.

        If cancelled, the handle is closed as well, and the pending entries are stored without the caller.
        """
        seal = self._seal
        if self._failure is None or (seal is not None and self._failure is seal.refusal and not seal.asked):
            self._failure = LedgerClosed(f"ledger {self.name!r} was closed by its user")
        if self._appender is not None:
            self._appender.finish()
        try:
            with suppress(*_LOST):
                await self.drained()
        finally:
            self._confirmed_more.notify()
