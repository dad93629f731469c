"""Encoded batches against those of `build_batch`."""

from __future__ import annotations

from typing import Any

import edges
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.spark.batches import encode, stamped
from gnomon.spark.columns import HEADERS
from gnomon.wire.kafka.batch import HEADER_BYTES, check_produced
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.records import Record, build_batch

LIMIT = 16 << 20
START_MS = 1_700_000_000_000
fields = st.none() | st.binary(max_size=20) | edges.byte_strings
header = st.tuples(st.text(max_size=70) | edges.texts, st.none() | st.binary(max_size=10))
headers = st.lists(header, max_size=3).map(tuple)
rows = st.lists(st.tuples(st.integers(-(2**42), 2**42), fields, fields, headers), max_size=70)


def columns_of(given_rows: Any) -> tuple[pa.Array, pa.Array, Any, pa.Array]:
    named = [[{"key": key, "value": value} for key, value in row[3]] or None for row in given_rows]
    return (
        pa.array([row[1] for row in given_rows], pa.binary()),
        pa.array([row[2] for row in given_rows], pa.binary()),
        np.array([row[0] for row in given_rows], np.int64),
        pa.array(named, HEADERS),
    )


def built(given_rows: Any, codec: Codec) -> bytes:
    base = given_rows[0][0]
    records = [Record(at, row[0] - base, *row[1:]) for at, row in enumerate(given_rows)]
    return build_batch(records, base_timestamp=base, compression=codec)


@settings(max_examples=200, deadline=None)
@given(rows, st.sampled_from(Codec), st.sampled_from([1, 100, 300, 20_000, LIMIT]), st.integers(0, 3))
def test_batches_are_those_of_build_batch(given_rows: Any, codec: Codec, batch_bytes: int, skipped: int) -> None:
    skipped = min(skipped, len(given_rows))
    found = encode(*(each[skipped:] for each in columns_of(given_rows)), batch_bytes=batch_bytes, compression=codec)
    left = given_rows[skipped:]
    for batch, count in found:
        assert batch == built(left[:count], codec)
        assert check_produced(memoryview(batch), LIMIT).records_count == count
        left = left[count:]
    assert left == []


@settings(max_examples=200, deadline=None)
@given(rows, st.integers(HEADER_BYTES, 1_000))
def test_a_batch_has_at_most_the_bytes_or_one_record(given_rows: Any, batch_bytes: int) -> None:
    for batch, count in encode(*columns_of(given_rows), batch_bytes=batch_bytes):
        assert len(batch) <= batch_bytes or count == 1


def test_rows_without_headers_need_no_column() -> None:
    keys, values, times, _ = columns_of([(START_MS, b"k", b"v", ()), (START_MS + 5, None, None, ())])
    ((batch, count),) = encode(keys, values, times, batch_bytes=LIMIT)
    assert count == 2
    assert batch == built([(START_MS, b"k", b"v", ()), (START_MS + 5, None, None, ())], Codec.NONE)


@pytest.mark.parametrize("codec", Codec)
def test_a_stamped_batch_is_that_of_a_producer(codec: Codec) -> None:
    records = [Record(0, 0, b"k", b"v"), Record(1, 3, None, bytes(500))]
    plain = build_batch(records, base_timestamp=START_MS, compression=codec)
    sent = stamped(plain, 9_000, 7, 2**31 - 1)
    assert sent == build_batch(
        records,
        base_timestamp=START_MS,
        compression=codec,
        producer_id=9_000,
        producer_epoch=7,
        base_sequence=2**31 - 1,
    )
    assert check_produced(memoryview(sent), LIMIT).producer_epoch == 7
