from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio
import trio.testing

from gnomon.testing.simulation.ground import SimulationFailed
from gnomon.testing.simulation.process import NodeKilled
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation, autojumping_clock, simulate
from gnomon.testing.simulation.sweeps import assert_traces_repeat


def test_trio_still_has_the_private_names_that_make_it_deterministic() -> None:
    """If this fails after an upgrade of Trio: find the code in `trio/_core/_run.py` that orders the run queue, seed it
    in `testing.simulation.deterministic_scheduling`, and raise the pin in pyproject.toml. Until then keep the pin."""
    core = trio._core._run
    assert isinstance(core._ALLOW_DETERMINISTIC_SCHEDULING, bool)
    assert isinstance(core._r, random.Random)


def test_trio_still_asks_its_clock_to_jump_when_no_task_can_run() -> None:
    """If this fails after an upgrade of Trio: find the code that calls an autojump clock in `trio/_core/_run.py`, and
    adapt `testing.simulation.Simulation._jump`."""
    jumps = []

    async def wait() -> None:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        runner = trio._core._run.GLOBAL_RUN_CONTEXT.runner
        deadline = clock.current_time() + 5

        def jump() -> None:
            jumps.append((len(runner.runq), runner.deadlines.next_deadline()))
            clock.jump(5)

        clock._autojump = jump
        await trio.sleep_until(deadline)

    trio.run(wait, clock=autojumping_clock())
    assert jumps == [(0, 5.0)]


def test_the_jumps_of_trio_s_clock_still_add_up_in_its_current_time() -> None:
    """If this fails after an upgrade of Trio: have `testing.simulation.autojumping_clock` return the clock as it is."""
    clock = autojumping_clock()
    clock.jump(2.5)
    clock.jump(0.5)
    assert clock.current_time() == 3.0


def test_a_timer_that_fails_ends_the_simulation() -> None:
    def fail() -> None:
        raise ValueError("the timer's own bug")

    async def scenario(simulation: Simulation) -> None:
        simulation.timers.call_at(2.0, fail)
        await simulation.sleep(3)

    with pytest.raises(SimulationFailed, match="the timer's own bug"):
        simulate(1, scenario)


def test_the_same_seed_gives_the_same_trace_in_processes_with_different_hash_seeds_and_orders() -> None:
    assert_traces_repeat("echo_store", "faulty_hours", range(1, 7))


@pytest.mark.parametrize("scenario", ["hashed_hours", "remembering_hours"])
def test_a_trace_that_depends_on_hashes_or_on_earlier_simulations_is_found_with_its_seeds(scenario: str) -> None:
    with pytest.raises(AssertionError, match=r"seeds \[1, 2\] have another trace in another process"):
        assert_traces_repeat("echo_store", scenario, range(1, 3))


def test_tasks_run_in_an_order_drawn_by_the_seed() -> None:
    async def scenario(simulation: Simulation) -> list[int]:
        order: list[int] = []

        async def note(number: int) -> None:
            order.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(note, number)
        return order

    orders = [simulate(seed, scenario).result for seed in (1, 1, 2, 3)]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) > 1


def test_global_state_is_restored_after_a_simulation() -> None:
    core = trio._core._run
    before = (core._ALLOW_DETERMINISTIC_SCHEDULING, core._r.getstate())

    async def scenario(simulation: Simulation) -> None:
        await simulation.sleep(1)

    simulate(1, scenario)
    assert (core._ALLOW_DETERMINISTIC_SCHEDULING, core._r.getstate()) == before


def test_virtual_hours_take_no_real_time() -> None:
    async def scenario(simulation: Simulation) -> float:
        await simulation.sleep(3000)
        return simulation.clock.monotonic()

    outcome = simulate(1, scenario)
    assert outcome.result == 3000
    assert outcome.virtual_seconds == 3000


def test_an_error_of_a_node_fails_the_simulation_with_seed_and_trace() -> None:
    async def node(world: SimulatedWorld) -> None:
        await world.clock.sleep(2)
        raise ValueError("the node's own bug")

    async def scenario(simulation: Simulation) -> None:
        simulation.machine("broken").start(node)
        await simulation.sleep(10)

    with pytest.raises(SimulationFailed, match=r"(?s)broken#1 failed: ValueError.*seed 77.*2\.000000  FAILED"):
        simulate(77, scenario)


