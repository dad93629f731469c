"""One broker, producers and consumers, and a storm of faults: nothing acknowledged is lost, reordered or doubled.

`extent.py` says how the environment widens the sweep; `simulate(seed, scenario)` replays one of them.
"""

from __future__ import annotations

from broker_scenario import SCENARIO
from extent import swept

from gnomon.testing import append_checker
from gnomon.testing.faults import Fault
from gnomon.testing.sweep import assert_traces_repeat

BRANCHES = (
    "log/partition_created",
    "log/partition_claimed",
    "log/partition_not_opened",
    "log/partition_not_written",
    "log/groups_not_loaded",
    "log/groups_not_stored",
    "log/topic_not_changed",
    append_checker.REFUSED,
)
"""Where a broker recovers or refuses: rarer than in one seed of four, a sweep tests less than it says."""


def test_no_seed_loses_reorders_or_doubles_an_acknowledged_record() -> None:
    result = swept(SCENARIO, 20, reaches=[fault.counter for fault in Fault])
    result.coverage.assert_all_counted(BRANCHES, at_least=max(1, result.seeds // 4))


def test_a_seed_gives_the_same_trace_in_processes_with_different_hash_seeds() -> None:
    assert_traces_repeat("broker_scenario", "SCENARIO", range(2))
