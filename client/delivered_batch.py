"""A batch as a native client receives it: once for all consumers of a connection. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.records import Record, iterate_records

RECORDS_BYTES_MAX = 256 << 20
"""The size to which a batch may decompress."""


class DeliveredBatch:
    """A received batch; its records are decoded once, when the first of them is needed."""

    __slots__ = (
        "__weakref__",
        "_dense",
        "_records",
        "base_offset",
        "count",
        "data",
        "entry",
        "epoch",
        "max_timestamp",
        "segment",
        "timestamp",
    )

    def __init__(self, segment: int, entry: int, base_offset: int, epoch: int, data: bytes) -> None:
        self.segment = segment
        self.entry = entry
        self.base_offset = base_offset
        self.epoch = epoch
        """The leader epoch of the records."""
        self.data = data
        header = parse_batch(memoryview(data))
        self.count = header.last_offset_delta + 1
        """The number of offsets that the batch covers; an offset need not have a record."""
        self.timestamp = header.base_timestamp
        self.max_timestamp = header.max_timestamp if header.is_log_append_time else None
        self._dense = header.is_dense
        self._records: Mapping[int, Record | None] | Sequence[Record] | None = None

    @property
    def records(self) -> Mapping[int, Record | None] | Sequence[Record]:
        """The records of the batch by their places; None for a place without a record.

        Raises:
            MalformedBatch, UnpackedTooLarge, CorruptData: the batch cannot be read as its producer sent it.
        """
        if self._records is None:
            records = list(iterate_records(memoryview(self.data), RECORDS_BYTES_MAX))
            self._records = records if self._dense else _Sparse((record.offset_delta, record) for record in records)
        return self._records


class _Sparse(dict[int, "Record | None"]):
    """The records that compaction has left of a batch, by place."""

    def __missing__(self, place: int) -> None:
        return None
