"""The metadata records of a partition in an audit (numbers: invariants of `audited_chain`)."""

from __future__ import annotations

from dataclasses import replace

from made_entries import PREFIX, item, segment

from gnomon.bookie.ids import EntryId
from gnomon.bookie.record import ledger_key
from gnomon.log.audit.audited_chain import audit_chain
from gnomon.log.chain_image import ChainSegment
from gnomon.log.segment_record import EPOCH, NEXT_OFFSET


def problems(*segments: ChainSegment) -> list[str]:
    return [problem.text for problem in audit_chain([one.stored for one in segments]).problems]


def test_a_sound_chain_has_no_problems() -> None:
    assert problems() == []
    assert problems(segment()) == []
    assert problems(segment(0, end=4, last=1), segment(4, end=9, last=0, epoch=3), segment(9, epoch=3)) == []


def test_a_ledger_that_is_no_segment_is_found_and_left_out() -> None:  # 1
    strange = replace(segment().stored, key=ledger_key(f"{PREFIX}strange"))
    chain = audit_chain([segment().stored, strange])
    assert len(chain.segments) == 1
    assert [problem.ledger for problem in chain.problems] == [f"{PREFIX}strange"]


def test_a_record_that_cannot_be_read_is_found_and_left_out() -> None:  # 1
    chain = audit_chain([item(0, b"\x90")])
    assert chain.segments == []
    assert "cannot be read" in chain.problems[0].text


def test_an_open_segment_before_the_last_one_is_found() -> None:  # 2
    assert problems(segment(0), segment(4)) == ["it is open, and segment 4 follows it"]


def test_a_sealed_last_segment_is_found() -> None:  # 2
    assert problems(segment(0, end=4, last=1)) == ["it is the last segment, and is sealed"]


def test_segments_that_do_not_meet_are_found() -> None:  # 3
    found = problems(segment(0, end=4, last=1), segment(5))
    assert found == ["it ends at offset 4, and the next segment begins at 5"]
    assert "it is sealed at offset 3, below its base offset 5" in problems(segment(5, end=3, last=1), segment(6))


def test_a_sealed_segment_without_its_end_is_found() -> None:  # 3
    bare = segment(0, end=4, last=1)
    properties = {name: value for name, value in bare.record.properties.items() if name != NEXT_OFFSET}
    value = replace(bare.record, properties=properties).encode()
    assert [one.text for one in audit_chain([item(0, value), segment(4).stored]).problems] == [
        "it is sealed, and its record lacks next_offset"
    ]


def test_an_epoch_that_falls_or_is_missing_is_found() -> None:  # 4
    assert problems(segment(0, end=4, last=1, epoch=2), segment(4)) == ["it has epoch 2, and the next segment epoch 1"]
    value = replace(segment().record, properties={"created_ms": 0}).encode()
    assert [one.text for one in audit_chain([item(0, value)]).problems] == [f"its record names no {EPOCH}"]


def test_a_ledger_that_starts_beyond_its_end_is_found() -> None:  # 5
    beyond = segment(0, end=4, last=1, start=3)
    assert problems(beyond, segment(4)) == ["its first entry 3 is after its end, entry 1"]
    assert beyond.record.start_entry == EntryId(3)
    assert problems(segment(0, end=4, last=1, start=2), segment(4)) == []
    assert problems(segment(0, start_offset=-1)) == ["its record says that the log starts at offset -1"]
