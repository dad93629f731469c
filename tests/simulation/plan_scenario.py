"""The scenarios of sweeps over clients that plan reads and hold the planned records."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from broker_scenario import CLIENTS, CLUSTER, run

from gnomon.testing.storms.ledgers.ledger_cluster import METADATA, METADATA_PORT
from gnomon.testing.storms.plans.plan_clients import plan_and_hold

ALONE = replace(
    CLIENTS, partitions=1, producers=1, sends=20, deletions=False, storm_seconds=15.0, liveness_seconds=150.0
)
PLANNERS = {"plans": plan_and_hold, "plans-of-shadow": partial(plan_and_hold, shadow=True)}
FROM_BOOKIES = {name: partial(client, metadata=f"{METADATA}:{METADATA_PORT}") for name, client in PLANNERS.items()}
PLANNING = partial(run, scenario=replace(ALONE, beside=PLANNERS))
PLANNING_CLUSTER = partial(run, scenario=replace(CLUSTER, clients=replace(ALONE, beside=FROM_BOOKIES)))
PLANNED = ("log/reads_planned", "log/hold_moved_back", "log/hold_ended")
READ = "log/planned_entries_read"
"""Counters that a sweep has to reach."""
