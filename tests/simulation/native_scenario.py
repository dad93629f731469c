"""The scenarios of sweeps over native clients: consumers that seek in a storm, and cancelled calls."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from broker_scenario import CLIENTS, CLUSTER, KAFKA, Scenario, broker, run

from gnomon.bookie.repair.auditor import AuditSettings
from gnomon.client import client as native_client
from gnomon.testing.simulation.machine import Node
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.storm_clients import one_of
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.testing.storms.rest.rest import judged_at_rest
from gnomon.testing.storms.subscriptions.cancelled_calls import cancel_calls
from gnomon.testing.storms.subscriptions.churn_clients import churn_subscription
from gnomon.testing.storms.subscriptions.seek_clients import seek_and_read
from gnomon.testing.storms.subscriptions.slow_streams import slow_streams
from gnomon.testing.storms.subscriptions.subscription_clients import KINDS

SEEKERS = {
    "seeks": one_of(*(partial(seek_and_read, kind=kind) for kind in KINDS)),
    "shadow": one_of(*(partial(seek_and_read, kind=kind, shadow=True, name="cast") for kind in KINDS)),
}
"""Consumers of all types that seek, of a source and of a shadow."""
ITEM_SECONDS_MEANS = (0.0, 0.0003, 0.002)


async def taken_late(simulation: Simulation, *, scenario: Scenario) -> int:
    """Runs a scenario in which, in most seeds, each process takes stream items late, so that answers overtake them."""
    stream = simulation.random("slow streams")
    mean = stream.choice(ITEM_SECONDS_MEANS)
    with slow_streams(lambda: stream.expovariate(1 / mean) if mean else 0.0):
        return await scenario(simulation)


SEEKING_CLIENTS = replace(
    CLIENTS, producers=1, sends=20, deletions=False, beside=SEEKERS, storm_seconds=15.0, liveness_seconds=90.0
)
SEEKING = partial(taken_late, scenario=partial(run, scenario=SEEKING_CLIENTS))
SEEKING_CLUSTER = partial(taken_late, scenario=partial(run, scenario=replace(CLUSTER, clients=SEEKING_CLIENTS)))
CHURN = {
    "churn": one_of(*(partial(churn_subscription, kind=kind) for kind in KINDS)),
    "more": one_of(*(partial(churn_subscription, kind=kind, name="more") for kind in KINDS)),
}
"""Subscriptions of all types with few permits, that are sought by several at once and deleted, of topics that grow."""
CHURNING_CLIENTS = replace(SEEKING_CLIENTS, beside=CHURN, liveness_seconds=120.0)
REFRESH_SECONDS = (1.0, 1.0, 30.0)


async def refreshed_often(simulation: Simulation, *, scenario: Scenario) -> int:
    """Runs a scenario in which clients look for new partitions every second, in most seeds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_client, "REFRESH_SECONDS", simulation.random("refresh").choice(REFRESH_SECONDS))
        return await run(simulation, scenario)


CHURNING = partial(taken_late, scenario=partial(refreshed_often, scenario=CHURNING_CLIENTS))
CHURNING_CLUSTER = partial(
    taken_late, scenario=partial(refreshed_often, scenario=replace(CLUSTER, clients=CHURNING_CLIENTS))
)
CHURNED = tuple(f"log/{event}" for event in ("seeks_at_once", "unsubscribed", "topic_grown"))
"""Counters that a sweep has to reach."""
CALLS_CANCELLED = 80
AUDIT = AuditSettings(grace_seconds=10.0, interval_seconds=1.0, lease_seconds=2.0)
CUT_OFF = "calls/cut off"
"""A counter that a sweep has to reach."""


async def cancelled_calls(simulation: Simulation) -> int:
    """Cancels calls of a native client at drawn steps, on one broker or two, and judges the state at rest.

    There are no other faults.
    """
    stream = simulation.random("cancelled")
    nodes: dict[str, Node] = {"broker": broker}
    bootstrap = CLIENTS.bootstrap
    if stream.random() < 0.5:
        cluster = BrokerCluster(simulation, brokers=2, kafka=KAFKA, audit=AUDIT)  # reports are settled by somebody
        nodes, bootstrap = cluster.nodes(), cluster.bootstrap
    shadow = stream.random() < 0.5

    async def client(world: SimulatedWorld) -> None:
        cut = await cancel_calls(WireCluster(world, bootstrap, "client"), CALLS_CANCELLED, shadow=shadow)
        simulation.coverage.count(CUT_OFF, cut)

    with judged_at_rest(simulation) as rest:
        for name, node in nodes.items():
            simulation.machine(name).start(node)
        machine = simulation.machine("client")
        machine.start(client)
        assert machine.process is not None
        await machine.process.ended.wait()
        await rest.judge()
    return 0


CANCELLED = partial(taken_late, scenario=cancelled_calls)
