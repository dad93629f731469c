"""The scenarios of the sweeps over the clients of `gnomon.spark`: a sink whose drivers die at any step."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from broker_scenario import CLIENTS, CLUSTER, Scenario, run

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.spark import decisions
from gnomon.spark.writing import committing, earlier_delivery, staging, writer_topic
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.kafka.storm_clients import one_of
from gnomon.testing.storms.sinks import decision_checker
from gnomon.testing.storms.sinks.sink_storm import write_rows

WRITERS = {"only": "sink", "a": "taken", "b": "taken", "first": "owned", "second": "owned"}
"""The writer of each query."""
TAKEN = partial(write_rows, name="taken", queries=("a", "b"))
OWNED = partial(write_rows, name="owned", queries=("first", "second"), takes_over=False)
FEW = replace(
    CLIENTS,
    producers=1,
    sends=10,
    partitions=1,
    deletions=False,
    beside={"sink": write_rows, "shared": one_of(TAKEN, OWNED)},
    storm_seconds=15.0,
    liveness_seconds=120.0,
)
BESIDE = "sinks/records of Kafka clients beside a sink"
SEARCH_RATE = 0.3
"""The share of seeds in which every decision of another driver is an old one, whose targets are searched."""


async def run_spark(simulation: Simulation, *, scenario: Scenario) -> int:
    """Runs a scenario with limits that the few rows of a seed reach."""
    stream = simulation.random("spark")
    with decision_checker.decision_checker(simulation, WRITERS), pytest.MonkeyPatch.context() as patch:
        patch.setattr(decisions, "EPOCHS", stream.choice((2, 5, 30_000)))
        patch.setattr(staging, "MESSAGE_BYTES_MAX", stream.choice((0, 1_000, 64 << 10)))
        patch.setattr(committing, "CONTENT_BYTES_MAX", stream.choice((1, 100, 512 << 10)))
        patch.setattr(writer_topic, "STAGE_BYTES", stream.choice((300, 512 << 10)))
        if stream.random() < SEARCH_RATE:
            patch.setattr(earlier_delivery, "broker_config", _expired_at_once)
        records = await run(simulation, scenario)
        simulation.coverage.count(BESIDE, records if simulation.coverage.counts["log/sink_ok"] else 0)
        return records


async def _expired_at_once(cluster: KafkaBrokers, name: str) -> str:
    return "0"


SINK = partial(run_spark, scenario=FEW)
SINK_OF_CLUSTER = partial(run_spark, scenario=replace(CLUSTER, clients=FEW))
EVENTS = (
    "sink_ok",
    "sink_already",
    "sink_driver_died",
    "sink_staginglost",
    "sink_writerfenced",
    "sink_task_again",
    "sink_rows_read",
    "sink_shadow_read",
)
REACHED = (*(f"log/{event}" for event in EVENTS), BESIDE, *decision_checker.OFTEN)
"""Counters that a sweep has to reach."""
REACHED_BY_CLUSTER = ("log/sink_rows_read_by_plan", "log/sink_task_again", "log/sink_shadow_read", BESIDE)
"""Counters that a sweep over clusters has to reach."""
