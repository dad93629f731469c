"""The writing half of an open ledger: sends entries to their bookies and replaces bookies that fail.

1. `done` callbacks come in entry order, in the Trio thread, each when its entry and all before it are confirmed.
2. The first failure that cannot be mended ends it: all that is pending gets that error, later appends raise it.
3. A bookie that fails is replaced by another one, in a new fragment behind the last entry confirmed; the entries that
   are not confirmed go to the new one as well. Where no other takes entries, writing goes on with those left as long as
   they make an ack quorum, and what the missing one lacks is reported. So it does while the metadata does not answer
   that report: a change that was sent holds up all that is pending until its outcome is known.
4. What a bookie answers after it was replaced counts no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

import trio

from gnomon.bookie.add_queue import StoreError
from gnomon.bookie.client import Bookie, Bookies, ensemble_of
from gnomon.bookie.digest import Mac
from gnomon.bookie.entry import Buffer, encode_entry
from gnomon.bookie.errors import EntryTooLarge, Fenced, LedgerError, LedgerFailed, LedgerFenced, NotEnoughBookies
from gnomon.bookie.ids import BookieId, EntryId, LedgerId, Session
from gnomon.bookie.placement import place
from gnomon.bookie.record import LedgerRecord, Quorum
from gnomon.bookie.writer import LedgerWriter
from gnomon.metadata.client import MetadataError, MetadataUnavailable
from gnomon.runtime.world import DiskFull, WorldError
from gnomon.wire.rpc import FRAME_BYTES_MAX

Appended: TypeAlias = Callable[[EntryId, LedgerError | None], None]

BUFFERS = (bytes, bytearray, memoryview)
ENTRY_BYTES_MAX = FRAME_BYTES_MAX - 4096
"""What goes to a bookie in one frame."""
RETRY_SECONDS = 0.5
"""How long a writer that misses a bookie waits before it looks for one again."""


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
        """The last add confirmed moved."""

    def appending_failed(self, error: LedgerError) -> None:
        """No more appends are taken."""

    async def change_ensemble(self, first_entry: EntryId, bookies: tuple[BookieId, ...]) -> None:
        """Records a new fragment.

        Raises:
            LedgerFenced: another writer has claimed the ledger.
        """

    async def report_missing(self) -> None:
        """Records that a bookie may lack entries of this ledger, for the auditor."""


class _Place:
    """One index of the ensemble: who holds it, and what hears its answers."""

    __slots__ = ("_appender", "_index", "bookie", "name")

    def __init__(self, name: BookieId, bookie: Bookie, appender: Appender, index: int) -> None:
        self.name = name
        self.bookie = bookie
        self._appender = appender
        self._index = index

    def answered(self, entry: EntryId, error: StoreError | None) -> None:
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
        """Goes on after `confirmed` with the bookies of the record's last fragment, in that order.

        Args:
            followed: see `create_ledger`.
        """
        record = owner.record
        self._owner = owner
        self._bookies = bookies
        self._quorum: Quorum = record.quorum
        self._id = owner.id
        self._session: Session = record.session
        self._mac = owner.mac
        self._writer = LedgerWriter(record.quorum, confirmed)
        self.places = [_Place(name, bookie, self, index) for index, (name, bookie) in enumerate(places.items())]
        self.length_bytes = record.length_bytes
        """Payload bytes of all entries ever appended."""
        self._followed = followed
        self._pending: deque[tuple[bytes, Appended]] | None = None
        """None while there is nothing: an empty one takes as much memory as all the rest."""
        self._idle: trio.Event | None = None
        self._mending = False
        self._mended = False
        self._finished = False
        self._ended = False

    @property
    def next_entry(self) -> EntryId:
        """The id the next append gets."""
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
            place_.bookie.add(ledger, entry, session, confirmed, value, place_.answered)
        return entry

    def heard(self, index: int, entry: EntryId, error: StoreError | None) -> None:
        """A bookie of the present ensemble has answered an add."""
        if self._ended:
            return
        if error is not None:
            self._bookie_failed(index, error)
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
        if self._idle is not None:
            self._idle.set()

    def _tell_confirmed(self, entry: EntryId) -> None:
        for place_ in self.places:
            place_.bookie.confirm(self._id, self._session, entry)

    async def drained(self) -> None:
        """Waits until nothing is pending, or all of it was failed."""
        while self._pending:
            if self._idle is None or self._idle.is_set():
                self._idle = trio.Event()
            await self._idle.wait()

    def finish(self) -> None:
        """Nothing comes any more and nothing is pending: bookies that are lost now are reported, and not replaced."""
        self._finished = True

    def end(self, error: LedgerError) -> None:
        """Takes and answers nothing more; what is pending gets `error`."""
        if self._ended:
            return
        self._ended = True
        entry = self._writer.confirmed
        if self._pending and self._followed and not isinstance(error, LedgerFenced):
            self._tell_confirmed(entry)  # no further entry tells it
        while self._pending:
            entry = EntryId(entry + 1)
            self._pending.popleft()[1](entry, error)
        self._pending = None
        if self._idle is not None:
            self._idle.set()

    def _fail(self, error: LedgerError) -> None:
        self._owner.appending_failed(error)
        self.end(error)

    # --- bookies that fail ---

    def _bookie_failed(self, index: int, error: StoreError) -> None:
        name = self._owner.name
        if isinstance(error, Fenced):
            self._fail(LedgerFenced(f"ledger {name!r} has another writer ({error}); what was pending is unknown"))
            return
        if not self._writer.lost(index):
            return
        if not self._writer.writable and not self._substitutes():
            # One bookie that was full kept nothing, nor what came after it; with several, after a failed write, or
            # where something was sent again, some entry may exist that nobody was told of.
            unknown = self._quorum.ensemble_size > 1 or self._mended or not isinstance(error, DiskFull)
            text = f"ledger {name!r} has too few bookies left to write to: {error}; open it again to go on"
            self._fail(LedgerFailed(text, outcome_unknown=unknown))
        elif not self._mending:
            self._mending = self._mended = True
            self._bookies.start_soon(self._mend)

    def _substitutes(self) -> dict[int, BookieId]:
        """Other bookies for those lost, by index."""
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
                    self._finished
                    and not missed
                    and all(self.places[at].name in reported for at in self._writer.lost_bookies)
                ):
                    return
                if self._finished or not self._writer.lost_bookies:
                    await self._bookies.clock.sleep(RETRY_SECONDS)
                    continue
                substitutes = self._substitutes()
                if substitutes and (answered or not self._writer.writable):
                    await self._replace(substitutes)
                    continue
                await self._bookies.clock.sleep(RETRY_SECONDS)
                if not self._ended and not self._finished and (substitutes or not self._substitutes()):
                    # What they missed is reported once more: an auditor may have looked before they were back.
                    missed += self._regain()
                    reported.difference_update(missed)
        except NotEnoughBookies as error:  # for the change; the entries may be on some
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
        """Reports those that are not reported yet; False where the metadata does not answer: the next round goes on."""
        for name in names:
            if name not in reported:
                try:
                    await self._owner.report_missing()
                except MetadataUnavailable:
                    return False
                reported.add(name)
        return True

    async def _replace(self, substitutes: Mapping[int, BookieId]) -> None:
        found = ensemble_of(self._bookies, substitutes.values())
        first_entry = self._writer.begin_change()
        names = [substitutes.get(index, place_.name) for index, place_ in enumerate(self.places)]
        await self._owner.change_ensemble(first_entry, tuple(names))
        if self._ended:
            return
        for index, name in substitutes.items():
            self.places[index] = _Place(name, found[name], self, index)
            self._bookies.start_soon(self.begin_session, found[name])
        before = self._writer.confirmed
        confirmed, pending = self._writer.end_change(substitutes)
        self._send_again(substitutes, pending, confirmed)
        if confirmed > before:
            self._acknowledge(before, confirmed)

    def _regain(self) -> list[BookieId]:
        """Tries those lost again that take entries by now; what they missed meanwhile is the auditor's to mend."""
        available = self._bookies.available()
        regained = []
        for index in self._writer.lost_bookies:
            name = self.places[index].name
            if name in available and self._is_known(self.places[index]):
                pending = self._writer.regained(index)
                self._send_again((index,), pending, self._writer.confirmed)
                regained.append(name)
        return regained

    def _is_known(self, place_: _Place) -> bool:
        """Whether its name still stands for that bookie: one with another disk takes its place as any other would."""
        return self._bookies.get(place_.name) is place_.bookie

    def _send_again(self, indexes: Sequence[int] | Mapping[int, BookieId], pending: range, confirmed: EntryId) -> None:
        """Sends the entries that are not confirmed to some places of the ensemble."""
        unconfirmed = self._pending or ()
        first = pending.stop - len(unconfirmed)
        for entry in map(EntryId, pending):
            value = unconfirmed[entry - first][0]
            for index in self._quorum.write_set(entry):
                if index in indexes:
                    place_ = self.places[index]
                    place_.bookie.add(self._id, entry, self._session, confirmed, value, place_.answered)

    async def begin_session(self, bookie: Bookie) -> None:
        """Has a bookie remove the orphans that the record excludes; a failure only means that they stay."""
        bounds = [(fragment.first_entry, fragment.session) for fragment in self._owner.record.fragments]
        try:
            await bookie.begin_session(self._id, self._session, bounds)
        except (LedgerError, WorldError):
            pass
