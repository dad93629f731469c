"""Shadows in a storm, on one broker and in clusters: they show what their source has, and in the end all of it.

`extent.py` says how the environment widens the sweep; `simulate(seed, SHADOW_SCENARIO)` replays one of them.
"""

from __future__ import annotations

from broker_scenario import SHADOW_CLUSTER_SCENARIO, SHADOW_SCENARIO
from extent import swept

from gnomon.testing.simulation import simulate

AHEAD = 17
"""The node is started anew, and a reader comes back before it knows how far its last ledger is confirmed."""


def test_no_seed_of_one_broker_shows_what_the_source_has_not_or_leaves_anything_out() -> None:
    swept(SHADOW_SCENARIO, 6)


def test_no_seed_of_a_cluster_shows_what_the_source_has_not_or_leaves_anything_out() -> None:
    swept(SHADOW_CLUSTER_SCENARIO, 6)


def test_a_reader_that_is_ahead_of_a_shadow_that_was_opened_anew_is_not_sent_away() -> None:
    simulate(AHEAD, SHADOW_SCENARIO)
