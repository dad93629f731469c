"""The pure state of a partition's log at its limits: refusals, snapshots, segments and retention."""

from __future__ import annotations

from typing import Any

import pytest
from stored_log import NOW, Ledger, batch_of, new_log

from gnomon.broker.partition import log as partition_log
from gnomon.broker.partition.conditions.terms import Terms
from gnomon.broker.partition.log import PartitionSettings
from gnomon.broker.partition.producers import REPEATED_MS, Duplicate
from gnomon.log.entry import Offset
from gnomon.wire.kafka.batch import BatchRejected
from gnomon.wire.kafka.errors import ErrorCode


def test_a_batch_out_of_order_is_refused_with_its_producer_and_sequence() -> None:
    log = new_log()
    log.append(batch_of(producer=0, epoch=1), NOW, 0)
    assert log.append(batch_of(producer=0, epoch=1), NOW, 1) == Duplicate(Offset(0), Offset(1), NOW)
    with pytest.raises(BatchRejected) as refusal:
        log.append(batch_of(producer=0, epoch=1, sequence=7), NOW, 1)
    assert refusal.value.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert str(refusal.value) == (
        "producer 0 epoch 1: sequence 7 does not follow the last one appended: a batch before it is missing"
    )
    with pytest.raises(
        BatchRejected, match="producer 0 has a newer epoch than 0: another instance took over"
    ) as fenced:
        log.append(batch_of(producer=0, epoch=0), NOW, 1)
    assert fenced.value.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_log_that_refuses_new_batches_says_why_and_answers_repeats() -> None:  # invariant 5, without the driver
    log = new_log()
    log.append(batch_of(producer=9), NOW, 0)
    log.refusal = "subscription 's' has a backlog of 2 GiB: read it"
    assert log.append(batch_of(producer=9), NOW, 1) == Duplicate(Offset(0), Offset(1), NOW)
    with pytest.raises(BatchRejected, match="has a backlog of 2 GiB") as refusal:
        log.append(batch_of(producer=9, sequence=1), NOW, 1)
    assert refusal.value.error_code == ErrorCode.POLICY_VIOLATION
    assert log.next_offset == 1


def test_an_append_without_log_append_time_has_none() -> None:
    verdict = new_log().append(batch_of(), NOW, 0)
    assert not isinstance(verdict, Duplicate)
    assert verdict[2] == -1


@pytest.mark.parametrize(
    ("at", "settings_given", "text"),
    [
        (
            NOW + 11,
            {"timestamp_after_ms_max": 10},
            f"timestamp {NOW + 11} is more than 10 ms ahead of the broker's clock",
        ),
        (
            NOW - 11,
            {"timestamp_before_ms_max": 10},
            f"timestamp {NOW - 11} is more than 10 ms behind the broker's clock",
        ),
        (-2, {}, "timestamp -2 is no time"),
    ],
)
def test_a_timestamp_that_is_refused_is_named(at: int, settings_given: dict[str, Any], text: str) -> None:
    with pytest.raises(BatchRejected, match=text) as refusal:
        new_log(**settings_given).append(batch_of(at=at), NOW, 0)
    assert refusal.value.error_code == ErrorCode.INVALID_TIMESTAMP


def test_entries_are_counted_from_the_last_snapshot_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_log, "SNAPSHOT_ENTRIES_MIN", 3)
    monkeypatch.setattr(partition_log, "SNAPSHOT_ENTRIES_PER_PRODUCER", 1)
    ledger = Ledger(new_log())
    ledger.append(batch_of(producer=9))
    ledger.log.begin_segment()
    ledger.entries.clear()
    for sequence in (1, 2):
        ledger.append(batch_of(producer=9, sequence=sequence))
        assert not ledger.reopened().snapshot_due()
    ledger.append(batch_of(producer=9, sequence=3))
    assert len(list(ledger.snapshots())) == 1
    assert ledger.reopened().snapshot_due()


def test_an_empty_segment_has_no_youngest_record() -> None:
    assert new_log().segment_youngest_ms == -1


def test_a_new_segment_begins_with_a_snapshot_if_and_only_if_a_producer_is_known() -> None:
    log = new_log()
    assert not log.snapshot_due()
    log.append(batch_of(producer=9), NOW, 0)
    assert not log.snapshot_due()
    log.begin_segment()
    assert log.snapshot_due()
    log.snapshot(0)
    assert not log.snapshot_due()


def test_a_segment_that_is_restored_is_not_bare() -> None:
    ledger = Ledger(new_log())
    ledger.append(batch_of(producer=9))
    assert not ledger.reopened().snapshot_due()


def test_entries_count_toward_the_next_snapshot_also_after_a_reopening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_log, "SNAPSHOT_ENTRIES_MIN", 5)
    monkeypatch.setattr(partition_log, "SNAPSHOT_ENTRIES_PER_PRODUCER", 2)
    ledger = Ledger(new_log())
    for sequence in range(4):
        ledger.append(batch_of(producer=9, sequence=sequence))
        assert not ledger.reopened().snapshot_due()
    ledger.append(batch_of(producer=9, sequence=4))
    assert ledger.reopened().snapshot_due()
    for producer in (10, 11):
        ledger.log.append(batch_of(producer=producer), NOW, 5)
    assert ledger.log.snapshot_due()
    monkeypatch.setattr(partition_log, "SNAPSHOT_ENTRIES_PER_PRODUCER", 3)
    assert not ledger.log.snapshot_due(), "three producers, seven entries: a snapshot is due at nine"


