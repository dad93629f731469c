from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from gnomon.testing.simulation.guided.machine_examples import check, examples_to_find
from gnomon.testing.simulation.guided.state_machine import PAUSES, SimulatedStateMachine, Weather, weathers
from gnomon.testing.simulation.simulated_world import SimulatedWorld

COUNT = Path("/count")


class Counter(SimulatedStateMachine):
    """A counter in a file, which outlives its process."""

    careful = True
    digests: list[str]

    @initialize(weather=weathers)
    def begin(self, weather: Weather) -> None:
        self.start_simulation(weather)
        self.asked = self.counted = 0
        machine = self.simulation.machine("counter")
        machine.start(self.node)
        self.expose([machine])

    async def node(self, world: SimulatedWorld) -> None:
        before = world.disk.read_file(COUNT) or b"" if self.careful else b""
        world.disk.write_file(COUNT, before)
        while True:
            await world.clock.sleep(0.1)
            if self.asked > self.counted:
                self.counted += 1
                world.disk.write_file(COUNT, (world.disk.read_file(COUNT) or b"") + b".")
                self.simulation.coverage.count("counted")

    @rule(times=st.integers(1, 5), pause=PAUSES)
    def ask(self, times: int, pause: float) -> None:
        self.asked += times
        self.guided.sleep(pause)

    def judge(self) -> None:
        assert self.victims[0].running
        self.guided.sleep(10.0)
        file = self.simulation.folder / "counter" / "count"
        assert len(file.read_bytes()) == self.asked, "some were forgotten"
        self.digests.append(self.simulation.trace.digest())


class Forgetful(Counter):
    careful = False


def test_an_example_is_judged_after_all_machines_are_up_and_each_run_has_the_same_examples() -> None:
    Counter.digests = []
    reached = check(Counter, max_examples=20, steps=10)
    reached.assert_all_counted(["counted", "fault/kill", "fault/power loss", "fault/pause"])
    first, Counter.digests = Counter.digests, []
    check(Counter, max_examples=20, steps=10)
    assert len(first) >= 20
    assert first == Counter.digests


def test_a_bug_is_found_with_few_steps() -> None:
    Forgetful.digests = []
    found = examples_to_find(Forgetful, 50, steps=10)
    assert found is not None
    assert found[0] <= 50
    assert "some were forgotten" in str(found[1])
    with pytest.raises(AssertionError, match="some were forgotten") as shrunk:
        check(Forgetful, max_examples=50, steps=10)
    steps = [line.partition("(")[0] for line in shrunk.value.__notes__ if line.startswith("state.")]
    assert {"state.ask", "state.stop_machines"} <= set(steps)
    assert len(steps) <= 6  # including the first and the last step
    assert "Hypothesis' seed" in shrunk.value.__notes__[-1]


def test_nothing_is_found_without_a_bug() -> None:
    Counter.digests = []
    assert examples_to_find(Counter, 5, steps=5) is None
