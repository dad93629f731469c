"""Shadows in a storm, on one broker and in clusters: they show what their source has, and in the end all of it.

`extent.py` says how the environment widens the sweep; `simulate(seed, SHADOW_SCENARIO)` replays one of them.
"""

from __future__ import annotations

from broker_scenario import SHADOW_CLUSTER_SCENARIO, SHADOW_SCENARIO, SHADOWED_SCENARIO, SHADOWED_UNHEARD
from extent import swept

from gnomon.testing import position_checker, source_truth
from gnomon.testing.faults import Fault
from gnomon.testing.late_news import LATE
from gnomon.testing.ledger_storm import LedgerStorm
from gnomon.testing.simulation import simulate
from gnomon.testing.sweep import assert_traces_repeat

EVENTS = ("log/shadows_not_told", "log/positions_not_stored", "log/partition_claimed", "log/subscriptions_jumped")
AHEAD = 17
"""The node is started anew, and a reader comes back before it knows how far its last ledger is confirmed."""

UNHEARD_ONCE = 906
"""A log's start went back: its next leader had read where that was, and claimed the log, while it was moved."""


def test_no_seed_of_one_broker_shows_what_the_source_has_not_or_leaves_anything_out() -> None:
    swept(SHADOW_SCENARIO, 4, part=0.1)


def test_no_seed_of_a_cluster_shows_what_the_source_has_not_or_leaves_anything_out() -> None:
    swept(SHADOW_CLUSTER_SCENARIO, 2, part=0.1)


def test_no_seed_shows_a_shadow_that_is_not_a_beginning_of_its_source_or_has_a_subscription_miss_a_record() -> None:
    faults = [counter for counter in LedgerStorm.COUNTERS if counter != "fault/kill of a client"]
    inside = [*source_truth.COUNTERS, *position_checker.COUNTERS]
    swept(SHADOWED_SCENARIO, 8, reaches=[*(fault.counter for fault in Fault), *faults, *inside, *EVENTS])


def test_no_seed_does_so_where_brokers_hear_late_of_each_other_and_of_topics() -> None:
    swept(SHADOWED_UNHEARD, 2, part=0.1, reaches=[LATE])


def test_a_seed_gives_the_same_trace_in_processes_with_different_hash_seeds() -> None:
    assert_traces_repeat("broker_scenario", "SHADOWED_SCENARIO", range(2))


def test_a_reader_that_is_ahead_of_a_shadow_that_was_opened_anew_is_not_sent_away() -> None:
    simulate(AHEAD, SHADOW_SCENARIO)


def test_a_seed_that_failed_once_where_brokers_hear_late_passes() -> None:
    simulate(UNHEARD_ONCE, SHADOWED_UNHEARD)
