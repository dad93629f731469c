"""The storm of a sink compares the ways of reading its target: a way that differs is found, equal ones are accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gnomon.testing.simulation.ground import SimulationFailed
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.testing.storms.sinks import sink_storm

STORM_SECONDS = 3.0
Rows = list[list[str]]


def storm() -> None:
    """A storm without faults."""

    async def scenario(simulation: Simulation) -> None:
        brokers = BrokerCluster(simulation, 2)
        await brokers.start()

        async def client(wire: WireCluster) -> None:
            await sink_storm.write_rows(wire, STORM_SECONDS)

        await brokers.run_client("client", client)

    outcome = simulate(1, scenario)
    assert all(outcome.coverage.counts[f"log/sink_{event}"] for event in ("ok", "rows_read_by_plan", "shadow_read"))


def without_the_last_row(rows: Rows) -> Rows:
    return [rows[0][:-1], *rows[1:]]


def with_a_row_twice(rows: Rows) -> Rows:
    return [[*rows[0], *rows[0][-1:]], *rows[1:]]


def with_another_order(rows: Rows) -> Rows:
    return [[*reversed(rows[0])], *rows[1:]]


CHANGES: Sequence[Callable[[Rows], Rows]] = (without_the_last_row, with_a_row_twice, with_another_order)


class FaultyWay:
    """Changes the rows that one way of reading yields at the end, when it is compared with a Kafka client's fetches."""

    def __init__(self, patch: pytest.MonkeyPatch, change: Callable[[Rows], Rows]) -> None:
        self._patch, self._change = patch, change
        self._ends = False
        judge = sink_storm._Readers.judge

        async def judged(readers: Any, findings: Any) -> None:
            self._ends = True
            await judge(readers, findings)

        patch.setattr(sink_storm._Readers, "judge", judged)

    def at(self, name: str) -> None:
        read = getattr(sink_storm, name)

        async def changed(*given: Any) -> Any:
            found = await read(*given)
            if not self._ends:
                return found
            return (self._change(found[0]), found[1]) if name == "planned_rows" else self._change(found)

        self._patch.setattr(sink_storm, name, changed)


def test_a_sound_sink_is_accepted() -> None:
    storm()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("reader", "finding"),
    [
        ("planned_rows", "sink: a Spark job reads other rows"),
        ("subscribed_rows", "sink: a subscription reads other rows"),
    ],
)
def test_a_way_of_reading_that_differs_from_the_others_is_found(
    monkeypatch: pytest.MonkeyPatch, reader: str, finding: str, change: Callable[[Rows], Rows]
) -> None:
    FaultyWay(monkeypatch, change).at(reader)
    with pytest.raises(SimulationFailed, match=f"ProduceRefused.'{finding}"):
        storm()
