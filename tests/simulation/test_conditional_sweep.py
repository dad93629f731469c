"""Writers on conditions in a storm: of those that race for a place one wins, and every refusal was true."""

from __future__ import annotations

from conditional_scenario import RACING, RACING_CLUSTER, RACING_UNHEARD, REACHED
from extent import swept

from gnomon.testing.simulation.faults import Fault
from gnomon.testing.storms.metadata.late_news import LATE


def test_no_seed_lets_two_writers_win_one_place_at_one_broker() -> None:
    swept(RACING, 6, reaches=[fault.counter for fault in Fault], often=REACHED)


def test_no_seed_lets_two_writers_win_one_place_in_a_cluster() -> None:
    swept(RACING_CLUSTER, 4, often=REACHED)


def test_no_seed_lets_two_writers_win_one_place_at_brokers_that_learn_late_of_each_other() -> None:
    swept(RACING_UNHEARD, 4, part=0.5, often=REACHED, reaches=[LATE])
