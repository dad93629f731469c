"""Record batches, their rows decoded by columns and record by record, and a check that both agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gnomon.spark.columns import SCHEMA, ColumnDecoder, Range, UnreadableBatch
from gnomon.wire.kafka.batch import MalformedBatch, parse_batch, with_log_append_time
from gnomon.wire.kafka.compression import CorruptData, UnpackedTooLarge
from gnomon.wire.kafka.records import Record, build_batch, iterate_records

LIMIT = 16 << 20
ALL = SCHEMA.names
EVERYTHING = Range("orders", 3, 0, 1 << 62)
FEW: Any = [(1, -3, b"key", b"value", (("h", b"1"), ("none", None))), (1, 5, None, b"", ()), (4, 0, b"", None, ())]
MANY: Any = [(1, at, b"k", None, (("h\u00e9", b"v"),) * (1 + at % 2)) for at in range(16)]
"""As many records as headers are read of by column."""


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


def placed(contents: Any) -> list[memoryview]:
    """Batches as a log has them: base offsets rise, also with gaps."""
    made, offset = [], 0
    for given_rows, codec, append_time, gap in contents:
        deltas = [sum(row[0] for row in given_rows[:at]) for at in range(len(given_rows))]
        records = [Record(delta, *row[1:]) for delta, row in zip(deltas, given_rows, strict=True)]
        batch = build_batch(records, base_timestamp=1_700_000_000_000, compression=codec, base_offset=offset + gap)
        if append_time:
            batch = with_log_append_time(memoryview(batch), 1_800_000_000_000)
        made.append(memoryview(batch))
        offset = parse_batch(made[-1]).next_offset
    return made


def reference(batch: memoryview) -> list[Record] | str:
    try:
        return list(iterate_records(batch, LIMIT))
    except (MalformedBatch, UnpackedTooLarge, CorruptData) as error:
        return str(error)


def check_rows_or_error(batch: memoryview) -> None:
    """Checks that the decoder has the rows of `iterate_records`, or its error, or one of its own."""
    found, wanted = reference(batch), Range("orders", 3, -(1 << 62), 1 << 62)
    try:
        rows = decoded([batch], wanted)
    except UnreadableBatch as error:
        reason = str(error)
    else:
        assert rows == ([] if parse_batch(batch).is_control else expected([batch], wanted))
        return
    assert not isinstance(found, str) or found in reason
