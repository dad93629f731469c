"""The answers about durable subscriptions that an operator gets from a native client. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ListedSubscription:
    """One subscription of a topic, over all partitions."""

    topic: str
    name: str
    type: str | None
    """The type that its consumers asked for; None without consumers."""
    consumers: int
    """The consumers of the partition that has the most."""
    backlog_records: int
    partitions: int
    """The partitions that have the subscription; fewer than the topic has after an interrupted creation or deletion."""


@dataclass(frozen=True, slots=True)
class IdleSubscription:
    """A subscription without consumers that keeps records of a partition from retention."""

    topic: str
    partition: int
    subscription: str
    records: int
    """Records that `retention.ms` or `retention.bytes` would delete."""


@dataclass(frozen=True, slots=True)
class AttachedTo:
    """A consumer of one partition."""

    partition: int
    consumer: str
    """The id of the consumer, the same on all connections of its client."""
    address: str
    """The address of the client, `host:port`."""


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """A subscription in one partition."""

    partition: int
    broker: int
    """The id of the broker that leads the partition."""
    type: str | None
    """The type that its consumers asked for; None without consumers."""
    offset: int
    """The first record that is not acknowledged."""
    end: int
    """The end of the log."""
    acknowledged_ahead: int
    """Runs of acknowledged records after that offset."""
    backlog_records: int
    backlog_bytes: int
    """The bytes of all records from the offset on, also of those that are acknowledged; estimated within a segment."""
    backlog_seconds: float | None
    """The age of the record at the offset; None if the record cannot be read."""
    held_records: int
    """Records that `retention.ms` and `retention.bytes` would delete now, and that the subscription holds back."""
    held_bytes: int
    consumers: tuple[AttachedTo, ...]

    @classmethod
    def of(cls, partition: int, answer: dict[str, Any]) -> PartitionPosition:
        """The position that a broker describes."""
        return cls(
            partition,
            answer["broker"],
            answer["type"],
            answer["offset"],
            answer["end"],
            answer["acknowledged_ahead"],
            answer["backlog"],
            answer["backlog_bytes"],
            answer["backlog_seconds"],
            answer["held_records"],
            answer["held_bytes"],
            tuple(AttachedTo(partition, consumer, address) for consumer, address in answer["attached"]),
        )


@dataclass(frozen=True, slots=True)
class DescribedSubscription:
    """One subscription of a topic, by partition."""

    topic: str
    name: str
    partitions: tuple[PartitionPosition, ...]

    @property
    def type(self) -> str | None:
        """The type that its consumers asked for; None without consumers."""
        return next((each.type for each in self.partitions if each.type is not None), None)

    @property
    def consumers(self) -> tuple[AttachedTo, ...]:
        """The consumers of all partitions; a consumer is usually attached to each partition."""
        return tuple(consumer for each in self.partitions for consumer in each.consumers)

    @property
    def backlog_records(self) -> int:
        """The records that are not acknowledged."""
        return sum(each.backlog_records for each in self.partitions)

    @property
    def backlog_bytes(self) -> int:
        """The bytes of the records from the first unacknowledged one of each partition on."""
        return sum(each.backlog_bytes for each in self.partitions)

    @property
    def backlog_seconds(self) -> float | None:
        """The age of the oldest record that is not acknowledged, as far as it is known."""
        return max((each.backlog_seconds for each in self.partitions if each.backlog_seconds is not None), default=None)

    @property
    def held_records(self) -> int:
        """Records that the subscription holds back from retention."""
        return sum(each.held_records for each in self.partitions)

    @property
    def held_bytes(self) -> int:
        """The bytes of these records."""
        return sum(each.held_bytes for each in self.partitions)
