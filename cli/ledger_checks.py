"""What `gnomon doctor` checks in the stores of a data directory."""

from __future__ import annotations

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledger import list_ledgers
from gnomon.broker.stores import BOOKIE_FOLDER, METADATA_FOLDER, Stores
from gnomon.cli.check import Check, Status
from gnomon.cli.data_directory import in_stores, open_to_the_end
from gnomon.cli.exit import Failure
from gnomon.cli.host_checks import DATA_FILE
from gnomon.runtime.settings import Settings

ENTRIES_PER_VIEW = 1000
RESTORE = "restore the data directory from a copy; what else is in the ledger can be read with `gnomon ledger read`"


def check_ledgers(settings: Settings, deep: bool) -> list[Check]:
    """Opens the stores and every ledger, and changes none; with `deep`, reads every entry against its digest."""

    async def work(stores: Stores) -> list[Check]:
        names = [name for name, _ in await list_ledgers(stores.metadata)]
        entries, checks = 0, []
        for name in names:
            count, problems = await _read(stores, name, deep)
            entries += count
            if problems:
                found = f"ledger {name}: {len(problems)} entries cannot be read, first: {problems[0]}"
                checks.append(Check("ledger", Status.FAIL, found, RESTORE))
        what = f"{entries} entries read" if deep else "opened; --deep reads their entries"
        return [Check("ledgers", Status.OK, f"{len(names)} ledgers, {what}"), *checks]

    # Opening would make anew what is missing.
    stores = [settings.data_dir / folder for folder in (BOOKIE_FOLDER, METADATA_FOLDER)]
    missing = [str(folder) for folder in stores if not (folder / DATA_FILE).is_file()]
    if len(missing) == len(stores):
        return [Check("ledgers", Status.OK, "none yet: nothing was stored here")]
    if missing:
        advice = "put it (or its disk) back, or delete the whole data directory to begin anew: one half is no use alone"
        return [Check("ledgers", Status.FAIL, f"{missing[0]} is missing", advice)]
    try:
        return in_stores(settings, work)
    except Failure as failure:
        return [Check("ledgers", Status.FAIL, str(failure))]


async def _read(stores: Stores, name: str, deep: bool) -> tuple[int, list[str]]:
    """How many entries of a ledger were read, and what was wrong with others."""
    ledger = await open_to_the_end(stores, name)
    problems: list[str] = []
    count = 0
    begin, end = ledger.start_entry, ledger.last_add_confirmed + 1
    for at in range(begin, end if deep else begin, ENTRIES_PER_VIEW):
        with ledger.view() as view:
            if view is None:
                return count, [f"its bookies {ledger.record.fragments[-1].bookies} are not in this directory"]
            for entry in range(at, min(end, at + ENTRIES_PER_VIEW)):
                try:
                    view.payload(EntryId(entry))
                    count += 1
                except LedgerError as error:
                    problems.append(str(error))
    return count, problems
