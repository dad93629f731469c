"""The writing half of an open ledger: sends entries to their bookies and replaces bookies that fail.

1. Each append has a `done` callback. The callbacks run in entry order, in the Trio thread: each after its entry and all
   before it are confirmed (stored by an ack quorum), or with an error.
2. The first failure that cannot be repaired ends the appender: all pending entries get that error, and later appends
   raise it. An append that finds no memory is such a failure: some bookies may have its entry.
3. A failed bookie is replaced by another: a new fragment begins after the last entry confirmed, and the new bookie also
   gets the unconfirmed entries. If no other bookie accepts entries, writing continues with the remaining bookies as
   long as they form an ack quorum for each entry; the missing copies are reported in the metadata. Writing does not
   wait for the metadata service to answer that report. But once a change of the ensemble was sent to the service, no
   entry is confirmed until the outcome of the change is known.
4. Answers that a bookie sends after its replacement are ignored.
5. A report may be settled before later entries miss the same bookie. So each transaction that ends a fragment reports
   the ledger again: a change of the ensemble, a seal after a bookie was lost or while it has not answered all adds
   (`copies_may_be_missing`), and the claim of a later writer (`claim`) if it finds entries missing.
6. The end of an appender is reported too, unless a seal reports it: if a bookie then has failed to store a confirmed
   entry, or fails later. A claim that fenced this writer may have been given up, and the ledger may stay unused.
7. A bookie that is used again lacks entries up to the last add confirmed. The bookies get it, also where no
   reader follows the ledger: the auditor copies confirmed entries only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias

from gnomon.bookie.bookie import Bookie, Bookies, StoreError, ensemble_of
from gnomon.bookie.digest import Mac
from gnomon.bookie.entry import Buffer, encode_entry
from gnomon.bookie.errors import (
    EntryTooLarge,
    Fenced,
    LedgerError,
    LedgerFailed,
    LedgerFenced,
    LedgerSealed,
    NoSuchLedger,
    NotEnoughBookies,
)
from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.ledgers.writer import LedgerWriter
from gnomon.bookie.placement import place
from gnomon.bookie.record import LedgerRecord, Quorum
from gnomon.metadata.client import MetadataError, MetadataUnavailable
from gnomon.runtime.signal import Signal
from gnomon.runtime.world import DiskFull, WorldError
from gnomon.wire.rpc import FRAME_BYTES_MAX

Appended: TypeAlias = Callable[[EntryId, LedgerError | None], None]

BUFFERS = (bytes, bytearray, memoryview)
ENTRY_BYTES_MAX = FRAME_BYTES_MAX - 4096
"""The largest payload of an entry, so that it fits into one frame to a bookie."""
RETRY_SECONDS = 0.5
"""Pause of a writer without a full ensemble before it looks for a bookie again."""


class Owner(Protocol):
    """The ledger that an appender writes to."""

    id: LedgerId
    record: LedgerRecord
    mac: Mac | None
    keep: Callable[[EntryId, bytes], None] | None

    @property
    def name(self) -> str:
        """The ledger's name."""

    def confirmed_to(self, entry: EntryId) -> None:
        """The last add confirmed advanced."""

    def appending_failed(self, error: LedgerError) -> None:
        """No more appends are accepted."""

    async def change_ensemble(self, first_entry: EntryId, bookies: tuple[BookieId, ...]) -> None:
        """Records a new fragment.

        Raises:
            LedgerFenced: another writer has claimed the ledger.
            NoSuchLedger: it was deleted.
        """

    async def report_missing(self) -> None:
        """Records that a bookie may lack entries of this ledger, for the auditor."""


class _EnsembleMember:
    """One index of the ensemble: its bookie, and the receiver of the bookie's answers."""

    __slots__ = ("_appender", "_index", "bookie", "name", "unanswered")

    def __init__(self, name: BookieId, bookie: Bookie, appender: Appender, index: int) -> None:
        self.name = name
        self.bookie = bookie
        self.unanswered = 0
        """The adds whose answers are awaited."""
        self._appender = appender
        self._index = index

    def answered(self, entry: EntryId, error: StoreError | None) -> None:
        self.unanswered -= 1
        if self._appender.places[self._index] is self:
            self._appender.heard(self._index, entry, error)


