"""Bugs in plans of reads, in their holds and in Spark's source; the sweep over clients that plan looks for them."""

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
from gnomon.spark.columns import ColumnDecoder
from gnomon.spark.offsets import Offsets
from gnomon.spark.row_count import RowCount
from gnomon.spark.streaming import StreamPlan

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


# --- Spark's source ---


@planted(
    "the hold of a stream moves before its batch is done",
    breaks="spark.streaming 4",
    found_by="tests/spark/test_bookie_plans.py::test_the_hold_of_a_stream_is_at_the_start_of_its_last_batch",
)
def hold_moved_early(patch: pytest.MonkeyPatch) -> None:
    tasks = StreamPlan.tasks

    async def held_from_the_end(stream: Any, start: Offsets, end: Offsets) -> Any:
        found = await tasks(stream, start, end)
        stream._held_at = None
        await stream._hold(end)
        return found

    patch.setattr(StreamPlan, "tasks", held_from_the_end)


@planted(
    "a range is cut between batches, not between records",
    breaks="spark.columns 1",
    found_by="tests/spark/test_columns.py::test_a_range_that_cuts_its_batches_has_its_own_records_alone",
)
def whole_batches(patch: pytest.MonkeyPatch) -> None:
    """The reader gives the decoder those batches that have a record of the range."""
    begin = ColumnDecoder.__init__

    def uncut(decoder: Any, wanted: Any, columns: Any, **bounds: int) -> None:
        begin(decoder, wanted._replace(start=0, stop=1 << 62), columns, **bounds)

    patch.setattr(ColumnDecoder, "__init__", uncut)


@planted(
    "rows are not counted against the headers of their batches",
    breaks="spark.reading 4",
    found_by="tests/spark/test_bookie_reading.py::test_rows_that_the_decoder_loses_are_noticed",
)
def rows_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RowCount, "check", lambda count: None)
