"""The scenarios of sweeps over clients of tables."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from broker_scenario import CLUSTER, CUTS, heard_late, run
from conditional_scenario import ALONE

from gnomon.testing.storms.tables.table_clients import use_table

USERS = {"table": use_table, "other-table": partial(use_table, name="other", engine="memory")}
TABLES = partial(run, scenario=replace(ALONE, beside=USERS))
TABLES_OF_CLUSTER = partial(run, scenario=replace(CLUSTER, clients=replace(ALONE, beside=USERS)))
TABLES_UNHEARD = partial(
    heard_late,
    scenario=partial(run, scenario=replace(CLUSTER, clients=replace(ALONE, beside=USERS, mix=CUTS))),
    seconds=ALONE.storm_seconds,
)
"""Brokers learn late of other brokers, so that two of them often believe that they lead."""
_COUNTED = ("wins", "refusals", "reads", "sums", "watched", "expiries", "flushed", "snapshots", "trimmed")
REACHED = tuple(f"log/table_{what}" for what in (*_COUNTED, "trim_refused", "shadow_reads"))
"""Counters that a sweep has to reach."""
STORED: Final = "log/table_found_in_store"
"""The counter of tables that went on from what they had flushed."""
TAKEN_OVER: Final = "log/table_taken_over"
"""The counter of tables that a leader took over from its replica."""
RESTORED: Final = "log/table_restored"
"""The counter of tables that were restored from their snapshot."""
