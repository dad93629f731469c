from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
import trio
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from gnomon.testing.simulation.ground import SimulationFailed
from gnomon.testing.simulation.guided.guided_simulation import GuidedSimulation
from gnomon.testing.simulation.process import NodeKilled
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerCluster


async def counting(world: SimulatedWorld) -> None:
    """Counts virtual seconds in a file."""
    while True:
        await world.clock.sleep(1)
        path = Path("/seconds")
        world.disk.write_file(path, (world.disk.read_file(path) or b"") + b".")


def counted(guided: GuidedSimulation) -> int:
    path = guided.simulation.folder / "counter" / "seconds"
    return len(path.read_bytes()) if path.exists() else 0


def test_time_passes_only_within_steps() -> None:
    with GuidedSimulation(1) as guided:
        guided.machine("counter").start(counting)
        assert counted(guided) == 0
        guided.settle()
        assert guided.simulation.clock.monotonic() == 0
        guided.sleep(3.5)
        assert guided.simulation.clock.monotonic() == 3.5
        assert counted(guided) == 3
        guided.settle()
        assert counted(guided) == 3


def test_a_step_returns_or_raises_the_outcome_of_its_work() -> None:
    async def divide(number: int) -> float:
        await trio.sleep(1)
        return 1 / number

    with GuidedSimulation(1) as guided:
        assert guided.run(divide, 4) == 0.25
        with pytest.raises(ZeroDivisionError):
            guided.run(divide, 0)
        assert guided.simulation.clock.monotonic() == 2
        with pytest.raises(trio.TooSlowError):
            guided.run(trio.sleep_forever, seconds_max=5)
        assert guided.simulation.clock.monotonic() == 7


def test_a_begun_operation_continues_in_every_step() -> None:
    with GuidedSimulation(1) as guided:
        sleeping = guided.begin(trio.sleep, 2)
        assert not sleeping.done
        guided.sleep(1)
        assert not sleeping.done
        guided.sleep(1.5)
        assert sleeping.outcome() is None


def test_machines_are_killed_and_started_between_steps() -> None:
    with GuidedSimulation(1) as guided:
        machine = guided.machine("counter")
        machine.start(counting)
        guided.sleep(2.5)
        machine.kill()
        guided.sleep(5)
        machine.start()
        guided.sleep(1.5)
        assert counted(guided) == 3


def test_a_node_that_fails_ends_the_simulation_in_the_same_step() -> None:
    async def broken(world: SimulatedWorld) -> None:
        await world.clock.sleep(2)
        raise ValueError("the node's own bug")

    guided = GuidedSimulation(77)
    guided.machine("broken").start(broken)
    guided.sleep(1)
    with pytest.raises(SimulationFailed, match=r"(?s)broken#1 failed: ValueError.*seed 77.*2\.000000  FAILED"):
        guided.sleep(5)
    with pytest.raises(AssertionError, match="the simulation is closed"):
        guided.sleep(1)
    guided.close()


def test_code_that_bypasses_its_world_fails() -> None:
    async def impatient(world: SimulatedWorld) -> None:
        exec("import time; time.monotonic()", {"__name__": "gnomon.broker.node"})  # noqa: S102 - the text is here

    guided = GuidedSimulation(1)
    guided.machine("impatient").start(impatient)
    with pytest.raises(SimulationFailed, match=r"gnomon\.broker\.node called time\.monotonic"):
        guided.settle()


def story(seed: int) -> tuple[str, float]:
    with GuidedSimulation(seed) as guided:
        cluster = LedgerCluster(guided.simulation, 3)
        guided.run(cluster.start)
        cluster.bookies[cluster.names[0]].power_off()
        guided.settle()
        guided.sleep(1.25)
        cluster.bookies[cluster.names[0]].start()
        guided.simulation.network.clog("bookie-2", "metadata", 3)
        guided.sleep(10)
        return guided.simulation.trace.digest(), guided.simulation.clock.monotonic()


def test_the_same_steps_give_the_same_trace_and_no_thread_is_left() -> None:
    threads = threading.active_count()
    assert story(1) == story(1)
    assert story(1) != story(2)
    assert threading.active_count() == threads


def test_closing_a_simulation_restores_trio() -> None:
    core = trio._core._run
    before = (core._ALLOW_DETERMINISTIC_SCHEDULING, core._r.getstate())
    guided = GuidedSimulation(1)
    folder = guided.simulation.folder
    guided.close()
    guided.close()
    assert (core._ALLOW_DETERMINISTIC_SCHEDULING, core._r.getstate()) == before
    assert not folder.exists()

    async def main() -> int:
        return 42

    assert trio.run(main) == 42


def test_closing_kills_running_nodes() -> None:
    last_words: list[str] = []

    async def node(world: SimulatedWorld) -> None:
        try:
            await trio.sleep_forever()
        finally:
            try:
                world.clock.monotonic()
            except NodeKilled:
                last_words.append("killed")

    with GuidedSimulation(1) as guided:
        guided.machine("node").start(node)
        guided.settle()
    assert last_words == ["killed"]


def test_a_wait_that_is_not_virtual_fails() -> None:
    guided = GuidedSimulation(1)
    with pytest.raises(SimulationFailed, match="waits for more than virtual time"):
        guided.run(trio.testing.wait_all_tasks_blocked, 0.01)


def test_an_interrupt_ends_a_simulation_in_the_current_step() -> None:
    async def interrupt() -> None:
        await trio.sleep(1)
        signal.raise_signal(signal.SIGINT)
        await trio.sleep(5)

    guided = GuidedSimulation(1)
    with pytest.raises(KeyboardInterrupt):
        guided.run(interrupt)
    assert not guided.simulation.folder.exists()
    guided.close()


class Lamp(RuleBasedStateMachine):
    """A lamp that fails when it is pressed three times within a second."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.guided = GuidedSimulation(seed)
        self.pressed = trio.Event()
        self.guided.machine("lamp").start(self.lamp)

    async def lamp(self, world: SimulatedWorld) -> None:
        presses: list[float] = []
        while True:
            await self.pressed.wait()
            self.pressed = trio.Event()
            presses.append(world.clock.monotonic())
            assert len(presses) < 3 or presses[-1] - presses[-3] >= 1, "blown"

    @rule()
    def press(self) -> None:
        self.pressed.set()
        self.guided.settle()

    @rule(seconds=st.sampled_from([0.1, 1.0]))
    def wait(self, seconds: float) -> None:
        self.guided.sleep(seconds)

    def teardown(self) -> None:
        if hasattr(self, "guided"):
            self.guided.close()


QUICK = settings(
    max_examples=100,
    stateful_step_count=10,
    derandomize=True,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    report_multiple_bugs=False,
)


def test_hypothesis_drives_a_simulation_and_shrinks_its_failures() -> None:
    with pytest.raises(SimulationFailed, match="blown") as found:
        run_state_machine_as_test(Lamp, settings=QUICK)
    steps = [line for line in found.value.__notes__ if line.startswith("state.")]
    assert [step for step in steps if "begin" not in step and "teardown" not in step] == ["state.press()"] * 3
