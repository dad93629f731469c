"""The pure state of a partition's log (numbers: invariants of `log`)."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_log import HOUR, NOW, Ledger, batch_of, new_log

from gnomon.broker.partition import log as partition_log
from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.partition.producers import Duplicate
from gnomon.log.entry import HEADER_BYTES, EntryKind, Offset, unpack_header
from gnomon.wire.kafka.batch import CRC_FROM, HEADER, BatchRejected, parse_batch
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, build_batch, iterate_records


def test_offsets_are_dense_and_patched_into_each_batch() -> None:  # invariant 1
    ledger = Ledger(new_log())
    for count in (1, 3, 2):
        ledger.append(batch_of(count))
    bases = []
    for payload in ledger.entries:
        header = unpack_header(memoryview(payload))
        batch = parse_batch(memoryview(payload)[HEADER_BYTES:])
        assert (batch.base_offset, batch.next_offset) == (header.base_offset, header.next_offset)
        assert batch.partition_leader_epoch == header.leader_epoch == 3
        bases.append(header.base_offset)
    assert bases == [0, 1, 4]
    assert ledger.log.next_offset == 6


def test_the_high_watermark_moves_only_to_the_end_of_durable_records() -> None:  # invariants 1, 2
    log = new_log()
    log.append(batch_of(2), NOW, 0)
    log.append(batch_of(2), NOW, 1)
    assert (log.high_watermark, log.next_offset) == (0, 4)
    log.durable(Offset(2))
    assert log.high_watermark == 2
    with pytest.raises(AssertionError):
        log.durable(Offset(1))
    with pytest.raises(AssertionError):
        log.durable(Offset(5))


def test_the_log_is_never_cut_above_the_high_watermark() -> None:  # invariant 1
    log = new_log()
    log.append(batch_of(2), NOW, 0)
    with pytest.raises(AssertionError):
        log.trim(Offset(1))
    log.durable(Offset(2))
    log.trim(Offset(2))
    log.trim(Offset(1))
    assert log.start_offset == 2


def test_a_repeat_has_its_first_offset_and_leaves_the_log_unchanged() -> None:  # invariant 5, without the driver
    log = new_log()
    log.append(batch_of(3, producer=9), NOW, 0)
    verdict = log.append(batch_of(3, producer=9), NOW, 1)
    assert isinstance(verdict, Duplicate)
    assert verdict[:2] == (0, 3)
    assert log.next_offset == 3


def test_a_refused_batch_leaves_no_trace() -> None:
    log = new_log(batch_bytes_max=100)
    with pytest.raises(BatchRejected) as refusal:
        log.append(batch_of(5, producer=9), NOW, 0)
    assert refusal.value.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (log.next_offset, len(log.producers), log.segment_bytes) == (0, 0, 0)
    assert log.segment_first_append_ms is None


@pytest.mark.parametrize(
    ("at", "settings_given", "accepted"),
    [
        (NOW + HOUR, {}, True),
        (NOW + HOUR + 1, {}, False),
        (NOW + HOUR + 1, {"timestamp_after_ms_max": 2 * HOUR}, True),
        (NOW - 400 * 24 * HOUR, {}, True),
        (NOW - 11, {"timestamp_before_ms_max": 10}, False),
        (NOW - 10, {"timestamp_before_ms_max": 10}, True),
        (-1, {"timestamp_before_ms_max": 10}, True),
        (NOW + 9 * HOUR, {"log_append_time": True}, True),
    ],
)
def test_timestamps_stay_within_the_topics_bounds(at: int, settings_given: dict[str, Any], accepted: bool) -> None:
    log = new_log(**settings_given)
    if accepted:
        log.append(batch_of(at=at), NOW, 0)
        assert log.next_offset == 1
    else:
        with pytest.raises(BatchRejected) as refusal:
            log.append(batch_of(at=at), NOW, 0)
        assert refusal.value.error_code == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize(
    ("base", "largest", "accepted"),
    [
        (NOW, -1, True),
        (NOW, NOW - 1, True),
        ((1 << 63) - 1, NOW, False),
        ((1 << 63) - 1, -1, False),
        (-1, -2, False),
        (-(1 << 63), NOW, False),
    ],
)
def test_a_batch_whose_times_no_record_can_have_is_refused(base: int, largest: int, accepted: bool) -> None:
    log, batch = new_log(), _with_times(batch_of(), base, largest)
    if accepted:
        log.append(batch, NOW, 0)
    else:
        with pytest.raises(BatchRejected) as refusal:
            log.append(batch, NOW, 0)
        assert refusal.value.error_code == ErrorCode.INVALID_TIMESTAMP


def test_a_repeat_has_the_log_append_time_of_the_first_copy_also_after_a_replay_or_a_snapshot() -> None:
    batch = batch_of(2, producer=9)
    ledger = Ledger(new_log(log_append_time=True))
    ledger.append(batch, NOW)
    replayed, restored = new_log(log_append_time=True), new_log(log_append_time=True)
    entry = memoryview(ledger.entries[0])
    replayed.replay(unpack_header(entry), entry[HEADER_BYTES:], NOW + 1)
    restored.producers.restore_snapshot(replayed.producers.encode_snapshot(0))
    for log in (ledger.log, replayed, restored):
        assert log.append(batch, NOW + 5, 1) == Duplicate(Offset(0), Offset(2), NOW)


def _with_times(batch: memoryview, base: int, largest: int) -> memoryview:
    header = parse_batch(batch)._replace(base_timestamp=base, max_timestamp=largest)
    changed = HEADER.pack(*header) + bytes(batch[HEADER.size :])
    return memoryview(changed[:17] + crc32c(changed[21:]).to_bytes(4, "big") + changed[21:])


def test_log_append_time_is_written_to_the_batch_and_returned() -> None:
    ledger = Ledger(new_log(log_append_time=True))
    _, _, append_time_ms = ledger.append(batch_of(2, at=5), NOW)
    assert append_time_ms == NOW
    stored = memoryview(ledger.entries[0])[HEADER_BYTES:]
    header = parse_batch(stored)
    assert header.is_log_append_time
    assert header.max_timestamp == NOW
    assert header.crc == crc32c(stored[CRC_FROM:])
    assert unpack_header(memoryview(ledger.entries[0])).max_timestamp == NOW


def test_a_segment_rolls_by_size_and_by_age_but_never_empty() -> None:
    size = len(batch_of())
    log = new_log(segment_bytes=2 * size, segment_ms=1000)
    assert not log.roll_due(NOW + 10_000, 10 * size)
    log.append(batch_of(), NOW, 0)
    assert not log.roll_due(NOW + 999, size)
    assert log.roll_due(NOW, size + 1)
    assert log.roll_due(NOW + 1000)
    log.begin_segment()
    assert not log.roll_due(NOW + 10_000, 10 * size)


def test_the_maximum_timestamp_is_reset_with_each_segment() -> None:
    ledger = Ledger(new_log())
    for at in (NOW, NOW - 5, NOW + 5):
        ledger.append(batch_of(at=at))
    ledger.log.begin_segment()
    ledger.append(batch_of(at=NOW - 100))
    found = [unpack_header(memoryview(entry)).max_timestamp for entry in ledger.entries]
    assert found == [NOW, NOW, NOW + 5, NOW - 100]


@pytest.mark.parametrize(
    ("limits", "sealed", "dropped"),
    [
        ({}, [(100, NOW - 8 * 24 * HOUR), (100, NOW)], 1),
        ({"retention_ms": -1}, [(100, 0), (100, 0)], 0),
        ({"retention_ms": 10}, [(100, NOW - 11), (100, NOW - 10), (100, NOW - 11)], 1),
        ({"retention_ms": 10}, [(100, -1)], 0),
        ({"retention_ms": -1, "retention_bytes": 250}, [(100, 0), (100, 0), (100, 0)], 0),
        ({"retention_ms": -1, "retention_bytes": 200}, [(100, 0), (100, 0), (100, 0)], 1),
        ({"retention_ms": -1, "retention_bytes": 0}, [(100, 0), (100, 0), (100, 0)], 3),
        ({"retention_ms": 10, "retention_bytes": 200}, [(100, NOW - 11), (100, NOW), (100, NOW)], 1),
    ],
)
def test_retention_drops_the_oldest_segments(
    limits: dict[str, int], sealed: list[tuple[int, int]], dropped: int
) -> None:
    assert new_log(**limits).segments_to_drop(sealed, NOW) == dropped


def test_records_without_timestamps_expire_by_the_time_of_the_last_append() -> None:
    ledger = Ledger(new_log(retention_ms=10))
    ledger.append(batch_of(at=-1), NOW)
    ledger.append(batch_of(at=-1), NOW + 5)
    assert ledger.log.segment_youngest_ms == NOW + 5
    assert [ledger.log.segment_is_old(NOW + later) for later in (11, 15, 16)] == [False, False, True]
    reopened = ledger.reopened(NOW + 20)
    assert [reopened.segment_is_old(NOW + later) for later in (30, 31)] == [False, True]
    ledger.append(batch_of(at=NOW - 7), NOW + 6)
    ledger.append(batch_of(at=-1), NOW + 7)
    assert ledger.log.segment_youngest_ms == ledger.reopened(NOW + 20).segment_youngest_ms == NOW - 7


def test_a_segment_whose_records_have_all_expired_ends_without_an_append() -> None:
    log = new_log(retention_ms=1000)
    assert not log.segment_is_old(NOW)
    log.append(batch_of(at=NOW - 500), NOW, 0)
    assert not log.segment_is_old(NOW + 500)
    assert log.segment_is_old(NOW + 501)


def test_snapshots_are_due_often_enough_to_keep_a_replay_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_log, "SNAPSHOT_ENTRIES_MIN", 10)
    ledger = Ledger(new_log())
    for number in range(100):
        ledger.append(batch_of(producer=1, sequence=number))
    kinds = [unpack_header(memoryview(entry)).kind for entry in ledger.entries]
    assert kinds.count(EntryKind.PRODUCERS) == 9
    for place, entry in enumerate(ledger.entries):
        assert place - unpack_header(memoryview(entry)).replay_from <= 10


def test_snapshots_are_due_often_enough_to_replay_few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = len(batch_of(producer=1))
    monkeypatch.setattr(partition_log, "SNAPSHOT_BYTES_MIN", 10 * batch)
    monkeypatch.setattr(partition_log, "SNAPSHOT_BYTES_PER_PRODUCER", 2 * batch)
    ledger = Ledger(new_log())
    for number in range(105):
        ledger.append(batch_of(producer=1, sequence=number))
    kinds = [unpack_header(memoryview(entry)).kind for entry in ledger.entries]
    assert kinds.count(EntryKind.PRODUCERS) == 10
    ledger.log = ledger.reopened()
    for number in range(105, 110):
        ledger.append(batch_of(producer=1, sequence=number))
    assert ledger.log.snapshot_due(), "what was replayed counts as well"
    ledger.append(batch_of(producer=1, sequence=110))
    assert len(list(ledger.snapshots())) == 11
    for producer in range(2, 12):
        ledger.append(batch_of(producer=producer))
    assert not ledger.log.snapshot_due(), "many producers make larger snapshots, which are written less often"


def test_without_idempotent_producers_nothing_is_replayed() -> None:
    ledger = Ledger(new_log())
    for _ in range(5):
        ledger.append(batch_of())
    assert unpack_header(memoryview(ledger.entries[-1])).replay_from == 5


_SENDS = st.lists(
    st.tuples(st.integers(-1, 3), st.integers(1, 3), st.sampled_from([NOW - 7, NOW, NOW + 9])), min_size=1, max_size=60
)


@given(sends=_SENDS, snapshot_every=st.integers(2, 9))
@settings(max_examples=60, deadline=None)
def test_a_reopened_log_continues_like_the_log_before(
    sends: list[tuple[int, int, int]], snapshot_every: int
) -> None:  # invariant 4: the ledger contains the whole state
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_log, "SNAPSHOT_ENTRIES_MIN", snapshot_every)
        ledger = Ledger(new_log())
        next_sequence = [0, 0, 0, 0]
        for producer, count, at in sends:
            if producer < 0:
                ledger.append(batch_of(count, at))
            else:
                ledger.append(batch_of(count, at, producer=producer, sequence=next_sequence[producer]))
                next_sequence[producer] += count
        ledger.log.durable(ledger.log.next_offset)
        again = ledger.reopened()
    assert _states(again) == _states(ledger.log)
    assert again.next_offset == again.high_watermark == ledger.log.next_offset
    assert again.segment_max_timestamp == ledger.log.segment_max_timestamp
    assert again.replay_from == ledger.log.replay_from
    empty = sum(len(body) for body in ledger.snapshots() if not msgpack.unpackb(body)[1])
    assert 0 <= again.segment_bytes - ledger.log.segment_bytes <= empty  # snapshots of no producer may count


def test_failed_appends_give_their_offsets_back() -> None:  # invariants 1 and 4
    ledger = Ledger(new_log())
    for _ in range(3):
        ledger.append(batch_of(2))
    ledger.log.durable(Offset(2))
    ledger.log.unwritten(NOW)
    assert ledger.log.next_offset == ledger.log.high_watermark == 2


def test_a_reopened_log_counts_batches_and_no_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_log, "SNAPSHOT_ENTRIES_MIN", 3)
    ledger = Ledger(new_log())
    for number in range(30):
        ledger.append(batch_of(producer=9, sequence=number))
    assert len(list(ledger.snapshots())) > 1
    assert ledger.reopened().segment_bytes == ledger.log.segment_bytes == 30 * len(batch_of())


def test_a_segment_of_unknown_length_counts_as_empty() -> None:
    ledger = Ledger(new_log())
    for _ in range(3):
        ledger.append(batch_of())
    assert ledger.reopened(payload_bytes=0).segment_bytes == 0


def _states(log: PartitionLog) -> list[Any]:
    _, states, _ = msgpack.unpackb(log.producers.encode_snapshot(0))
    return sorted(states)


@pytest.mark.parametrize("append_time", [False, True])
@pytest.mark.parametrize("wanted", list(Codec))
@pytest.mark.parametrize("sent", list(Codec))
def test_a_topic_with_a_codec_stores_every_batch_in_that_codec(sent: Codec, wanted: Codec, append_time: bool) -> None:
    log = new_log(codec=wanted, log_append_time=append_time)
    records = [Record(offset_delta=number, key=b"k", value=b"v" * 200) for number in range(5)]
    batch = memoryview(build_batch(records, base_timestamp=NOW, compression=sent, producer_id=7, base_sequence=0))
    (_, prefix, rest), _, _ = log.append(batch, NOW, 0)
    stored = memoryview(bytes(prefix) + bytes(rest))
    header = parse_batch(stored)
    assert header.compression == wanted
    assert header.size_bytes == len(stored) == log.segment_bytes
    assert header.crc == crc32c(stored[CRC_FROM:])
    assert (header.producer_id, header.base_sequence, header.max_timestamp) == (7, 0, NOW)
    assert list(iterate_records(stored, 1 << 20)) == records
    assert isinstance(log.append(batch, NOW, 1), Duplicate)


def test_a_batch_that_cannot_be_compressed_again_is_refused_and_leaves_no_trace() -> None:
    log = new_log(codec=Codec.NONE, batch_bytes_max=1000)
    records = [Record(offset_delta=0, key=None, value=b"v" * 5000)]
    small = build_batch(records, base_timestamp=NOW, compression=Codec.GZIP)
    with pytest.raises(BatchRejected, match="send smaller batches") as raised:
        log.append(memoryview(small), NOW, 0)
    assert raised.value.error_code == ErrorCode.MESSAGE_TOO_LARGE
    damaged = bytearray(small)
    damaged[-8] ^= 0xFF
    damaged[CRC_FROM - 4 : CRC_FROM] = crc32c(damaged[CRC_FROM:]).to_bytes(4, "big")
    with pytest.raises(BatchRejected) as raised:
        log.append(memoryview(damaged), NOW, 0)
    assert raised.value.error_code == ErrorCode.INVALID_RECORD
    assert (log.next_offset, log.segment_bytes) == (0, 0)
