"""Idempotent producers: each rule, and a comparison with a small model (numbers: invariants of `producers`)."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gnomon.broker.partition import producers as producers_module
from gnomon.broker.partition.producers import (
    BATCHES_REMEMBERED,
    SEQUENCE_MODULUS,
    SNAPSHOT_FORMAT,
    TOKEN_FORMAT,
    AwaitedBatches,
    Duplicate,
    Producers,
)
from gnomon.log.entry import NO_TIMESTAMP, Offset, UnknownEntry
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, build_batch

LAST = SEQUENCE_MODULUS - 1
IDS = st.integers(0, 2)
COUNTS = st.integers(1, 4)


def _end(first: int, count: int) -> int:
    return (first + count - 1) % SEQUENCE_MODULUS


def _append(producers: Producers, first: int, count: int, offset: int, *, epoch: int = 0, now_ms: int = 0) -> Any:
    last = _end(first, count)
    verdict = producers.check(7, epoch, first, last)
    if verdict is None:
        producers.record(7, epoch, first, last, Offset(offset), count, now_ms)
    return verdict


def test_an_unknown_producer_begins_at_any_sequence() -> None:  # invariant 5
    assert _append(Producers(), 1234, 1, 0) is None


def test_a_repeat_among_the_last_five_batches_gets_its_first_offset() -> None:  # invariants 1, 2
    producers = Producers()
    for number in range(BATCHES_REMEMBERED):
        assert _append(producers, 2 * number, 2, 100 + 2 * number) is None
    for number in range(BATCHES_REMEMBERED):
        assert _append(producers, 2 * number, 2, 999) == Duplicate(Offset(100 + 2 * number), Offset(102 + 2 * number))


def test_a_repeat_older_than_five_batches_is_out_of_order() -> None:  # invariants 1, 3
    producers = Producers()
    for number in range(BATCHES_REMEMBERED + 1):
        assert _append(producers, number, 1, number) is None
    assert _append(producers, 0, 1, 99) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_same_first_sequence_with_a_different_last_one_is_no_repeat() -> None:  # invariant 2
    producers = Producers()
    assert _append(producers, 0, 3, 0) is None
    assert _append(producers, 0, 2, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_from_their_largest_to_zero_between_and_within_batches() -> None:  # invariant 3
    between = Producers()
    assert _append(between, LAST, 1, 0) is None
    assert _append(between, 0, 1, 1) is None
    within = Producers()
    assert _append(within, LAST - 1, 4, 0) is None
    assert _append(within, 2, 1, 4) is None
    assert _append(within, LAST - 1, 4, 9) == Duplicate(Offset(0), Offset(4))


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:  # invariant 4
    producers = Producers()
    assert _append(producers, 0, 1, 0) is None
    assert _append(producers, 1, 1, 1, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _append(producers, 0, 1, 1, epoch=1) is None
    assert _append(producers, 1, 1, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert _append(producers, 0, 1, 2) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_only_states_unused_for_the_expiry_time_are_dropped() -> None:  # invariant 6
    producers = Producers()
    producers.record(1, 0, 0, 0, Offset(0), 1, 1000)
    producers.record(2, 0, 0, 0, Offset(1), 1, 2000)
    assert producers.expire(1001) == 1
    assert producers.check(1, 0, 5, 5) is None
    assert producers.check(2, 0, 5, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class ProducersAgainstModel(RuleBasedStateMachine):
    """The model keeps every batch ever appended in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.producers = Producers()
        self.now_ms = 0
        self.next_offset = 0
        self.epochs: dict[int, int] = {}
        self.used_ms: dict[int, int] = {}
        self.batches: dict[int, list[tuple[int, int, int]]] = {}
        """The batches of each producer in its current epoch: (first sequence, count, offset)."""

    def _send(self, producer: int, epoch: int, first: int, count: int) -> None:
        expected = self._expected(producer, epoch, first, count)
        last = _end(first, count)
        assert self.producers.check(producer, epoch, first, last) == expected
        if expected is None:
            self.producers.record(producer, epoch, first, last, Offset(self.next_offset), count, self.now_ms)
            if self.epochs.get(producer) != epoch:
                self.batches[producer] = []
            self.epochs[producer] = epoch
            self.used_ms[producer] = self.now_ms
            self.batches[producer].append((first, count, self.next_offset))
            self.next_offset += count

    def _expected(self, producer: int, epoch: int, first: int, count: int) -> Any:
        if producer not in self.epochs:
            return None
        if epoch < self.epochs[producer]:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch > self.epochs[producer]:
            return None if first == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        remembered = self.batches[producer][-BATCHES_REMEMBERED:]
        for known_first, known_count, offset in remembered:
            if (known_first, known_count) == (first, count):
                return Duplicate(Offset(offset), Offset(offset + count))
        known_first, known_count, _ = remembered[-1]
        in_order = first == (known_first + known_count) % SEQUENCE_MODULUS
        return None if in_order else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(producer=IDS, epoch=st.integers(0, 2), first=st.sampled_from([0, 1, 5, LAST - 1, LAST]), count=COUNTS)
    def sends_anything(self, producer: int, epoch: int, first: int, count: int) -> None:
        self._send(producer, epoch, first, count)

    @precondition(lambda self: self.epochs)
    @rule(data=st.data(), count=COUNTS)
    def sends_the_next(self, data: Any, count: int) -> None:
        producer = data.draw(st.sampled_from(sorted(self.epochs)))
        first, known_count, _ = self.batches[producer][-1]
        self._send(producer, self.epochs[producer], (first + known_count) % SEQUENCE_MODULUS, count)

    @precondition(lambda self: self.epochs)
    @rule(data=st.data())
    def sends_again(self, data: Any) -> None:
        producer = data.draw(st.sampled_from(sorted(self.epochs)))
        first, count, _ = data.draw(st.sampled_from(self.batches[producer]))
        self._send(producer, self.epochs[producer], first, count)

    @rule(ms=st.integers(1, 50))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(ms=st.integers(0, 100))
    def expires(self, ms: int) -> None:
        gone = [producer for producer, used in self.used_ms.items() if used < self.now_ms - ms]
        assert self.producers.expire(self.now_ms - ms) == len(gone)
        for producer in gone:
            del self.epochs[producer], self.used_ms[producer], self.batches[producer]

    @rule()
    def is_restored_from_a_snapshot(self) -> None:
        restored = Producers()
        assert restored.restore_snapshot(memoryview(self.producers.encode_snapshot(70))) == (70, b"")
        self.producers = restored

    @invariant()
    def knows_as_many_producers(self) -> None:
        assert len(self.producers) == len(self.epochs)


