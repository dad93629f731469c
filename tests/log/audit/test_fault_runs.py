"""The runs of faults of an audit (numbers: invariants of `fault_runs`)."""

from __future__ import annotations

import pytest
from made_entries import BOOKIES, entry

from gnomon.bookie.ids import BookieId, EntryId
from gnomon.log.audit import fault_runs
from gnomon.log.audit.fault_runs import FaultRuns
from gnomon.log.audit.finding import FindingKind
from gnomon.log.entry import unpack_header

B1, B2, B3 = BOOKIES
MISSING = ("missing", "")


def take(
    runs: FaultRuns, number: int, faults: dict[BookieId, tuple[str, str]], asked: tuple[BookieId, ...] = BOOKIES
) -> None:
    payload = entry(number, 2 * number).payload
    assert payload is not None
    runs.take("ledger", EntryId(number), asked, faults, unpack_header(payload), unread=False)


def found(runs: FaultRuns) -> list[tuple[str, BookieId | None, int | None, int | None, bool]]:
    return [(each.kind.value, each.bookie, each.first_entry, each.last_entry, each.passed) for each in runs.findings]


def test_adjacent_faults_of_a_bookie_are_one_finding() -> None:  # 1, 3
    runs = FaultRuns("orders", 0)
    for number in range(5):
        take(runs, number, {B1: MISSING} if 1 <= number <= 3 else {})
    runs.end_all()
    assert found(runs) == [("missing", B1, 1, 3, True)]
    assert runs.findings[0].words == "bookie b1 has no copy of entries 1 to 3 of ledger ledger (offsets 2 to 7)"


def test_an_entry_that_the_bookie_need_not_store_does_not_end_a_run() -> None:  # 1
    runs = FaultRuns("orders", 0)
    for number in range(6):
        take(runs, number, {B1: MISSING} if number % 3 == 0 else {}, (B1, B2) if number % 3 == 0 else (B2, B3))
    runs.end_all()
    assert found(runs) == [("missing", B1, 0, 3, False)]


def test_another_kind_of_fault_begins_another_run() -> None:  # 1
    runs = FaultRuns("orders", 0)
    take(runs, 0, {B1: MISSING, B2: MISSING})
    take(runs, 1, {B1: ("damaged", "why"), B2: MISSING})
    runs.end_all()
    assert sorted(found(runs), key=str) == [
        ("damaged", B1, 1, 1, False),
        ("missing", B1, 0, 0, False),
        ("missing", B2, 0, 1, False),
    ]


def test_a_run_at_the_end_has_not_passed() -> None:  # 2
    runs = FaultRuns("orders", 0)
    take(runs, 0, {})
    take(runs, 1, {B1: MISSING})
    runs.end_all()
    assert found(runs) == [("missing", B1, 1, 1, False)]


def test_findings_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:  # 4
    monkeypatch.setattr(fault_runs, "FINDINGS_MAX", 2)
    runs = FaultRuns("orders", 0)
    for number in range(5):
        runs.add(FindingKind.BATCH, "broken", "ledger", EntryId(number))
    assert (len(runs.findings), runs.left_out) == (2, 3)
