"""Rich producers and a rich reader of one topic in a storm: sessions, searches, epochs, odd times, every codec.

`extent.py` explains how the environment widens the sweep; `simulate(seed, RICH)` replays one seed.
"""

from __future__ import annotations

from extent import swept
from rich_scenario import REACHED, RICH, RICH_CLUSTER

from gnomon.testing.simulation.sweeps import assert_traces_repeat


def test_no_seed_of_one_broker_misleads_a_rich_reader_or_loses_a_batch_of_a_rich_producer() -> None:
    swept(RICH, 8, part=0.2, reaches=REACHED)


def test_no_seed_of_a_cluster_misleads_a_rich_reader_or_loses_a_batch_of_a_rich_producer() -> None:
    swept(RICH_CLUSTER, 3, part=0.1)


def test_a_seed_gives_the_same_trace_in_processes_with_different_hash_seeds() -> None:
    assert_traces_repeat("rich_scenario", "RICH", range(2))
