"""Logs of tables that have the batches of the test."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from gnomon.broker.tables.table_log import TableLog
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.errors import ErrorCode


def log_with(batches: Sequence[bytes], *, start: int, end: int) -> tuple[TableLog, Any]:
    """A log and its bounds, which the test may change; it has stored these batches."""
    bounds: Any = SimpleNamespace(start_offset=start, high_watermark=end)

    def read(offset: int, bytes_max: int, at_least_one: bool, views: object) -> tuple[list[memoryview], int, ErrorCode]:
        found = [view for view in map(memoryview, batches) if parse_batch(view).next_offset > offset]
        return found, sum(map(len, found)), ErrorCode.NONE

    return TableLog(cast("Any", SimpleNamespace(log=bounds, read=read)), cast("Any", None)), bounds
