"""The scenarios of the sweeps over rich logs: epochs, odd times, every codec, sessions, and deletions of all kinds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from broker_scenario import CLIENTS, CLUSTER, Scenario, run

from gnomon.bookie.storage import add_queue
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.logs.rich_storm import keep_and_cast, live_again

FEW = replace(
    CLIENTS,
    producers=1,
    sends=10,
    partitions=1,
    deletions=False,
    beside={"lives": live_again, "kept": keep_and_cast},
    storm_seconds=15.0,
    liveness_seconds=120.0,
)
SEVERAL = {
    "lives": partial(live_again, several=True, lag_seconds=10.0),
    "kept": partial(keep_and_cast, several=True),
}
GROUP_BYTES = (1, 2000, 4 << 20)
"""The bytes that a commit group of a bookie takes; a batch may be larger."""


async def run_rich(simulation: Simulation, *, scenario: Scenario) -> int:
    """Runs a scenario with commit groups of a drawn size."""
    size_bytes = simulation.random("commit groups").choice(GROUP_BYTES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(add_queue, "GROUP_BYTES_MAX", size_bytes)
        return await run(simulation, scenario)


RICH = partial(run_rich, scenario=FEW)
RICH_CLUSTER = partial(run_rich, scenario=replace(CLUSTER, clients=replace(FEW, beside=SEVERAL)))
EVENTS = (
    "epoch_bumped",
    "old_epoch_fenced",
    "sequence_wrapped",
    "partition_forgotten",
    "first_batch_beyond_the_limits",
    "poll_below_the_start",
    "searched_by_time",
)
REACHED = tuple(f"log/{event}" for event in EVENTS)
"""Counters that a sweep has to reach."""
