"""Recovers a ledger for a claim: fences its bookies, finds its end, and makes the tail durable.

The tail is the entries after the last add confirmed. The caller (`catalog`) reads the ledger's record before, and
records the claim after: one metadata read and one write. If that write fails because the record was changed meanwhile,
the claimer has left only two things, both at the bookies: the promise of its session, and copies of existing entries.
"""

from __future__ import annotations

import trio

from gnomon.bookie.bookie import Bookie, Bookies, RangeRead, known_bookie
from gnomon.bookie.entry import StoredEntry
from gnomon.bookie.errors import Fenced, LedgerError, LedgerFenced, NoSuchLedger, NotEnoughBookies
from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.ledgers.copies import batches, have_entries
from gnomon.bookie.ledgers.recovery import Recovery
from gnomon.bookie.placement import place
from gnomon.bookie.record import LedgerRecord
from gnomon.runtime.world import WorldError

FENCE_GRACE_SECONDS = 0.1
"""Seconds that the last bookies may take to promise once enough have: their promises only make the record shorter."""
AHEAD_ENTRIES = 256
AHEAD_BYTES_MAX = 4 << 20
"""The most bytes of the tail read in one call."""
LOOK_ENTRIES_MAX = 1000
"""A claimer itself looks for missing copies in a fragment of up to this many entries; longer ones are left to the
auditor. A bookie lists that many in 0.4 ms, and the claimer compares them in as long."""
LOOK_SECONDS = 0.1
"""Seconds that bookies may take to list their entries."""


class Recovered:
    """A ledger's end as found by a claimer, durable on its ack quorum."""

    def __init__(self, recovery: Recovery, bookies: tuple[BookieId, ...], complete: bool) -> None:
        self.last_entry = recovery.last_entry
        self.length_bytes = recovery.length_bytes
        self.without_orphans = recovery.without_orphans
        self.bookies = bookies
        """The ensemble of the next fragment: bookies that did not answer are replaced if others accept entries."""
        self.complete = complete
        """Whether every bookie answered and has all its entries of the last fragment: none lacks entries unnoticed."""


class ReadAhead:
    """One bookie of the ensemble, read ahead."""

    def __init__(self, bookie: Bookie, ledger: LedgerId) -> None:
        self.bookie = bookie
        self._ledger = ledger
        self._first = EntryId(0)
        self._read: RangeRead | None = None
        self._entries: dict[EntryId, StoredEntry] = {}

    async def entry(self, entry: EntryId, minimum_session: SessionId) -> StoredEntry | None:
        """The entry, None if the bookie explicitly does not have it."""
        if self._read is None or not self._first <= entry < self._read.scanned_to:
            last = EntryId(entry + AHEAD_ENTRIES - 1)
            self._read = await self.bookie.read_range(self._ledger, entry, last, minimum_session, AHEAD_BYTES_MAX)
            self._first, self._entries = entry, dict(self._read.entries)
        stored = self._entries.get(entry)
        # The entry may have been read ahead for an older fragment, in which more sessions count than here.
        return stored if stored is not None and stored.session >= minimum_session else None


async def recover(bookies: Bookies, ledger: LedgerId, name: str, record: LedgerRecord, session: SessionId) -> Recovered:
    """Finds the end of a ledger under `session` and makes its tail durable; does not change the record.

    Raises:
        LedgerFenced: another writer claimed it meanwhile.
        NoSuchLedger: it was deleted.
        NotEnoughBookies: too few bookies answered.
    """
    driver = RecoveryDriver(bookies, ledger, name, record, session)
    await driver.fence()
    await driver.find_end()
    await driver.write_tail()
    return Recovered(driver.recovery, driver.next_ensemble(), await driver.is_complete())


