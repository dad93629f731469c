"""Opens the stores of a data directory for a command; one process at a time, a command or a broker, has them open."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from gnomon.bookie.errors import DigestMismatch, LedgerError
from gnomon.bookie.ids import EntryId, LedgerId
from gnomon.bookie.record import LedgerRecord, Quorum
from gnomon.bookie.storage.store_view import StoreView
from gnomon.broker.stores import Stores, open_stores
from gnomon.cli.exit import Exit, Failure, failure_of
from gnomon.runtime.disk.data_directory import FORMAT_FILE, PRIVATE_UMASK
from gnomon.runtime.settings.settings import Settings
from gnomon.runtime.trio_world import open_trio_world

T = TypeVar("T")


def in_stores(settings: Settings, work: Callable[[Stores], Awaitable[T]], *, create: bool = False) -> T:
    """Runs `work` on the stores in `settings.data_dir`, which no other process has open meanwhile, and returns its
    result.

    Args:
        create: create the directory if it does not exist.

    Raises:
        Failure: there is no data directory; or a broker, or another command, has it open; or `work` met an error that
            an operator can act on.
    """
    if not create and not (settings.data_dir / FORMAT_FILE).is_file():
        raise Failure(
            f"{settings.data_dir} is no data directory of gnomon: point --data-dir or GNOMON_DATA_DIR to one",
            Exit.CONFLICT,
        )

    async def run() -> T:
        os.umask(PRIVATE_UMASK)
        async with open_trio_world() as world, open_stores(world, settings) as stores:
            return await work(stores)

    try:
        return trio.run(run)
    except Exception as error:  # Trio wraps it in groups
        failure = failure_of(error)
        if failure is None:
            raise
        raise failure from None


async def end_on_disk(stores: Stores, ledger: LedgerId, record: LedgerRecord) -> EntryId:
    """The last entry of a ledger on disk; changes nothing.

    A writer sends the last add confirmed with the next entry, so the disk alone does not show whether the last entries
    are confirmed. If one bookie holds the only copy and no writer is alive, every entry on disk counts as confirmed.
    """
    if record.sealed:
        return record.last_entry
    last = EntryId(max(stores.store.last_add_confirmed(ledger).entry, record.start_entry - 1))
    if record.quorum == Quorum():
        with stores.store.view() as view:
            while _is_there(view, ledger, record, EntryId(last + 1)):
                last = EntryId(last + 1)
        stores.store.confirm(ledger, record.session, last)
    return last


def _is_there(view: StoreView, ledger: LedgerId, record: LedgerRecord, entry: EntryId) -> bool:
    try:
        view.entry(ledger, entry, record.fragment_of(entry).session)
    except DigestMismatch:
        return True  # a reader of the entry gets the error
    except LedgerError:
        return False
    return True
