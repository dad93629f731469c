"""Looks at the findings of an audit a second time, so that no change under way is reported as a fault.

1. Before each look the metadata record is read again. Entries that were deleted since, and copies at bookies that the
   record no longer names for them, are no findings.
2. Missing copies are looked for again soon after the first look, so that a repair hides none. If the bookie has no
   later copy, the missing one may be in flight below the last add confirmed, because fewer copies than the write quorum
   confirm an entry. It is a finding only if it is still missing after a writer has given the bookie up.
3. A finding about the contents of an entry, or a damaged copy, needs no second reading: stored entries do not change,
   and a copy that was repaired meanwhile was damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

from gnomon.bookie.errors import UnreadableRecord
from gnomon.bookie.ids import BookieId, EntryId, LedgerId
from gnomon.bookie.ledgers.catalog import AuditedLedger, EntryCopies, compare_copies
from gnomon.bookie.record import decode_record, ledger_key
from gnomon.log.audit.audit_place import AuditPlace
from gnomon.log.audit.audited_chain import audit_chain
from gnomon.log.audit.fault_runs import FaultRuns
from gnomon.log.audit.finding import OF_A_COPY, AuditFinding, FindingKind
from gnomon.metadata.client import read_many

SOON_SECONDS: Final = 0.2
"""Pause before the second look."""
LATE_SECONDS: Final = 6.0
"""Pause before the last look: longer than a writer waits for a bookie (`CALL_SECONDS`)."""
_READ_AGAIN: Final = frozenset({FindingKind.MISSING, FindingKind.UNKNOWN, FindingKind.DIFFERENT, FindingKind.UNREAD})


def may_be_in_flight(finding: AuditFinding) -> bool:
    """Whether copies that were not found may still arrive."""
    return finding.kind in (FindingKind.MISSING, FindingKind.UNKNOWN) and not finding.passed


async def confirmed_soon(place: AuditPlace, findings: Sequence[AuditFinding]) -> list[AuditFinding]:
    """Those of the findings about one partition that are still there in a second look.

    Raises:
        MetadataError: the metadata does not answer.
    """
    return await _looked_again(place, findings, SOON_SECONDS)


async def confirmed_late(place: AuditPlace, findings: Sequence[AuditFinding]) -> list[AuditFinding]:
    """The findings without copies that were in flight, in the order of the log.

    Raises:
        MetadataError: the metadata does not answer.
    """
    late = await _looked_again(place, [each for each in findings if may_be_in_flight(each)], LATE_SECONDS)
    return sorted([*late, *(each for each in findings if not may_be_in_flight(each))], key=_place)


def _place(finding: AuditFinding) -> tuple[str, int, str, int]:
    first = -1 if finding.first_entry is None else finding.first_entry
    partition = -1 if finding.partition is None else finding.partition
    return finding.topic or "", partition, finding.ledger or "", first


async def _looked_again(place: AuditPlace, findings: Sequence[AuditFinding], pause: float) -> list[AuditFinding]:
    if any(finding.kind in _READ_AGAIN for finding in findings):
        await place.bookies.clock.sleep(pause)
    left = [again for finding in findings for again in await _look(place, finding)]
    return [finding for finding in left if await _is_there(place, finding)]


async def unreachable_findings(place: AuditPlace) -> list[AuditFinding]:
    """One finding for each bookie that gave no answer, if a record still names it for copies that were not read."""
    findings = []
    for bookie, reason in sorted(place.silent.reasons.items()):
        names = sorted(place.silent.unread.get(bookie, ()))
        found = await read_many(place.metadata, map(ledger_key, names))
        named = [name for name in names if (item := found.get(ledger_key(name))) and _names(item.value, bookie)]
        if named:
            detail = f"{reason} (its copies of {len(named)} ledgers, the first is {named[0]})"
            findings.append(AuditFinding(FindingKind.UNREACHABLE, detail, bookie=bookie))
    return findings


def _names(value: bytes, bookie: BookieId) -> bool:
    try:
        return bookie in decode_record(value).bookies
    except UnreadableRecord:
        return False


async def _ledger_of(place: AuditPlace, finding: AuditFinding) -> AuditedLedger | None:
    """The ledger of a finding by its record of now; None if it is gone."""
    assert finding.ledger is not None, f"{finding} names no ledger"
    stored = await place.metadata.get(ledger_key(finding.ledger))
    if stored is None:
        return None
    try:
        return AuditedLedger(finding.ledger, LedgerId(stored.create_revision), decode_record(stored.value))
    except UnreadableRecord:
        return None


async def _look(place: AuditPlace, finding: AuditFinding) -> list[AuditFinding]:
    """The finding as another look shows it: less entries, or none."""
    if finding.kind not in _READ_AGAIN:
        return [finding]
    ledger = await _ledger_of(place, finding)
    if ledger is None or finding.first_entry is None or finding.last_entry is None:
        return []
    assert finding.topic is not None, f"{finding} names no topic"
    assert finding.partition is not None, f"{finding} names no partition"
    first = max(finding.first_entry, ledger.record.start_entry)
    only = (finding.bookie,) if finding.bookie and finding.kind is not FindingKind.DIFFERENT else None
    runs = FaultRuns(finding.topic, finding.partition)
    async with aclosing(place.copies(ledger, first, finding.last_entry, only)) as found_runs:
        async for run in found_runs:
            await place.blocking(_compare, finding, runs, run)
    runs.end_all()
    return [_with_offsets(again, finding) for again in runs.findings]


def _compare(finding: AuditFinding, runs: FaultRuns, run: Sequence[EntryCopies]) -> None:
    """Takes the faults of the copies at the bookie of a finding, or the entries without a sound copy."""
    bookie, ledger = finding.bookie, finding.ledger
    assert ledger is not None, f"{finding} names no ledger"
    for entry, copies in run:
        compared = compare_copies(entry, copies)
        if bookie is None:
            runs.take(ledger, entry, (), {}, None, unread=compared.payload is None and bool(compared.asked))
        elif bookie in compared.asked:
            here = {name: fault for name, fault in compared.faults.items() if name == bookie}
            runs.take(ledger, entry, (bookie,), here, None, unread=False)


def _with_offsets(again: AuditFinding, finding: AuditFinding) -> AuditFinding:
    """The offsets of the first look, where the run of entries still begins or ends there; and whether it has passed."""
    first = finding.first_offset if again.first_entry == finding.first_entry else None
    after = finding.next_offset if again.last_entry == finding.last_entry else None
    return again._replace(first_offset=first, next_offset=after, passed=again.passed or finding.passed)


async def _is_there(place: AuditPlace, finding: AuditFinding) -> bool:
    """Whether the metadata still has the records, and keeps the entry, that a finding is about."""
    if finding.ledger is None:
        return True
    if finding.first_entry is None or finding.last_entry is None:
        prefix = finding.ledger.rpartition("/")[0] + "/"
        chain = audit_chain((await place.metadata.range(ledger_key(prefix))).items)
        return (finding.ledger, finding.detail) in chain.problems
    ledger = await _ledger_of(place, finding)
    if ledger is None or ledger.record.start_entry > finding.last_entry:
        return False
    if finding.kind not in OF_A_COPY:
        return True
    ends = (finding.first_entry, finding.last_entry)
    return any(finding.bookie in ledger.record.fragment_of(EntryId(entry)).bookies for entry in ends)
