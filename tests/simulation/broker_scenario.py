"""The scenarios of the sweeps in this folder: one broker or a whole cluster, clients, and a storm of faults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from thresholds import lower_thresholds

from gnomon.broker.coordination import hosted_machine
from gnomon.broker.native import subscription_methods
from gnomon.broker.partition import log
from gnomon.broker.retention import backlog
from gnomon.broker.standalone import run_standalone
from gnomon.broker.subscriptions import dispatcher, key_slots, record_slots, rounds, subscription, unpacked
from gnomon.broker.subscriptions.positions import stores
from gnomon.broker.subscriptions.positions.store import SubscriptionsStore
from gnomon.runtime.settings.settings import Settings, SubscriptionsSettings
from gnomon.testing.simulation.disk.simulated_disk import DiskConditions
from gnomon.testing.simulation.faults import Fault, FaultMix
from gnomon.testing.simulation.network.simulated_network import NetworkConditions
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.kafka.append_checker import append_checker
from gnomon.testing.storms.kafka.cluster_scenario import ClusterScenario
from gnomon.testing.storms.kafka.group_clients import read_and_leave_topics
from gnomon.testing.storms.kafka.log_scenario import LogScenario
from gnomon.testing.storms.kafka.storm_clients import (
    StormClient,
    commit_offsets,
    keep_short_log,
    one_of,
    recreate_topics,
)
from gnomon.testing.storms.ledgers.ledger_cluster import METADATA
from gnomon.testing.storms.metadata.late_news import late_news
from gnomon.testing.storms.rest.rest import judged_at_rest
from gnomon.testing.storms.shadows.cast_checker import cast_checker
from gnomon.testing.storms.shadows.growth_clients import grow_shadowed
from gnomon.testing.storms.shadows.shadow_checker import shadow_checker
from gnomon.testing.storms.shadows.shadow_clients import keep_short_log_with_shadow, read_shadow, recast_shadow
from gnomon.testing.storms.subscriptions.position_checker import position_checker
from gnomon.testing.storms.subscriptions.quota_clients import LOOK_SECONDS, keep_within_quota
from gnomon.testing.storms.subscriptions.quota_clients import POLICIES as QUOTA_POLICIES
from gnomon.testing.storms.subscriptions.subscription_clients import KINDS, SHARED, read_subscription
from gnomon.testing.storms.tables.table_settings import drawn_table_settings

MAP_BYTES = 64 << 20
KAFKA = {
    "num.partitions": "3",
    "offsets.topic.num.partitions": "1",
    "log.segment.bytes": "2048",
    "log.retention.check.interval.ms": "1000",
}
"""Settings with which rolls, producer snapshots and retention happen within the few hundred records of a seed."""


async def broker(world: SimulatedWorld, kafka: Mapping[str, str] = KAFKA) -> None:
    """The node that `gnomon standalone` runs, on a simulated machine."""
    settings = Settings()
    settings = replace(
        settings,
        data_dir=Path("/data"),
        broker=replace(
            settings.broker,
            kafka_host="broker",
            native_host="broker",
            advertised_host="broker",
            native_advertised_host="broker",
        ),
        bookie=replace(settings.bookie, map_bytes=MAP_BYTES, garbage_interval_seconds=2.0),
        metadata=replace(settings.metadata, map_bytes=MAP_BYTES),
        table=drawn_table_settings(world, Path("/data")),
        kafka=kafka,
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


def slice_subscriptions(simulation: Simulation, patch: pytest.MonkeyPatch) -> None:
    """Limits the work for subscriptions in one turn to a drawn amount, so that other events come between."""
    stream = simulation.random("slices")
    patch.setattr(rounds, "PAUSE_SECONDS", stream.choice((0.0, 0.001, 0.01)))
    patch.setattr(rounds, "UNITS_PER_TURN", stream.choice((20, 200, 2000)))
    patch.setattr(dispatcher, "LOOKED_AT_ONCE", stream.choice((1, 3, 500)))
    patch.setattr(record_slots, "WALKED_AT_ONCE", 2)
    patch.setattr(key_slots, "STRETCH_RECORDS", stream.choice((2, 10, 10_000)))
    patch.setattr(unpacked, "AT_ONCE_BYTES_MAX", stream.choice((0, 1 << 20)))
    for module in (dispatcher, subscription):
        patch.setattr(module, "PLACES_MAX", 5)
        patch.setattr(module, "RUNS_MAX", 2)


async def run(simulation: Simulation, scenario: Scenario = CLIENTS) -> int:
    """Runs a scenario with limits that the few hundred records of a seed reach (see also `thresholds`).

    Producers and machines write snapshots, segments get too long, consumers are attached one by one, and batches are
    delivered a few records at a time. Then the state at rest is judged.
    """
    with append_checker(simulation), judged_at_rest(simulation) as rest, pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "SNAPSHOT_ENTRIES_MIN", 16)
        patch.setattr(log, "OVERRUN_BYTES_MAX", 1024)
        patch.setattr(hosted_machine, "SNAPSHOT_BYTES_MIN", 500)
        patch.setattr(subscription_methods, "ATTACHED_AT_ONCE", 1)
        slice_subscriptions(simulation, patch)
        lower_thresholds(simulation.random("thresholds"), patch)
        result = await scenario(simulation)
        await rest.judge()
        return result


SHADOWS = {"shadow": read_shadow, "second": partial(read_shadow, shadow="second")}

MEMBERS = partial(
    run,
    scenario=replace(
        CLIENTS,
        producers=1,
        sends=20,
        partitions=1,
        beside={name: partial(read_and_leave_topics, group=name) for name in ("one", "two", "three")},
    ),
)
"""Members of groups with subscriptions in every format, whose offsets are deleted."""

SCENARIO = run
CLUSTER_SCENARIO = partial(run, scenario=CLUSTER)
SHADOW_SCENARIO = partial(run, scenario=replace(CLIENTS, beside=SHADOWS))
SHADOW_CLUSTER_SCENARIO = partial(run, scenario=replace(CLUSTER, clients=replace(CLIENTS, beside=SHADOWS)))

READERS = {kind: partial(read_subscription, kind=kind, readers=2, shadow=True) for kind in KINDS}
CUT = [partial(reader, **{how: True}) for reader in READERS.values() for how in ("held", "truncated")]
"""Subscriptions of logs whose records are deleted: after all readers have read them, or before."""
READING = {
    "subscriptions": one_of(*READERS.values(), *CUT),
    "shared": one_of(*(partial(READERS[kind], name="more") for kind in SHARED)),
}
SHADOWED = {
    **READING,
    "shadow": one_of(read_shadow, recast_shadow, keep_short_log_with_shadow),
    "second": one_of(partial(read_shadow, shadow="second", partition=1), recast_shadow),
}
"""Shadows that are cast and deleted, of logs that are cut; and subscriptions of all types, of sources and shadows."""
SHADOWED_CLUSTER = replace(
    CLUSTER, clients=replace(CLIENTS, sends=40, beside=SHADOWED, storm_seconds=15.0, liveness_seconds=90.0)
)


async def run_shadowed(simulation: Simulation, scenario: Scenario = SHADOWED_CLUSTER) -> int:
    """Runs a scenario as `run`, with checkers inside the brokers."""
    with shadow_checker(simulation), position_checker(simulation), cast_checker(simulation):
        return await run(simulation, scenario)


SHADOWED_SCENARIO = run_shadowed


def subscribed(beside: Mapping[str, StormClient], mix: FaultMix | None = None) -> Scenario:
    """A scenario with subscriptions and few other clients."""
    clients = replace(SHADOWED_CLUSTER.clients, producers=1, sends=20, beside=beside, mix=mix)
    return partial(run_shadowed, scenario=replace(SHADOWED_CLUSTER, clients=clients))


CUTS = FaultMix(
    {Fault.PARTITION: 0.4}, NetworkConditions(latency_seconds_mean=0.001), DiskConditions(sync_seconds_mean=0.002)
)
"""A mix of faults that repeatedly cuts machines off from others."""
SUBSCRIBED = subscribed(READING)
KEY_SHARED = subscribed({name: partial(READERS["key_shared"], name=name) for name in ("one", "two")})
"""Subscriptions of one type; `SUBSCRIBED` has all types."""
KEPT_LESS = subscribed({name: one_of(*(partial(reader, name=name) for reader in CUT)) for name in ("one", "two")})
OWNERS = subscribed(READING, CUTS)
"""Subscriptions whose owners are cut off from the metadata, from clients, and from each other."""
POSITIONS_IN_SEGMENTS_RATE = 0.7
HARMLESS = (NetworkConditions(latency_seconds_mean=0.002), DiskConditions(sync_seconds_mean=0.001))
KILLS = FaultMix({Fault.KILL: 15.0}, *HARMLESS)
QUOTAS = replace(
    CLIENTS,
    partitions=1,
    producers=1,
    sends=10,
    deletions=False,
    beside={policy: partial(keep_within_quota, policy=policy) for policy in QUOTA_POLICIES},
    storm_seconds=20.0,
    liveness_seconds=200.0,
)
KILLED_QUOTAS = replace(
    QUOTAS,
    beside={policy: partial(keep_within_quota, policy=policy, judged=True) for policy in QUOTA_POLICIES},
    storm_seconds=90.0,
    mix=KILLS,
)


async def run_quotas(simulation: Simulation, scenario: Scenario) -> int:
    """Runs a scenario in which quotas are measured often, and positions are stored in segments in most seeds."""
    open_store = stores.subscriptions_store
    stream = simulation.random("positions")
    in_segments, entries_max = stream.random() < POSITIONS_IN_SEGMENTS_RATE, stream.choice([5, 1000])
    simulation.trace.add(f"positions in {'segments' if in_segments else 'the metadata'}")

    def opened(settings: SubscriptionsSettings, *where: Any, **how: Any) -> SubscriptionsStore:
        given = replace(
            settings,
            log_segment_based_subscriptions_store_enabled=in_segments,
            segment_entries_max=entries_max,
        )
        return open_store(given, *where, **how)

    with position_checker(simulation), pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "subscriptions_store", opened)
        patch.setattr(backlog, "LOOK_SECONDS", LOOK_SECONDS)
        return await run(simulation, scenario)


QUOTAS_SCENARIO = partial(run_quotas, scenario=replace(CLUSTER, clients=QUOTAS))
QUOTAS_OF_ONE_BROKER = partial(run_quotas, scenario=QUOTAS)
KILLED_QUOTAS_SCENARIO = partial(run_quotas, scenario=KILLED_QUOTAS)
GROWING = subscribed({name: partial(grow_shadowed, source=name) for name in ("grown", "other")})
"""Topics that grow, and are deleted, while shadows of them are cast and deleted."""
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
    """Runs shadows of logs with segments of a few batches, whose metadata events reach brokers late."""
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
    """Runs a scenario in which metadata events reach brokers late, while the metadata answers their calls."""
    with late_news(simulation, rate, seconds):
        return await scenario(simulation)


UNHEARD = partial(heard_late, scenario=partial(run, scenario=SPLIT), seconds=SPLIT.clients.storm_seconds)
"""Brokers learn late of other brokers, and so of leaders."""
SHADOWED_UNHEARD = partial(heard_late, scenario=run_shadowed, seconds=SHADOWED_CLUSTER.clients.storm_seconds)
GROWING_UNHEARD = partial(heard_late, scenario=GROWING, seconds=SHADOWED_CLUSTER.clients.storm_seconds)


def scenario_with(seconds_between: Mapping[Fault, float]) -> Scenario:
    """The scenario of one broker with the same mix of faults in every seed."""
    network = NetworkConditions(latency_seconds_mean=0.05)
    mix = FaultMix(dict(seconds_between), network, DiskConditions(sync_seconds_mean=0.02))
    return partial(run, scenario=replace(CLIENTS, mix=mix))


def cluster_with(clients: LogScenario) -> Scenario:
    """The scenario of a whole cluster with these clients."""
    return partial(run, scenario=replace(CLUSTER, clients=clients))
