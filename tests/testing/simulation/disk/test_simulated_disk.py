from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from gnomon.runtime.world import DirectoryTaken, DiskFailed, DiskFull, Durability, Environment
from gnomon.testing.simulation.machine import Machine
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation, simulate

PATH = Path("/data/store")


def open_store(world: SimulatedWorld, durability: Durability = Durability.SYNCED) -> Environment:
    return world.disk.open_environment(PATH, databases=["main"], map_bytes=2**26, durability=durability)


def put(environment: Environment, key: bytes, value: bytes) -> Callable[[Any], Any]:
    return lambda transaction: transaction.put(key, value, db=environment.databases["main"])


def content(environment: Environment) -> dict[bytes, bytes]:
    with environment.read() as transaction:
        return {bytes(k): bytes(v) for k, v in transaction.cursor(environment.databases["main"])}


async def run_node(machine: Machine, node: Callable[[SimulatedWorld], Awaitable[None]]) -> None:
    """Runs a node to its end."""
    machine.start(node)
    assert machine.process is not None
    await machine.process.ended.wait()


async def stored(machine: Machine) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}

    async def look(world: SimulatedWorld) -> None:
        found.update(content(open_store(world)))

    await run_node(machine, look)
    return found


def after_end(end: Callable[[Machine], None], seed: int, early: float, durability: Durability) -> set[bytes]:
    """The values stored after an acknowledged commit, one in progress, one queued after it, and the end."""

    async def scenario(simulation: Simulation) -> set[bytes]:
        machine = simulation.machine("node")
        machine.disk.conditions.visible_early_rate = early

        async def node(world: SimulatedWorld) -> None:
            environment = open_store(world, durability)
            await environment.commit(put(environment, b"acknowledged", b""))
            environment.submit(put(environment, b"under way", b""), lambda *_: None)
            machine.disk.conditions.slowness = 1000
            await world.clock.sleep(0.00001)
            environment.submit(put(environment, b"queued", b""), lambda *_: None)
            await trio.sleep_forever()

        machine.start(node)
        await simulation.sleep(0.15)
        end(machine)
        return set(await stored(machine))

    return simulate(seed, scenario).result


@pytest.mark.parametrize("early", [0.0, 1.0])
def test_power_loss_keeps_acknowledged_commits_and_draws_the_fate_of_one_in_progress(early: float) -> None:
    outcomes = [after_end(Machine.power_off, seed, early, Durability.SYNCED) for seed in range(12)]
    assert all(b"acknowledged" in outcome and b"queued" not in outcome for outcome in outcomes)
    assert {b"under way" in outcome for outcome in outcomes} == {True, False}


def test_a_kill_keeps_the_writes_of_lmdb() -> None:
    outcomes = [after_end(Machine.kill, seed, 1.0, Durability.SYNCED) for seed in range(6)]
    assert outcomes == [{b"acknowledged", b"under way"}] * 6


def test_an_unsynced_environment_survives_a_kill_but_no_power_loss() -> None:
    assert after_end(Machine.kill, 1, 1.0, Durability.NONE) == {b"acknowledged", b"under way"}
    assert after_end(Machine.power_off, 1, 1.0, Durability.NONE) == set()


@pytest.mark.parametrize("seed", range(4))
def test_power_loss_at_any_commit_leaves_a_whole_transaction(seed: int) -> None:
    """The image of a sync is two meta pages: shown on real LMDB with deletes, overflow pages and page reuse."""

    async def scenario(simulation: Simulation) -> int:
        machine, stream = simulation.machine("node"), simulation.random("model")
        states: list[dict[bytes, bytes]] = [{}]
        acknowledged = 0

        def change(environment: Environment, model: dict[bytes, bytes]) -> Callable[[Any], None]:
            changes = [
                (b"%03d" % stream.randrange(150), stream.randbytes(stream.choice([10, 700, 9000])))
                if stream.random() < 0.6
                else (b"%03d" % stream.randrange(150), None)
                for _ in range(stream.randint(1, 40))
            ]
            for key, value in changes:
                if value is None:
                    model.pop(key, None)
                else:
                    model[key] = value

            def operation(transaction: Any) -> None:
                for key, value in changes:
                    if value is None:
                        transaction.delete(key, db=environment.databases["main"])
                    else:
                        transaction.put(key, value, db=environment.databases["main"])

            return operation

        async def node(world: SimulatedWorld) -> None:
            nonlocal acknowledged
            environment = open_store(world)
            found = content(environment)
            assert found in states[acknowledged:], "neither the last acknowledged state nor the one under way"
            states[:] = [found]
            acknowledged = 0
            while True:
                model = dict(states[-1])
                operation = change(environment, model)
                states.append(model)
                await environment.commit(operation)
                acknowledged = len(states) - 1

        for _ in range(25):
            machine.start(node)
            await simulation.sleep(stream.random() * 0.03)
            machine.power_off()
            await simulation.sleep(0.001)
        return simulation.trace.count

    assert simulate(seed, scenario).result > 200


def test_operations_queued_during_a_commit_are_the_next_group_and_results_come_in_order() -> None:
    async def scenario(simulation: Simulation) -> tuple[list[int], int]:
        order: list[int] = []
        groups = 0

        async def node(world: SimulatedWorld) -> None:
            nonlocal groups
            environment = open_store(world)
            for number in range(50):
                key = b"%d" % number
                environment.submit(put(environment, key, key), lambda r, e, n=number: order.append(n))
                if number == 9:
                    await world.clock.sleep(0.0001)
            await environment.commit(put(environment, b"last", b""))
            groups = environment.counts.groups

        await run_node(simulation.machine("node"), node)
        return order, groups

    order, groups = simulate(1, scenario).result
    assert order == list(range(50))
    assert groups == 2


