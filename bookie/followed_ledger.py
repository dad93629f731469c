"""A ledger as this process reads it: by its record, and by what bookies tell of how far it is confirmed.

1. Nothing above the last add confirmed is ever read.
2. What a bookie tells counts by the record of the session that told it, or a later one: an older one does not know what
   that excludes. Who writes knows by itself, and is told nothing.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import trio

from gnomon.bookie.appender import Appender
from gnomon.bookie.client import Bookies
from gnomon.bookie.copies import SPECULATIVE_SECONDS, read_run
from gnomon.bookie.digest import Mac, Secret
from gnomon.bookie.errors import (
    EntryNotConfirmed,
    EntryShrunk,
    LedgerError,
)
from gnomon.bookie.held_record import HeldRecord
from gnomon.bookie.ids import BookieId, EntryId
from gnomon.bookie.lac import ask_confirmed, ask_stored, wait_for_news
from gnomon.bookie.ledger_state import Confirmed
from gnomon.bookie.local_view import LocalView
from gnomon.bookie.record import DigestType, LedgerRecord, decode_record
from gnomon.bookie.store_view import StoreView
from gnomon.metadata.client import KeyValue, Metadata, MetadataError

READ_BYTES_MAX = 1 << 20
READ_BYTES_MIN = 1 << 14


class FollowedLedger(HeldRecord):
    """One ledger; see the module's invariants."""

    def __init__(
        self, metadata: Metadata, bookies: Bookies, stored: KeyValue, confirmed: EntryId, secret: Secret
    ) -> None:
        """As of the record in `stored` and the last add confirmed known so far."""
        super().__init__(metadata, stored)
        self.last_add_confirmed = confirmed
        """The last entry that may be read, `start_entry - 1` or lower where there is none."""
        self.mac = Mac(self.id, secret) if self.record.digest_type is DigestType.MAC else None
        """Seals entries where the ledger has a keyed digest."""
        self._bookies = bookies
        self._appender: Appender | None = None
        """Where this handle writes."""

    # --- entries ---

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

    # --- how far it is confirmed ---

    async def refresh_lac(self) -> EntryId:
        """Asks the bookies how far the ledger is confirmed, for a handle that reads; returns what is known then."""
        for confirmed in await ask_confirmed(self._bookies, self.id, self.record.fragments[-1].bookies):
            await self._heard(confirmed)
        return self.last_add_confirmed

    async def last_stored(self) -> EntryId | None:
        """The last entry that any bookie of the last fragment has: nobody was told that a later one is confirmed.

        Returns:
            At least the last add confirmed that is known here; None where a bookie did not say.
        """
        return await ask_stored(self._bookies, self.id, self.record.fragments[-1], self.last_add_confirmed)

    def take_record(self, stored: KeyValue) -> None:
        """Holds a record that somebody who follows many of them was told, if it is newer than the one held.

        Raises:
            NoSuchLedger: it is of another life of the name.
        """
        self._refresh(stored)

    def take_confirmed(self, entry: EntryId) -> None:
        """The writer of the record's session has told that `entry` is confirmed; for a handle that reads."""
        if self._appender is None and entry > self.last_add_confirmed and not self.record.sealed:
            self.last_add_confirmed = entry

    async def listen(self, entry: EntryId) -> None:
        """Waits until a bookie of the last fragment tells that `entry` is confirmed; the record is not watched.

        For who follows the records himself: on another one he cancels this, and listens by that one (`take_record`).

        Raises:
            NoSuchLedger: the ledger was deleted meanwhile.
            NotEnoughBookies: this process has never heard of one of its bookies.
            MetadataError: a record that was needed could not be read.
        """
        names = self.record.fragments[-1].bookies
        heard, _ = await wait_for_news(self._bookies, self.id, names, entry, trio.sleep_forever)
        for confirmed in heard:
            await self._heard(confirmed)

    async def _heard(self, confirmed: Confirmed) -> None:
        """A bookie has told how far a ledger is confirmed that this handle reads."""
        if self._appender is not None or confirmed.entry <= self.last_add_confirmed or self.record.sealed:
            return
        if confirmed.session > self.record.session:
            # Another writer told it, and this record knows nothing of what its claim excludes.
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
