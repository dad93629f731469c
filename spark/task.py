"""One task of a read, as plain data that the driver sends to a worker. Pure.

1. `decode_task` undoes `encode_task`.
2. The data begins with a version. Data of another version is refused, and nothing of it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgpack

from gnomon.bookie.ids import BookieId, EntryId, LedgerId
from gnomon.bookie.record import decode_record
from gnomon.client.addresses import Address
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.log.entry import Offset
from gnomon.log.plans.read_plan import PlannedBookie, PlannedSegment, ReadPlan
from gnomon.spark.columns import Range

TASK_VERSION: Final = 2


class OtherVersion(Exception):
    """The task was planned by a driver with another version of gnomon."""


class PlanPart(NamedTuple):
    """The part of a plan that a task reads from bookies."""

    cluster: str
    """The id of the cluster of the bookies."""
    bookies: tuple[PlannedBookie, ...]
    start_offset: Offset
    """The start of the log when the plan was made."""
    segments: tuple[PlannedSegment, ...]
    """Those of one partition, in the order of their offsets."""

    def of_range(self, wanted: Range) -> PlanPart | None:
        """The part with the offsets of a range; None if the plan does not have all of them, or there are no bookies."""
        if not self.bookies or not self.segments:
            return None
        if wanted.start < self.start_offset or wanted.stop > self.segments[-1].next_offset:
            return None
        kept = [each for each in self.segments if each.next_offset > wanted.start and each.base_offset < wanted.stop]
        return self._replace(segments=tuple(kept))


class Task(NamedTuple):
    """One task's part of a read."""

    addresses: tuple[Address, ...]
    topic_id: UUID
    range: Range
    columns: tuple[str, ...]
    batch_bytes_max: int
    fail_on_data_loss: bool
    plan: PlanPart | None
    """None for a read through brokers."""


def parts_of(topic: str, plan: ReadPlan) -> dict[TopicPartition, PlanPart]:
    """The part of each partition of a plan."""
    return {
        TopicPartition(topic, number): PlanPart(plan.cluster, plan.bookies, partition.start_offset, partition.segments)
        for number, partition in plan.partitions.items()
    }


def encode_task(task: Task) -> bytes:
    """The task as bytes."""
    plan = None if task.plan is None else _plain(task.plan)
    plain = (TASK_VERSION, task.addresses, task.topic_id.bytes, *task[2:-1], plan)
    encoded: bytes = msgpack.packb(plain)
    return encoded


def decode_task(encoded: bytes) -> Task:
    """The task that `encode_task` was given.

    Raises:
        OtherVersion: of the driver.
    """
    version, *fields = msgpack.unpackb(encoded, use_list=False)
    if version != TASK_VERSION:
        raise OtherVersion(
            f"the driver plans tasks of version {version}, this worker knows {TASK_VERSION}: install the same"
            " gnomon for both"
        )
    addresses, topic_id, wanted, columns, batch_bytes_max, fail_on_data_loss, plan = fields
    part = None if plan is None else _part(*plan)
    return Task(addresses, UUID(bytes=topic_id), Range(*wanted), columns, batch_bytes_max, fail_on_data_loss, part)


def _plain(part: PlanPart) -> tuple[Any, ...]:
    segments = [(*each[:2], each.record.encode(), *each[3:]) for each in part.segments]
    return *part[:-1], segments


def _part(cluster: str, bookies: Sequence[Any], start_offset: int, segments: Sequence[Any]) -> PlanPart:
    return PlanPart(
        cluster,
        tuple(PlannedBookie(BookieId(name), *at) for name, *at in bookies),
        Offset(start_offset),
        tuple(
            PlannedSegment(
                Offset(base), LedgerId(ledger), decode_record(record), EntryId(first), EntryId(last), Offset(end), size
            )
            for base, ledger, record, first, last, end, size in segments
        ),
    )
