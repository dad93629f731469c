"""Shadows in a storm, on one broker and in clusters: they show only records of their source, and in the end all.

`extent.py` explains how the environment widens the sweep; `simulate(seed, SHADOW_SCENARIO)` replays one seed.
"""

from __future__ import annotations

from broker_scenario import (
    GROWING,
    GROWING_UNHEARD,
    SHADOW_CLUSTER_SCENARIO,
    SHADOW_SCENARIO,
    SHADOWED_SCENARIO,
    SHADOWED_UNHEARD,
)
from extent import swept

from gnomon.testing.simulation.faults import Fault
from gnomon.testing.simulation.simulation import simulate
from gnomon.testing.simulation.sweeps import assert_traces_repeat
from gnomon.testing.storms.ledgers.ledger_storm import LedgerStorm
from gnomon.testing.storms.metadata.late_news import LATE
from gnomon.testing.storms.shadows import cast_checker, source_truth
from gnomon.testing.storms.subscriptions import position_checker

EVENTS = (
    "log/replication_interrupted",
    "log/positions_not_stored",
    "log/partition_claimed",
    "log/subscriptions_jumped",
)
AHEAD = 17
"""The node restarts, and a reader comes back before the node knows how far its last ledger is confirmed."""

UNHEARD_ONCE = 906
"""A log's start went back: its next leader read the start and claimed the log while the start was moved."""


def test_no_seed_of_one_broker_shows_a_record_that_the_source_lacks_or_omits_one() -> None:
    swept(SHADOW_SCENARIO, 4, part=0.1)


def test_no_seed_of_a_cluster_shows_a_record_that_the_source_lacks_or_omits_one() -> None:
    swept(SHADOW_CLUSTER_SCENARIO, 2, part=0.1)


def test_no_seed_has_a_shadow_that_is_no_prefix_of_its_source_or_a_subscription_that_misses_a_record() -> None:
    faults = [counter for counter in LedgerStorm.COUNTERS if counter != "fault/kill of a client"]
    inside = [*source_truth.COUNTERS, *position_checker.COUNTERS]
    swept(SHADOWED_SCENARIO, 8, reaches=[*(fault.counter for fault in Fault), *faults, *inside, *EVENTS])


def test_no_seed_has_a_wrong_shadow_or_subscription_if_brokers_learn_late_of_each_other_and_of_topics() -> None:
    swept(SHADOWED_UNHEARD, 2, part=0.1, reaches=[LATE])


def test_no_seed_has_inconsistent_shadows_sources_or_subscriptions_while_topics_grow() -> None:
    swept(GROWING, 2, part=0.2, reaches=cast_checker.COUNTERS)


def test_no_seed_has_inconsistent_shadows_sources_or_subscriptions_if_brokers_learn_late_of_topics() -> None:
    swept(GROWING_UNHEARD, 1, part=0.2, reaches=[LATE])


def test_a_seed_gives_the_same_trace_in_processes_with_different_hash_seeds() -> None:
    assert_traces_repeat("broker_scenario", "SHADOWED_SCENARIO", range(2))


def test_a_reader_that_is_ahead_of_a_reopened_shadow_is_not_reset() -> None:
    simulate(AHEAD, SHADOW_SCENARIO)


def test_a_seed_that_failed_once_with_late_metadata_events_passes() -> None:
    simulate(UNHEARD_ONCE, SHADOWED_UNHEARD)
