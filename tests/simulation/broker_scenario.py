"""The scenario of the sweeps here: one broker, whatever clients do, and a storm of faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gnomon.broker.standalone import run_standalone
from gnomon.runtime.settings import Settings
from gnomon.testing.log_scenario import LogScenario
from gnomon.testing.simulated_world import SimulatedWorld
from gnomon.testing.storm_clients import commit_offsets, keep_short_log, recreate_topics

MAP_BYTES = 64 << 20


async def broker(world: SimulatedWorld) -> None:
    """The node that `gnomon standalone` runs, on a simulated machine."""
    settings = Settings()
    settings = replace(
        settings,
        data_dir=Path("/data"),
        broker=replace(settings.broker, kafka_host="broker", kafka_port=9092, advertised_host="broker"),
        bookie=replace(settings.bookie, map_bytes=MAP_BYTES, garbage_interval_seconds=2.0),
        metadata=replace(settings.metadata, map_bytes=MAP_BYTES),
        # Rolls, producer snapshots and retention happen within the few hundred records of a seed.
        kafka={"num.partitions": "3", "log.segment.bytes": "4096", "log.retention.check.interval.ms": "1000"},
    )
    await run_standalone(world, settings, world.logger, ready=lambda _: None, stop=world.stop_requested)


SCENARIO = LogScenario(
    {"broker": broker},
    [("broker", 9092)],
    partitions=3,
    deletions=True,
    beside={"offsets": commit_offsets, "topics": recreate_topics, "short": keep_short_log},
)
