"""Groups with static and dynamic members in a storm: generations, owners, and offsets that expire and are deleted.

`extent.py` explains how the environment widens the sweep; `simulate(seed, GROUPS_OF_ONE_BROKER)` replays one seed.
"""

from __future__ import annotations

from extent import swept
from group_scenario import GROUPS_OF_A_CLUSTER, GROUPS_OF_ONE_BROKER, PAUSE, REACHED

from gnomon.testing.simulation.sweeps import assert_traces_repeat
from gnomon.testing.storms.ledgers.ledger_storm import LedgerStorm


def test_no_seed_of_one_broker_has_two_owners_of_a_partition_or_loses_or_keeps_an_offset_wrongly() -> None:
    swept(GROUPS_OF_ONE_BROKER, 8, part=0.2, reaches=[*REACHED, PAUSE])


def test_no_seed_of_a_cluster_has_two_owners_of_a_partition_or_loses_or_keeps_an_offset_wrongly() -> None:
    swept(GROUPS_OF_A_CLUSTER, 4, part=0.2, reaches=[*REACHED, *LedgerStorm.COUNTERS[:2]])


def test_a_seed_gives_the_same_trace_in_processes_with_different_hash_seeds() -> None:
    assert_traces_repeat("group_scenario", "GROUPS_OF_ONE_BROKER", range(2))
