"""The scenarios of the sweeps over groups: whole groups whose offsets expire within seconds, and a storm."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from broker_scenario import CLIENTS, CLUSTER, KAFKA, broker, run

from gnomon.broker.groups.settings import GroupSettings
from gnomon.testing.simulation.faults import Fault, stand_still
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.groups.group_storm import RETENTION_CHECK_SECONDS, keep_group
from gnomon.testing.storms.kafka.log_scenario import LogScenario

RETENTION_SECONDS = (4.0, 3600.0)
"""Offsets expire during the storm, or not at all."""
PAUSE = "fault/pause"
PAUSE_SECONDS_MAX = 8.0
"""Longer than a session."""
GROUP_KAFKA = {
    **KAFKA,
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "1000",
    "offsets.retention.check.interval.ms": str(round(RETENTION_CHECK_SECONDS * 1000)),
}
ONE_BROKER = replace(
    CLIENTS,
    nodes={"broker": partial(broker, kafka=GROUP_KAFKA)},
    producers=1,
    sends=10,
    partitions=1,
    deletions=False,
    storm_seconds=25.0,
    liveness_seconds=120.0,
    kinds=tuple(kind for kind in Fault if kind is not Fault.CLOCK_JUMP),
)
"""Wall clocks are right, since offsets expire by them."""


def _grouped(clients: LogScenario, retention_seconds: float, several: bool) -> LogScenario:
    group = partial(keep_group, retention_seconds=retention_seconds, several=several)
    return replace(clients, beside={name: partial(group, name=name) for name in ("group", "second", "third")})


async def run_groups(simulation: Simulation, *, several: bool) -> int:
    """Runs groups on one broker, which is also paused at times, or on a cluster, with a drawn retention of offsets."""
    stream = simulation.random("retention")
    retention_seconds = stream.choice(RETENTION_SECONDS)
    clients = _grouped(ONE_BROKER, retention_seconds, several)
    pauses = stream.expovariate(1.0) if stream.random() < 0.5 else 0.0

    async def pause() -> None:
        last = clients.storm_seconds - PAUSE_SECONDS_MAX  # no pause goes on after the storm: latencies are judged then
        while True:
            await simulation.sleep(3 + 10 * stream.random())
            if simulation.clock.monotonic() > last:
                return
            simulation.coverage.count(PAUSE)
            stand_still(simulation, simulation.machine("broker"), PAUSE_SECONDS_MAX * stream.random())

    if pauses and not several:
        simulation.start_soon(pause)
    scenario = replace(CLUSTER, kafka=GROUP_KAFKA, clients=clients) if several else clients
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupSettings, "offsets_retention_ms", round(retention_seconds * 1000))
        return await run(simulation, scenario)


GROUPS_OF_ONE_BROKER = partial(run_groups, several=False)
GROUPS_OF_A_CLUSTER = partial(run_groups, several=True)
EVENTS = (
    "static_member_came_back",
    "old_id_fenced",
    "offsets_gone",
    "group_deleted",
    "group_deletion_refused",
    "offset_deleted",
    "offset_deletion_refused",
    "machine_not_stored",
)
REACHED = tuple(f"log/{event}" for event in EVENTS)
"""Counters that a sweep has to reach."""
