"""Tasks as plain data (numbers: invariants of `task`)."""

from __future__ import annotations

from uuid import UUID

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.record import Fragment, LedgerRecord, Quorum
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.log.entry import Offset
from gnomon.log.plans.read_plan import PlannedBookie, PlannedPartition, PlannedSegment, ReadPlan
from gnomon.spark.columns import Range
from gnomon.spark.task import TASK_VERSION, OtherVersion, PlanPart, Task, decode_task, encode_task, parts_of

BOOKIES = (PlannedBookie(BookieId("bookie-1"), "10.0.0.1", 4002, 7), PlannedBookie(BookieId("b2"), "::1", 1, 8))


def segments_of(ends: list[int]) -> tuple[PlannedSegment, ...]:
    """Segments that end at these offsets, the first of which begins at 0."""
    fragment = Fragment(EntryId(0), SessionId(1), (BookieId("bookie-1"), BookieId("b2")))
    record = LedgerRecord(Quorum(2, 2, 2), (fragment,), properties={"epoch": 3})
    return tuple(
        PlannedSegment(Offset(base), LedgerId(number), record, EntryId(2), EntryId(9), Offset(end), 1 << 40)
        for number, (base, end) in enumerate(zip([0, *ends], ends, strict=False))
    )


def task_of(part: PlanPart | None, topic: str = "orders", stop: int = 30) -> Task:
    return Task(
        (("broker-1", 9092), ("::1", 9093)),
        UUID(int=5),
        Range(topic, 3, 7, stop),
        ("value", "offset"),
        1 << 26,
        False,
        part,
    )


parts = st.none() | st.builds(
    PlanPart, st.text(), st.just(BOOKIES), st.integers(0, 9), st.lists(st.integers(1, 1 << 60)).map(segments_of)
)


@given(st.builds(task_of, parts, st.text(), st.integers(0, 1 << 62)))
def test_a_task_is_sent_whole(task: Task) -> None:  # 1
    assert decode_task(encode_task(task)) == task


@pytest.mark.parametrize("data", [[TASK_VERSION + 1], [1, "more", None], [0]])
def test_data_of_another_version_is_refused(data: list[object]) -> None:  # 2
    text = f"the driver plans tasks of version {data[0]}, this worker knows {TASK_VERSION}"
    with pytest.raises(OtherVersion, match=text):
        decode_task(msgpack.packb(data))


def test_each_partition_of_a_plan_is_a_part() -> None:
    partition = PlannedPartition(Offset(3), Offset(40), segments_of([20, 40]))
    plan = ReadPlan(UUID(int=5), "cluster", {2: partition}, BOOKIES)
    assert parts_of("orders", plan) == {
        TopicPartition("orders", 2): PlanPart("cluster", BOOKIES, Offset(3), segments_of([20, 40]))
    }


@pytest.mark.parametrize(
    ("start", "stop", "ledgers"),
    [(5, 60, [0, 1, 2]), (19, 21, [0, 1]), (20, 40, [1]), (59, 60, [2]), (5, 61, None), (4, 20, None), (5, 20, [0])],
)
def test_a_task_has_the_segments_of_its_range(start: int, stop: int, ledgers: list[int] | None) -> None:
    found = PlanPart("cluster", BOOKIES, Offset(5), segments_of([20, 40, 60])).of_range(Range("orders", 0, start, stop))
    assert (None if found is None else [each.ledger for each in found.segments]) == ledgers


def test_a_plan_without_bookies_or_segments_is_no_part_of_a_task() -> None:
    for part in (PlanPart("cluster", (), Offset(0), segments_of([20])), PlanPart("cluster", BOOKIES, Offset(0), ())):
        assert part.of_range(Range("orders", 0, 0, 10)) is None
