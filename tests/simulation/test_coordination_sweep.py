"""Counters in clusters of brokers, and a storm of faults: no acknowledged addition is lost or counted twice.

`extent.py` explains how the environment widens the sweep; `simulate(seed, COUNTERS)` replays one seed.
"""

from __future__ import annotations

import pytest
from counter_clients import CountedWrongly, CounterHistory
from counter_scenario import COUNTERS, COUNTERS_UNHEARD, UNASKED
from extent import swept

from gnomon.testing.simulation.faults import Fault
from gnomon.testing.simulation.sweeps import assert_traces_repeat
from gnomon.testing.storms.metadata.late_news import LATE

EVENTS = ("machine_loaded", "machine_not_loaded", "machine_not_stored", "machine_released")
ANSWERS = ("added", "read", "waited", "refused", "unknown", "announced")
REACHED = [*(f"log/{event}" for event in EVENTS), *(f"counter/{answer}" for answer in ANSWERS), UNASKED]


def test_no_seed_loses_or_doubles_an_acknowledged_addition() -> None:
    swept(COUNTERS, 10, reaches=[*(fault.counter for fault in Fault), *REACHED])


def test_no_seed_loses_or_doubles_an_addition_if_brokers_learn_late_of_each_other() -> None:
    swept(COUNTERS_UNHEARD, 2, part=0.1, reaches=[LATE])


def test_a_seed_gives_the_same_trace_in_processes_with_different_hash_seeds() -> None:
    assert_traces_repeat("counter_scenario", "COUNTERS", range(2))


@pytest.mark.parametrize(
    ("total", "finding"),
    [(4**0 + 4**2, "lost"), (4**0 + 4**1 + 2 * 4**2, "2 times"), (4**0 + 4**1 + 4**3, "never made")],
)
def test_the_checker_finds_an_addition_that_is_lost_doubled_or_invented(total: int, finding: str) -> None:
    history = CounterHistory("c")
    for _ in range(3):
        history.begin()
    history.check(4**0 + 4**1, ())
    with pytest.raises(CountedWrongly, match=finding):
        history.check(total, set(history.certain))
    history.check(4**0 + 4**1 + 4**2, set(history.certain))
