"""A ledger opened for reading: its record, and the last add confirmed that its bookies report.

1. No entry above the last add confirmed is ever read, with one exception: `read_last` reads an entry above it that an
   ack quorum has.
2. A report comes from a writer's session (its claim of the ledger). It is used only with a record that is as new as
   that session: an older record does not exclude the orphans, which are copies that the claim has made invalid.
3. A handle that writes ignores reports: it knows the last add confirmed itself.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from math import inf

import trio

from gnomon.bookie.bookie import Bookies, Confirmed, ReadableStore
from gnomon.bookie.digest import Mac, Secret
from gnomon.bookie.entry import StoredEntry
from gnomon.bookie.errors import (
    EntryNotConfirmed,
    EntryShrunk,
    LedgerError,
)
from gnomon.bookie.ids import ENTRY_MAX, FIRST_ENTRY, NO_ENTRY, BookieId, EntryId
from gnomon.bookie.ledgers.appender import Appender
from gnomon.bookie.ledgers.copies import (
    RUN_BYTES_MAX,
    next_run_bytes,
    read_durable_tail,
    read_entry,
    read_run,
)
from gnomon.bookie.ledgers.held_record import HeldRecord
from gnomon.bookie.ledgers.lac import ask_confirmed, ask_stored, wait_for_news
from gnomon.bookie.ledgers.local_view import LocalView
from gnomon.bookie.record import DigestType, LedgerRecord, decode_record
from gnomon.metadata.client import KeyValue, Metadata, MetadataError


def check_entry(what: str, entry: object, lowest: EntryId = FIRST_ENTRY) -> None:
    """Checks an entry id that a caller has passed as the argument `what`.

    Args:
        lowest: NO_ENTRY if the last entry of an empty ledger is allowed, too.

    Raises:
        TypeError, ValueError: it is not an entry id.
    """
    if type(entry) is not int:
        raise TypeError(f"{what} is a {type(entry).__name__}: give the number of an entry")
    if not lowest <= entry <= ENTRY_MAX:
        raise ValueError(f"{what} is {entry}: give the number of an entry, from {lowest} on")


class FollowedLedger(HeldRecord):
    """One ledger; see the module's invariants."""

    def __init__(
        self, metadata: Metadata, bookies: Bookies, stored: KeyValue, confirmed: EntryId, secret: Secret
    ) -> None:
        """Starts from the record in `stored` and the last add confirmed known so far."""
        super().__init__(metadata, stored)
        self.last_add_confirmed = confirmed
        """The last readable entry; `start_entry - 1` or lower if there is none."""
        self.mac = Mac(self.id, secret) if self.record.digest_type is DigestType.MAC else None
        """Seals and opens entries if the ledger has a keyed digest."""
        self._bookies = bookies
        self._appender: Appender | None = None
        """Set if this handle writes."""

    # --- entries ---

    def view(self) -> AbstractContextManager[LocalView | None]:
        """Zero-copy reading for a `with` block that does not await; None if no copy is in this process."""
        for name in self.record.fragments[-1].bookies:
            view = self.store_view(name)
            if view is not None:
                return LocalView(self, view)
        return nullcontext(None)

    def store_view(self, name: BookieId) -> ReadableStore | None:
        """A new read transaction on the store of a bookie; None if the store is not in this process."""
        bookie = self._bookies.get(name)
        return None if bookie is None else bookie.view()

    async def read(self, first: EntryId, last: EntryId) -> list[bytes]:
        """Copies of the payloads from `first` to `last` inclusive; empty if `last` is below `first`.

        Raises:
            EntryNotConfirmed, EntryShrunk, NoSuchEntry, DigestMismatch, NotEnoughBookies.
            NoSuchLedger: it was deleted.
            ValueError, TypeError: an argument is not an entry id.
        """
        check_entry("first", first)
        check_entry("last", last, NO_ENTRY)
        if last > self.last_add_confirmed:
            raise EntryNotConfirmed(self.id, last, self.last_add_confirmed)
        if first < self.record.start_entry:
            raise EntryShrunk(self.id, first, self.record.start_entry)
        record, bytes_max, clock = self.record, RUN_BYTES_MAX, self._bookies.clock
        payloads: list[bytes] = []
        while (entry := EntryId(first + len(payloads))) <= last:
            started = clock.monotonic()
            try:
                run = await read_run(self._bookies, self.id, record, entry, last, bytes_max)
            except LedgerError as error:
                record = await self.newer_record(record, error)
                continue
            bytes_max = next_run_bytes(bytes_max, clock.monotonic() - started)
            payloads += [self._opened(EntryId(at), stored.payload) for at, stored in enumerate(run, entry)]
        return payloads

    async def payload_bytes(self, first: EntryId, last: EntryId) -> int:
        """The payload bytes of the entries from `first` to `last`, which are confirmed; reads two of them at most.

        Raises:
            LedgerError: the first or the last entry cannot be read.
        """
        record = self.record
        whole = record.sealed and last == record.last_entry
        end_bytes = record.length_bytes if whole else (await self._stored_entry(last)).length_bytes
        if first == FIRST_ENTRY:
            return end_bytes
        stored = await self._stored_entry(first)
        return end_bytes - stored.length_bytes + len(stored.payload)

    async def _stored_entry(self, entry: EntryId) -> StoredEntry:
        record = self.record
        while True:
            try:
                return await read_entry(self._bookies, self.id, record, entry)
            except LedgerError as error:
                record = await self.newer_record(record, error)

    async def newer_record(self, record: LedgerRecord, error: LedgerError) -> LedgerRecord:
        """A newer record for another attempt to read after `error`; raises `error` if the record is unchanged."""
        try:
            stored = await self._read()
        except MetadataError:
            raise error from None
        newer = decode_record(stored.value)
        if newer == record:
            raise error
        if self._appender is None:
            self._refresh(stored)
        return newer

    def _opened(self, entry: EntryId, payload: memoryview) -> bytes:
        return bytes(payload if self.mac is None else self.mac.open(entry, payload))

    # --- the last add confirmed ---

    async def refresh_lac(self, *, seconds: float = inf) -> EntryId:
        """Reads the record again, then asks the bookies that it names for the last add confirmed.

        The bookies alone may know less: those of an older record are asked no more by the writer, and the last add
        confirmed of a sealed ledger is in the record.

        Args:
            seconds: time limit, a third of it for the metadata and a third for the bookies; answers until then count.

        Returns:
            The highest last add confirmed that is known; after a time-out that may be the old one.

        Raises:
            NoSuchLedger: the ledger was deleted meanwhile.
            MetadataError: a record could not be read.
        """
        if self._appender is not None:
            return self.last_add_confirmed
        with trio.move_on_after(seconds):
            with trio.move_on_after(seconds / 3):
                self._refresh(await self._read())
            await self.ask_bookies(seconds=seconds / 3)
        return self.last_add_confirmed

    async def ask_bookies(self, *, seconds: float = inf) -> EntryId:
        """Asks the bookies for the last add confirmed, for a handle that reads and whose owner follows the record.

        Args:
            seconds: time limit for the bookies; answers until then count.

        Returns:
            The highest last add confirmed that is known.
        """
        for confirmed in await ask_confirmed(self._bookies, self.id, self.record.fragments[-1].bookies, seconds):
            await self._heard(confirmed)
        return self.last_add_confirmed

    async def last_stored(self) -> EntryId | None:
        """The last entry that any bookie of the last fragment has: no later one can have been confirmed.

        Returns:
            At least the last add confirmed that is known here; None if a bookie did not answer.
        """
        return await ask_stored(self._bookies, self.id, self.record.fragments[-1], self.last_add_confirmed)

    async def read_last(self) -> bytes | None:
        """The payload of the last durable entry, for a handle that reads a ledger whose writer has no followers.

        It may be above the last add confirmed: an ack quorum has it, so every claimer of the ledger finds it, too. None
        if the ledger is empty.

        Raises:
            LedgerError: the entry cannot be read, or it is unknown whether it is the last one.
            MetadataError: a needed record could not be read.
        """
        confirmed = await self.ask_bookies()
        tail = await read_durable_tail(self._bookies, self.id, self.record, EntryId(confirmed + 1))
        if tail:
            return self._opened(EntryId(confirmed + len(tail)), tail[-1].payload)
        if confirmed < self.start_entry:
            return None
        (payload,) = await self.read(confirmed, confirmed)
        return payload

    def take_record(self, stored: KeyValue) -> None:
        """Replaces the record by one from a follower of many records, if it is newer.

        Raises:
            NoSuchLedger: it is of another life of the name.
        """
        self._refresh(stored)

    def take_confirmed(self, entry: EntryId) -> None:
        """Takes over `entry` as confirmed by the writer of the record's session; for a handle that reads."""
        if self._appender is None and entry > self.last_add_confirmed and not self.record.sealed:
            self.last_add_confirmed = entry

    async def listen(self, entry: EntryId) -> None:
        """Waits until a bookie of the last fragment reports `entry` as confirmed; does not watch the record.

        For callers that follow the records themselves: after a change of the record they cancel this, call
        `take_record` and listen again.

        Raises:
            NoSuchLedger: the ledger was deleted meanwhile.
            NotEnoughBookies: one of its bookies is unknown to this process.
            MetadataError: a needed record could not be read.
        """
        names = self.record.fragments[-1].bookies
        heard, _ = await wait_for_news(self._bookies, self.id, names, entry, trio.sleep_forever)
        for confirmed in heard:
            await self._heard(confirmed)

    async def _heard(self, confirmed: Confirmed) -> None:
        """Handles a bookie's report of the last add confirmed, for a handle that reads."""
        if self._appender is not None or confirmed.entry <= self.last_add_confirmed or self.record.sealed:
            return
        if confirmed.session > self.record.session:
            # Another writer reported it, and this record does not know the orphans that its claim excludes.
            self._refresh(await self._read())
        if not self.record.sealed:
            self.last_add_confirmed = max(self.last_add_confirmed, confirmed.entry)

    async def _follow(self, entry: EntryId) -> EntryId:
        while self.last_add_confirmed < entry and not self.record.sealed:
            names = self.record.fragments[-1].bookies
            heard, changed = await wait_for_news(self._bookies, self.id, names, entry, self._changed)
            for stored in changed:
                self._refresh(stored)
            for confirmed in heard:
                await self._heard(confirmed)
        return self.last_add_confirmed

    def _refresh(self, stored: KeyValue | None) -> None:
        super()._refresh(stored)
        if self.record.sealed:
            self.last_add_confirmed = self.record.last_entry
        elif self._appender is None:
            self.last_add_confirmed = max(self.last_add_confirmed, self.record.confirmed)
