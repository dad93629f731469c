"""The harness is tested with a broker of known bugs: it passes the correct broker and finds each planted bug."""

from __future__ import annotations

from dataclasses import replace

import pytest
from toy_broker import Bug, toy_scenario

from gnomon.testing.simulation.disk.simulated_disk import DiskConditions
from gnomon.testing.simulation.faults import Fault, FaultMix
from gnomon.testing.simulation.network.simulated_network import NetworkConditions
from gnomon.testing.simulation.simulation import simulate
from gnomon.testing.simulation.sweeps import seeds_to_find, sweep


def test_a_correct_broker_passes_a_sweep_in_which_every_fault_was_injected() -> None:
    result = sweep(toy_scenario(), range(20))
    assert result.seeds == 20
    assert result.virtual_seconds > 20 * 20
    result.coverage.assert_all_counted(fault.counter for fault in Fault)
    result.coverage.assert_all_counted(["log/store failed"])
    assert result.faults > 500


@pytest.mark.parametrize("bug", [bug for bug in Bug if bug is not Bug.READ_BEFORE_SYNC], ids=lambda bug: bug.value)
def test_a_planted_bug_is_found_within_twenty_seeds(bug: Bug) -> None:
    assert seeds_to_find(toy_scenario(bug), range(20)) is not None


def test_reads_before_the_sync_are_found_with_power_loss_on_a_slow_disk() -> None:
    """The producers' retries replace most lost records, so this bug needs a mix of its own (swarm testing)."""
    mix = FaultMix(
        {Fault.POWER_LOSS: 1.0, Fault.SLOW_DISK: 1.0},
        NetworkConditions(latency_seconds_mean=0.001),
        DiskConditions(sync_seconds_mean=0.02, visible_early_rate=1.0),
    )
    narrow = replace(toy_scenario(Bug.READ_BEFORE_SYNC), mix=mix, producers=4)
    assert seeds_to_find(narrow, range(20)) is not None


def test_the_same_seed_of_a_storm_is_the_same_history() -> None:
    scenario = replace(toy_scenario(), storm_seconds=5.0)
    assert simulate(3, scenario).digest == simulate(3, scenario).digest


def test_a_storm_leaves_its_mix_as_it_was_to_the_next_one() -> None:
    mix = FaultMix({Fault.KILL: 2.0}, NetworkConditions(latency_seconds_mean=0.05), DiskConditions())
    scenario = replace(toy_scenario(), storm_seconds=5.0, mix=mix)
    assert simulate(3, scenario).digest == simulate(3, scenario).digest
