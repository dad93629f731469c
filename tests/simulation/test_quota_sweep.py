"""Backlog quotas and retention of seconds, with positions in segments and in the metadata, with and without storms.

Producers are refused only while there is a backlog. Acknowledged records do not count, and no other record is lost
without a report.
"""

from __future__ import annotations

from broker_scenario import KILLED_QUOTAS_SCENARIO, QUOTAS_OF_ONE_BROKER, QUOTAS_SCENARIO
from extent import swept

from gnomon.testing.simulation.faults import Fault

REACHED = ("log/refused_for_backlog", "log/backlog_dropped", "log/subscriptions_jumped", Fault.KILL.counter)


def test_no_seed_of_one_broker_that_is_killed_refuses_or_drops_without_a_backlog() -> None:
    swept(KILLED_QUOTAS_SCENARIO, 1, part=0.2, reaches=REACHED)


def test_no_seed_of_one_broker_refuses_or_drops_without_a_backlog_after_a_storm() -> None:
    swept(QUOTAS_OF_ONE_BROKER, 1, part=0.1)


def test_no_seed_of_a_cluster_refuses_or_drops_without_a_backlog_after_a_storm() -> None:
    swept(QUOTAS_SCENARIO, 1, part=0.1)
