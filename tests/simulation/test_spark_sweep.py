"""Drivers of a sink in a storm: each row is in its target once, whichever driver dies at whichever step.

`extent.py` explains how the environment widens the sweep; `simulate(seed, SINK)` replays one seed.
"""

from __future__ import annotations

from extent import swept
from spark_scenario import REACHED, REACHED_BY_CLUSTER, SINK, SINK_OF_CLUSTER

from gnomon.testing.simulation.sweeps import assert_traces_repeat
from gnomon.testing.storms.sinks.decision_checker import RARE


def test_no_seed_of_one_broker_loses_or_doubles_a_row_of_a_sink() -> None:
    swept(SINK, 6, part=0.5, reaches=REACHED, rare=RARE)


def test_no_seed_of_a_cluster_loses_or_doubles_a_row_of_a_sink() -> None:
    swept(SINK_OF_CLUSTER, 3, part=0.5, reaches=REACHED_BY_CLUSTER)


def test_a_seed_gives_the_same_trace_in_processes_with_different_hash_seeds() -> None:
    assert_traces_repeat("spark_scenario", "SINK", range(2))
