"""Read plans that a client gathers from leaders and pages (numbers: invariants of `client.read_plans`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast
from uuid import UUID

import pytest
import trio

from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.record import Fragment, LedgerRecord, Quorum
from gnomon.client import read_plans
from gnomon.client.errors import BrokerFailed, NoSuchTopic, NotLeader
from gnomon.client.read_plans import END, ReadPlans
from gnomon.log.entry import Offset
from gnomon.log.plans.read_plan import (
    PlannedBookie,
    PlannedPartition,
    PlannedSegment,
    ReadPlan,
    encode_plan,
)

TOPIC, OTHER = UUID(int=7), UUID(int=8)
RECORD = LedgerRecord(Quorum(), (Fragment(EntryId(0), SessionId(1), (BookieId("bookie-1"),)),))
BOOKIE = PlannedBookie(BookieId("bookie-1"), "10.0.0.1", 4001, 12)

Partition = tuple[int, int, Sequence[int]]
"""Start offset, high watermark, and the base offsets of the segments in the answer, each of 10 records."""


def planned(start: int, end: int, bases: Sequence[int]) -> PlannedPartition:
    segments = [
        PlannedSegment(
            Offset(base), LedgerId(base + 1), RECORD, EntryId(0), EntryId(9), Offset(min(base + 10, end)), 100
        )
        for base in bases
    ]
    return PlannedPartition(Offset(start), Offset(end), tuple(segments))


def answer(partitions: dict[int, Partition], topic: UUID = TOPIC) -> Any:
    found = {index: planned(*each) for index, each in partitions.items()}
    return encode_plan(ReadPlan(topic, "cluster", found, (BOOKIE,)))


class ScriptedLeaders:
    """Leaders that give prepared answers; broker `a` leads the even partitions, and `b` the odd ones."""

    def __init__(self, *answers: Any) -> None:
        self.asked: list[tuple[list[list[int]], str]] = []
        """The ranges and the hold of each call."""
        self._answers = list(answers)

    async def ask_leader(
        self, topic: str, partition: int, method: str, args: Callable[[Sequence[int]], Sequence[Any]]
    ) -> Any:
        """See `Leaders.ask_leader`."""
        assert (topic, method) == ("orders", "plan")
        _, ranges, hold, seconds = args([each for each in range(10) if each % 2 == partition % 2])
        assert seconds == 600
        self.asked.append((ranges, hold))
        given = self._answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    def plan(self, ranges: dict[int, tuple[int, int]], hold: str = "") -> ReadPlan:
        """The plan of a client."""

        async def plan() -> ReadPlan:
            return await ReadPlans(cast("Any", self)).plan("orders", ranges, hold=hold)

        return trio.run(plan)


def test_each_leader_is_asked_for_all_partitions_that_it_leads() -> None:  # 1
    leaders = ScriptedLeaders(
        answer({0: (0, 20, [0, 10]), 2: (0, 20, [10])}), answer({1: (5, 20, [0, 10]), 3: (0, 0, [])})
    )
    plan = leaders.plan({0: (0, END), 1: (0, END), 2: (12, END), 3: (0, 5)}, "job")
    assert leaders.asked == [([[0, 0, END], [2, 12, END]], "job"), ([[1, 0, END], [3, 0, 5]], "job")]
    assert plan == ReadPlan(
        TOPIC,
        "cluster",
        {0: planned(0, 20, [0, 10]), 1: planned(5, 20, [0, 10]), 2: planned(0, 20, [10]), 3: planned(0, 0, [])},
        (BOOKIE,),
    )


def test_more_partitions_than_one_call_may_name_are_asked_for_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_plans, "PLANNED_PARTITIONS_MAX", 2)
    leaders = ScriptedLeaders(answer({0: (0, 0, []), 2: (0, 0, [])}), answer({4: (0, 0, [])}))
    plan = leaders.plan(dict.fromkeys((0, 2, 4), (0, END)))
    assert [[index for index, _, _ in ranges] for ranges, _ in leaders.asked] == [[0, 2], [4]]
    assert sorted(plan.partitions) == [0, 2, 4]


def test_pages_are_asked_for_without_the_hold_and_up_to_the_end_of_the_first_answer() -> None:  # 1, 2, 3
    leaders = ScriptedLeaders(
        answer({0: (0, 40, [0, 10]), 2: (0, 20, [])}),  # no room for partition 2
        answer({0: (0, 90, [20, 30]), 2: (0, 20, [0, 10])}),
    )
    plan = leaders.plan({0: (3, END), 2: (0, 15)}, "job")
    assert leaders.asked == [([[0, 3, END], [2, 0, 15]], "job"), ([[0, 20, 40], [2, 0, 15]], "")]
    assert [each.base_offset for each in plan.partitions[0].segments] == [0, 10, 20, 30]
    assert [each.base_offset for each in plan.partitions[2].segments] == [0, 10]
    assert (plan.partitions[0].high_watermark, plan.partitions[2].high_watermark) == (40, 20)


def test_all_partitions_are_held_before_any_of_them_is_read_in_pages() -> None:  # 3
    leaders = ScriptedLeaders(
        answer({0: (0, 20, [0])}), answer({1: (0, 20, [0])}), answer({0: (0, 20, [10])}), answer({1: (0, 20, [10])})
    )
    leaders.plan({0: (0, END), 1: (0, END)}, "job")
    assert [hold for _, hold in leaders.asked] == ["job", "job", "", ""]


def test_segments_that_are_deleted_between_two_pages_are_no_part_of_the_plan() -> None:
    leaders = ScriptedLeaders(answer({0: (0, 30, [0, 10])}), answer({0: (15, 30, [20])}))
    plan = leaders.plan({0: (0, END)})
    assert plan.partitions[0] == planned(15, 30, [10, 20])


def test_the_next_leader_of_a_shadow_may_know_a_lower_watermark_where_the_plan_ends() -> None:
    leaders = ScriptedLeaders(answer({0: (0, 30, [0])}), answer({0: (0, 20, [10])}))
    assert leaders.plan({0: (0, END)}).partitions[0] == planned(0, 20, [0, 10])
    leaders = ScriptedLeaders(answer({0: (0, 30, [0])}), answer({0: (0, 5, [])}))
    assert leaders.plan({0: (0, END)}).partitions[0] == planned(0, 10, [0])


def test_an_error_of_a_leader_is_the_error_of_the_call() -> None:
    with pytest.raises(NotLeader):
        ScriptedLeaders(answer({0: (0, 20, [0, 10])}), NotLeader("moved")).plan({0: (0, END), 1: (0, END)})


def test_a_topic_that_is_created_again_during_the_call_is_not_planned_with_the_old_one() -> None:
    leaders = ScriptedLeaders(answer({0: (0, 20, [0, 10])}), answer({1: (0, 20, [0, 10])}, OTHER))
    with pytest.raises(NoSuchTopic, match="created again"):
        leaders.plan({0: (0, END), 1: (0, END)})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([9], "version 9"),
        ("text", "no plan"),
        (answer({}), "for none of the partitions"),
        (answer({4: (0, 0, [])}), "for none of the partitions"),
    ],
)
def test_an_answer_in_another_form_or_without_progress_ends_the_call(given: Any, text: str) -> None:
    with pytest.raises(BrokerFailed, match=text):
        ScriptedLeaders(given).plan({0: (0, END)})


def test_pages_without_progress_end_the_call() -> None:
    leaders = ScriptedLeaders(answer({0: (0, 20, [0])}), answer({0: (0, 20, [])}))
    with pytest.raises(BrokerFailed, match="for none of the partitions"):
        leaders.plan({0: (0, END)})
