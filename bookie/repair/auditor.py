"""Finds ledgers with too few copies and has them repaired. One process of a cluster is elected to do so, by a lease.

1. A bookie is lost once its lease has been gone for `grace_seconds`. A draining bookie (one that is to leave) counts as
   lost at once.
2. The entries of a lost bookie in closed fragments are copied to another bookie, which replaces it there (`repair`). An
   open fragment that still names a lost bookie is closed first, if another bookie can take its place: the auditor
   claims the ledger, which fences its writer. The ledger's owner has to open the ledger again.
3. A report of a writer or claimer (`missing/`) names a ledger of which a bookie may lack entries. The entries that each
   bookie of the ledger should have and lacks are copied to it. The report is deleted once no bookie lacks any
   (`repair`, invariant 7), unless the ledger was reported again meanwhile. A bookie that does not answer costs a
   round one wait of a call, for however many reports.
4. A bookie whose store is an older copy of itself gets the entries that it lacks (`older_copy`, invariant 4).
5. The membership of a draining bookie ends when no record names it any more: its cookie and registration are deleted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

import trio

from gnomon.bookie.errors import LedgerError, UnreadableRecord
from gnomon.bookie.ids import BookieId, EntryId
from gnomon.bookie.ledgers.catalog import end_fragment
from gnomon.bookie.missing_report import MISSING
from gnomon.bookie.record import LEDGERS, RECORDS_PER_TURN, LedgerRecord, decode_record, ledger_key
from gnomon.bookie.registration import AGES, BOOKIES, COOKIES, DISMISSED, DRAINING, OLDER, REPAIRED
from gnomon.bookie.registry import RegisteredBookies
from gnomon.bookie.repair.repair import LedgerRepair, Throttle
from gnomon.metadata.client import Compare, Delete, KeyField, KeyValue, LeaseId, Metadata, MetadataError, Put, Revision
from gnomon.runtime.logs import Logger
from gnomon.runtime.world import Clock, WorldError

ELECTION: Final = "auditor"


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """Settings of an auditor."""

    grace_seconds: float = 60.0
    """Seconds that a bookie may be away before its entries are copied elsewhere."""
    interval_seconds: float = 5.0
    lease_seconds: float = 10.0
    repair_bytes_per_second: float = 32 << 20


@dataclass(slots=True)
class AuditTotals:
    """Totals since the start, for metrics."""

    fragments_moved: int = 0
    fragments_ended: int = 0
    reports_settled: int = 0
    bookies_drained: int = 0
    bookies_repaired: int = 0
    """Bookies whose store was an older copy."""


class Auditor:
    """One candidate; `run` waits to be elected, and audits while it is."""

    def __init__(
        self, metadata: Metadata, bookies: RegisteredBookies, settings: AuditSettings, name: str, log: Logger
    ) -> None:
        self.totals = AuditTotals()
        self.elected = False
        self.reports_open = 0
        """Ledgers with missing copies as of the last round; 0 if this is not the auditor."""
        self._metadata = metadata
        self._bookies = bookies
        self._clock: Clock = bookies.clock
        self._settings = settings
        self._name = name
        self._log = log
        self._throttle = Throttle(bookies.clock, settings.repair_bytes_per_second)
        self._gone_since: dict[BookieId, float] = {}
        self._whole: dict[str, tuple[Revision, dict[BookieId, EntryId]]] = {}
        """By the key of a report that stays: its revision, and `LedgerRepair.whole_to`. A ledger that nobody claims may
        stay reported for days: its older entries are not looked at in each round."""
        self._unreadable: dict[str, Revision] = {}
        """Ledgers whose records could not be read in the last round, with the revision that was logged."""

    @property
    def copied_bytes(self) -> int:
        """Bytes copied since the start."""
        return self._throttle.copied_bytes

    async def run(self) -> NoReturn:
        """Takes part in the election until cancelled."""
        while True:
            try:
                lease = await self._metadata.lease(self._settings.lease_seconds)
                result = await self._metadata.txn(
                    (Compare.absent(ELECTION),), (Put(ELECTION, self._name.encode(), lease),)
                )
                if result.succeeded:
                    await self._audit_under(lease)
                else:
                    await self._metadata.revoke(lease)
            except* MetadataError as errors:
                self._log.warning("audit_interrupted", reason=str(errors.exceptions[0]))
            self.elected, self.reports_open = False, 0
            await self._clock.sleep(self._settings.interval_seconds)

    async def _audit_under(self, lease: LeaseId) -> None:
        self.elected = True
        self._gone_since.clear()  # a bookie that was away in an earlier term may have been back
        self._log.info("auditor_elected")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep, lease, nursery.cancel_scope)
            while True:
                await self.audit()
                await self._clock.sleep(self._settings.interval_seconds)

    async def _keep(self, lease: LeaseId, audit: trio.CancelScope) -> None:
        """Ends the audit with its lease: two auditors at a time do no harm, only twice the work."""
        try:
            while True:
                await self._clock.sleep(self._settings.lease_seconds / 3)
                await self._metadata.keep_alive(lease)
        except MetadataError as error:
            self._log.warning("auditor_deposed", reason=str(error))
            audit.cancel()

    async def audit(self) -> None:
        """One round.

        Raises:
            MetadataError: the metadata could not be read or written.
        """
        draining = {
            BookieId(item.key.removeprefix(DRAINING)): item.create_revision for item in await self._range(DRAINING)
        }
        older = [item for item in await self._range(OLDER) if item.value != REPAIRED]
        lost = self._lost(draining)
        reported = await self._range(MISSING)
        self.reports_open = len(reported)
        self._whole = {report.key: self._whole[report.key] for report in reported if report.key in self._whole}
        if lost:
            for item, _ in await self._naming(lost):
                await self._attempt(self._leave_bookies(item, lost))
        if draining:
            await self._dismiss(draining)
        for item in older:
            await self._attempt(self._make_whole(item))
        silent: set[BookieId] = set()
        for report in reported:
            await self._attempt(self._settle(report, silent))
        if silent:
            self._log.warning("repair_put_off", reason=f"no answer from {', '.join(sorted(silent))}")

    async def _range(self, prefix: str) -> tuple[KeyValue, ...]:
        return (await self._metadata.range(prefix)).items

    async def _naming(self, bookies: Collection[BookieId]) -> list[tuple[KeyValue, LedgerRecord]]:
        """The ledgers whose records name one of `bookies`.

        A long search lets other tasks run, including the keep-alive of the lease.
        """
        naming, unreadable = [], {}
        for count, item in enumerate(await self._range(LEDGERS)):
            if count % RECORDS_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
            try:
                record = decode_record(item.value)
            except UnreadableRecord as error:
                unreadable[item.key] = item.mod_revision
                if self._unreadable.get(item.key) != item.mod_revision:
                    self._log.error("ledger_unreadable", ledger=item.key.removeprefix(LEDGERS), reason=str(error))
                continue
            if any(name in bookies for name in record.bookies):
                naming.append((item, record))
        self._unreadable = unreadable
        return naming

    def _lost(self, draining: Iterable[BookieId]) -> list[BookieId]:
        now = self._clock.monotonic()
        alive, known = self._bookies.alive(), self._bookies.known()
        self._gone_since = {name: self._gone_since.get(name, now) for name in known if name not in alive}
        away = [name for name, since in self._gone_since.items() if now - since >= self._settings.grace_seconds]
        return sorted({*away, *draining})

    async def _attempt(self, repair: Awaitable[None]) -> None:
        try:
            await repair
        except (LedgerError, WorldError) as error:
            self._log.warning("repair_put_off", reason=str(error))

    async def _leave_bookies(self, listed: KeyValue, lost: list[BookieId]) -> None:
        repair = self._repair(listed)
        if repair.can_replace_in_open_fragment(lost):
            # Copying others may have taken minutes since the listing: the writer may have replaced the bookies itself.
            stored = await self._metadata.get(listed.key)
            if stored is None or stored.create_revision != listed.create_revision:
                return
            repair = self._repair(stored)
            if repair.can_replace_in_open_fragment(lost):
                repair = self._repair(await end_fragment(self._metadata, self._bookies, stored))
                self.totals.fragments_ended += 1
        closed = {bookie for fragment, _ in repair.closed_fragments() for bookie in fragment.bookies}
        for bookie in lost:
            if bookie in closed and await repair.move_from(bookie):
                self.totals.fragments_moved += 1
                self._log.info("fragments_moved", ledger=repair.name, bookie=bookie)

    def _repair(self, stored: KeyValue) -> LedgerRepair:
        name = stored.key.removeprefix(LEDGERS)
        return LedgerRepair(self._metadata, self._bookies, stored, name, self._throttle)

    async def _dismiss(self, asked: Mapping[BookieId, Revision]) -> None:
        """Ends the membership of draining bookies that no record names.

        Args:
            asked: the bookies, each with the revision at which it began to leave.
        """
        named = {name for _, record in await self._naming(asked) for name in record.bookies}
        if self._unreadable:
            return  # an unreadable record may name a drained bookie
        for name in sorted(asked):
            if name not in named:
                cookie = await self._metadata.get(f"{COOKIES}{name}")
                gone = tuple(Delete(f"{prefix}{name}") for prefix in (COOKIES, DRAINING, BOOKIES, AGES, OLDER))
                word = () if cookie is None else (Put(f"{DISMISSED}{name}", str(cookie.create_revision).encode()),)
                same = Compare(
                    f"{DRAINING}{name}", KeyField.CREATE_REVISION, asked[name]
                )  # otherwise another bookie has the name
                if (await self._metadata.txn((same,), (*gone, *word))).succeeded:
                    self.totals.bookies_drained += 1
                    self._log.info("bookie_drained", bookie=name)

    async def _make_whole(self, older: KeyValue) -> None:
        """Copies to a bookie what it lacks. Records that it is repaired, unless its store was replaced again since."""
        name = BookieId(older.key.removeprefix(OLDER))
        if name not in self._bookies.available():
            return
        for stored, _ in await self._naming([name]):
            repair = self._repair(stored)
            if await repair.is_refused_by(name):
                repair = self._repair(await end_fragment(self._metadata, self._bookies, stored))
                self.totals.fragments_ended += 1
            await repair.fill_gaps_of(name)
        unchanged = Compare(older.key, KeyField.MOD_REVISION, older.mod_revision)
        if not self._unreadable and (await self._metadata.txn((unchanged,), (Put(older.key, REPAIRED),))).succeeded:
            self.totals.bookies_repaired += 1
            self._log.info("older_store_repaired", bookie=name)

    async def _fill_gaps(self, stored: KeyValue, report: KeyValue, silent: set[BookieId]) -> bool:
        """Copies the entries that bookies of a reported ledger lack; returns whether none lacks any."""
        repair = self._repair(stored)
        revision, whole_to = self._whole.get(report.key, (report.mod_revision, repair.whole_to))
        if revision == report.mod_revision:
            repair.whole_to = whole_to
        self._whole[report.key] = report.mod_revision, repair.whole_to
        repair.silent = silent
        return await repair.fill_gaps()

    async def _settle(self, report: KeyValue, silent: set[BookieId]) -> None:
        """Repairs a reported ledger, and deletes the report if it lacks nothing; `silent` as in `LedgerRepair`."""
        name = report.value.decode()
        stored = await self._metadata.get(ledger_key(name))
        same = stored is not None and f"{MISSING}{stored.create_revision}" == report.key
        if stored is not None and same and not await self._fill_gaps(stored, report, silent):
            return
        unchanged = Compare(report.key, KeyField.MOD_REVISION, report.mod_revision)
        if (await self._metadata.txn((unchanged,), (Delete(report.key),))).succeeded:
            self.totals.reports_settled += 1
            self.reports_open -= 1
            self._log.info("report_settled", ledger=name)
