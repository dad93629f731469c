"""The scenarios of the sweeps over the clients of `gnomon.spark`: a sink whose drivers die at any step."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from broker_scenario import CLIENTS, CLUSTER, Scenario, run

from gnomon.spark import decisions
from gnomon.spark.writing import committing, staging, writer_topic
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.sinks.sink_storm import write_rows

FEW = replace(
    CLIENTS,
    producers=1,
    sends=10,
    partitions=1,
    deletions=False,
    beside={"sink": write_rows, "taken": partial(write_rows, name="taken", queries=("a", "b"))},
    storm_seconds=15.0,
    liveness_seconds=120.0,
)


async def run_spark(simulation: Simulation, *, scenario: Scenario) -> int:
    """Runs a scenario with limits that the few rows of a seed reach."""
    stream = simulation.random("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decisions, "EPOCHS", stream.choice((2, 5, 30_000)))
        patch.setattr(staging, "MESSAGE_BYTES_MAX", stream.choice((0, 1_000, 64 << 10)))
        patch.setattr(committing, "CONTENT_BYTES_MAX", stream.choice((1, 100, 512 << 10)))
        patch.setattr(writer_topic, "STAGE_BYTES", stream.choice((300, 512 << 10)))
        return await run(simulation, scenario)


SINK = partial(run_spark, scenario=FEW)
SINK_OF_CLUSTER = partial(run_spark, scenario=replace(CLUSTER, clients=FEW))
EVENTS = ("sink_ok", "sink_already", "sink_driver_died", "sink_staginglost")
REACHED = tuple(f"log/{event}" for event in EVENTS)
"""Counters that a sweep has to reach."""
