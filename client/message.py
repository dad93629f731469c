"""A message of a native client: one record, received by one consumer."""

from __future__ import annotations

from gnomon.client.delivered_batch import DeliveredBatch
from gnomon.client.part import Part
from gnomon.log.dlsn import Dlsn
from gnomon.wire.kafka.records import Header, Record


class Message:
    """One record, as one consumer received it."""

    __slots__ = ("batch", "cursor_epoch", "part", "record", "slot")

    def __init__(self, part: Part, batch: DeliveredBatch, slot: int, record: Record) -> None:
        self.part = part
        """The part of the consumer that received it."""
        self.batch = batch
        self.slot = slot
        self.record = record
        self.cursor_epoch = part.cursor_epoch
        """The part's epoch at reception. After the part's epoch has changed, acknowledgements of it are ignored."""

    @property
    def id(self) -> Dlsn:
        """The place of the record in the log: segment, entry and slot."""
        return Dlsn(self.batch.segment, self.batch.entry, self.slot)

    @property
    def offset(self) -> int:
        """The record's offset, as Kafka clients see it."""
        return self.batch.base_offset + self.slot

    @property
    def topic(self) -> str:
        """The topic that the consumer subscribed to."""
        return self.part.consumer.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.part.partition

    @property
    def key(self) -> bytes | None:
        """The record's key."""
        return self.record.key

    @property
    def value(self) -> bytes | None:
        """The record's value."""
        return self.record.value

    @property
    def headers(self) -> tuple[Header, ...]:
        """The record's headers."""
        return self.record.headers

    @property
    def timestamp_ms(self) -> int:
        """Milliseconds since 1970: the producer's or the broker's time, as the topic is configured."""
        batch = self.batch
        return batch.timestamp + self.record.timestamp_delta if batch.max_timestamp is None else batch.max_timestamp

    def __repr__(self) -> str:
        return f"<message {self.topic}/{self.partition} offset {self.offset} {self.id}>"
