"""One broker, producers and consumers, and a storm of faults: no acknowledged record is lost, reordered or doubled.

`extent.py` explains how the environment widens the sweep; `simulate(seed, SCENARIO)` replays one seed.
"""

from __future__ import annotations

from broker_scenario import MEMBERS, SCENARIO
from extent import swept

from gnomon.testing.simulation.faults import Fault
from gnomon.testing.simulation.sweeps import assert_traces_repeat
from gnomon.testing.storms.kafka import append_checker

BRANCHES = (
    "log/partition_created",
    "log/partition_claimed",
    "log/partition_not_opened",
    "log/partition_not_written",
    "log/machine_not_loaded",
    "log/machine_not_stored",
    "log/topic_not_changed",
    append_checker.REFUSED,
)
"""Branches in which a broker recovers or refuses; a good sweep reaches each in at least one of four seeds."""


def test_no_seed_loses_reorders_or_doubles_an_acknowledged_record() -> None:
    swept(SCENARIO, 15, reaches=[*(fault.counter for fault in Fault), "log/answer_drained"], often=BRANCHES)


def test_no_seed_deletes_the_offset_of_a_topic_that_a_member_reads_or_keeps_one_of_an_unread_topic() -> None:
    swept(MEMBERS, 4, part=0.1)


def test_a_seed_gives_the_same_trace_in_processes_with_different_hash_seeds() -> None:
    assert_traces_repeat("broker_scenario", "SCENARIO", range(2))
