"""Replays one seed of a sweep as a transcript: `make simulate SEED=17 [OF=broker|ledgers|cluster|shadows|…] [ALL=1]`.

The transcript has the starts and ends of nodes, the faults, and the logs of nodes and clients, each line with its
virtual second; with ALL also every message and commit.
"""

from __future__ import annotations

import os
import re
import sys
import traceback

from broker_scenario import (
    CLUSTER_SCENARIO,
    GROWING,
    GROWING_UNHEARD,
    KEY_SHARED,
    KILLED_QUOTAS_SCENARIO,
    QUOTAS_OF_ONE_BROKER,
    QUOTAS_SCENARIO,
    SCENARIO,
    SHADOW_CLUSTER_SCENARIO,
    SHADOW_SCENARIO,
    SHADOWED_SCENARIO,
    SHADOWED_UNHEARD,
    SUBSCRIBED,
    UNHEARD,
)
from conditional_scenario import RACING, RACING_CLUSTER, RACING_UNHEARD
from counter_scenario import COUNTERS, COUNTERS_UNHEARD
from group_scenario import GROUPS_OF_A_CLUSTER, GROUPS_OF_ONE_BROKER
from native_scenario import CANCELLED, CHURNING, CHURNING_CLUSTER, SEEKING, SEEKING_CLUSTER
from plan_scenario import PLANNING, PLANNING_CLUSTER
from rich_scenario import RICH, RICH_CLUSTER
from spark_scenario import SINK, SINK_OF_CLUSTER
from table_scenario import TABLES, TABLES_OF_CLUSTER, TABLES_UNHEARD

from gnomon.testing.simulation.simulation import simulate
from gnomon.testing.storms.rest.ledgers_at_rest import LedgersAtRest

SCENARIOS = {
    "broker": SCENARIO,
    "ledgers": LedgersAtRest(),
    "cluster": CLUSTER_SCENARIO,
    "conditional": RACING,
    "conditional-in-a-cluster": RACING_CLUSTER,
    "conditional-unheard": RACING_UNHEARD,
    "cluster-unheard": UNHEARD,
    "shadows": SHADOWED_SCENARIO,
    "shadows-unheard": SHADOWED_UNHEARD,
    "shadows-of-one-broker": SHADOW_SCENARIO,
    "shadows-alone": SHADOW_CLUSTER_SCENARIO,
    "subscriptions": SUBSCRIBED,
    "key-shared": KEY_SHARED,
    "seeks": SEEKING,
    "seeks-in-a-cluster": SEEKING_CLUSTER,
    "churned": CHURNING,
    "churned-in-a-cluster": CHURNING_CLUSTER,
    "cancelled": CANCELLED,
    "quotas": QUOTAS_SCENARIO,
    "quotas-of-one-broker": QUOTAS_OF_ONE_BROKER,
    "quotas-killed": KILLED_QUOTAS_SCENARIO,
    "coordination": COUNTERS,
    "coordination-unheard": COUNTERS_UNHEARD,
    "logs": RICH_CLUSTER,
    "plans": PLANNING_CLUSTER,
    "plans-of-one-broker": PLANNING,
    "logs-of-one-broker": RICH,
    "groups": GROUPS_OF_A_CLUSTER,
    "groups-of-one-broker": GROUPS_OF_ONE_BROKER,
    "tables": TABLES_OF_CLUSTER,
    "tables-of-one-broker": TABLES,
    "tables-unheard": TABLES_UNHEARD,
    "spark": SINK_OF_CLUSTER,
    "spark-of-one-broker": SINK,
    "growing": GROWING,
    "growing-unheard": GROWING_UNHEARD,
}
DETAIL = re.compile(r" bytes [0-9a-f]{8}$|  closed$|  commit /|  synced /|  wrote /")


def replay(seed: int, of: str, everything: bool) -> int:
    """Prints the transcript and returns the exit code."""

    def show(line: str) -> None:
        if everything or not DETAIL.search(line):
            print(line)

    try:
        outcome = simulate(seed, SCENARIOS[of], on_line=show)
    except Exception as error:
        story = "".join(traceback.format_exception_only(error)).partition(", the last lines of its trace:")[0]
        print(f"seed {seed} of {of} failed: {story}")
        return 1
    print(f"seed {seed} of {of} passed: {outcome.virtual_seconds:.1f} virtual seconds, trace {outcome.digest}")
    return 0


if __name__ == "__main__":
    sys.exit(replay(int(os.environ["SEED"]), os.environ.get("OF", "cluster"), bool(os.environ.get("ALL"))))
