"""The numbered batches of a writer, against a leader that may lose requests, answers and leadership (numbers:
invariants of `write_pipeline`)."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gnomon.broker.partition.conditions.terms import Terms, TermsRefused
from gnomon.broker.partition.log import PartitionLog, PartitionSettings
from gnomon.broker.partition.producers import AwaitedBatches, Duplicate
from gnomon.client.errors import CasWriteException, OutcomeUnknown, Unavailable
from gnomon.client.writes import write_pipeline as pipeline_module
from gnomon.client.writes.client_write import PREVIOUS, ClientTerms, ClientWrite, Expected, WriteRecord
from gnomon.client.writes.write_pipeline import BATCHES_MAX, EPOCH_MAX, NumberedBatch, WritePipeline
from gnomon.log.dlsn import Dlsn
from gnomon.log.entry import LeaderEpoch, Offset
from gnomon.log.sn import EMPTY, SN
from gnomon.wire.kafka.batch import BatchRejected, parse_batch
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, build_batch, iterate_records

NOW = 1_700_000_000_000
EARLY = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH)


def write_of(value: bytes, expected: Expected = None, deadline: float = 30.0, count: int = 1) -> ClientWrite:
    records = [WriteRecord(value + b"/%d" % number if count > 1 else value) for number in range(count)]
    return ClientWrite(records, ClientTerms(expected), deadline, lambda: None)


def refusal(current: SN) -> CasWriteException:
    return CasWriteException(current.encode(), "the log ends elsewhere")


def place(last: int) -> SN:
    return SN(Dlsn(0, last, 0), -1, last)


def opened(*, chain: bool) -> WritePipeline:
    pipeline = WritePipeline(chain=chain)
    pipeline.number(7)
    return pipeline


def sent(pipeline: WritePipeline) -> list[NumberedBatch]:
    batches = []
    while (batch := pipeline.next_batch(NOW)) is not None:
        batches.append(batch)
    return batches


def numbers(batch: NumberedBatch) -> tuple[int, int, int]:
    header = parse_batch(memoryview(batch.data))
    return header.producer_id, header.producer_epoch, header.base_sequence


def test_batches_are_numbered_and_at_most_five_have_no_answer() -> None:  # 1
    pipeline = opened(chain=False)
    for number in range(8):
        pipeline.add(write_of(b"%d" % number, SN(sequence_id=number)))
    batches = sent(pipeline)
    assert [numbers(batch) for batch in batches] == [(7, 0, number) for number in range(BATCHES_MAX)]
    pipeline.written(batches[0], place(1))
    assert [numbers(batch) for batch in sent(pipeline)] == [(7, 0, 5)]


def test_nothing_is_sent_without_a_producer_id() -> None:
    pipeline = WritePipeline(chain=False)
    pipeline.add(write_of(b"a"))
    assert pipeline.needs_producer
    assert sent(pipeline) == []


@pytest.mark.parametrize("chain", [True, False])
def test_after_a_failure_all_batches_are_sent_again_with_their_numbers(chain: bool) -> None:  # 2
    pipeline = opened(chain=chain)
    for number in range(3):
        pipeline.add(write_of(b"%d" % number, SN(sequence_id=number)))
    batches = sent(pipeline)
    pipeline.lost(batches[0], had_effect=True)
    pipeline.add(write_of(b"late", SN(sequence_id=3)))
    assert not pipeline.stalled, "two answers may still arrive"
    assert sent(pipeline) == []
    pipeline.early(batches[1])
    pipeline.lost(batches[2], had_effect=True)
    assert pipeline.stalled
    assert pipeline.resume() == batches
    assert [numbers(batch) for batch in sent(pipeline)] == [(7, 0, 3)]


def test_in_a_chain_a_refusal_fails_all_that_was_sent_behind_it_and_a_new_epoch_begins() -> None:  # 3, 4
    pipeline = opened(chain=True)
    writes = [write_of(b"%d" % number, SN(sequence_id=number)) for number in range(7)]
    for write in writes:
        pipeline.add(write)
    batches = sent(pipeline)
    pipeline.written(batches[0], place(1))
    error = refusal(place(9))
    pipeline.refused(batches[1], error)
    assert [write.error for write in writes] == [None, *[error] * 6]
    for batch in batches[2:]:
        pipeline.early(batch)  # changes nothing any more
    assert pipeline.idle
    pipeline.add(write_of(b"anew", SN(sequence_id=9)))
    assert sent(pipeline) == []
    assert pipeline.resume() == []
    assert not pipeline.stalled
    assert [numbers(batch) for batch in sent(pipeline)] == [(7, 1, 0)]


def test_an_independent_write_behind_a_refused_one_is_numbered_anew_and_sent_again() -> None:  # 3, 4
    pipeline = opened(chain=False)
    writes = [write_of(b"%d" % number, SN(sequence_id=number)) for number in range(3)]
    for write in writes:
        pipeline.add(write)
    batches = sent(pipeline)
    pipeline.refused(batches[0], refusal(place(9)))
    pipeline.early(batches[1])
    assert not pipeline.stalled
    pipeline.early(batches[2])
    assert pipeline.resume() == []
    again = sent(pipeline)
    assert [numbers(batch) for batch in again] == [(7, 1, 0), (7, 1, 1)]
    assert [batch.writes for batch in again] == [[writes[1]], [writes[2]]]
    assert [write.over for write in writes] == [True, False, False]


def test_a_batch_that_is_given_up_may_be_in_the_log_and_the_next_one_is_in_a_new_epoch() -> None:  # 5
    pipeline = opened(chain=False)
    late, unsent = write_of(b"late", deadline=10), write_of(b"unsent", SN(sequence_id=5), deadline=11)
    pipeline.add(late)
    (batch,) = sent(pipeline)
    pipeline.lost(batch, had_effect=True)
    pipeline.add(unsent)
    problem = Unavailable("no leader")
    pipeline.expire(10.0, problem)
    assert isinstance(late.error, OutcomeUnknown)
    assert not unsent.over
    pipeline.expire(11.0, problem)
    assert unsent.error is problem
    pipeline.add(write_of(b"next"))
    assert pipeline.stalled
    assert pipeline.resume() == []
    assert pipeline.resume() == []
    assert [numbers(batch) for batch in sent(pipeline)] == [(7, 1, 0)]


def test_after_the_last_epoch_a_new_producer_id_is_needed() -> None:
    pipeline = opened(chain=False)
    for _ in range(EPOCH_MAX):
        pipeline.add(write_of(b"a", EMPTY))
        (batch,) = sent(pipeline)
        pipeline.refused(batch, refusal(place(0)))
        pipeline.resume()
        assert not pipeline.needs_producer
    pipeline.add(write_of(b"a", EMPTY))
    (batch,) = sent(pipeline)
    assert numbers(batch) == (7, EPOCH_MAX, 0)
    pipeline.refused(batch, refusal(place(0)))
    pipeline.resume()
    assert pipeline.needs_producer


def test_previous_is_the_sequence_id_of_the_write_before_and_waits_until_it_is_known() -> None:
    pipeline = opened(chain=True)
    pipeline.add(write_of(b"a", SN(sequence_id=4), count=3))
    (first,) = sent(pipeline)
    pipeline.add(write_of(b"b", PREVIOUS))
    (second,) = sent(pipeline)
    assert second.expected == SN(sequence_id=7)
    pipeline.add(write_of(b"c", SN(Dlsn(0, 9, 9))))
    (third,) = sent(pipeline)
    pipeline.add(write_of(b"d", PREVIOUS))
    assert sent(pipeline) == [], "the place of c is not known"
    for batch, last in ((first, 7), (second, 8), (third, 9)):
        pipeline.written(batch, place(last))
    (fourth,) = sent(pipeline)
    assert fourth.expected == SN(sequence_id=9)


def test_writes_are_joined_if_the_condition_of_the_first_holds_for_all() -> None:  # 6
    for chain, joined in ((True, [[0, 1, 2], [3, 4]]), (False, [[0, 1], [2], [3], [4]])):
        pipeline = opened(chain=chain)
        wanted: list[Expected] = [None, None, SN(sequence_id=1), SN(sequence_id=2), None]
        if chain:
            wanted[2] = PREVIOUS
        writes = [write_of(b"%d" % number, expected) for number, expected in enumerate(wanted)]
        for write in writes:
            pipeline.add(write)
        assert [[writes.index(write) for write in batch.writes] for batch in sent(pipeline)] == joined


def test_a_joined_write_has_the_place_of_its_own_last_record() -> None:
    pipeline = opened(chain=False)
    writes = [write_of(b"a"), write_of(b"b", count=3), write_of(b"c", count=2)]
    for write in writes:
        pipeline.add(write)
    (batch,) = sent(pipeline)
    pipeline.written(batch, SN(Dlsn(20, 4, 5), -1, 35))
    assert [write.sn for write in writes] == [
        SN(Dlsn(20, 4, 0), -1, 30),
        SN(Dlsn(20, 4, 3), -1, 33),
        SN(Dlsn(20, 4, 5), -1, 35),
    ]


def test_batches_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_module, "JOINED_RECORDS_MAX", 3)
    monkeypatch.setattr(pipeline_module, "JOINED_BYTES_MAX", 10)
    pipeline = opened(chain=False)
    for value in (b"1", b"2", b"3", b"4", b"x" * 10, b"6"):
        pipeline.add(write_of(value))
    assert [[write.records[0].value for write in batch.writes] for batch in sent(pipeline)] == [
        [b"1", b"2", b"3"],
        [b"4"],
        [b"x" * 10],
        [b"6"],
    ]


def test_an_abandoned_write_that_was_not_sent_is_not_sent() -> None:
    pipeline = opened(chain=False)
    writes = [write_of(b"%d" % number) for number in range(3)]
    for write in writes:
        pipeline.add(write)
    writes[0].abandon()
    writes[2].abandon()
    (batch,) = sent(pipeline)
    assert batch.writes == [writes[1]]


# --- a machine ------------------------------------------------------------------------------------------------


class Leader:
    """The present leader of a partition: its log is real, its records are kept in a list."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self._entries = 0
        self._log = PartitionLog(
            LeaderEpoch(0), Offset(0), Offset(0), PartitionSettings(timestamp_after_ms_max=1 << 60)
        )
        self._log.producers.awaited = AwaitedBatches()

    def change(self) -> None:
        """Another broker leads the partition from now on; it does not know what this one has refused."""
        states = self._log.producers.encode_snapshot(0)
        log = PartitionLog(LeaderEpoch(0), Offset(0), self._log.next_offset, self._log.settings)
        log.producers.restore_snapshot(states)
        log.producers.awaited = AwaitedBatches()
        log.found(self._log.sn)
        self._log = log

    def append(self, data: bytes, expected: SN | None = None) -> SN | Exception:
        """The answer to one batch."""
        batch = memoryview(data)
        try:
            verdict = self._log.append(batch, NOW, self._entries, Terms(expected))
        except TermsRefused as refused:
            self.note_refused(data)
            return refusal(refused.current)
        except BatchRejected as early:
            return early
        if isinstance(verdict, Duplicate):
            return SN(None, -1, verdict.next_offset - 1)
        self._entries += 1
        self._log.durable(self._log.next_offset)
        self.values += [record.value or b"" for record in iterate_records(batch, 1 << 20)]
        assert len(self.values) == self._log.next_offset
        return self._log.sn

    def note_refused(self, data: bytes) -> None:
        self._log.producers.awaited.refused_batch(memoryview(data), NOW)


