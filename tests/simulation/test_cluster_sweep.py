"""Whole clusters, Kafka clients, and a storm of faults: nothing acknowledged is lost, reordered or doubled.

`SEEDS=1000 FIRST_SEED=200` in the environment widens the sweep; `simulate(seed, CLUSTER_SCENARIO)` replays one of them.
"""

from __future__ import annotations

import os

import pytest
from broker_scenario import CLUSTER_SCENARIO

from gnomon.testing.faults import Fault
from gnomon.testing.simulation import simulate
from gnomon.testing.sweep import sweep

SEEDS = int(os.environ.get("SEEDS", "40"))
FIRST_SEED = int(os.environ.get("FIRST_SEED", "0"))
FAILED_ONCE = (24, 50, 64, 113, 114, 179)
"""Each told of a bug that is mended."""


def test_no_seed_loses_reorders_or_doubles_an_acknowledged_record() -> None:
    result = sweep(CLUSTER_SCENARIO, range(FIRST_SEED, FIRST_SEED + SEEDS))
    print(f"{result.seeds} seeds, {result.virtual_seconds / 3600:.2f} virtual hours, {result.faults} faults")
    print(dict(sorted(result.coverage.counts.items())))
    result.coverage.assert_all_counted(fault.counter for fault in Fault)


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_a_seed_that_failed_once_passes(seed: int) -> None:
    simulate(seed, CLUSTER_SCENARIO)
