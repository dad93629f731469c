"""Removes data that no ledger owns from the disk, while writes go on.

1. The bookie's ledgers are listed before the metadata is read. A ledger created in between is not in the bookie's list,
   so it is not dropped. A ledger that is only in the bookie's list was deleted for good, because ids are never reused.
2. Nothing is removed while the metadata may be an older copy, or while it does not list this bookie (`age`).
3. Data to remove is marked durably first (`removal`), so after a crash the next collection continues.
4. Entries are removed in chunks: adds run between two chunks. Ledgers are checked some at a time: other tasks run in
   between.
5. Entries that arrive below their ledger's start, after it was moved there, are removed by the next collection.
6. Ledgers of which the store has found damaged entries, or pages that may hide some, are reported to the auditor, if
   other bookies have copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple, NoReturn

import trio

from gnomon.bookie.errors import UnreadableRecord
from gnomon.bookie.ids import EntryId, LedgerId
from gnomon.bookie.missing_report import missing_report
from gnomon.bookie.record import LEDGERS, RECORDS_PER_TURN, decode_record
from gnomon.bookie.storage.age import OlderMetadata, Trust
from gnomon.bookie.storage.entry_store import EntryStore
from gnomon.metadata.client import KeyValue, Metadata, MetadataError, Revision
from gnomon.runtime.world import Clock, DiskFull


class Collected(NamedTuple):
    """Counts of collections."""

    ledgers: int
    entries: int


async def owned_ledgers(metadata: Metadata) -> tuple[set[LedgerId], Revision]:
    """The existing ledgers, and the revision of the list.

    A store gets the list before it serves clients, since a client may have missed a deletion.

    Raises:
        MetadataError: the metadata could not be read.
    """
    found = await metadata.range(LEDGERS)
    return {LedgerId(item.create_revision) for item in found.items}, found.revision


class GarbageCollector:
    """Compares one bookie's store with the metadata, periodically and on demand."""

    def __init__(
        self, store: EntryStore, metadata: Metadata, trust: Trust, clock: Clock, *, interval_seconds: float
    ) -> None:
        """Removes nothing unless `trust` says that the metadata may be believed."""
        self._store, self._metadata, self._trust, self._clock = store, metadata, trust, clock
        self._interval_seconds = interval_seconds
        self._collecting = trio.Lock()
        self._seen: dict[LedgerId, tuple[Revision, EntryId]] = {}
        """The revision of each record at the last collection, and the start of its ledger: most records are unchanged,
        and are not decoded again."""
        self._damages_reported = 0
        self.total = Collected(0, 0)
        """Totals since the start."""
        self.problem: str | None = None
        """Why the last periodic collection was incomplete, None if it was not."""

    async def run(self) -> NoReturn:
        """Collects every `interval_seconds`; after a metadata failure or a full disk it tries again at the next
        interval."""
        while True:
            await self._clock.sleep(self._interval_seconds)
            try:
                await self.collect()
            except (MetadataError, OlderMetadata, DiskFull) as error:
                self.problem = str(error)
            else:
                self.problem = None

    async def collect(self) -> Collected:
        """One collection, complete when it returns.

        Raises:
            MetadataError: the metadata could not be read; nothing was deleted.
            OlderMetadata: it is not to be believed; nothing was deleted.
            DiskFull, DiskFailed: as from a commit; the next collection continues.
        """
        async with self._collecting:
            stored = await self._store.ledgers.all()
            found = await self._metadata.range(LEDGERS)
            await self._trust.check(found.revision)
            owned = {LedgerId(item.create_revision): item for item in found.items}
            self._store.ledgers.owned(owned.keys(), found.revision)
            await self._report_damaged(owned)
            dropped = [ledger for ledger in stored if ledger not in owned]
            for ledger in dropped:
                await self._store.delete(ledger)
            for count, ledger in enumerate(stored):
                if count % RECORDS_PER_TURN == 0:
                    await trio.lowlevel.checkpoint()
                if ledger in owned:
                    await self._shrink(ledger, owned[ledger])
            self._seen = {ledger: self._seen[ledger] for ledger in stored if ledger in self._seen and ledger in owned}
            entries = 0
            for ledger in self._store.ledgers.given_up():
                entries += await self._store.remove(ledger)
            self.total = Collected(self.total.ledgers + len(dropped), self.total.entries + entries)
            return Collected(len(dropped), entries)

    async def _report_damaged(self, owned: Mapping[LedgerId, KeyValue]) -> None:
        damaged, pages = self._store.damaged, self._store.pages
        count = len(pages.damages)
        hidden = pages.hidden_ledgers(sorted(owned), self._damages_reported) if count > self._damages_reported else ()
        for ledger in sorted({*damaged.unreported, *hidden}):
            item = owned.get(ledger)
            with suppress(UnreadableRecord):
                if item is not None and decode_record(item.value).quorum.ensemble_size > 1:
                    await self._metadata.txn((), (missing_report(ledger, item.key.removeprefix(LEDGERS)),))
            damaged.reported(ledger)
        self._damages_reported = count

    async def _shrink(self, ledger: LedgerId, item: KeyValue) -> None:
        revision, start = self._seen.get(ledger, (None, EntryId(0)))
        if revision != item.mod_revision:
            with suppress(UnreadableRecord):  # the ledger is owned all the same; the auditor reports the record
                start = decode_record(item.value).start_entry
        await self._store.shrink(ledger, start)
        self._seen[ledger] = item.mod_revision, start
