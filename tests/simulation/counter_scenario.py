"""Storms over counters in clusters of brokers: the second tenant of the coordination runtime, after groups."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from broker_scenario import CLUSTER, CUTS, heard_late, run
from counter_clients import CounterHistory, clients_of
from counter_service import Announce, serve_counters

from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.kafka.cluster_scenario import ClusterScenario

NAMES = ("alpha", "beta", "gamma", "delta")
UNASKED = "counter/loaded unasked"
COUNTED = replace(
    CLUSTER, clients=replace(CLUSTER.clients, partitions=1, producers=1, sends=20, deletions=False, storm_seconds=20.0)
)
CUT_OFF = replace(COUNTED, clients=replace(COUNTED.clients, mix=CUTS, storm_seconds=40.0))


async def count(simulation: Simulation, scenario: ClusterScenario = COUNTED) -> int:
    """Runs counters in every broker, with their clients, each in half of the seeds, and a few others."""
    histories = {name: CounterHistory(name) for name in NAMES}

    def announced(effect: Announce) -> None:
        simulation.coverage.count("counter/announced")
        histories[effect.name].check(effect.number, ())

    tenant = partial(serve_counters, announced=announced, unasked=lambda: simulation.coverage.count(UNASKED))
    clients = replace(scenario.clients, beside=clients_of(histories.values(), simulation.coverage))
    return await run(simulation, replace(scenario, clients=clients, tenant=tenant))


COUNTERS = count
COUNTERS_CUT_OFF = partial(count, scenario=CUT_OFF)
COUNTERS_UNHEARD = partial(heard_late, scenario=COUNTERS_CUT_OFF, seconds=CUT_OFF.clients.storm_seconds)