TestProducersAgainstModel = ProducersAgainstModel.TestCase
TestProducersAgainstModel.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


def test_a_batch_does_not_overtake_a_refused_one_that_was_sent_before_it() -> None:
    """Invariant 5: a new producer's first batch found the disk full, later ones found room again."""
    before = Producers()
    assert before.check(7, 0, 0, 4) is None
    before.record(7, 0, 0, 4, Offset(10), 5, now_ms=1)
    before.lost(Offset(10), now_ms=1)

    after = Producers()
    after.awaited = before.awaited
    assert after.check(7, 0, 5, 9) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert after.check(7, 1, 0, 0) is None
    assert after.check(7, 0, 0, 4) is None
    after.record(7, 0, 0, 4, Offset(10), 5, now_ms=2)
    assert after.check(7, 0, 5, 9) is None


def test_the_refused_batch_that_was_sent_first_is_awaited_in_any_order_of_refusals() -> None:
    """A batch was refused for lack of room while earlier ones still waited; they were refused after it."""
    producers = Producers()
    for first in (0, LAST - 3, LAST - 8):
        producers.awaited.refused(7, 0, first, now_ms=1)
    assert producers.check(7, 0, 0, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(7, 0, LAST - 3, LAST) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(7, 0, LAST - 8, LAST - 4) is None


def test_an_awaited_batch_is_forgotten_like_a_producer() -> None:
    producers = Producers()
    producers.awaited.refused(7, 0, 3, now_ms=1)
    producers.awaited.refused(7, 0, 8, now_ms=2)
    assert producers.check(7, 0, 8, 8) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producers.expire(before_ms=2)
    assert producers.check(7, 0, 8, 8) is None


def test_no_late_batch_of_an_epoch_that_its_client_has_left_is_appended() -> None:  # 6
    producers = Producers()
    producers.record(7, 0, 0, 3, Offset(10), 4, now_ms=0)
    producers.awaited.epoch_ended(7, 0, now_ms=1)
    assert producers.check(7, 0, 4, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(7, 0, 0, 3) == Duplicate(Offset(10), Offset(14)), "a repeat is still answered"
    producers.awaited.epoch_ended(7, 1, now_ms=2)
    assert producers.check(7, 1, 0, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(7, 2, 0, 0) is None
    producers.awaited.epoch_ended(8, 3, now_ms=3)
    assert producers.check(8, 3, 0, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(8, 4, 0, 0) is None
    assert producers.check(9, 0, 0, 0) is None
    other = AwaitedBatches()
    other.absorb(producers.awaited)
    assert other.has_ended(8, 3)
    producers.expire(before_ms=3)
    assert producers.check(8, 3, 0, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producers.expire(before_ms=4)
    assert producers.check(8, 3, 0, 0) is None


def test_a_snapshot_without_timestamps_is_read() -> None:
    """The format of gnomon before repeats were answered with the time of their append."""
    producers = Producers()
    snapshot = msgpack.packb((SNAPSHOT_FORMAT - 1, [(7, 1, 1_000, [(0, 3, 100, 4)])], 0))
    assert producers.restore_snapshot(snapshot) == (0, b"")
    assert producers.check(7, 1, 0, 3) == Duplicate(Offset(100), Offset(104), NO_TIMESTAMP)


def test_a_snapshot_of_another_format_is_refused() -> None:
    snapshot = msgpack.packb((TOKEN_FORMAT + 1, [], 0, "more"))
    with pytest.raises(
        UnknownEntry, match="holds a producer snapshot of format 5, this gnomon reads formats up to 4: upgrade"
    ):
        Producers().restore_snapshot(snapshot)


def _awaited(*batches: tuple[int, int]) -> Producers:
    """Producers that refused batches of producer 7, given by epoch and first sequence."""
    producers = Producers()
    for epoch, first in batches:
        producers.awaited.refused(7, epoch, first, 0)
    return producers


@pytest.mark.parametrize(
    ("batches", "epoch", "first"),
    [
        (((0, 5), (0, 6)), 0, 5),
        (((0, 6), (0, 5)), 0, 5),
        (((0, 0), (0, LAST)), 0, LAST),
        (((0, LAST), (0, 0)), 0, LAST),
        (((0, 5), (1, 9)), 1, 9),
        (((1, 9), (0, 5)), 1, 9),
        (((3, 2), (3, 1)), 3, 1),
        (((0, 0), (0, SEQUENCE_MODULUS // 2)), 0, 0),
        (((0, 0), (0, SEQUENCE_MODULUS // 2 + 1)), 0, SEQUENCE_MODULUS // 2 + 1),
    ],
)
def test_the_batch_of_the_newest_epoch_that_was_sent_first_is_awaited(  # invariant 5
    batches: tuple[tuple[int, int], ...], epoch: int, first: int
) -> None:
    producers = _awaited(*batches)
    assert producers.check(7, epoch, first, first) is None
    assert producers.check(7, epoch, (first + 1) % SEQUENCE_MODULUS, 9) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_only_the_newest_refused_batches_are_awaited_beyond_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers_module, "PRODUCERS_AWAITED_MAX", 2)
    producers = Producers()
    for producer_id in range(3):
        producers.awaited.refused(producer_id, 0, 5, 0)
    early = [producers.check(producer_id, 0, 6, 6) for producer_id in range(3)]
    assert early == [None, *[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * 2]


@pytest.mark.parametrize("producer_id", [0, 7])
def test_a_batch_that_was_refused_as_it_was_sent_is_awaited_until_it_is_appended(producer_id: int) -> None:
    producers = Producers()
    sender = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 5}
    records = build_batch([Record(0, 0, None, b"v")], base_timestamp=0, **sender)
    producers.awaited.refused_batch(memoryview(records), 10)
    producers.awaited.refused(8, 0, 5, 10)
    producers.expire(10)
    assert producers.check(producer_id, 0, 6, 6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producers.record(producer_id, 0, 5, 5, Offset(0), 1, 10)
    producers._states.clear()
    assert producers.check(producer_id, 0, 6, 6) is None
    assert producers.check(8, 0, 6, 6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_that_nothing_is_awaited_of_may_append_while_others_are_awaited() -> None:
    producers = _awaited((0, 5))
    producers.record(9, 0, 0, 0, Offset(0), 1, 0)
    assert producers.check(7, 0, 6, 6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_awaited_batch_that_is_refused_again_is_forgotten_by_the_time_of_its_first_refusal() -> None:
    producers = _awaited((0, 5))
    producers.awaited.refused(7, 0, 5, 10)
    producers.expire(5)
    assert producers.check(7, 0, 6, 6) is None


def test_only_producers_that_lost_a_batch_are_awaited() -> None:
    producers = Producers()
    producers.record(7, 0, 0, 0, Offset(0), 1, 0)
    producers.record(8, 0, 0, 0, Offset(1), 1, 0)
    producers.lost(Offset(1), 0)
    producers._states.clear()
    assert producers.check(7, 0, 5, 5) is None
    assert producers.check(8, 0, 5, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
