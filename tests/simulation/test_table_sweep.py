"""Clients of tables in a storm: reads are linearizable, and of those that race for a key one wins."""

from __future__ import annotations

from extent import swept
from table_scenario import REACHED, RESTORED, STORED, TABLES, TABLES_OF_CLUSTER, TABLES_UNHEARD, TAKEN_OVER

from gnomon.testing.simulation.faults import Fault
from gnomon.testing.simulation.sweeps import assert_traces_repeat
from gnomon.testing.storms.metadata.late_news import LATE


def test_no_seed_shows_a_client_a_table_that_never_was_at_one_broker() -> None:
    swept(TABLES, 4, reaches=[fault.counter for fault in Fault], often=[*REACHED, STORED, RESTORED])


def test_no_seed_shows_a_client_a_table_that_never_was_in_a_cluster() -> None:
    swept(TABLES_OF_CLUSTER, 3, often=REACHED, rare=[STORED, RESTORED, TAKEN_OVER])


def test_no_seed_shows_a_client_a_table_that_never_was_at_brokers_that_learn_late_of_each_other() -> None:
    swept(TABLES_UNHEARD, 3, part=0.5, often=REACHED, reaches=[LATE], rare=[STORED, RESTORED, TAKEN_OVER])


def test_a_seed_gives_the_same_trace_in_processes_with_different_hash_seeds() -> None:
    assert_traces_repeat("table_scenario", "TABLES_OF_CLUSTER", range(2))
