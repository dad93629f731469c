"""The rows of record batches, decoded by columns and record by record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gnomon.spark.columns import SCHEMA, ColumnDecoder, Range
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.records import iterate_records

LIMIT = 16 << 20
ALL = SCHEMA.names
EVERYTHING = Range("orders", 3, 0, 1 << 62)


def expected(given_batches: Sequence[memoryview], wanted: Range = EVERYTHING) -> list[dict[str, Any]]:
    """The rows by `iterate_records`, the reference."""
    found = []
    for batch in given_batches:
        head = parse_batch(batch)
        for record in iterate_records(batch, LIMIT):
            offset = head.base_offset + record.offset_delta
            stamped = head.is_log_append_time
            time = head.max_timestamp if stamped else head.base_timestamp + record.timestamp_delta
            named = [{"key": key, "value": value} for key, value in record.headers] or None
            row = (record.key, record.value, wanted.topic, wanted.partition, offset, time, int(stamped), named)
            if wanted.start <= offset < wanted.stop:
                found.append(dict(zip(ALL, row, strict=True)))
    return found


def decoded(given_batches: Sequence[memoryview], wanted: Range = EVERYTHING, columns: Any = ALL, **bounds: int) -> Any:
    """The rows by `ColumnDecoder`."""
    decoder = ColumnDecoder(wanted, columns, **bounds)
    found = []
    for result in [*map(decoder.add, given_batches), decoder.flush()]:
        if result is not None:
            result.validate(full=True)
            assert result.schema == pa.schema([SCHEMA.field(name) for name in columns])
            found += plain(result).to_pylist()
    return found


def plain(result: pa.RecordBatch) -> pa.RecordBatch:
    """With timestamps as milliseconds, since Python's have fewer years than Kafka's."""
    if "timestamp" not in result.schema.names:
        return result
    at = result.schema.names.index("timestamp")
    return result.set_column(at, "timestamp", pc.divide(result.column(at).cast(pa.int64()), 1_000))