def test_closing_finishes_submitted_operations() -> None:
    async def scenario(simulation: Simulation) -> tuple[list[int], int]:
        done: list[int] = []

        async def node(world: SimulatedWorld) -> None:
            environment = open_store(world)
            for number in range(3):
                environment.submit(put(environment, b"%d" % number, b""), lambda r, e, n=number: done.append(n))
                await world.clock.sleep(0.00001)
            environment.close()
            assert done == [0, 1, 2]

        await run_node(simulation.machine("node"), node)
        return done, len(await stored(simulation.machine("node")))

    assert simulate(1, scenario).result == ([0, 1, 2], 3)


def test_a_full_disk_refuses_commits_for_a_while_and_allows_reads() -> None:
    async def scenario(simulation: Simulation) -> set[bytes]:
        machine = simulation.machine("node")

        async def node(world: SimulatedWorld) -> None:
            environment = open_store(world)
            await environment.commit(put(environment, b"before", b""))
            machine.disk.conditions.full = True
            with pytest.raises(DiskFull):
                await environment.commit(put(environment, b"during", b""))
            assert set(content(environment)) == {b"before"}
            machine.disk.conditions.full = False
            await environment.commit(put(environment, b"after", b""))

        await run_node(machine, node)
        return set(await stored(machine))

    assert simulate(1, scenario).result == {b"before", b"after"}


def test_a_failed_sync_closes_the_environment_and_leaves_the_group_in_doubt() -> None:
    async def scenario(simulation: Simulation) -> bool:
        machine = simulation.machine("node")

        async def node(world: SimulatedWorld) -> None:
            environment = open_store(world)
            machine.disk.conditions.fail_next = True
            with pytest.raises(DiskFailed):
                await environment.commit(put(environment, b"doubtful", b""))
            with pytest.raises(DiskFailed):
                await environment.commit(put(environment, b"later", b""))

        await run_node(machine, node)
        found = await stored(machine)
        assert b"later" not in found
        return b"doubtful" in found

    assert {simulate(seed, scenario).result for seed in range(12)} == {True, False}


def test_a_slow_disk_takes_longer() -> None:
    async def scenario(simulation: Simulation) -> list[float]:
        machine = simulation.machine("node")
        seconds: list[float] = []

        async def node(world: SimulatedWorld) -> None:
            environment = open_store(world)
            for slowness in (1.0, 500.0):
                machine.disk.conditions.slowness = slowness
                started = world.clock.monotonic()
                await environment.commit(put(environment, b"k", b""))
                seconds.append(world.clock.monotonic() - started)

        await run_node(machine, node)
        return seconds

    fast, slow = simulate(1, scenario).result
    assert fast < 0.02
    assert slow > 0.05


def test_a_flipped_bit_is_there_after_a_restart() -> None:
    async def scenario(simulation: Simulation) -> bytes:
        machine = simulation.machine("node")

        async def node(world: SimulatedWorld) -> None:
            environment = open_store(world)
            await environment.commit(put(environment, b"k", bytes(100)))
            assert machine.disk.flip_bit(PATH, "main") == b"k"
            assert content(environment)[b"k"] != bytes(100)
            await trio.sleep_forever()

        machine.start(node)
        await simulation.sleep(1)
        machine.power_off()
        return (await stored(machine))[b"k"]

    flipped = simulate(1, scenario).result
    assert sum(byte.bit_count() for byte in flipped) == 1


def test_a_directory_is_locked_once_and_is_free_after_a_kill() -> None:
    async def scenario(simulation: Simulation) -> int:
        starts = 0

        async def node(world: SimulatedWorld) -> None:
            nonlocal starts
            with world.disk.lock(Path("/data")):
                with pytest.raises(DirectoryTaken), world.disk.lock(Path("/data")):
                    pass
                starts += 1
                await trio.sleep_forever()

        machine = simulation.machine("node")
        for _ in range(2):
            machine.start(node)
            await simulation.sleep(1)
            machine.kill()
        return starts

    assert simulate(1, scenario).result == 2


def test_small_files_survive_a_restart() -> None:
    async def scenario(simulation: Simulation) -> list[bytes | None]:
        seen: list[bytes | None] = []

        async def node(world: SimulatedWorld) -> None:
            seen.append(world.disk.read_file(Path("/format")))
            world.disk.write_file(Path("/format"), b"1")
            await trio.sleep_forever()

        machine = simulation.machine("node")
        for _ in range(2):
            machine.start(node)
            await simulation.sleep(1)
            machine.power_off()
        return seen

    assert simulate(1, scenario).result == [None, b"1"]


@pytest.mark.parametrize("seed", range(5))
def test_a_paused_disk_ends_its_syncs_as_soon_as_it_resumes(seed: int) -> None:
    async def scenario(simulation: Simulation) -> float:
        machine = simulation.machine("node")
        machine.disk.conditions.still_until = 20.0
        ended: list[float] = []

        async def node(world: SimulatedWorld) -> None:
            environment = open_store(world)
            await environment.commit(put(environment, b"key", b""))
            ended.append(world.clock.monotonic())

        await run_node(machine, node)
        return ended[0]

    assert 20.0 <= simulate(seed, scenario).result < 20.01
