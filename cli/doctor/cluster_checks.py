"""Checks of `gnomon doctor` in the cluster that the settings name: its metadata, its bookies, and missing copies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ids import BookieId, LedgerId
from gnomon.bookie.ledgers.ledgers import Ledgers
from gnomon.bookie.missing_report import MISSING
from gnomon.bookie.record import LEDGERS, LedgerRecord
from gnomon.bookie.remote import RemoteBookie
from gnomon.bookie.repair.repair import LedgerRepair, Throttle
from gnomon.cli.bookie_members import lacking_copies, members
from gnomon.cli.cluster_metadata import in_cluster
from gnomon.cli.doctor.check import Check, CheckStatus
from gnomon.cli.doctor.ledger_checks import foreign_check
from gnomon.cli.exit import failure_of
from gnomon.runtime.settings.settings import Settings
from gnomon.runtime.world import WorldError

NAMES_MAX = 3
"""Names in one finding."""


def check_cluster(settings: Settings, deep: bool = False) -> list[Check]:
    """The checks of the cluster; none if the settings name no cluster. `deep` asks the bookies for each entry."""
    if not settings.cluster.metadata:
        return []
    try:
        return in_cluster(settings, partial(_check, deep=deep))
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        return [Check("metadata", CheckStatus.FAIL, str(failure))]


async def _check(ledgers: Ledgers, deep: bool) -> list[Check]:
    rows = await members(ledgers)
    records = await ledgers.list()
    reported = (await ledgers.metadata.range(MISSING)).items
    return [
        Check("metadata", CheckStatus.OK, f"answers: {len(records)} ledgers"),
        bookies_check(rows),
        copies_check(rows, records, [item.value.decode() for item in reported]),
        *(await _foreign_checks(ledgers, rows) if deep else ()),
        *(await _entries_checks(ledgers) if deep else ()),
    ]


async def _foreign_checks(ledgers: Ledgers, rows: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Whether each bookie has only ledgers that have a record; one finding for each bookie that has others."""
    stored: dict[BookieId, list[LedgerId]] = {}
    checks: list[Check] = []
    for name in (row["bookie"] for row in rows):
        bookie = ledgers.bookies.get(name)
        if not isinstance(bookie, RemoteBookie) or bookie.client is None:
            continue  # it is away, as another check says
        try:
            stored[name] = await bookie.ledgers()
        except (LedgerError, WorldError) as error:
            checks.append(Check("ledgers", CheckStatus.WARN, f"bookie {name}: its ledgers were not listed: {error}"))
    # Read after the lists: a ledger that was created meanwhile is in none of them.
    known = {LedgerId(item.create_revision) for item in (await ledgers.metadata.range(LEDGERS)).items}
    for name, here in stored.items():
        foreign = [ledger for ledger in here if ledger not in known]
        if foreign:
            checks.append(foreign_check(len(foreign), foreign[0], f"on bookie {name}"))
    every = f"every ledger on {len(stored)} bookies has a record"
    return checks or [Check("ledgers", CheckStatus.OK, every)]


async def _entries_checks(ledgers: Ledgers) -> list[Check]:
    """Whether each bookie has the entries that the records say; one finding for each ledger that lacks some."""
    checks: list[Check] = []
    items = (await ledgers.metadata.range(LEDGERS)).items
    for item in items:
        name = item.key.removeprefix(LEDGERS)
        throttle = Throttle(ledgers.bookies.clock, math.inf)  # nothing is copied, and the operator waits
        try:
            ledger = LedgerRepair(ledgers.metadata, ledgers.bookies, item, name, throttle)
            missing = await ledger.count_missing()
        except (LedgerError, WorldError) as error:
            checks.append(Check("entries", CheckStatus.WARN, f"ledger {name}: not compared: {error}"))
            continue
        if missing:
            lacks = ", ".join(f"{bookie} lacks {count}" for bookie, count in sorted(missing.items()))
            advice = "the auditor copies them, if the ledger was reported or the bookie is away for long"
            checks.append(Check("entries", CheckStatus.WARN, f"ledger {name}: {lacks} entries", advice))
    return checks or [Check("entries", CheckStatus.OK, f"every bookie has its entries of {len(items)} ledgers")]


def bookies_check(rows: Sequence[Mapping[str, Any]]) -> Check:
    """Whether all bookies are alive and take entries; `rows` as `gnomon bookie list` shows them."""
    away = [row["bookie"] for row in rows if row["state"].startswith("away")]
    older = [row["bookie"] for row in rows if "older copy" in row["state"]]
    full = [row["bookie"] for row in rows if row["state"].startswith("read-only")]
    if away:
        advice = "start them again, or decommission those whose disks are lost: `gnomon bookie decommission NAME`"
        return Check("bookies", CheckStatus.FAIL, f"{len(away)} of {len(rows)} are away: {_some(away)}", advice)
    if older:
        advice = "the auditor copies what they lack from other bookies; or put the newest copies of their disks back"
        return Check("bookies", CheckStatus.WARN, f"serve from an older copy of their disks: {_some(older)}", advice)
    if full:
        return Check("bookies", CheckStatus.WARN, f"read-only: {_some(full)}", "give their disks more room")
    return Check("bookies", CheckStatus.OK, f"{len(rows)} alive")


def copies_check(
    rows: Sequence[Mapping[str, Any]], records: Sequence[tuple[str, LedgerRecord]], reported: Sequence[str]
) -> Check:
    """Whether ledgers lack copies: those that were reported, and those that name a bookie that is away."""
    names = lacking_copies(rows, records, reported)
    if names:
        advice = "the auditor of the bookies copies them: `gnomon_auditor_reports_open` shows its progress"
        return Check("copies", CheckStatus.WARN, f"{len(names)} ledgers lack copies: {_some(names)}", advice)
    return Check("copies", CheckStatus.OK, "every ledger has its bookies")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more
