"""The scenarios of sweeps over clients that write on conditions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from broker_scenario import CLIENTS, CLUSTER, CUTS, heard_late, run

from gnomon.testing.storms.writes.conditional_clients import race_conditionally

ALONE = replace(
    CLIENTS, partitions=1, producers=1, sends=20, deletions=False, storm_seconds=15.0, liveness_seconds=150.0
)
RACERS = {"races": race_conditionally, "more-races": partial(race_conditionally, name="more", shadow=True)}
RACING = partial(run, scenario=replace(ALONE, beside=RACERS))
RACING_CLUSTER = partial(run, scenario=replace(CLUSTER, clients=replace(ALONE, beside=RACERS)))
RACING_UNHEARD = partial(
    heard_late,
    scenario=partial(run, scenario=replace(CLUSTER, clients=replace(ALONE, beside=RACERS, mix=CUTS))),
    seconds=ALONE.storm_seconds,
)
"""Brokers learn late of other brokers, so that two of them often believe that they lead."""
REACHED = tuple(f"log/conditional_{what}" for what in ("wins", "refusals", "fences", "ends"))
"""Counters that a sweep has to reach."""
