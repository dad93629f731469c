"""Columns are decoded, encoded and hashed as wholes: hardly any calls of functions are those of one record."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gnomon.spark.batches import encode
from gnomon.spark.columns import SCHEMA, ColumnDecoder, Range
from gnomon.spark.partitioner import partitions_of
from gnomon.wire.kafka.records import Record, build_batch

RECORDS = 2_000


def calls_of(work: Callable[[], object]) -> int:
    """The calls of functions of Python and of C."""
    count = 0

    def seen(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def decode(records: int) -> int:
    batch = memoryview(build_batch([Record(at, 0, b"key", b"value", ()) for at in range(records)], base_timestamp=0))
    decoder = ColumnDecoder(Range("orders", 0, 0, records), SCHEMA.names)
    return calls_of(lambda: (decoder.add(batch), decoder.flush()))


def encode_all(records: int) -> int:
    values = pa.array([b"value"] * records, pa.binary())
    return calls_of(lambda: encode(values, values, np.zeros(records, np.int64), batch_bytes=1 << 30))


def hash_all(records: int) -> int:
    keys = pa.array([b"a key of %d" % at for at in range(records)], pa.binary())
    return calls_of(lambda: partitions_of(keys, 7))


@pytest.mark.parametrize(
    ("work", "calls_per_record"),
    [
        pytest.param(decode, 2.01, id="decode: one loop looks for the records"),
        pytest.param(encode_all, 0.01, id="encode"),
        pytest.param(hash_all, 0, id="hash"),
    ],
)
def test_more_records_take_no_more_calls_than_their_loop_makes(
    work: Callable[[int], int], calls_per_record: float
) -> None:
    assert work(8 * RECORDS) - work(RECORDS) <= 7 * RECORDS * calls_per_record
