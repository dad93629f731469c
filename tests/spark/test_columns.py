"""Columns against the records of `iterate_records`; numbers cite the invariants of `columns`."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import edges
import pyarrow as pa
import pytest
from column_rows import ALL, EVERYTHING, FEW, MANY, check_rows_or_error, decoded, expected, placed
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.spark.columns import ColumnDecoder, Range, UnreadableBatch
from gnomon.wire.kafka.batch import HEADER_BYTES, parse_batch, patched_prefix
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.records import Record, build_batch, framed

BATCH_BYTES = 4_096
"""The most bytes of records of a batch where memory is measured."""
MEMORY_BYTES = 64 * BATCH_BYTES
"""Some 30 times as much is allowed (invariant 3), and what errors and small arrays take."""
fields = st.none() | st.binary(max_size=20) | edges.byte_strings
header = st.tuples(st.text(max_size=70) | edges.texts, st.none() | st.binary(max_size=10))
headers = st.lists(header, max_size=3).map(tuple) | st.lists(header, min_size=20, max_size=40).map(tuple)
rows = st.lists(
    st.tuples(st.integers(1, 3) | st.integers(1, 2**20), st.integers(-(2**40), 2**40), fields, fields, headers),
    min_size=1,
    max_size=70,
)
batches = st.lists(st.tuples(rows, st.sampled_from(Codec), st.booleans(), st.integers(0, 500)), min_size=1, max_size=4)


@settings(max_examples=120, deadline=None)
@given(batches, st.sampled_from([1, 300, 8 << 20]))
def test_the_rows_are_the_records_of_iterate_records(contents: Any, gathered_bytes: int) -> None:
    given_batches = placed(contents)
    assert decoded(given_batches, gathered_bytes=gathered_bytes) == expected(given_batches)


@settings(max_examples=60, deadline=None)
@given(batches, st.integers(0, 300), st.integers(0, 300))
def test_records_outside_the_range_are_no_rows(contents: Any, start: int, stop: int) -> None:
    given_batches, wanted = placed(contents), Range("orders", 0, start, stop)
    assert decoded(given_batches, wanted) == expected(given_batches, wanted)


def test_a_range_that_cuts_its_batches_has_its_own_records_alone() -> None:
    """A batch that a cut goes through is read on both sides of it."""
    records = [Record(at) for at in range(5)]
    given_batches = [memoryview(build_batch(records, base_timestamp=0, base_offset=base)) for base in (0, 5, 10)]
    for wanted in (Range("orders", 0, 3, 12), Range("orders", 0, 6, 8)):
        assert [row["offset"] for row in decoded(given_batches, wanted)] == list(range(wanted.start, wanted.stop))


@settings(max_examples=50, deadline=None)
@given(batches, st.lists(st.sampled_from(ALL), min_size=1, unique=True))
def test_only_the_wanted_columns_are_made(contents: Any, columns: list[str]) -> None:
    given_batches = placed(contents)
    rows = expected(given_batches)
    assert decoded(given_batches, columns=columns) == [{name: row[name] for name in columns} for row in rows]


@settings(max_examples=300, deadline=None)
@given(rows, st.sampled_from(Codec), st.data())
def test_a_changed_batch_gives_the_rows_or_the_error_of_iterate_records(
    given_rows: Any, codec: Codec, data: Any
) -> None:
    (batch,) = placed([(given_rows, codec, False, 0)])
    changed = bytearray(batch)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    check_rows_or_error(memoryview(bytes(changed[: data.draw(st.just(len(changed)) | st.integers(0, len(changed)))])))


def changed_batches(batch: memoryview, *values: int) -> Iterator[memoryview]:
    """The batch with each of its bytes changed to each of these values."""
    for at in range(len(batch)):
        for value in {*values} - {batch[at]}:
            yield memoryview(bytes(batch[:at]) + bytes([value]) + bytes(batch[at + 1 :]))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("given_rows", [FEW, MANY], ids=["few", "many"])
def test_each_byte_changed_and_each_length_gives_the_rows_or_the_error_of_iterate_records(
    given_rows: Any, codec: Codec
) -> None:  # 1, 2
    (batch,) = placed([(given_rows, codec, False, 40)])
    for changed in changed_batches(batch, 0x00, 0x01, 0x7F, 0x80, 0xFF):
        check_rows_or_error(changed)
    for length in range(len(batch)):
        check_rows_or_error(batch[:length])


@pytest.mark.parametrize("codec", Codec)
def test_a_changed_byte_takes_memory_within_the_bound(codec: Codec) -> None:  # 2, 3
    """Memory of Python and NumPy, and that of Arrow."""
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        for batch in changed_batches(*placed([(MANY, codec, False, 40)]), 0x7F, 0xFF):
            traced, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            decoder = ColumnDecoder(EVERYTHING, ALL, batch_bytes_max=BATCH_BYTES)
            with suppress(UnreadableBatch):
                decoder.add(batch)
                decoder.flush()
            assert tracemalloc.get_traced_memory()[1] - traced < MEMORY_BYTES
        assert 0 < pool.max_memory() < MEMORY_BYTES
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


def test_an_empty_batch_has_no_rows() -> None:
    record = build_batch([Record()], base_timestamp=0)
    head = bytearray(record[:HEADER_BYTES])
    head[8:12] = (HEADER_BYTES - 12).to_bytes(4, "big")
    head[57:61] = bytes(4)
    assert decoded([memoryview(bytes(head))]) == []


def test_a_control_batch_has_no_rows() -> None:
    assert decoded([memoryview(build_batch([Record(key=b"\0\0\0\1")], base_timestamp=0, control=True))]) == []


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_with_more_bytes_of_records_than_allowed_is_refused(codec: Codec) -> None:
    record = Record(value=bytes(92))
    size = len(build_batch([record], base_timestamp=0)) - HEADER_BYTES
    batch = memoryview(build_batch([record], base_timestamp=0, compression=codec, base_offset=7))
    assert len(decoded([batch], batch_bytes_max=size)) == 1
    place, advice = "topic 'orders', partition 3, offsets 7 to 7", "the option maxBatchBytes allows more"
    with pytest.raises(UnreadableBatch, match=rf"{place}: .* {size - 1} (are )?allowed; {advice}"):
        decoded([batch], batch_bytes_max=size - 1)


def test_the_damaged_one_of_several_batches_is_named() -> None:
    sound, damaged = (bytearray(build_batch([Record(value=b"a")], base_timestamp=0, base_offset=at)) for at in (4, 5))
    damaged[HEADER_BYTES] = 0x7F
    with pytest.raises(UnreadableBatch, match="offsets 5 to 5: record at byte 1 declares -64 bytes"):
        decoded([memoryview(bytes(sound)), memoryview(bytes(damaged))])


def test_a_size_that_never_ends_is_refused_at_once() -> None:
    """Read to its end, it would be a number of 7 million bits."""
    batch = framed(b"\x80" * 1_000_000, records_count=1, last_offset_delta=0, base_timestamp=0, max_timestamp=0)
    with pytest.raises(UnreadableBatch, match="longer than 10 bytes"):
        decoded([memoryview(batch)])


@pytest.mark.parametrize(("last", "fits"), [(0x01, True), (0x02, False), (0x7F, False)])
def test_a_number_of_more_than_64_bits_is_refused(last: int, fits: bool) -> None:  # 2
    time_delta, null = b"\x80" * 9 + bytes([last]), b"\x01"
    fields = b"".join((b"\0", time_delta, b"\0", null, null, b"\0"))
    record = bytes([2 * len(fields)]) + fields
    batch = framed(record, records_count=1, last_offset_delta=0, base_timestamp=0, max_timestamp=0)
    text = "a timestamp has more than 64 bits" if fits else "a number of a record has more than 64 bits"
    with pytest.raises(UnreadableBatch, match=text):
        decoded([memoryview(batch)])


def test_offsets_that_do_not_rise_are_refused() -> None:
    batch = build_batch([Record(), Record(1)], base_timestamp=0)
    with pytest.raises(UnreadableBatch, match="offsets 0 to 1: its offsets are not above those of the batches before"):
        decoded([memoryview(batch), memoryview(batch)])
    twice = build_batch([Record(), Record(0), Record(1)], base_timestamp=0)
    with pytest.raises(UnreadableBatch, match="an offset is not above the offset before it"):
        decoded([memoryview(twice)])
    beyond = patched_prefix(parse_batch(memoryview(batch)), 3, 0) + batch[16:23] + b"\0\0\0\0" + batch[27:]
    with pytest.raises(UnreadableBatch, match="offsets 3 to 3: an offset is not within the bounds"):
        decoded([memoryview(beyond)])


@pytest.mark.parametrize("timestamp", [2**62, -(2**62), 2**63 - 1, 9_223_372_036_854_775])
def test_a_timestamp_without_microseconds_of_64_bits_is_refused(timestamp: int) -> None:
    batch = memoryview(build_batch([Record()], base_timestamp=timestamp))
    with pytest.raises(UnreadableBatch, match="a timestamp"):
        decoded([batch])


def test_a_record_without_a_timestamp_has_that_of_kafka() -> None:
    (row,) = decoded([memoryview(build_batch([Record()], base_timestamp=-1))])
    assert row["timestamp"] == -1
