"""Clients that plan reads, under the storms of the other sweeps: planned entries are read, held records stay."""

from __future__ import annotations

from extent import swept
from plan_scenario import PLANNED, PLANNING, PLANNING_CLUSTER, READ


def test_no_held_record_of_one_broker_is_deleted() -> None:
    swept(PLANNING, 4, part=0.1, reaches=PLANNED)


def test_no_held_record_of_a_cluster_is_deleted_and_no_planned_entry_is_missing() -> None:
    swept(PLANNING_CLUSTER, 3, part=0.1, reaches=[*PLANNED, READ])