class RecoveryDriver:
    """Drives a `Recovery`."""

    def __init__(self, bookies: Bookies, ledger: LedgerId, name: str, record: LedgerRecord, session: SessionId) -> None:
        self._bookies, self._ledger, self._name = bookies, ledger, name
        self._record, self._session = record, session
        self.recovery = Recovery(record)
        self._copies: dict[int, ReadAhead] = {}
        self._problems: list[LedgerError | WorldError] = []

    async def fence(self) -> None:
        """Fences all bookies of the last fragment, or as many as answer soon after enough have."""
        enough = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._fence_all, enough, nursery.cancel_scope)
            await enough.wait()
            await self._bookies.clock.sleep(FENCE_GRACE_SECONDS)
            nursery.cancel_scope.cancel()
        self._check_fenced()

    def _check_fenced(self) -> None:
        for problem in self._problems:
            if isinstance(problem, Fenced):
                if problem.deleted:
                    raise NoSuchLedger(f"ledger {self._name!r} was deleted") from problem
                text = f"ledger {self._name!r} was claimed by another meanwhile: {problem}"
                raise LedgerFenced(text, problem.promised) from problem

    async def _fence_all(self, enough: trio.Event, all_answered: trio.CancelScope) -> None:
        async def fence(index: int, name: BookieId) -> None:
            try:
                bookie = known_bookie(self._bookies, name)
                result = await bookie.fence(self._ledger, self._session)
            except (LedgerError, WorldError) as error:
                self._problems.append(error)
                return
            self._copies[index] = ReadAhead(bookie, self._ledger)
            self.recovery.fenced(index, result.last_add_confirmed, result.bound)
            if self.recovery.enough_fenced:
                enough.set()

        async with trio.open_nursery() as nursery:
            for index, name in enumerate(self.recovery.ensemble):
                nursery.start_soon(fence, index, name)
        all_answered.cancel()

    async def find_end(self) -> None:
        """Reads from the last add confirmed on."""
        recovery = self.recovery
        try:
            while (request := recovery.next_read()) is not None:
                index, entry, minimum_session = request
                await trio.lowlevel.checkpoint()  # a bookie of this process answers without one
                try:
                    stored = await self._copies[index].entry(entry, minimum_session)
                except (LedgerError, WorldError) as error:
                    self._problems.append(error)
                    continue
                if stored is None:
                    recovery.absent()
                else:
                    recovery.found(stored)
        except NotEnoughBookies as error:
            raise self._with_cause(error) from error

    def _with_cause(self, error: NotEnoughBookies) -> NotEnoughBookies:
        return NotEnoughBookies(f"{error} ({self._problems[-1]})") if self._problems else error

    async def write_tail(self) -> None:
        """Brings each entry of the tail to its ack quorum; the copy that was read counts.

        If the fenced bookies are too few, bookies that have not promised yet are asked: accepting a copy also promises.
        """
        quorum = self._record.quorum
        copies = {entry: 1 for entry, _, _ in self.recovery.tail}
        late = [index for index in range(quorum.ensemble_size) if index not in self._copies]
        for indexes in (list(self._copies), late):
            if any(count < quorum.ack_quorum for count in copies.values()):
                async with trio.open_nursery() as nursery:
                    for index in indexes:
                        nursery.start_soon(self.put_copies, index, copies)
        self._check_fenced()
        short = [entry for entry, count in copies.items() if count < quorum.ack_quorum]
        if short:
            text = f"entry {short[0]} of ledger {self._name!r} could be brought to too few bookies: bring them back"
            raise self._with_cause(NotEnoughBookies(text))

    async def put_copies(self, index: int, copies: dict[EntryId, int]) -> None:
        """Sends one bookie of the ensemble its entries of the tail, and counts each durable copy in `copies`."""
        quorum = self._record.quorum
        mine = [
            (entry, value)
            for entry, value, holder in self.recovery.tail
            if holder != index and index in quorum.write_set(entry)
        ]
        if not mine:
            return
        try:
            bookie = known_bookie(self._bookies, self.recovery.ensemble[index])
            for batch in batches(mine):  # a tail may be larger than a call
                await bookie.put_copies(self._ledger, self._session, batch)
                for entry, _ in batch:
                    copies[entry] += 1
        except (LedgerError, WorldError) as error:
            self._problems.append(error)

    async def is_complete(self) -> bool:
        """Whether every bookie of the ensemble has answered every request, and has its entries of the last fragment.

        False also for a long fragment, and if a bookie takes long to answer: the auditor looks then.
        """
        entries = self.recovery.copied_entries
        if len(self._copies) < len(self.recovery.ensemble) or self._problems or len(entries) > LOOK_ENTRIES_MAX:
            return False
        return await have_entries(self._bookies, self._ledger, self._record, entries, LOOK_SECONDS)

    def next_ensemble(self) -> tuple[BookieId, ...]:
        """The bookies of the next fragment."""
        available = self._bookies.available()
        ensemble = list(self.recovery.ensemble)
        # Bookies that were silent or accept no entries (full, or about to leave) are replaced.
        leaving = [index for index, name in enumerate(ensemble) if index not in self._copies or name not in available]
        beside = [(name, available.get(name, "")) for index, name in enumerate(ensemble) if index not in leaving]
        without = [ensemble[index] for index in leaving]
        chosen = place(self._name, available, len(leaving), beside=beside, without=without)
        for index, name in zip(leaving, chosen, strict=False):
            ensemble[index] = name
        return tuple(ensemble)
