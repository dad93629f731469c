"""Checks of `gnomon doctor` in the stores of a data directory."""

from __future__ import annotations

import math

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ids import EntryId, LedgerId
from gnomon.bookie.record import LEDGERS, decode_record
from gnomon.broker.stores import BOOKIE_FOLDER, BOOKIE_NAME, METADATA_FOLDER, Stores
from gnomon.cli.doctor.check import Check, CheckStatus
from gnomon.cli.doctor.host_checks import DATA_FILE, unreadable
from gnomon.cli.exit import Failure
from gnomon.cli.ledger.data_directory import end_on_disk, in_stores
from gnomon.metadata.client import KeyValue
from gnomon.runtime.disk.commit import check_file
from gnomon.runtime.settings.settings import Settings
from gnomon.runtime.world import DiskFailed

ENTRIES_PER_VIEW = 1000
FOREIGN = "they were deleted, and their entries are removed soon; if not, the metadata lost records: restore a copy"
RESTORE = "restore the data directory from a copy; `gnomon ledger read` reads the other entries of the ledger"


def check_ledgers(settings: Settings, deep: bool) -> list[Check]:
    """Opens the stores and every ledger, and changes none; with `deep`, reads every entry against its digest."""

    async def work(stores: Stores) -> list[Check]:
        found = (await stores.metadata.range(LEDGERS)).items
        entries, checks = 0, []
        for stored in found:
            name = stored.key.removeprefix(LEDGERS)
            count, problems = await _read(stores, stored, deep)
            entries += count
            if problems:
                text = f"ledger {name}: {len(problems)} entries cannot be read, first: {problems[0]}"
                checks.append(Check("ledger", CheckStatus.FAIL, text, RESTORE))
        what = f"{entries} entries read" if deep else "opened; --deep reads their entries"
        known = {LedgerId(stored.create_revision) for stored in found}
        foreign = [ledger for ledger in await stores.store.ledgers.all() if ledger not in known]
        if foreign:
            checks.append(foreign_check(len(foreign), foreign[0], "here"))
        return [Check("ledgers", CheckStatus.OK, f"{len(found)} ledgers, {what}"), *checks]

    # Opening would create missing stores.
    stores = [settings.data_dir / folder for folder in (BOOKIE_FOLDER, METADATA_FOLDER)]
    try:
        missing = [str(folder) for folder in stores if not (folder / DATA_FILE).is_file()]
    except OSError as error:
        return [unreadable("ledgers", error)]
    if len(missing) == len(stores):
        return [Check("ledgers", CheckStatus.OK, "none yet: nothing was stored here")]
    if missing:
        advice = (
            "put it (or its disk) back, or delete the whole data directory to start again: one half is useless alone"
        )
        return [Check("ledgers", CheckStatus.FAIL, f"{missing[0]} is missing", advice)]
    try:
        if deep:
            for folder in stores:
                check_file(folder, pages_max=math.inf)
        return in_stores(settings, work)
    except (Failure, DiskFailed) as failure:
        return [Check("ledgers", CheckStatus.FAIL, str(failure))]


def foreign_check(count: int, first: LedgerId, where: str) -> Check:
    """The finding that a bookie has ledgers without a record."""
    text = f"{count} ledgers have entries {where} and no record in the metadata, first: {first}"
    return Check("ledgers", CheckStatus.WARN, text, FOREIGN)


def check_pages(settings: Settings) -> list[Check]:
    """Reads every page of the stores of a cluster's process; its ledgers are on other machines, too."""
    checks = []
    for folder in (BOOKIE_FOLDER, METADATA_FOLDER):
        path = settings.data_dir / folder
        if path.exists():
            try:
                check_file(path, pages_max=math.inf)
            except DiskFailed as failure:
                checks.append(Check("pages", CheckStatus.FAIL, str(failure)))
            else:
                checks.append(Check("pages", CheckStatus.OK, f"every page of {path} was read"))
    return checks


async def _read(stores: Stores, stored: KeyValue, deep: bool) -> tuple[int, list[str]]:
    """The number of entries of a ledger that were read, and the faults of others."""
    ledger, record = LedgerId(stored.create_revision), decode_record(stored.value)
    problems: list[str] = []
    count = 0
    begin, end = record.start_entry, await end_on_disk(stores, ledger, record) + 1
    for at in range(begin, end if deep else begin, ENTRIES_PER_VIEW):
        bookies = record.fragment_of(EntryId(at)).bookies
        if BOOKIE_NAME not in bookies:
            return count, [f"its bookies {bookies} are not in this directory"]
        with stores.store.view() as view:
            for entry in map(EntryId, range(at, min(end, at + ENTRIES_PER_VIEW))):
                try:
                    view.entry(ledger, entry, record.fragment_of(entry).session)
                    count += 1
                except LedgerError as error:
                    problems.append(str(error))
    return count, problems
