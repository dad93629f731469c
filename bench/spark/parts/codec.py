"""Record batches to Arrow columns and back, in one process without Spark."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from bench.generator import Figures, GeneratorFailed, GeneratorUnavailable
from bench.spark.scale import LARGE_BYTES, SMALL_BYTES
from bench.spark.topic import noise
from bench.spark.trial import PartRun, Trial

if TYPE_CHECKING:
    import pyarrow as pa

SYSTEM = "gnomon"
DECODE_SMALL, DECODE_LARGE = "decode, 100 B", "decode, 1 KB"
DECODE_SINGLE = "decode, 100 B, one record a batch"
ENCODE_SMALL, ENCODE_LARGE = "encode, 100 B", "encode, 1 KB"
BATCH_BYTES = 64 << 10
SINGLE_SHARE = 10
"""One record a batch is measured with so much fewer rows."""
TIME_MS = 1_700_000_000_000


def codec(run: PartRun) -> None:
    """All cases, each with the processor time of this process."""
    for package in ("pyarrow", "numpy"):
        if importlib.util.find_spec(package) is None:
            raise GeneratorUnavailable(f"no {package}: pip install 'gnomon[spark]'")
    small, large = run.scale.rows, run.scale.large_rows
    rows, large_rows = _columns(small, SMALL_BYTES), _columns(large, LARGE_BYTES)
    single = small // SINGLE_SHARE
    measured: list[tuple[str, int, Callable[[], int]]] = [
        (DECODE_SMALL, small, partial(_decode, _encode(*rows, BATCH_BYTES), small)),
        (DECODE_LARGE, large, partial(_decode, _encode(*large_rows, BATCH_BYTES), large)),
        (DECODE_SINGLE, single, partial(_decode, _encode(rows[0][:single], rows[1][:single], 1), single)),
        (ENCODE_SMALL, small, partial(_encoded, *rows)),
        (ENCODE_LARGE, large, partial(_encoded, *large_rows)),
    ]
    run.measure([Trial(case, SYSTEM, partial(_timed, count, work)) for case, count, work in measured])


def _timed(rows: int, work: Callable[[], int]) -> Figures:
    began = time.process_time()
    found = work()
    seconds = time.process_time() - began
    if found != rows:
        raise GeneratorFailed(f"{found} rows came out instead of {rows}")
    return {"rate": rows / seconds, "row_us": seconds / rows * 1e6}


def _columns(rows: int, value_bytes: int) -> tuple[pa.Array, pa.Array]:
    import pyarrow as pa

    keys = pa.array([b"%d" % number for number in range(rows)], pa.binary())
    return keys, pa.array(list(noise(rows, value_bytes)), pa.binary())


def _encode(keys: pa.Array, values: pa.Array, batch_bytes: int) -> list[bytes]:
    """The batches of a partition; their offsets follow each other, as a broker has them."""
    import numpy as np

    from gnomon.spark.batches import encode

    times = np.full(len(values), TIME_MS, np.int64)
    placed, offset = [], 0
    for batch in encode(keys, values, times, batch_bytes=batch_bytes):
        placed.append(offset.to_bytes(8, "big") + batch.data[8:])
        offset += batch.records
    return placed


def _encoded(keys: pa.Array, values: pa.Array) -> int:
    import numpy as np

    from gnomon.spark.batches import encode

    times = np.full(len(values), TIME_MS, np.int64)
    return sum(batch.records for batch in encode(keys, values, times, batch_bytes=BATCH_BYTES))


def _decode(batches: Sequence[bytes], rows: int) -> int:
    from gnomon.spark.columns import SCHEMA, ColumnDecoder, Range

    names = [name for name in SCHEMA.names if name != "headers"]
    decoder, found = ColumnDecoder(Range("rows", 0, 0, rows), names), 0
    for batch in batches:
        part = decoder.add(memoryview(batch))
        found += part.num_rows if part is not None else 0
    rest = decoder.flush()
    return found + (rest.num_rows if rest is not None else 0)
