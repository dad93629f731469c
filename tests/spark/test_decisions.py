"""The decisions among the proposals of several drivers."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.batches import stamped
from gnomon.spark.decisions import (
    EPOCHS,
    OWNERS_MAX,
    BatchVerdict,
    Decisions,
    Proposal,
    ProposedBatches,
    StagedBatch,
    UnreadableProposal,
    first_decision,
)
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.records import Record, build_batch

places = st.builds(TopicPartition, st.sampled_from(["orders", "logs", "__gnomon_sink_w"]), st.integers(0, 2**31 - 1))
numbers = st.integers(0, 2**63 - 1)
staged = st.builds(StagedBatch, places, st.integers(0, 9), numbers, st.integers(0, 2**31), st.integers(0, 2**32 - 1))
contents = st.builds(
    ProposedBatches, st.lists(staged, max_size=5).map(tuple), st.dictionaries(places, numbers, max_size=5)
)
staging = st.dictionaries(st.integers(1, 9), numbers, max_size=3)
proposals = st.builds(
    Proposal,
    numbers,
    st.integers(-1, 2**63 - 1),
    st.text(max_size=5),
    numbers,
    st.booleans(),
    numbers,
    staging,
    staging,
    st.dictionaries(st.text(max_size=5), numbers, max_size=3),
    contents.map(ProposedBatches.encode),
    st.lists(st.tuples(st.integers(1, 9), numbers), max_size=3).map(tuple),
)


def proposed(
    number: int,
    query: str,
    batch: int,
    *,
    after: int = -1,
    takes_over: bool = False,
    staged_from: int = 0,
    staging_end: int = 0,
) -> Proposal:
    return Proposal(number, after, query, batch, takes_over, 9_000, {1: staged_from}, {1: staging_end}, {}, b"")


@given(contents)
def test_a_content_survives_its_encoding(content: ProposedBatches) -> None:
    assert ProposedBatches.decode(content.encode()) == content


@given(contents, st.data())
def test_a_changed_content_is_refused_or_read(content: ProposedBatches, data: st.DataObject) -> None:
    try:
        found = ProposedBatches.decode(changed(content.encode(), data))
    except UnreadableProposal:
        return
    assert ProposedBatches.decode(found.encode()) == found


@given(proposals)
def test_a_proposal_survives_its_encoding(proposal: Proposal) -> None:
    assert Proposal.decode(proposal.encode()) == proposal


@given(proposals, st.data())
def test_a_changed_proposal_is_refused_or_read(proposal: Proposal, data: st.DataObject) -> None:
    try:
        found = Proposal.decode(changed(proposal.encode(), data))
    except UnreadableProposal:
        return
    assert Proposal.decode(found.encode()) == found


def changed(value: bytes, data: st.DataObject) -> bytes:
    copy = bytearray(value)
    copy[data.draw(st.integers(0, len(copy) - 1))] = data.draw(st.integers(0, 255))
    return bytes(copy[: data.draw(st.just(len(copy)) | st.integers(0, len(copy)))])


@pytest.mark.parametrize("value", [b"", b"\x00", msgpack.packb([3]), msgpack.packb({"a": 1}), msgpack.packb([1, 2, 3])])
def test_another_record_is_no_proposal(value: bytes) -> None:
    for kind in (Proposal, ProposedBatches):
        with pytest.raises(UnreadableProposal):
            kind.decode(value)


small = st.builds(
    proposed,
    st.integers(1, 4),
    st.sampled_from("ab"),
    st.integers(0, 2),
    takes_over=st.sampled_from([False, False, True]),
    staged_from=st.integers(0, 3),
    staging_end=st.integers(0, 2),
)


@st.composite
def logs(draw: st.DrawFn) -> list[Proposal]:
    """The proposals of several drivers: each has read the log up to some place, which may be long ago."""
    log: list[Proposal] = []
    states = [Decisions()]
    for offset in range(draw(st.integers(0, 25))):
        known = states[draw(st.integers(max(0, len(states) - 4), len(states) - 1))]
        query, last = draw(st.sampled_from("ab")), known.last
        batch = 0 if last is None else last.batch + draw(st.integers(0, 2))
        if known.verdict(query, batch, takes_over=True) is BatchVerdict.ALREADY:
            query, batch = "ab"[query == "a"], 30 + offset
        proposal = proposed(known.next_number, query, batch, after=known.last_offset, takes_over=True)
        log.append(proposal._replace(owners=known.owners_for(query)))
        state = Decisions()
        state.last, state.last_offset = states[-1].last, states[-1].last_offset
        state.read(offset, log[-1])
        states.append(state)
    return log


@settings(max_examples=500)
@given(logs(), st.data())
def test_every_driver_finds_the_same_decisions_from_any_place_on(log: list[Proposal], data: st.DataObject) -> None:
    """Invariants 1 and 4: also from a place between two decisions."""
    whole = Decisions()
    decided = [offset for offset, proposal in enumerate(log) if whole.read(offset, proposal)]
    assert [log[offset].number for offset in decided[1:]] == [log[offset].number + 1 for offset in decided[:-1]]
    if not decided:
        return
    start = data.draw(st.integers(0, decided[-1]))
    left = [(offset, log[offset]) for offset in range(start, len(log))]
    later = Decisions()
    found = [offset for offset, proposal in left[first_decision(left) :] if later.read(offset, proposal)]
    assert found == [offset for offset in decided if offset >= start]
    assert (later.last, later.last_offset) == (whole.last, whole.last_offset)


@settings(max_examples=500)
@given(st.lists(small, max_size=30))
def test_a_batch_of_a_query_is_decided_once(log: list[Proposal]) -> None:
    """Invariants 2 and 5; drivers that have read all decisions propose, and late ones."""
    decisions, owner, batches = Decisions(), None, dict[str, int]()
    for offset, proposal in enumerate(log):
        proposal = proposal._replace(owners=decisions.owners_for(proposal.query), after=decisions.last_offset)
        verdict = decisions.verdict(proposal.query, proposal.batch, takes_over=proposal.takes_over)
        assert (verdict is BatchVerdict.ALREADY) == (proposal.batch <= batches.get(proposal.query, -1))
        if not decisions.read(offset, proposal):
            continue
        assert owner in (None, proposal.query) or proposal.takes_over
        assert proposal.batch > batches.get(proposal.query, -1)
        owner, batches[proposal.query] = proposal.query, proposal.batch


def test_the_latest_owners_are_remembered() -> None:
    decisions = Decisions()
    for number in range(1, OWNERS_MAX + 5):
        query = f"q{number}"
        proposal = proposed(number, query, 7, after=decisions.last_offset, takes_over=True)
        proposal = proposal._replace(owners=decisions.owners_for(query))
        assert decisions.read(number, proposal)
    assert decisions.verdict("q10", 7, takes_over=True) is BatchVerdict.ALREADY
    assert decisions.verdict("q10", 8) is BatchVerdict.FENCED
    assert len(decisions.owners_for("new")) == OWNERS_MAX


def test_the_first_proposal_of_a_number_wins() -> None:
    decisions = Decisions()
    assert decisions.read(0, proposed(1, "a", 0))
    assert decisions.read(5, proposed(2, "a", 1, after=0))
    assert not decisions.read(6, proposed(2, "a", 1, after=0))
    assert not decisions.read(7, proposed(2, "a", 2, after=0))
    assert not decisions.read(8, proposed(4, "a", 3, after=5))
    assert not decisions.read(9, proposed(3, "a", 2, after=4)), "it follows a proposal that is void"
    assert decisions.last_offset == 5


def test_a_proposal_of_batches_that_may_be_deleted_is_void() -> None:
    """Invariant 3."""
    decisions = Decisions()
    assert decisions.read(0, proposed(1, "a", 0, staging_end=20))
    assert not decisions.keeps({1: 19})
    assert not decisions.read(1, proposed(2, "b", 0, after=0, takes_over=True, staged_from=19))
    assert decisions.keeps({1: 20, 2: 0})
    assert decisions.read(2, proposed(2, "b", 0, after=0, takes_over=True, staged_from=20))


def test_the_verdicts_of_a_driver() -> None:
    decisions = Decisions()
    assert decisions.verdict("a", 0) == BatchVerdict.OPEN
    decisions.read(3, proposed(1, "a", 4))
    assert decisions.verdict("a", 4) == BatchVerdict.ALREADY
    assert decisions.verdict("a", 3) == BatchVerdict.ALREADY
    assert decisions.verdict("a", 5) == BatchVerdict.OPEN
    assert decisions.verdict("b", 5) == BatchVerdict.FENCED
    assert decisions.verdict("b", 0, takes_over=True) == BatchVerdict.OPEN


def test_the_epoch_of_a_batch_is_its_number_modulo_30_000_and_a_new_producer_begins_with_0() -> None:
    """Invariant 6: an epoch has 15 bits."""
    batch = build_batch([Record(0, 0, None, b"row")], base_timestamp=0)
    found = {}
    for number in (1, 29_999, 30_000, 30_001, 59_999, 60_000, 100_000):
        decisions = Decisions()
        assert decisions.read(7, proposed(number - 1, "a", 0))
        proposal = proposed(number, "a", 1, after=7)
        assert decisions.next_number == number
        header = parse_batch(memoryview(stamped(batch, proposal.producer_id, proposal.producer_epoch, 0)))
        found[number] = header.producer_epoch, decisions.next_producer_id is None
    assert found == {
        1: (1, False),
        29_999: (29_999, False),
        30_000: (0, True),
        30_001: (1, False),
        59_999: (29_999, False),
        60_000: (0, True),
        100_000: (10_000, False),
    }


def test_each_decision_has_its_own_epoch_of_its_producer() -> None:
    """Invariant 6."""
    decisions, used, producer_id = Decisions(), set(), 100
    assert decisions.next_producer_id is None
    for number in range(1, 2 * EPOCHS + 2):
        producer_id = decisions.next_producer_id or producer_id + 1
        place = decisions.next_number, decisions.last_offset
        proposal = Proposal(*place, "a", number, False, producer_id, {}, {}, {}, b"")
        assert decisions.read(number, proposal)
        used.add((proposal.producer_id, proposal.producer_epoch))
    assert len(used) == 2 * EPOCHS + 1
    assert {each for each, _ in used} == {101, 102, 103}
