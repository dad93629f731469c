"""Looks inside brokers while a storm rages: each append to a partition is answered once.

    with append_checker(simulation):
        ...

What is not answered waits, or is on its way to the disk (`broker.partition.appends`). A client hardly sees one that was
forgotten: it gives up after a while, and sends the batch again.

The product has no trace of it; a finding ends the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from gnomon.broker.partition.appends import Appender, Produced
from gnomon.broker.partition.partition import Partition
from gnomon.testing.patches import Patches
from gnomon.testing.simulation import Simulation

REFUSED = "appends/refused that waited"
"""What a sweep has to reach."""


@contextmanager
def append_checker(simulation: Simulation) -> Iterator[None]:
    """Looks inside during the block."""

    def append(before: Callable[..., None]) -> Any:
        def followed(partition: Partition, records: memoryview, appender: Appender, slot: Any) -> None:
            if not isinstance(appender, _Asked):  # else it has waited
                appender = _Asked(simulation, appender, _unanswered(partition))
            before(partition, records, appender, slot)

        return followed

    def refused(before: Callable[..., None]) -> Any:
        def followed(partition: Partition, *args: Any) -> None:
            if partition._appends._waiting:
                simulation.coverage.count(REFUSED)
            before(partition, *args)
            kept, unanswered = _kept(partition), len(_unanswered(partition))
            if unanswered != kept:
                _fail(simulation, f"{unanswered} appends to a partition are not answered, and it knows of {kept}")

        return followed

    with ExitStack() as stack:
        patch = Patches(stack)
        patch(Partition, "append", append)
        for name in ("_opening_failed", "release", "end"):
            patch(Partition, name, refused)
        yield


class _Asked:
    """Stands between a partition and who appends."""

    def __init__(self, simulation: Simulation, appender: Appender, unanswered: set[_Asked]) -> None:
        self._simulation, self._appender, self._unanswered = simulation, appender, unanswered
        unanswered.add(self)

    def appended(self, slot: Any, outcome: Produced) -> None:
        if self not in self._unanswered:
            _fail(self._simulation, f"an append was answered a second time: {outcome}")
        self._unanswered.discard(self)
        self._appender.appended(slot, outcome)


def _unanswered(partition: Partition) -> set[_Asked]:
    found: set[_Asked] = partition.__dict__.setdefault("unanswered", set())
    return found


def _kept(partition: Partition) -> int:
    """How many appends it still has to answer; a snapshot is nobody's."""
    appends = partition._appends
    on_their_way = sum(appender is not None for _, _, _, appender, _ in (*appends._written, *appends._repeats))
    return len(appends._waiting) + len(appends._doubted) + on_their_way


def _fail(simulation: Simulation, text: str) -> None:
    simulation.fail("append checker", AssertionError(text))
