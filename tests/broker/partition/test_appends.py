"""The unanswered appends of a partition, each answered once and exactly (numbers: invariants of `appends`)."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.broker.partition.appends import WITHOUT_MEMORY, Appends, Produced
from gnomon.broker.partition.log import PartitionLog, PartitionSettings
from gnomon.broker.partition.producers import Duplicate
from gnomon.log.entry import LeaderEpoch, Offset
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, build_batch

NOW = 1_700_000_000_000
REFUSED = Produced(ErrorCode.NOT_LEADER_OR_FOLLOWER, Offset(-1), -1, -1, "led elsewhere")


class Answers:
    """Notes each answer with its slot."""

    def __init__(self) -> None:
        self.got: list[tuple[Any, Produced]] = []

    def appended(self, slot: Any, outcome: Produced) -> None:
        self.got.append((slot, outcome))


class Bench:
    """A log that starts at offset 3, with a batch at 5 and one at 6 in flight."""

    def __init__(self) -> None:
        self.refused: list[bytes] = []
        self.appends = Appends(lambda records: self.refused.append(bytes(records)))
        self.answers = Answers()
        self.log = PartitionLog(LeaderEpoch(1), Offset(3), Offset(5), PartitionSettings())
        for slot, append_time_ms in (("a", -1), ("b", NOW)):
            base = self.log.next_offset
            records = build_batch([Record(0, 0, None, slot.encode())], base_timestamp=NOW)
            self.log.append(memoryview(records), NOW, base)
            self.appends.written((base, Offset(base + 1), append_time_ms, self.answers, slot))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_append_is_answered_with_its_place_once_it_is_durable(bench: Bench) -> None:  # 1, 2
    assert bench.appends.stored(bench.log)
    assert bench.answers.got == [("a", Produced(ErrorCode.NONE, Offset(5), -1, 3))]
    assert bench.appends.in_flight
    assert bench.appends.stored(bench.log)
    assert bench.answers.got[1:] == [("b", Produced(ErrorCode.NONE, Offset(6), NOW, 3))]
    assert not bench.appends.in_flight
    assert bench.log.high_watermark == 7
    assert bench.appends.stored(bench.log) is False


def test_a_repeat_is_answered_like_its_first_copy_and_not_before_it(bench: Bench) -> None:  # 2
    bench.appends.repeated(bench.log, Duplicate(Offset(5), Offset(6), NOW), bench.answers, "a again")
    bench.appends.repeated(bench.log, Duplicate(Offset(6), Offset(7), NOW), bench.answers, "b again")
    assert bench.answers.got == []
    bench.appends.stored(bench.log)
    assert bench.answers.got[1:] == [("a again", Produced(ErrorCode.NONE, Offset(5), -1, 3))]
    bench.appends.stored(bench.log)
    assert bench.answers.got[3:] == [("b again", Produced(ErrorCode.NONE, Offset(6), -1, 3))]
    bench.appends.repeated(bench.log, Duplicate(Offset(6), Offset(7)), bench.answers, "b once more")
    assert bench.answers.got[4:] == [("b once more", Produced(ErrorCode.NONE, Offset(6), -1, 3))]


def test_a_repeat_has_the_append_time_of_its_first_copy_where_the_log_sets_it(bench: Bench) -> None:  # 2
    bench.log.settings = PartitionSettings(log_append_time=True)
    bench.appends.repeated(bench.log, Duplicate(Offset(6), Offset(7), NOW), bench.answers, "b again")
    bench.appends.stored(bench.log)
    bench.appends.stored(bench.log)
    assert bench.answers.got[2:] == [("b again", Produced(ErrorCode.NONE, Offset(6), NOW, 3))]
    bench.appends.repeated(bench.log, Duplicate(Offset(6), Offset(7), NOW), bench.answers, "b once more")
    assert bench.answers.got[3:] == [("b once more", Produced(ErrorCode.NONE, Offset(6), NOW, 3))]


def test_losers_are_answered_before_the_batch_that_they_lost_to_and_the_first_of_them_first(bench: Bench) -> None:  # 2
    for loser in ("lost to b", "lost to b too"):
        bench.appends.after_all(
            bench.answers,
            loser,
            lambda loser=loser: bench.answers.appended(loser, REFUSED),  # type: ignore[misc]
        )
    bench.appends.stored(bench.log)
    assert [slot for slot, _ in bench.answers.got] == ["a"]
    bench.appends.stored(bench.log)
    assert [slot for slot, _ in bench.answers.got[1:]] == ["lost to b", "lost to b too", "b"]


def test_a_snapshot_of_producers_is_answered_to_nobody(bench: Bench) -> None:
    bench.appends.written((Offset(7), Offset(7), -1, None, None))
    for _ in range(3):
        assert bench.appends.stored(bench.log)
    assert [slot for slot, _ in bench.answers.got] == ["a", "b"]


def test_entries_in_flight_that_failed_are_refused_with_their_repeats(bench: Bench) -> None:  # 1
    bench.appends.repeated(bench.log, Duplicate(Offset(5), Offset(6)), bench.answers, "a again")
    bench.appends.written((Offset(7), Offset(7), -1, None, None))
    bench.appends.fail_in_flight(REFUSED.error, "led elsewhere")
    assert bench.answers.got == [("a", REFUSED), ("b", REFUSED), ("a again", REFUSED)]
    assert bench.appends.stored(bench.log) is False
    bench.appends.fail_in_flight(REFUSED.error, "led elsewhere")
    assert len(bench.answers.got) == 3


def test_waiting_appends_are_resumed_in_order_until_one_has_to_wait_again(bench: Bench) -> None:  # 3
    for slot in (0, 1, 2):
        bench.appends.wait(memoryview(b"batch %d" % slot), bench.answers, slot)
    resumed: list[Any] = []

    def append(records: memoryview, callback: Any, slot: Any, terms: Any) -> None:
        resumed.append((bytes(records), callback, slot))
        if slot == 1:
            bench.appends.wait(records, callback, slot)

    bench.appends.resume(append)
    assert resumed == [(b"batch 0", bench.answers, 0), (b"batch 1", bench.answers, 1)]
    bench.appends.refuse_waiting(REFUSED)
    assert bench.answers.got == [(1, REFUSED), (2, REFUSED)]
    assert bench.refused == [b"batch 1", b"batch 2"]


def test_an_append_that_arrived_before_all_that_wait_is_resumed_first(bench: Bench) -> None:  # 3
    bench.appends.wait(memoryview(b"later"), bench.answers, "later")
    bench.appends.wait_first(memoryview(b"earlier"), bench.answers, "earlier")
    resumed: list[Any] = []
    bench.appends.resume(lambda records, callback, slot, terms: resumed.append((bytes(records), callback, slot)))
    assert resumed == [(b"earlier", bench.answers, "earlier"), (b"later", bench.answers, "later")]


def test_suspended_appends_are_answered_once_by_their_key_or_with_all_that_wait(bench: Bench) -> None:  # 1
    first, second = (bench.appends.suspend(bench.answers, slot) for slot in ("x", "y"))
    bench.appends.wait(memoryview(b"batch"), bench.answers, "z")
    outcome = Produced.refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a batch is missing")
    bench.appends.settle(first, outcome)
    bench.appends.settle(first, outcome)
    assert bench.answers.got == [("x", Produced(outcome.error, Offset(-1), -1, -1, "a batch is missing"))]
    bench.appends.refuse_waiting(REFUSED)
    bench.appends.settle(second, outcome)
    assert bench.answers.got[1:] == [("y", REFUSED), ("z", REFUSED)]


class NotCopied:
    """A batch for whose copy there is no memory."""

    def __bytes__(self) -> bytes:
        raise MemoryError


@pytest.mark.parametrize("wait", [Appends.wait, Appends.wait_first])
def test_an_append_without_memory_for_its_copy_is_refused(wait: Any) -> None:  # 3
    refused: list[Any] = []
    appends, answers, records = Appends(refused.append), Answers(), NotCopied()
    wait(appends, records, answers, "a")
    assert (refused, answers.got) == ([records], [("a", WITHOUT_MEMORY)])
    resumed: list[Any] = []
    appends.resume(lambda *append: resumed.append(append))
    assert not resumed


def test_what_writes_nothing_is_answered_after_the_last_entry_before_it(bench: Bench) -> None:  # 2
    told: list[str] = []
    bench.appends.after_all(bench.answers, "c", lambda: told.append("c"))
    bench.appends.stored(bench.log)
    assert told == []
    bench.appends.stored(bench.log)
    assert told == ["c"]
    bench.appends.after_all(bench.answers, "d", lambda: told.append("d"))
    assert told == ["c", "d"], "nothing is in flight"


def test_what_writes_nothing_fails_with_the_entries_before_it_and_does_not_delay_later_ones(bench: Bench) -> None:  # 1
    told: list[str] = []
    bench.appends.after_all(bench.answers, "c", lambda: told.append("c"))
    bench.appends.fail_in_flight(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")
    assert [slot for slot, _ in bench.answers.got] == ["a", "b", "c"]
    bench.log.unwritten(NOW)
    bench.appends.written((Offset(5), Offset(5), -1, None, 0))
    bench.appends.after_all(bench.answers, "d", lambda: told.append("d"))
    bench.appends.stored(bench.log)
    assert told == ["d"]
