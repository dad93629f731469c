"""Counts the branches of the ledger code that a storm has to reach, by wrapping functions: the product has no hooks.

with ledger_probes(simulation.coverage):
    ...
coverage.assert_all_counted(PROBES)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from gnomon.bookie import record as records
from gnomon.bookie.entry import session_of
from gnomon.bookie.errors import (
    DigestMismatch,
    EntryShrunk,
    EntryUnknown,
    Fenced,
    LedgerError,
    LedgerFailed,
    LedgerFenced,
    NotEnoughBookies,
)
from gnomon.bookie.ids import BookieId, LedgerId
from gnomon.bookie.ledgers import catalog as ledger
from gnomon.bookie.ledgers import claim as claims
from gnomon.bookie.ledgers import copies, held_record
from gnomon.bookie.ledgers.appender import Appender
from gnomon.bookie.ledgers.ledger import Ledger
from gnomon.bookie.ledgers.writer import LedgerWriter
from gnomon.bookie.repair.repair import LedgerRepair
from gnomon.bookie.storage import entry_store, older_store, removal
from gnomon.bookie.storage.add_queue import AddQueue
from gnomon.bookie.storage.entry_store import EntryStore
from gnomon.bookie.storage.garbage import GarbageCollector
from gnomon.bookie.storage.store_view import StoreView
from gnomon.bookie.storage.stored_ledger import StoredLedger
from gnomon.metadata.client import MetadataUnavailable
from gnomon.runtime.world import DiskFull
from gnomon.testing.simulation.coverage import Coverage
from gnomon.testing.storms.patches import Patches

PROBES = tuple(
    f"ledger/{event}"
    for event in (
        "claimed by recovery",
        "claim lost while recovering",
        "too few bookies to claim",
        "claimed without all bookies",
        "claim with substitutes",
        "claim of unknown outcome",
        "tail copied",
        "tail copied to a bookie that was late to promise",
        "orphans excluded by a record",
        "bounds merged",
        "orphans removed",
        "orphans searched for in chunks",
        "copy refused by a store",
        "copy put over an orphan",
        "replaced bookie stands in again",
        "fragment changed",
        "fragment change lost to another writer",
        "fragment change of unknown outcome",
        "written without a bookie",
        "bookie regained",
        "writer fenced by a bookie",
        "writer has too few bookies",
        "failed for certain",
        "add refused for its session",
        "disk full at a bookie",
        "copy asked for after another",
        "speculative read",
        "damaged copy found",
        "shrunk entry asked for",
        "ledgers dropped by garbage collection",
        "entries removed by garbage collection",
        "copies removed that nothing proves",
        "older copy asked for an entry that it lacks",
        "ledger claimed for a repair",
        "older copy repaired",
    )
)
"""The counters that every sweep has to reach."""


@contextmanager
def ledger_probes(coverage: Coverage) -> Iterator[None]:
    """Counts during the block."""

    def count(event: str) -> None:
        assert f"ledger/{event}" in PROBES, event
        coverage.count(f"ledger/{event}")

    with ExitStack() as stack:
        patch = Patches(stack)
        _probe_claims(patch, count)
        _probe_writers(patch, count)
        _probe_bookies(patch, count)
        _probe_readers(patch, count)
        _probe_repair(patch, count)
        _probe_older_copies(patch, count)
        yield


Count = Callable[[str], None]


def _probe_claims(patch: Patches, count: Count) -> None:
    def recover(before: Callable[..., Awaitable[claims.Recovered]]) -> Any:
        async def probed(bookies: Any, ledger_id: Any, name: str, record: Any, session: Any) -> claims.Recovered:
            try:
                found = await before(bookies, ledger_id, name, record, session)
            except LedgerFenced:
                count("claim lost while recovering")
                raise
            except NotEnoughBookies:
                count("too few bookies to claim")
                raise
            count("claimed by recovery")
            if not found.complete:
                count("claimed without all bookies")
            if found.bookies != record.fragments[-1].bookies:
                count("claim with substitutes")
            return found

        return probed

    def claim_ledger(before: Callable[..., Awaitable[Ledger]]) -> Any:
        async def probed(*args: Any, **options: Any) -> Ledger:
            try:
                return await before(*args, **options)
            except MetadataUnavailable:
                count("claim of unknown outcome")
                raise

        return probed

    def put_copies(before: Callable[..., Awaitable[None]]) -> Any:
        async def probed(driver: Any, index: int, copies: Any) -> None:
            sums = sum(copies.values())
            await before(driver, index, copies)
            if sum(copies.values()) > sums:
                count("tail copied")
                if index not in driver._copies:
                    count("tail copied to a bookie that was late to promise")

        return probed

    def claim(before: Callable[..., records.LedgerRecord]) -> Any:
        def probed(record: records.LedgerRecord, *args: Any, **options: Any) -> records.LedgerRecord:
            claimed = before(record, *args, **options)
            if options.get("without_orphans") and len(claimed.fragments) < len(record.fragments):
                count("bounds merged")
            elif len(claimed.fragments) > 1:
                count("orphans excluded by a record")
            return claimed

        return probed

    patch(ledger, "recover", recover)
    patch(ledger, "claim_ledger", claim_ledger)
    patch(claims.RecoveryDriver, "put_copies", put_copies)
    patch(records, "claim", claim)


def _probe_writers(patch: Patches, count: Count) -> None:
    def replace(before: Callable[..., Awaitable[None]]) -> Any:
        async def probed(ledger: Ledger, *args: Any) -> None:
            try:
                await before(ledger, *args)
            except LedgerFenced:
                count("fragment change lost to another writer")
                raise
            count("fragment changed")

        return probed

    def change(before: Callable[..., Awaitable[Any]]) -> Any:
        async def probed(*args: Any) -> Any:
            try:
                return await before(*args)
            except MetadataUnavailable:
                count("fragment change of unknown outcome")
                raise

        return probed

    def regain(before: Callable[[Appender], Any]) -> Any:
        def probed(appender: Appender) -> Any:
            count("written without a bookie")
            return before(appender)

        return probed

    def regained(before: Callable[..., range]) -> Any:
        def probed(writer: LedgerWriter, bookie: int) -> range:
            count("bookie regained")
            return before(writer, bookie)

        return probed

    def fail(before: Callable[..., None]) -> Any:
        def probed(ledger: Ledger, error: LedgerError) -> None:
            if isinstance(error, LedgerFenced):
                count("writer fenced by a bookie")
            elif isinstance(error, LedgerFailed):
                count("writer has too few bookies")
                if not error.outcome_unknown:
                    count("failed for certain")
            before(ledger, error)

        return probed

    patch(Ledger, "change_ensemble", replace)
    patch(held_record, "replace_record", change)
    patch(Appender, "regain", regain)
    patch(LedgerWriter, "regained", regained)
    patch(Ledger, "appending_failed", fail)


def _probe_bookies(patch: Patches, count: Count) -> None:
    def fenced(before: Callable[..., Fenced | None]) -> Any:
        def probed(stored: StoredLedger, *args: Any) -> Fenced | None:
            refusal = before(stored, *args)
            if refusal is not None:
                count("add refused for its session")
            return refusal

        return probed

    def full(before: Callable[..., DiskFull | None]) -> Any:
        def probed(adds: AddQueue) -> DiskFull | None:
            refusal = before(adds)
            if refusal is not None:
                count("disk full at a bookie")
            return refusal

        return probed

    def put_copies(before: Callable[..., Any]) -> Any:
        def probed(transaction: Any, entries: Any, ledger: Any, copies: Any, written_by: Any) -> Any:
            for (entry, _), session in zip(copies, written_by, strict=True):
                here = transaction.get(removal.ENTRY_KEY.pack(ledger, entry), db=entries)
                if here is not None and session_of(here) < session:
                    count("copy put over an orphan")
            problem = before(transaction, entries, ledger, copies, written_by)
            if problem is not None:
                count("copy refused by a store")
            return problem

        return probed

    def excluded(before: Callable[..., Fenced | None]) -> Any:
        def probed(*args: Any) -> Fenced | None:
            refusal = before(*args)
            if refusal is not None:
                count("copy refused by a store")
            return refusal

        return probed

    def remove_orphans(before: Callable[..., tuple[int, Any]]) -> Any:
        def probed(*args: Any, **options: Any) -> tuple[int, Any]:
            removed, position = before(*args, **options)
            if removed:
                count("orphans removed")
            if position is not None:
                count("orphans searched for in chunks")
            return removed, position

        return probed

    def collect(before: Callable[..., Awaitable[Any]]) -> Any:
        async def probed(collector: GarbageCollector) -> Any:
            collected = await before(collector)
            if collected.ledgers:
                count("ledgers dropped by garbage collection")
            if collected.entries:
                count("entries removed by garbage collection")
            return collected

        return probed

    patch(StoredLedger, "fenced", fenced)
    patch(AddQueue, "refusal", full)
    patch(entry_store, "put_copies", put_copies)
    patch(StoredLedger, "excluded", excluded)
    patch(removal, "remove_orphans", remove_orphans)
    patch(GarbageCollector, "collect", collect)


def _probe_repair(patch: Patches, count: Count) -> None:
    replaced: set[tuple[LedgerId, BookieId]] = set()

    def replace(before: Callable[..., Awaitable[bool]]) -> Any:
        async def probed(
            repair: LedgerRepair, fragment: Any, last: Any, lost: BookieId, target: BookieId, *args: Any
        ) -> bool:
            done = await before(repair, fragment, last, lost, target, *args)
            if done:
                replaced.add((repair.id, lost))
                if (repair.id, target) in replaced:
                    count("replaced bookie stands in again")
            return done

        return probed

    patch(LedgerRepair, "replace_bookie", replace)


def _probe_older_copies(patch: Patches, count: Count) -> None:
    def remove_unproved(before: Callable[..., tuple[int, Any]]) -> Any:
        def probed(*args: Any, **options: Any) -> tuple[int, Any]:
            removed, end = before(*args, **options)
            if removed:
                count("copies removed that nothing proves")
            return removed, end

        return probed

    def why_absent(before: Callable[..., LedgerError]) -> Any:
        def probed(*args: Any) -> LedgerError:
            error = before(*args)
            if isinstance(error, EntryUnknown):
                count("older copy asked for an entry that it lacks")
            return error

        return probed

    def is_refused_by(before: Callable[..., Awaitable[bool]]) -> Any:
        async def probed(*args: Any) -> bool:
            refused = await before(*args)
            if refused:
                count("ledger claimed for a repair")
            return refused

        return probed

    def repaired(before: Callable[..., None]) -> Any:
        def probed(store: EntryStore) -> None:
            count("older copy repaired")
            before(store)

        return probed

    patch(older_store, "remove_unproved", remove_unproved)
    patch(EntryStore, "why_absent", why_absent)
    patch(LedgerRepair, "is_refused_by", is_refused_by)
    patch(EntryStore, "repaired", repaired)


def _probe_readers(patch: Patches, count: Count) -> None:
    def entry(before: Callable[..., Any]) -> Any:
        def probed(view: StoreView, *args: Any) -> Any:
            try:
                return before(view, *args)
            except DigestMismatch:
                count("damaged copy found")
                raise
            except EntryShrunk:
                count("shrunk entry asked for")
                raise

        return probed

    asked: dict[Any, int] = {}

    def ask(before: Callable[..., Awaitable[None]]) -> Any:
        async def probed(bookies: Any, fragment: Any, index: int, ledger_id: Any, at: Any, send: Any) -> None:
            if send in asked:
                count("speculative read" if asked[send] else "copy asked for after another")
            asked[send] = asked.get(send, 0) + 1
            try:
                await before(bookies, fragment, index, ledger_id, at, send)
            finally:
                asked[send] -= 1

        return probed

    patch(StoreView, "entry", entry)
    patch(copies, "ask_entry", ask)