class Appender:
    """Appends under one session; see the module's invariants."""

    def __init__(
        self,
        owner: Owner,
        bookies: Bookies,
        places: Mapping[BookieId, Bookie],
        confirmed: EntryId,
        *,
        followed: bool = True,
    ) -> None:
        """Continues after `confirmed` with the bookies of the record's last fragment, in that order.

        Args:
            followed: see `create_ledger`.
        """
        record = owner.record
        self._owner = owner
        self._bookies = bookies
        self._quorum: Quorum = record.quorum
        self._id = owner.id
        self._session: SessionId = record.session
        self._mac = owner.mac
        self._writer = LedgerWriter(record.quorum, confirmed)
        self.places = [
            _EnsembleMember(name, bookie, self, index) for index, (name, bookie) in enumerate(places.items())
        ]
        self.length_bytes = record.length_bytes
        """Payload bytes of all entries ever appended."""
        self._followed = followed
        self._pending: deque[tuple[bytes, Appended]] | None = None
        """None while nothing is pending: an empty deque takes as much memory as all the rest."""
        self._idle = Signal()
        self._mending = False
        self._mended = False
        self._finished = False
        self._ended = False
        self._reports_end = False
        """Whether a copy that turns out to be missing after the end is reported."""

    @property
    def next_entry(self) -> EntryId:
        """The id of the next append."""
        return self._writer.next_entry

    def append(self, payload: Sequence[Buffer], done: Appended) -> EntryId:
        """See `Ledger.append`."""
        length = self.length_bytes
        for chunk in payload:
            if not isinstance(chunk, BUFFERS):
                raise TypeError(f"the payload of an entry is a list of chunks of bytes, not {payload!r:.40}")
            length += len(chunk)
        if length - self.length_bytes > ENTRY_BYTES_MAX:
            raise EntryTooLarge(f"{length - self.length_bytes} bytes: an entry has at most {ENTRY_BYTES_MAX}")
        writer = self._writer
        try:
            entry = writer.append()
            self.length_bytes = length
            ledger, session, confirmed = self._id, self._session, writer.confirmed
            if self._mac is not None:
                payload = self._mac.seal(entry, payload)
            value = encode_entry(ledger, entry, session, confirmed, length, payload)
            if self._pending is None:
                self._pending = deque()
            self._pending.append((value, done))
            for index in writer.targets(entry):
                place_ = self.places[index]
                place_.unanswered += 1
                place_.bookie.add(ledger, entry, session, confirmed, value, place_.answered)
        except MemoryError as error:
            text = f"ledger {self._owner.name!r} had no memory for an entry; open it again to continue"
            failure = LedgerFailed(text, outcome_unknown=True)
            self._fail(failure)
            raise failure from error
        return entry

    @property
    def copies_may_be_missing(self) -> bool:
        """Whether a bookie was lost, or has not answered all adds: if this writer dies, nobody else notices."""
        return self._mended or any(place_.unanswered for place_ in self.places)

    def heard(self, index: int, entry: EntryId, error: StoreError | None) -> None:
        """A bookie of the current ensemble has answered an add."""
        if error is not None:
            if not self._ended:
                self._bookie_failed(index, error)
            if entry <= self._writer.confirmed:
                self._report_after_end()
            return
        if self._ended:
            return
        before = self._writer.confirmed
        confirmed = self._writer.stored(index, entry)
        if confirmed > before:
            self._acknowledge(before, confirmed)

    def _acknowledge(self, before: EntryId, confirmed: EntryId) -> None:
        pending, owner = self._pending, self._owner
        assert pending is not None, "an entry was confirmed that is not pending"
        owner.confirmed_to(confirmed)
        keep = owner.keep
        for entry in map(EntryId, range(before + 1, confirmed + 1)):
            value, done = pending.popleft()
            if keep is not None:
                keep(entry, value)
            done(entry, None)
        if pending:
            return
        self._pending = None
        if self._followed:
            self._tell_confirmed(confirmed)
        self._idle.notify()

    def _tell_confirmed(self, entry: EntryId) -> None:
        for place_ in self.places:
            place_.bookie.confirm(self._id, self._session, entry)

    async def drained(self) -> None:
        """Waits until nothing is pending, or all of it was failed."""
        while self._pending:
            await self._idle.wait()

    def finish(self) -> None:
        """Announces that no append follows: bookies lost once nothing is pending are reported, and not replaced."""
        self._finished = True

    @property
    def _done(self) -> bool:
        return self._finished and not self._pending

    def end(self, error: LedgerError) -> None:
        """Stops the appender; pending entries get `error`."""
        if self._ended:
            return
        self._ended = True
        entry = self._writer.confirmed
        if self._pending and self._followed and not isinstance(error, LedgerFenced | NoSuchLedger):
            self._tell_confirmed(entry)  # no further entry carries it
        while self._pending:
            entry = EntryId(entry + 1)
            self._pending.popleft()[1](entry, error)
        self._pending = None
        self._reports_end = not isinstance(error, LedgerSealed | NoSuchLedger)
        if self._mending:
            self._report_after_end()
        self._writer.ended()
        self._idle.notify()

    def _fail(self, error: LedgerError) -> None:
        self._owner.appending_failed(error)
        self.end(error)

    # --- bookies that fail ---

    def _bookie_failed(self, index: int, error: StoreError) -> None:
        name = self._owner.name
        if isinstance(error, Fenced):
            text = f"ledger {name!r} has another writer ({error}); the outcome of pending appends is unknown"
            self._fail(NoSuchLedger(f"ledger {name!r} was deleted") if error.deleted else LedgerFenced(text))
            return
        if not self._writer.lost(index):
            return
        if not self._writer.writable and not self._substitutes():
            # A single bookie with a full disk stored neither this entry nor later ones. With several bookies, after a
            # failed write, or after entries were sent again, some unacknowledged entry may exist.
            unknown = self._quorum.ensemble_size > 1 or self._mended or not isinstance(error, DiskFull)
            text = f"ledger {name!r} has too few bookies left to write to: {error}; open it again to continue"
            self._fail(LedgerFailed(text, outcome_unknown=unknown))
        elif not self._mending:
            self._mending = self._mended = True
            self._bookies.start_soon(self._mend)

    def _substitutes(self) -> dict[int, BookieId]:
        """Replacements for the lost bookies, by index."""
        available = self._bookies.available()
        lost = self._writer.lost_bookies
        kept = [place_ for index, place_ in enumerate(self.places) if index not in lost]
        beside = [(place_.name, available.get(place_.name, "")) for place_ in kept]
        without = [self.places[index].name for index in lost if self._is_known(self.places[index])]
        chosen = place(self._owner.name, available, len(lost), beside=beside, without=without)
        return dict(zip(lost, chosen, strict=False))

    async def _mend(self) -> None:
        """Replaces or regains every lost bookie."""
        reported: set[BookieId] = set()
        missed: list[BookieId] = []
        try:
            while not self._ended and (self._writer.lost_bookies or missed):
                lost = [self.places[index].name for index in self._writer.lost_bookies]
                answered = await self._report((*missed, *lost), reported)
                missed = [name for name in missed if name not in reported]
                if (
                    self._done
                    and not missed
                    and all(self.places[at].name in reported for at in self._writer.lost_bookies)
                ):
                    return
                if self._done or not self._writer.lost_bookies:
                    await self._bookies.clock.sleep(RETRY_SECONDS)
                    continue
                substitutes = self._substitutes()
                if substitutes and (answered or not self._writer.writable):
                    await self._replace(substitutes)
                    continue
                await self._bookies.clock.sleep(RETRY_SECONDS)
                if not self._ended and not self._done and (substitutes or not self._substitutes()):
                    # Missed entries are reported again: an auditor may have checked before the bookies were back.
                    missed += self.regain()
                    reported.difference_update(missed)
        except NotEnoughBookies as error:  # from the ensemble change; some bookies may have the pending entries
            text = f"ledger {self._owner.name!r} lost a bookie, which cannot be replaced: {error}"
            self._fail(LedgerFailed(text, outcome_unknown=True))
        except LedgerError as error:
            self._fail(error)
        except MetadataError as error:
            text = f"ledger {self._owner.name!r} lost a bookie, and the metadata could not be asked: {error}"
            self._fail(LedgerFailed(text, outcome_unknown=True))
        finally:
            self._mending = False

    async def _report(self, names: Iterable[BookieId], reported: set[BookieId]) -> bool:
        """Reports bookies not reported yet; False if the metadata does not answer: the next round continues."""
        for name in names:
            if name not in reported:
                try:
                    await self._owner.report_missing()
                except MetadataUnavailable:
                    return False
                reported.add(name)
        return True

    def _report_after_end(self) -> None:
        """Reports missing copies once, if the appender has ended and nobody else reports them (invariant 6)."""
        if self._reports_end:
            self._reports_end = False
            self._bookies.start_soon(self._report_until_answered)

    async def _report_until_answered(self) -> None:
        while True:
            with suppress(MetadataError):
                await self._owner.report_missing()
                return
            await self._bookies.clock.sleep(RETRY_SECONDS)

    async def _replace(self, substitutes: Mapping[int, BookieId]) -> None:
        found = ensemble_of(self._bookies, substitutes.values())
        first_entry = self._writer.begin_change()
        names = [substitutes.get(index, place_.name) for index, place_ in enumerate(self.places)]
        await self._owner.change_ensemble(first_entry, tuple(names))
        if self._ended:
            return
        for index, name in substitutes.items():
            self.places[index] = _EnsembleMember(name, found[name], self, index)
            self._bookies.start_soon(self.begin_session, found[name])
        before = self._writer.confirmed
        confirmed, pending = self._writer.end_change(substitutes)
        self._send_again(substitutes, pending, confirmed)
        if confirmed > before:
            self._acknowledge(before, confirmed)

    def regain(self) -> list[BookieId]:
        """Uses lost bookies again if they accept entries now; the auditor copies the entries that they missed."""
        available = self._bookies.available()
        regained = []
        for index in self._writer.lost_bookies:
            name = self.places[index].name
            if name in available and self._is_known(self.places[index]):
                pending = self._writer.regained(index)
                self._send_again((index,), pending, self._writer.confirmed)
                regained.append(name)
        if regained:
            self._tell_confirmed(self._writer.confirmed)
        return regained

    def _is_known(self, place_: _EnsembleMember) -> bool:
        """Whether the name still means this bookie: after a change of disk the name means another one."""
        return self._bookies.get(place_.name) is place_.bookie

    def _send_again(self, indexes: Sequence[int] | Mapping[int, BookieId], pending: range, confirmed: EntryId) -> None:
        """Sends unconfirmed entries again to some indexes of the ensemble."""
        unconfirmed = self._pending or ()
        first = pending.stop - len(unconfirmed)
        for entry in map(EntryId, pending):
            value = unconfirmed[entry - first][0]
            for index in self._quorum.write_set(entry):
                if index in indexes:
                    place_ = self.places[index]
                    place_.unanswered += 1
                    place_.bookie.add(self._id, entry, self._session, confirmed, value, place_.answered)

    async def begin_session(self, bookie: Bookie) -> None:
        """Makes a bookie remove the orphans that the record excludes; after a failure the orphans only stay longer."""
        bounds = [(fragment.first_entry, fragment.session) for fragment in self._owner.record.fragments]
        try:
            await bookie.begin_session(self._id, self._session, bounds)
        except (LedgerError, WorldError):
            pass
