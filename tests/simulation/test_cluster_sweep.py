"""Whole clusters, Kafka clients, and a storm of faults: no acknowledged record is lost, reordered or doubled.

`extent.py` explains how the environment widens the sweep; `simulate(seed, CLUSTER_SCENARIO)` replays one seed.
"""

from __future__ import annotations

from broker_scenario import CLUSTER_SCENARIO, UNHEARD
from extent import swept

from gnomon.testing.simulation.faults import Fault
from gnomon.testing.simulation.sweeps import assert_traces_repeat
from gnomon.testing.storms.ledgers.ledger_storm import LedgerStorm
from gnomon.testing.storms.metadata.late_news import LATE

EVENTS = (
    "log/partition_created",
    "log/partition_claimed",
    "log/partition_not_opened",
    "log/partition_not_written",
    "log/roll_postponed",
    "log/machine_not_loaded",
    "log/machine_not_stored",
    "log/auditor_elected",
    "log/audit_interrupted",
    "log/fragments_moved",
    "log/report_settled",
    "log/repair_put_off",
    "log/bookie_drained",
    "ledger/claimed by recovery",
    "ledger/claimed without all bookies",
    "ledger/tail copied",
    "ledger/fragment changed",
    "ledger/orphans removed",
    "ledger/written without a bookie",
    "ledger/ledgers dropped by garbage collection",
)
"""Counters that a sweep has to reach; `ledger_probes` has more, which the sweep over ledgers reaches."""
RARE = ("log/topic_not_changed", "ledger/copy asked for after another")
"""Counters that are reached once in some thirty seeds."""
RARE_SEEDS_MIN = 200


def test_no_seed_loses_reorders_or_doubles_an_acknowledged_record() -> None:
    faults = [counter for counter in LedgerStorm.COUNTERS if counter != "fault/kill of a client"]
    result = swept(CLUSTER_SCENARIO, 7, reaches=[*(fault.counter for fault in Fault), *faults, *EVENTS])
    if result.seeds >= RARE_SEEDS_MIN:
        result.coverage.assert_all_counted(RARE)


def test_no_seed_loses_reorders_or_doubles_a_record_if_brokers_learn_late_of_each_other() -> None:
    swept(UNHEARD, 2, part=0.1, reaches=[LATE])


def test_a_seed_gives_the_same_trace_in_processes_with_different_hash_seeds() -> None:
    assert_traces_repeat("broker_scenario", "CLUSTER_SCENARIO", range(2))