def test_an_error_of_the_scenario_keeps_its_type_and_names_the_seed() -> None:
    async def scenario(simulation: Simulation) -> None:
        raise LookupError("wrong")

    with pytest.raises(LookupError, match="wrong") as caught:
        simulate(78, scenario)
    assert "seed 78" in caught.value.__notes__[0]


def test_a_simulation_that_hangs_fails_after_its_time_limit() -> None:
    async def scenario(simulation: Simulation) -> None:
        await trio.sleep_forever()

    with pytest.raises(SimulationFailed, match="not over after 100"):
        simulate(1, scenario, virtual_seconds_max=100)


def test_a_killed_node_has_no_effect_any_more() -> None:
    async def scenario(simulation: Simulation) -> list[str]:
        tried: list[str] = []

        async def node(world: SimulatedWorld) -> None:
            try:
                await world.clock.sleep(100)
            finally:
                for name, call in (
                    ("disk", lambda: world.disk.write_file(Path("/last words"), b"")),
                    ("clock", world.clock.wall_ms),
                    ("random", lambda: world.random("x")),
                ):
                    try:
                        call()
                    except NodeKilled:
                        tried.append(name)
                await world.clock.sleep(1)

        machine = simulation.machine("victim")
        machine.start(node)
        await simulation.sleep(1)
        machine.kill()
        await simulation.sleep(1)
        assert not (simulation.folder / "victim" / "last words").exists()
        return tried

    assert simulate(1, scenario).result == ["disk", "clock", "random"]


def test_a_stopped_node_cleans_up_in_its_world() -> None:
    async def scenario(simulation: Simulation) -> bytes | None:
        async def node(world: SimulatedWorld) -> None:
            try:
                await world.clock.sleep(100)
            finally:
                world.disk.write_file(Path("/last-words"), b"bye")

        machine = simulation.machine("victim")
        machine.start(node)
        await simulation.sleep(1)
        await machine.stop()
        assert not machine.running
        return (simulation.folder / "victim" / "last-words").read_bytes()

    assert simulate(1, scenario).result == b"bye"


def test_sigterm_stops_a_node_that_handles_it_and_kills_one_that_does_not() -> None:
    async def scenario(simulation: Simulation) -> list[bool]:
        words: list[bool] = []

        async def listens(world: SimulatedWorld) -> None:
            await world.stop_requested.wait()
            await world.clock.sleep(2)
            words.append(True)

        async def does_not(world: SimulatedWorld) -> None:
            await world.clock.sleep(100)
            words.append(False)

        for number, node in enumerate((listens, does_not)):
            machine = simulation.machine(f"victim-{number}")
            machine.start(node)
            await simulation.sleep(1)
            machine.terminate()
            await simulation.sleep(3)
            assert not machine.running
        return words

    assert simulate(1, scenario).result == [True]


def test_a_restarted_node_draws_other_numbers_than_before() -> None:
    async def scenario(simulation: Simulation) -> list[float]:
        drawn: list[float] = []

        async def node(world: SimulatedWorld) -> None:
            drawn.append(world.random("ids").random())

        machine = simulation.machine("node")
        machine.start(node)
        await simulation.sleep(1)
        machine.start()
        await simulation.sleep(1)
        return drawn

    first, again = simulate(1, scenario).result, simulate(1, scenario).result
    assert first == again
    assert first[0] != first[1]


def test_wall_clocks_are_skewed_by_machine_and_monotonic_time_is_not() -> None:
    async def scenario(simulation: Simulation) -> list[int]:
        seen: list[int] = []

        async def node(world: SimulatedWorld) -> None:
            started, wall = world.clock.monotonic(), world.clock.wall_ms()
            simulation.machine("node").clock.skew_ms = -5000
            assert world.clock.monotonic() == started
            seen.append(world.clock.wall_ms() - wall)

        simulation.machine("node").start(node)
        await simulation.sleep(1)
        return seen

    assert simulate(1, scenario).result == [-5000]


def test_events_that_nodes_log_are_counted_and_traced() -> None:
    async def scenario(simulation: Simulation) -> None:
        async def node(world: SimulatedWorld) -> None:
            world.logger.bind(node=1).warning("segment repaired", path=object())

        simulation.machine("node").start(node)
        await simulation.sleep(1)

    outcome = simulate(1, scenario)
    outcome.coverage.assert_all_counted(["log/segment repaired"])
    assert any("warning: segment repaired" in line for line in outcome.trace)
    with pytest.raises(AssertionError, match="never seen: 0"):
        outcome.coverage.assert_all_counted(["never seen"])
