"""Whole clusters, Kafka clients, and a storm of faults: nothing acknowledged is lost, reordered or doubled.

`extent.py` says how the environment widens the sweep; `simulate(seed, CLUSTER_SCENARIO)` replays one of them.
"""

from __future__ import annotations

import pytest
from broker_scenario import CLUSTER_SCENARIO
from extent import swept

from gnomon.testing.faults import Fault
from gnomon.testing.simulation import simulate

FAILED_ONCE = (24, 50, 64, 113, 114, 179)
"""Each told of a bug that is mended."""


def test_no_seed_loses_reorders_or_doubles_an_acknowledged_record() -> None:
    result = swept(CLUSTER_SCENARIO, 40)
    result.coverage.assert_all_counted(fault.counter for fault in Fault)


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_a_seed_that_failed_once_passes(seed: int) -> None:
    simulate(seed, CLUSTER_SCENARIO)