def test_many_bytes_make_a_snapshot_due_only_if_a_producer_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_log, "SNAPSHOT_BYTES_MIN", 100)
    monkeypatch.setattr(partition_log, "SNAPSHOT_BYTES_PER_PRODUCER", 100)
    log = new_log()
    log.append(batch_of(50), NOW, 0)
    assert not log.snapshot_due()
    for producer in range(20):
        log.append(batch_of(producer=producer), NOW, producer)
    size = log.segment_bytes
    monkeypatch.setattr(partition_log, "SNAPSHOT_BYTES_PER_PRODUCER", size // 20)
    assert log.snapshot_due()
    monkeypatch.setattr(partition_log, "SNAPSHOT_BYTES_PER_PRODUCER", size // 20 + 1)
    assert not log.snapshot_due()


def test_a_segment_is_full_by_the_bytes_that_it_would_have_and_may_overrun_by_a_bounded_number() -> None:
    log = new_log(segment_bytes=1000)
    log.append(batch_of(), NOW, 0)
    room = 1000 - log.segment_bytes
    assert not log.roll_due(NOW, room)
    assert log.roll_due(NOW, room + 1)
    log.settings = PartitionSettings(segment_bytes=log.segment_bytes)
    assert not log.roll_due(NOW)
    assert log.may_overrun(partition_log.OVERRUN_BYTES_MAX)
    assert not log.may_overrun(partition_log.OVERRUN_BYTES_MAX + 1)


@pytest.mark.parametrize(
    ("settings_given", "active_bytes", "dropped"),
    [
        ({"retention_bytes": 30}, 10, 1),
        ({"retention_bytes": 30}, 9, 0),
        ({"retention_bytes": 0}, 0, 3),
        ({"retention_bytes": -1}, 10_000, 0),
        ({"retention_ms": 0}, 0, 3),
        ({"retention_ms": 1}, 0, 0),
    ],
)
def test_retention_counts_the_segment_being_written_and_takes_zero_for_a_limit(
    settings_given: dict[str, int], active_bytes: int, dropped: int
) -> None:
    sealed = [(10, NOW - 1)] * 3
    given_settings = PartitionSettings(**{"retention_ms": -1, **settings_given})
    assert partition_log.segments_to_drop(given_settings, sealed, active_bytes, NOW) == dropped


def test_a_failed_append_is_awaited_until_it_expires_by_the_time_of_the_failure() -> None:  # producers 5, 6
    log = new_log()
    log.append(batch_of(producer=9, sequence=5), NOW, 0)
    log.unwritten(NOW)
    log.producers._states.clear()
    assert log.producers.check(9, 0, 6, 6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.producers.expire(NOW)
    assert log.producers.check(9, 0, 6, 6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.producers.expire(NOW + 1)
    assert log.producers.check(9, 0, 6, 6) is None


def test_a_producer_expires_by_the_time_of_its_last_append() -> None:  # producers 6
    log = new_log()
    log.append(batch_of(producer=9), NOW, 0)
    log.append(batch_of(producer=9, sequence=1), NOW + 5, 1)
    assert log.producers.expire(NOW + 5) == 0
    assert log.producers.expire(NOW + 6) == 1


@pytest.mark.parametrize("terms", [None, Terms(of_records=True)], ids=["at once", "after its records were searched"])
def test_a_batch_behind_a_refused_one_is_to_be_repeated_with_it(terms: Terms | None) -> None:  # producers 8
    log = new_log()
    first, second, third = (batch_of(producer=9, sequence=sequence) for sequence in range(3))
    log.append(first, NOW, 0)  # its answer is lost, and its repeat is refused, as the next one is
    for sequence in (0, 1):
        log.producers.awaited.refused(9, 0, sequence, NOW)
    with pytest.raises(BatchRejected, match="repeat both in their order") as behind:
        log.append(third, NOW + REPEATED_MS - 1, 1, terms)
    assert behind.value.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert log.append(first, NOW, 1) == Duplicate(Offset(0), Offset(1), NOW)
    for number, batch in enumerate((second, third), 1):
        assert not isinstance(log.append(batch, NOW, number), Duplicate)
    assert log.next_offset == 3


@pytest.mark.parametrize(
    ("refused", "now_ms", "terms"),
    [
        ((9, 0, 5), NOW, None),
        ((9, 0, 6), NOW, None),
        ((9, 1, 1), NOW, None),
        ((8, 0, 1), NOW, None),
        ((9, 0, 1), NOW + REPEATED_MS, None),
        ((9, 0, 1), NOW, Terms()),
    ],
    ids=["itself", "a later one", "of another epoch", "of another producer", "long ago", "by a native client"],
)
def test_a_gap_that_no_refusal_explains_is_called_one(
    refused: tuple[int, int, int], now_ms: int, terms: Terms | None
) -> None:  # producers 3, 8
    log = new_log()
    log.append(batch_of(producer=9), NOW, 0)
    log.producers.awaited.refused(*refused, NOW)
    with pytest.raises(BatchRejected) as gap:
        log.append(batch_of(producer=9, sequence=5), now_ms, 1, terms)
    assert gap.value.error_code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
