"""Checks inside the brokers of a storm that each append to a partition is answered once.

    with append_checker(simulation):
        ...

An append without an answer waits or is in flight (`broker.partition.appends`), or its batch is being recompressed: no
other state is allowed. A client hardly notices a forgotten append: its request times out, and the client sends the
batch again.

The product has no hook for the checker: its functions are wrapped from outside. A finding ends the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from gnomon.broker.partition.appends import AppendCallback, Produced
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.unpacking.batch_client import BatchClient
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.patches import Patches

REFUSED = "appends/refused that waited"
"""A counter that each sweep has to reach."""


@contextmanager
def append_checker(simulation: Simulation) -> Iterator[None]:
    """Checks all partitions of the simulation during the block."""

    def append(before: Callable[..., None]) -> Any:
        def followed(
            partition: Partition, records: memoryview, callback: AppendCallback, *rest: Any, by_all: bool = False
        ) -> None:
            if not isinstance(callback, _PartitionAppend):  # an append that waited is already wrapped
                callback = _PartitionAppend(simulation, callback, _unanswered(partition))
            before(partition, records, callback, *rest, by_all=by_all)

        return followed

    def refused(before: Callable[..., None]) -> Any:
        def followed(partition: Partition, *args: Any) -> None:
            if partition._appends._waiting:
                simulation.coverage.count(REFUSED)
            before(partition, *args)
            kept, unanswered = kept_appends(partition), len(_unanswered(partition))
            if unanswered != kept:
                _fail(
                    simulation,
                    f"{unanswered} appends to a partition are not answered, and the partition knows of {kept}",
                )

        return followed

    with ExitStack() as stack:
        patch = Patches(stack)
        patch(Partition, "append", append)
        for name in ("_opening_failed", "release", "end"):
            patch(Partition, name, refused)
        yield


class _PartitionAppend:
    """The callback of one append, wrapped: counts the answers and passes them on."""

    def __init__(self, simulation: Simulation, callback: AppendCallback, unanswered: set[_PartitionAppend]) -> None:
        self._simulation, self._callback, self._unanswered = simulation, callback, unanswered
        unanswered.add(self)

    def client_of(self, slot: Any) -> BatchClient:
        return self._callback.client_of(slot)

    def appended(self, slot: Any, outcome: Produced) -> None:
        if self not in self._unanswered:
            _fail(self._simulation, f"an append was answered a second time: {outcome}")
        self._unanswered.discard(self)
        self._callback.appended(slot, outcome)


def _unanswered(partition: Partition) -> set[_PartitionAppend]:
    found: set[_PartitionAppend] = partition.__dict__.setdefault("unanswered", set())
    return found


def kept_appends(partition: Partition) -> int:
    """The number of appends that a partition still has to answer; a snapshot has no callback."""
    appends = partition._appends
    in_flight = sum(callback is not None for _, _, _, callback, _ in (*appends._in_flight, *appends._repeats))
    waiting = len(appends._waiting) + len(appends._suspended) + len(appends._later)
    return waiting + in_flight + partition._recoding


def _fail(simulation: Simulation, text: str) -> None:
    simulation.fail("append checker", AssertionError(text))
