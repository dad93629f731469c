"""The order of work that exceeds the allowance of a turn; numbers cite the invariants of `rounds`."""

from __future__ import annotations

import pytest
import trio

from gnomon.broker.subscriptions import rounds
from gnomon.broker.subscriptions.rounds import Rounds
from gnomon.runtime.timers import Timers
from gnomon.testing.simulation.simulation import Simulation, simulate


class Worker:
    """Has `pieces` pieces of work; each takes the whole allowance of a turn."""

    def __init__(self, name: str, pieces: int, turns: Rounds, done: list[str]) -> None:
        self._name = name
        self._pieces = pieces
        self._turns = turns
        self._done = done

    def __call__(self) -> None:
        self._done.append(self._name)
        self._turns.spend(rounds.UNITS_PER_TURN)
        self._pieces -= 1
        if self._pieces:
            self._turns.put_off(self)


def test_unfinished_work_waits_after_other_work_and_new_work_begins_after_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # 2, 3
    monkeypatch.setattr(rounds, "PAUSE_SECONDS", 0.1)

    async def scenario(simulation: Simulation) -> None:
        async with trio.open_nursery() as nursery:
            timers = Timers(simulation.clock)
            nursery.start_soon(timers.run)
            turns, done = Rounds(simulation.clock, timers), list[str]()
            assert turns.open
            for name, pieces in (("long", 4), ("short", 1), ("middle", 2)):
                turns.put_off(Worker(name, pieces, turns, done))
            assert not turns.open
            await simulation.sleep(0.05)
            assert done == []
            await simulation.sleep(0.1)
            assert done == ["long"], "one turn's work"
            await simulation.sleep(1.0)
            assert done == ["long", "short", "middle", "long", "middle", "long", "long"]
            nursery.cancel_scope.cancel()

    simulate(1, scenario)


def test_the_allowance_is_renewed_when_work_was_put_off(monkeypatch: pytest.MonkeyPatch) -> None:  # 1
    monkeypatch.setattr(rounds, "PAUSE_SECONDS", 0.1)

    async def scenario(simulation: Simulation) -> None:
        async with trio.open_nursery() as nursery:
            timers = Timers(simulation.clock)
            nursery.start_soon(timers.run)
            turns, done = Rounds(simulation.clock, timers), list[float]()
            turns.spend(rounds.UNITS_PER_TURN + 5)
            assert not turns.open
            turns.put_off(lambda: done.append(simulation.clock.monotonic()))
            await simulation.sleep(1.0)
            assert done == [pytest.approx(0.1)]
            assert turns.open
            nursery.cancel_scope.cancel()

    simulate(1, scenario)
