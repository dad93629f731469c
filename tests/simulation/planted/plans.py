"""Bugs in plans of reads and in their holds; the sweep over clients that plan looks for them."""

from __future__ import annotations

from typing import Any

import pytest
from plan_scenario import PLANNING, PLANNING_CLUSTER

from gnomon.bookie.ids import EntryId
from gnomon.broker.retention import read_holds
from gnomon.broker.subscriptions.positions.hold import Hold
from gnomon.log.chains import ledgers_prefix
from gnomon.log.cut import cut_key
from gnomon.log.plans.planned_range import PlannedRange, Run

from planted.planted_bug import ScenarioBugs

PLAN_BUGS = ScenarioBugs(PLANNING)
planted = PLAN_BUGS.planted


@planted(
    "a plan reads the open ledger past its confirmed entry",
    breaks="log.plans.planned_range 1",
    quick=True,
    scenario=PLANNING_CLUSTER,
)
def past_the_end(patch: pytest.MonkeyPatch) -> None:
    run = PlannedRange.run

    async def one_more(planned: PlannedRange, segment: Any) -> Run:
        found = await run(planned, segment)
        return found if segment.next_offset is not None else found._replace(last=EntryId(found.last + 1))

    patch.setattr(PlannedRange, "run", one_more)


@planted("a hold begins without the key that trims compare", breaks="broker.retention.read_holds 1")
def without_the_key(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(read_holds, "hold_key", lambda topic_id: f"{cut_key(ledgers_prefix(topic_id))}holds")


@planted("a trim knows subscriptions only", breaks="broker.subscriptions.positions.hold 6", quick=True)
def subscriptions_only(patch: pytest.MonkeyPatch) -> None:
    async def none(hold: Hold, partition: int) -> None:
        return None

    patch.setattr(Hold, "lowest_read", none)


@planted(
    "a plan leaves the last entry of a run out",
    breaks="log.plans.planned_range 2",
    quick=True,
    scenario=PLANNING_CLUSTER,
)
def one_less(patch: pytest.MonkeyPatch) -> None:
    run = PlannedRange.run

    async def too_short(planned: PlannedRange, segment: Any) -> Run:
        found = await run(planned, segment)
        return found._replace(last=max(found.first, EntryId(found.last - 1)))

    patch.setattr(PlannedRange, "run", too_short)
