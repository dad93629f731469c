"""The scenarios of the sweeps here: one broker or a whole cluster, whatever clients do, and a storm of faults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from gnomon.broker.groups import hosted_shard
from gnomon.broker.native import server
from gnomon.broker.partition import log
from gnomon.broker.standalone import run_standalone
from gnomon.runtime.settings import Settings
from gnomon.testing.append_checker import append_checker
from gnomon.testing.cluster_scenario import ClusterScenario
from gnomon.testing.faults import Fault, FaultMix
from gnomon.testing.late_news import late_news
from gnomon.testing.ledger_cluster import METADATA
from gnomon.testing.log_scenario import LogScenario
from gnomon.testing.position_checker import position_checker
from gnomon.testing.shadow_checker import shadow_checker
from gnomon.testing.shadow_clients import keep_short_log_with_shadow, read_shadow, recast_shadow
from gnomon.testing.simulated_disk import DiskConditions
from gnomon.testing.simulated_network import NetworkConditions
from gnomon.testing.simulated_world import SimulatedWorld
from gnomon.testing.simulation import Simulation
from gnomon.testing.storm_clients import StormClient, commit_offsets, keep_short_log, one_of, recreate_topics
from gnomon.testing.subscription_clients import KINDS, SHARED, read_subscription

MAP_BYTES = 64 << 20
KAFKA = {
    "num.partitions": "3",
    "offsets.topic.num.partitions": "1",
    "log.segment.bytes": "2048",
    "log.retention.check.interval.ms": "1000",
}
"""Rolls, producer snapshots and retention happen within the few hundred records of a seed."""


async def broker(world: SimulatedWorld) -> None:
    """The node that `gnomon standalone` runs, on a simulated machine."""
    settings = Settings()
    settings = replace(
        settings,
        data_dir=Path("/data"),
        broker=replace(settings.broker, kafka_host="broker", native_host="broker", advertised_host="broker"),
        bookie=replace(settings.bookie, map_bytes=MAP_BYTES, garbage_interval_seconds=2.0),
        metadata=replace(settings.metadata, map_bytes=MAP_BYTES),
        kafka=KAFKA,
    )
    await run_standalone(world, settings, world.logger, ready=lambda _: None, stop=world.stop_requested)


Scenario: TypeAlias = Callable[[Simulation], Awaitable[int]]

CLIENTS = LogScenario(
    {"broker": broker},
    [("broker", 9092)],
    partitions=3,
    deletions=True,
    beside={
        "offsets": commit_offsets,
        "visits": partial(commit_offsets, group="visitors", commits_a_second=0.3),
        "topics": recreate_topics,
        "short": keep_short_log,
    },
)


CLUSTER = ClusterScenario(
    replace(CLIENTS, beside={**CLIENTS.beside, "topics": partial(recreate_topics, lag_seconds=10.0)}), KAFKA
)


async def run(simulation: Simulation, scenario: Scenario = CLIENTS) -> int:
    """Snapshots of producers and of groups come within the few hundred records of a seed, segments get too long, and
    consumers are attached one by one."""
    with append_checker(simulation), pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "SNAPSHOT_ENTRIES_MIN", 16)
        patch.setattr(log, "OVERRUN_BYTES_MAX", 1024)
        patch.setattr(hosted_shard, "SNAPSHOT_BYTES_MIN", 500)
        patch.setattr(server, "ATTACHED_AT_ONCE", 1)
        return await scenario(simulation)


SHADOWS = {"shadow": read_shadow, "second": partial(read_shadow, shadow="second")}

SCENARIO = run
CLUSTER_SCENARIO = partial(run, scenario=CLUSTER)
SHADOW_SCENARIO = partial(run, scenario=replace(CLIENTS, beside=SHADOWS))
SHADOW_CLUSTER_SCENARIO = partial(run, scenario=replace(CLUSTER, clients=replace(CLIENTS, beside=SHADOWS)))

READERS = {kind: partial(read_subscription, kind=kind, readers=2, shadow=True) for kind in KINDS}
CUT = [partial(reader, **{how: True}) for reader in READERS.values() for how in ("held", "truncated")]
"""Subscriptions of logs that are cut: behind all readers, or in front of them."""
READING = {
    "subscriptions": one_of(*READERS.values(), *CUT),
    "shared": one_of(*(partial(READERS[kind], name="more") for kind in SHARED)),
}
SHADOWED = {
    **READING,
    "shadow": one_of(read_shadow, recast_shadow, keep_short_log_with_shadow),
    "second": one_of(partial(read_shadow, shadow="second", partition=1), recast_shadow),
}
"""Shadows that come and go, of logs that are cut; and subscriptions of all types, of sources and of shadows."""
SHADOWED_CLUSTER = replace(
    CLUSTER, clients=replace(CLIENTS, sends=40, beside=SHADOWED, storm_seconds=15.0, liveness_seconds=90.0)
)


async def run_shadowed(simulation: Simulation, scenario: Scenario = SHADOWED_CLUSTER) -> int:
    """The same with checkers inside the brokers."""
    with shadow_checker(simulation), position_checker(simulation):
        return await run(simulation, scenario)


SHADOWED_SCENARIO = run_shadowed


def subscribed(beside: Mapping[str, StormClient], mix: FaultMix | None = None) -> Scenario:
    """Subscriptions, and little else."""
    clients = replace(SHADOWED_CLUSTER.clients, producers=1, sends=20, beside=beside, mix=mix)
    return partial(run_shadowed, scenario=replace(SHADOWED_CLUSTER, clients=clients))


CUTS = FaultMix(
    {Fault.PARTITION: 0.4}, NetworkConditions(latency_seconds_mean=0.001), DiskConditions(sync_seconds_mean=0.002)
)
"""Every machine is cut off from others, again and again."""
SUBSCRIBED = subscribed(READING)
KEY_SHARED = subscribed({name: partial(READERS["key_shared"], name=name) for name in ("one", "two")})
"""Subscriptions of all types in the first one, and of one type in this."""
KEPT_LESS = subscribed({name: one_of(*(partial(reader, name=name) for reader in CUT)) for name in ("one", "two")})
OWNERS = subscribed(READING, CUTS)
"""Subscriptions whose owners are cut off from the metadata, from clients, and from each other."""
QUICK_ROLLS = replace(
    CLUSTER,
    kafka={**KAFKA, "log.segment.bytes": "300"},
    clients=replace(
        CLIENTS,
        beside=SHADOWS,
        partitions=1,
        deletions=False,
        storm_seconds=15.0,
        mix=FaultMix(
            {Fault.KILL: 3.0}, NetworkConditions(latency_seconds_mean=0.002), DiskConditions(sync_seconds_mean=0.001)
        ),
    ),
)


async def roll_unheard(simulation: Simulation) -> int:
    """Segments of a few batches each, and brokers that hear of them late."""
    stream = simulation.random("news")

    async def hold_up() -> None:
        while simulation.clock.monotonic() < QUICK_ROLLS.clients.storm_seconds:
            for number in range(1, QUICK_ROLLS.brokers + 1):
                if stream.random() < 0.5:
                    simulation.network.clog(METADATA, f"broker-{number}", stream.expovariate(2.0))
            await simulation.sleep(0.5)

    simulation.start_soon(hold_up)
    return await run_shadowed(simulation, QUICK_ROLLS)


ROLLING = roll_unheard
LATE_NEWS_RATE = 0.5
SPLIT = replace(
    CLUSTER,
    clients=replace(
        CLIENTS,
        partitions=1,
        deletions=False,
        beside={name: CLUSTER.clients.beside[name] for name in ("offsets", "visits", "topics")},
        mix=CUTS,
    ),
)


async def heard_late(
    simulation: Simulation, *, scenario: Scenario, seconds: float, rate: float = LATE_NEWS_RATE
) -> int:
    """A scenario where brokers hear late of all that changes, while the metadata answers their calls."""
    with late_news(simulation, rate, seconds):
        return await scenario(simulation)


UNHEARD = partial(heard_late, scenario=partial(run, scenario=SPLIT), seconds=SPLIT.clients.storm_seconds)
"""Of who else is there, and so of who leads."""
SHADOWED_UNHEARD = partial(heard_late, scenario=run_shadowed, seconds=SHADOWED_CLUSTER.clients.storm_seconds)


def scenario_with(seconds_between: Mapping[Fault, float]) -> Scenario:
    """The same under one mix of faults in every seed."""
    network = NetworkConditions(latency_seconds_mean=0.05)
    mix = FaultMix(dict(seconds_between), network, DiskConditions(sync_seconds_mean=0.02))
    return partial(run, scenario=replace(CLIENTS, mix=mix))


def cluster_with(clients: LogScenario) -> Scenario:
    """A whole cluster with other clients, or under one mix of faults in every seed."""
    return partial(run, scenario=replace(CLUSTER, clients=clients))
