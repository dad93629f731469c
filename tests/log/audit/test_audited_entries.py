"""The entries of a partition in an audit (numbers: invariants of `audited_entries`)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from made_entries import BOOKIES, TOPIC, MadeEntry, entry, segment, snapshot

from gnomon.bookie.ids import EntryId
from gnomon.log.audit.audited_entries import EntriesAudit
from gnomon.log.audit.finding import AuditFinding, FindingKind
from gnomon.log.chain_image import ChainSegment


def audited(*parts: tuple[ChainSegment, list[MadeEntry]]) -> list[AuditFinding]:
    """The findings about segments with these entries."""
    audit = EntriesAudit(TOPIC, 0)
    for number, (of_segment, entries) in enumerate(parts):
        audit.begin(of_segment, f"ledger-{number}")
        audit.take(entries)
        audit.end()
    return audit.runs.findings


def kinds(*parts: tuple[ChainSegment, list[MadeEntry]]) -> list[tuple[FindingKind, int | None]]:
    return [(finding.kind, finding.first_entry) for finding in audited(*parts)]


@given(st.lists(st.one_of(st.integers(1, 5), st.just(0)), max_size=30), st.sets(st.integers(0, 29)))
def test_a_sound_log_has_no_findings_however_it_is_cut_into_segments(counts: list[int], cuts: set[int]) -> None:
    parts: list[tuple[ChainSegment, list[MadeEntry]]] = []
    entries: list[MadeEntry] = []
    base = begin = 0
    for number, count in enumerate(counts):
        entries.append(snapshot(len(entries), base) if count == 0 else entry(len(entries), base, count))
        base += count
        if number in cuts and base > begin:
            parts.append((segment(begin, end=base, last=len(entries) - 1), entries))
            begin, entries = base, []
    assert audited(*parts, (segment(begin), entries)) == []


def test_a_gap_and_an_overlap_are_found() -> None:  # 1
    assert kinds((segment(), [entry(0, 0), entry(1, 3)])) == [(FindingKind.OFFSETS, 1)]
    assert kinds((segment(), [entry(0, 0), entry(1, 1)])) == [(FindingKind.OFFSETS, 1)]
    (found,) = audited((segment(), [entry(0, 0), entry(1, 3)]))
    assert found.words == "entry 1 of ledger ledger-0: it begins at offset 3, a gap: 2 is expected"


def test_a_gap_between_segments_is_found() -> None:  # 1
    earlier = segment(0, end=2, last=0)
    assert kinds((earlier, [entry(0, 0)]), (segment(4), [entry(0, 4)])) == [(FindingKind.OFFSETS, 0)]


def test_a_first_entry_begins_with_its_segment() -> None:  # 1
    assert kinds((segment(5), [entry(0, 6)])) == [(FindingKind.OFFSETS, 0)]
    assert kinds((segment(5), [entry(0, 5)])) == []


def test_the_first_entry_that_remains_has_the_start_of_the_log() -> None:  # 1
    assert kinds((segment(0, start=3, start_offset=7), [entry(3, 6)])) == []
    assert kinds((segment(0, start=3, start_offset=5), [entry(3, 6)])) == [(FindingKind.OFFSETS, 3)]
    assert kinds((segment(9, start=3, start_offset=9), [entry(3, 6)])) == [(FindingKind.OFFSETS, 3)]


def test_a_batch_covers_offsets_and_a_snapshot_covers_none() -> None:  # 2
    empty = entry(0, 0, 2, next_offset=0, last_stable_offset=0)
    assert (FindingKind.OFFSETS, 0) in kinds((segment(), [empty]))
    wide = snapshot(0, 0)._replace(payload=entry(0, 0, 2, kind=2).payload)
    assert kinds((segment(), [wide])) == [(FindingKind.OFFSETS, 0)]


def test_a_batch_that_contradicts_its_entry_is_found() -> None:  # 2
    assert kinds((segment(), [entry(0, 0, 2, body=b"no batch at all")])) == [(FindingKind.BATCH, 0)]


def test_an_epoch_that_falls_is_found_also_across_segments() -> None:  # 3
    within = (segment(epoch=2), [entry(0, 0, epoch=2), entry(1, 2, epoch=1)])
    assert kinds(within) == [(FindingKind.EPOCH, 1)]
    earlier = (segment(0, end=2, last=0, epoch=2), [entry(0, 0, epoch=2)])
    assert kinds(earlier, (segment(2, epoch=2), [entry(0, 2, epoch=1)])) == [(FindingKind.EPOCH, 0)]


def test_an_epoch_above_the_record_is_found() -> None:  # 3
    assert kinds((segment(epoch=1), [entry(0, 0, epoch=2)])) == [(FindingKind.EPOCH, 0)]


def test_a_stable_offset_or_a_timestamp_that_falls_is_found() -> None:  # 4
    assert kinds((segment(), [entry(0, 0, last_stable_offset=3)])) == [(FindingKind.HEADER, 0)]
    assert kinds((segment(), [entry(0, 0), entry(1, 2, last_stable_offset=1)])) == [(FindingKind.HEADER, 1)]
    assert kinds((segment(), [entry(0, 0), entry(1, 2, max_timestamp=999)])) == [(FindingKind.HEADER, 1)]


def test_the_largest_timestamp_begins_again_in_each_segment() -> None:  # 4
    earlier = (segment(0, end=2, last=0), [entry(0, 0)])
    assert kinds(earlier, (segment(2), [entry(0, 2, max_timestamp=999)])) == []


def test_the_record_of_a_sealed_segment_has_the_end_of_its_last_entry() -> None:  # 5
    assert kinds((segment(0, end=2, last=0), [entry(0, 0)])) == []
    assert kinds((segment(0, end=3, last=0), [entry(0, 0)])) == [(FindingKind.RECORD, 0)]
    assert kinds((segment(0, end=2, last=0, max_timestamp=7), [entry(0, 0)])) == [(FindingKind.RECORD, 0)]


def test_an_entry_without_a_sound_copy_is_no_gap() -> None:  # 6
    lost = MadeEntry(EntryId(1), None, faults=dict.fromkeys(BOOKIES, ("missing", "")))
    found = audited((segment(), [entry(0, 0), lost, entry(2, 4)]))
    assert sorted(finding.kind.value for finding in found) == [*["missing"] * 3, "unread"]
    assert {finding.first_entry for finding in found} == {1}


def test_an_entry_of_a_newer_gnomon_is_a_finding_and_no_gap() -> None:  # 6
    newer = entry(1, 2, kind=4)
    assert kinds((segment(), [entry(0, 0), newer, entry(2, 4)])) == [(FindingKind.FORM, 1)]


def test_an_entry_that_no_bookie_was_asked_for_is_no_finding() -> None:
    unasked = MadeEntry(EntryId(1), None, asked=())
    assert kinds((segment(), [entry(0, 0), unasked, entry(2, 4)])) == []


def test_a_fault_of_a_copy_has_the_offsets_of_its_entry() -> None:
    audit = EntriesAudit(TOPIC, 3)
    audit.begin(segment(), "ledger")
    audit.take([entry(0, 0), entry(1, 2)._replace(faults={BOOKIES[1]: ("damaged", "why")}), entry(2, 4)])
    audit.end()
    (found,) = audit.runs.findings
    assert found.words == "bookie b2 has a damaged copy of entry 1 of ledger ledger (offsets 2 to 3): why"
    assert (audit.entries, audit.copies, audit.end_offset) == (3, 8, 6)
    assert (found.topic, found.partition, found.passed) == (TOPIC, 3, True)