class PipelineMachine(RuleBasedStateMachine):
    """One writer, its connection, a leader, and other writers."""

    chain = True

    @initialize(chain=st.booleans())
    def begin(self, chain: bool) -> None:
        self.chain = chain
        self.pipeline = WritePipeline(chain=chain)
        self.leader = Leader()
        self.now = 0.0
        self.producers = 0
        self.writes: list[ClientWrite] = []
        self.requests: deque[NumberedBatch] = deque()
        self.answers: deque[tuple[NumberedBatch, Any]] = deque()

    @rule(count=st.integers(1, 3), kind=st.sampled_from(["none", "previous", "last", "ahead", "empty"]))
    def write(self, count: int, kind: str) -> None:
        last = len(self.leader.values) - 1
        before = self.writes[-1] if self.writes else None
        expected: Expected = {
            "none": None,
            "previous": PREVIOUS,
            "last": SN(sequence_id=last),
            "ahead": SN(sequence_id=last + 1),
            "empty": EMPTY,
        }[kind]
        if expected is PREVIOUS and (before is None or not self.chain):
            return
        write = write_of(b"%d" % len(self.writes), expected, self.now + 30, count)
        self.writes.append(write)
        if self.chain and before is not None and before.error is not None and not isinstance(expected, SN):
            write.failed(before.error)  # as `Writer` does
        else:
            self.pipeline.add(write)

    @rule()
    def somebody_else_writes(self) -> None:
        batch = build_batch([Record(value=b"foreign")], base_timestamp=NOW)
        assert isinstance(self.leader.append(batch), SN)

    @rule()
    def send(self) -> None:
        if self.pipeline.needs_producer:
            self.producers += 1
            self.pipeline.number(self.producers)
        if self.pipeline.stalled:
            self.requests.extend(self.pipeline.resume())
        self.requests.extend(sent(self.pipeline))

    @precondition(lambda self: self.requests)
    @rule(fails=st.sampled_from([False, False, False, True]))
    def leader_takes_a_request(self, fails: bool) -> None:
        batch = self.requests.popleft()
        if fails:
            self.leader.note_refused(batch.data)
            self.answers.append((batch, Unavailable("the disk is full")))
        else:
            self.answers.append((batch, self.leader.append(batch.data, batch.expected)))

    @precondition(lambda self: self.answers)
    @rule()
    def answer_arrives(self) -> None:
        batch, answer = self.answers.popleft()
        if isinstance(answer, SN):
            self.pipeline.written(batch, answer)
        elif isinstance(answer, CasWriteException):
            self.pipeline.refused(batch, answer)
        elif isinstance(answer, BatchRejected):
            assert answer.error_code in EARLY
            self.pipeline.early(batch)
        else:
            self.pipeline.lost(batch, had_effect=False)

    @rule(taken=st.integers(0, 5))
    def connection_is_lost(self, taken: int) -> None:
        """The leader takes some of the requests that are on their way, and all answers are lost."""
        for _ in range(min(taken, len(self.requests))):
            self.leader_takes_a_request(False)
        for batch in [*(batch for batch, _ in self.answers), *self.requests]:
            self.pipeline.lost(batch, had_effect=True)
        self.answers.clear()
        self.requests.clear()

    @rule(taken=st.integers(0, 5))
    def leader_changes(self, taken: int) -> None:
        self.connection_is_lost(taken)
        self.leader.change()

    @rule(seconds=st.sampled_from([1.0, 12.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.pipeline.expire(self.now, None)

    @invariant()
    def few_batches_have_no_answer(self) -> None:  # 1
        assert len(self.pipeline._unanswered) <= BATCHES_MAX

    @invariant()
    def outcomes_are_true(self) -> None:
        own = [value for value in self.leader.values if value != b"foreign"]
        assert len(own) == len(set(own)), "a record is there twice"
        for write in self.writes:
            values = [record.value for record in write.records]
            if write.sn is not None:
                end = (write.sn.sequence_id or 0) + 1
                assert self.leader.values[end - len(values) : end] == values, "not where it was acknowledged"
            elif isinstance(write.error, CasWriteException):
                assert not set(values) & set(own), "a refused write is in the log"
        if self.chain:
            order = [int(value.partition(b"/")[0]) for value in own]
            assert order == sorted(order), "a chain is out of order"

    def teardown(self) -> None:
        for _ in range(20 * (len(self.writes) + 5)):
            self.send()
            while self.requests:
                self.leader_takes_a_request(False)
            while self.answers:
                self.answer_arrives()
            self.outcomes_are_true()
        assert self.pipeline.idle
        assert all(write.over for write in self.writes)


class TestPipelineMachine(PipelineMachine.TestCase):
    settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
