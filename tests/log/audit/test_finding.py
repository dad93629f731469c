"""The words of findings (numbers: invariants of `finding`)."""

from __future__ import annotations

from gnomon.bookie.ids import BookieId, EntryId
from gnomon.log.audit.finding import OF_A_COPY, AuditFinding, FindingKind
from gnomon.log.entry import Offset

RUN = {"topic": "orders", "partition": 0, "ledger": "l", "first_entry": EntryId(3), "last_entry": EntryId(4)}
AT = {"bookie": BookieId("b1"), "first_offset": Offset(6), "next_offset": Offset(10)}


def test_a_finding_about_copies_names_bookie_ledger_entries_and_offsets() -> None:  # 1
    for kind in OF_A_COPY:
        words = AuditFinding(kind, "why", **RUN, **AT).words  # type: ignore[arg-type]
        assert words.startswith("bookie b1 ")
        assert words.endswith("entries 3 to 4 of ledger l (offsets 6 to 9): why")


def test_a_finding_about_a_bookie_names_no_entry() -> None:  # 2
    finding = AuditFinding(FindingKind.UNREACHABLE, "no answer", bookie=BookieId("b1"))
    assert finding.words == "copies at bookie b1 could not be read: no answer"
    assert finding.row()["first_entry"] is None


def test_a_row_counts_to_the_last_offset() -> None:
    row = AuditFinding(FindingKind.MISSING, "", **RUN, **AT).row()  # type: ignore[arg-type]
    assert (row["first_offset"], row["last_offset"], row["last_entry"]) == (6, 9, 4)


def test_an_entry_without_offsets_is_named_without_them() -> None:
    finding = AuditFinding(FindingKind.UNREAD, "", **RUN)  # type: ignore[arg-type]
    assert finding.words == "no bookie has a sound copy of entries 3 to 4 of ledger l"
