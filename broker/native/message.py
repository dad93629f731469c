"""A message as a native client gets it: one record of a batch that came once for all consumers of the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnomon.broker.subscriptions.dlsn import Dlsn
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.records import Header, Record, iterate_records

if TYPE_CHECKING:
    from gnomon.broker.native.consumer import Part

RECORDS_BYTES_MAX = 256 << 20
"""What a batch may decompress to."""


class DeliveredBatch:
    """A batch that has arrived; its records are decoded once, when the first of them is wanted."""

    __slots__ = ("_records", "base_offset", "count", "data", "entry", "epoch", "max_timestamp", "segment", "timestamp")

    def __init__(self, segment: int, entry: int, base_offset: int, epoch: int, data: bytes) -> None:
        self.segment = segment
        self.entry = entry
        self.base_offset = base_offset
        self.epoch = epoch
        """The leader epoch of the record."""
        self.data = data
        header = parse_batch(memoryview(data))
        self.count = header.last_offset_delta + 1
        """Of its records, whether they can be read or not."""
        self.timestamp = header.base_timestamp
        self.max_timestamp = header.max_timestamp if header.is_log_append_time else None
        self._records: list[Record] | None = None

    @property
    def records(self) -> list[Record]:
        """All records of the batch.

        Raises:
            MalformedBatch, TooLarge, CorruptData: what a producer sent cannot be read.
        """
        if self._records is None:
            self._records = list(iterate_records(memoryview(self.data), RECORDS_BYTES_MAX))
        return self._records


class Message:
    """One message for one consumer."""

    __slots__ = ("batch", "cursor_epoch", "part", "record", "slot")

    def __init__(self, part: Part, batch: DeliveredBatch, slot: int, record: Record) -> None:
        self.part = part
        """Through which partition of its consumer it came."""
        self.batch = batch
        self.slot = slot
        self.record = record
        self.cursor_epoch = part.cursor_epoch
        """Its part's when it was received; once that has another one nothing is said of this message any more."""

    @property
    def id(self) -> Dlsn:
        """Segment, entry and slot: where it is stored."""
        return Dlsn(self.batch.segment, self.batch.entry, self.slot)

    @property
    def offset(self) -> int:
        """Its offset, as Kafka's clients see it."""
        return self.batch.base_offset + self.slot

    @property
    def topic(self) -> str:
        """The topic that it was read from."""
        return self.part.consumer.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.part.partition

    @property
    def key(self) -> bytes | None:
        """Its key."""
        return self.record.key

    @property
    def value(self) -> bytes | None:
        """What it says."""
        return self.record.value

    @property
    def headers(self) -> tuple[Header, ...]:
        """Its headers."""
        return self.record.headers

    @property
    def timestamp_ms(self) -> int:
        """Milliseconds since 1970, of the producer or of the broker, as the topic says."""
        batch = self.batch
        return batch.timestamp + self.record.timestamp_delta if batch.max_timestamp is None else batch.max_timestamp

    def __repr__(self) -> str:
        return f"<message {self.topic}/{self.partition} offset {self.offset} {self.id}>"
