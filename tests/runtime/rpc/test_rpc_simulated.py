"""RPC in the simulated world: kills, resets, lost power, links that are cut one way or clogged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import pytest
import trio

from gnomon.runtime.rpc.call import Call, in_task
from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.rpc.errors import ErrorTable, NotSent
from gnomon.runtime.rpc.server import RpcServer
from gnomon.runtime.world import Unreachable
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation, SimulationOutcome, simulate

T = TypeVar("T")
SEEDS = range(12)
PORT = 7
ERRORS = ErrorTable({})
CLIENTS = ("client-1", "client-2")


class Cluster:
    """One server, and the outcomes that its clients received; both outlive the processes."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.server = simulation.machine("server")
        self.executed: dict[str, int] = {}
        self.told: dict[str, list[Exception | None]] = {}
        self.cancelled: list[tuple[str, float]] = []
        self.asked = 0

    async def serve(self, world: SimulatedWorld) -> None:
        async with trio.open_nursery() as nursery:

            def add(call: Call) -> None:
                (name,) = call.args
                self.executed[name] = self.executed.get(name, 0) + 1
                call.reply(name, call.attachment)

            async def late(call: Call) -> str:
                (name,) = call.args
                await world.clock.sleep(0.05)
                self.executed[name] = self.executed.get(name, 0) + 1
                return str(name)

            async def count(call: Call) -> None:
                for number in range(1_000_000):
                    call.item(number)
                    await world.clock.sleep(0.1)
                    await call.room()

            def keep(call: Call) -> None:
                name = call.args[0]
                call.cancelled = lambda: self.cancelled.append((name, world.clock.monotonic()))

            methods: dict[str, Callable[[Call], None]] = {
                "add": add,
                "keep": keep,
                "late": in_task(nursery, late),
                "count": in_task(nursery, count),
            }
            server = RpcServer(world, "test", methods, ERRORS, world.logger, connection_bytes_max=80_000)
            await server.listen("", PORT)
            await server.run()

    async def ask(self, world: SimulatedWorld) -> None:
        """Makes calls for ever, several at a time, and records the outcomes of each."""
        stream = world.random("calls")
        async with trio.open_nursery() as nursery:
            client = RpcClient(world, "server", PORT, "test", ERRORS, call_seconds=3.0)
            nursery.start_soon(client.run)
            nursery.start_soon(self.follow, client, world)
            while True:
                for _ in range(stream.randint(1, 5)):
                    self.asked += 1
                    name = f"{self.asked}"
                    outcomes = self.told[name] = []
                    attachment = bytes(stream.choice([0, 10, 5_000, 40_000]))

                    def done(
                        value: Any,
                        view: memoryview,
                        error: Exception | None,
                        name: str = name,
                        size: int = len(attachment),
                        outcomes: list[Exception | None] = outcomes,
                    ) -> None:
                        assert error is not None or (value == name and len(view) in (0, size))
                        outcomes.append(error)

                    client.send(stream.choice(["add", "late"]), [name], attachment, done)
                    assert outcomes == []
                await world.clock.sleep(stream.expovariate(6))

    async def follow(self, client: RpcClient, world: SimulatedWorld) -> None:
        while True:
            try:
                async with client.stream("count") as items:
                    expected = 0
                    async for number in items:
                        assert number == expected
                        expected += 1
            except Unreachable:
                await world.clock.sleep(0.1)

    def check(self, fresh: int) -> None:
        """Checks that every call, except the newest ones, has exactly one outcome, and that it is true."""
        for name, outcomes in self.told.items():
            count = self.executed.get(name, 0)
            assert count <= 1, "executed twice"
            assert len(outcomes) == 1 or (not outcomes and int(name) > self.asked - fresh), (name, outcomes)
            if outcomes == [None]:
                assert count == 1
            elif outcomes and isinstance(outcomes[0], NotSent):
                assert count == 0


def run(scenario: Callable[[Simulation], Awaitable[T]], seed: int = 1) -> SimulationOutcome[T]:
    return simulate(seed, scenario)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_call_gets_exactly_one_true_outcome_under_faults(seed: int) -> None:
    async def scenario(simulation: Simulation) -> Cluster:
        cluster, faults = Cluster(simulation), simulation.random("faults")
        cluster.server.start(cluster.serve)
        clients = [simulation.machine(name) for name in CLIENTS]
        for client in clients:
            client.start(cluster.ask)
        for _ in range(12):
            await simulation.sleep(faults.uniform(0.1, 2))
            client = faults.choice(clients)
            way = faults.choice([("server", client.name), (client.name, "server")])
            match faults.randrange(5):
                case 0:
                    faults.choice([cluster.server.kill, cluster.server.power_off])()
                    await simulation.sleep(faults.uniform(0, 3))
                    cluster.server.start()
                case 1:
                    for stream in simulation.network.streams():
                        simulation.network.reset(stream)
                case 2:
                    simulation.network.block(*way)
                    await simulation.sleep(faults.uniform(0, 12))
                    simulation.network.unblock(*way)
                case 3:
                    simulation.network.clog(*way, faults.uniform(0, 4))
                case 4:
                    simulation.network.conditions.split_rate = faults.choice([0.1, 0.8])
        simulation.heal()
        await simulation.sleep(10)
        for client in clients:
            client.power_off()  # outcomes are not reported after this
        return cluster

    cluster = run(scenario, seed).result
    assert sum(outcomes == [None] for outcomes in cluster.told.values()) > 100
    # The calls of the last 3 s may be in flight at the end.
    cluster.check(fresh=200)
    healed = list(cluster.told.values())[-300:-200]
    assert all(outcomes == [None] for outcomes in healed)


def test_the_same_seed_gives_the_same_trace() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = Cluster(simulation)
        cluster.server.start(cluster.serve)
        simulation.machine("client-1").start(cluster.ask)
        await simulation.sleep(2)
        cluster.server.kill()
        cluster.server.start()
        await simulation.sleep(2)

    assert run(scenario).digest == run(scenario).digest


@pytest.mark.parametrize("how", ["power", "to the server", "to the client"])
def test_a_caller_detects_a_silent_peer_within_seconds(how: str) -> None:
    async def scenario(simulation: Simulation) -> tuple[float, str, str]:
        cluster = Cluster(simulation)
        cluster.server.start(cluster.serve)
        told: list[tuple[float, Exception | None]] = []
        streamed: list[str] = []

        async def ask(world: SimulatedWorld) -> None:
            async with trio.open_nursery() as nursery:
                client = RpcClient(world, "server", PORT, "test", ERRORS, call_seconds=1000.0)
                nursery.start_soon(client.run)
                nursery.start_soon(watch, client)
                client.send("keep", ["x"], b"", lambda *outcome: told.append((world.clock.monotonic(), outcome[2])))
                await trio.sleep_forever()

        async def watch(client: RpcClient) -> None:
            try:
                async with client.stream("keep", "watch") as items:
                    await anext(items)
            except Unreachable as error:
                streamed.append(str(error))

        simulation.machine("client").start(ask)
        await simulation.sleep(30)
        assert told == []  # the server answers pings
        begin = simulation.clock.monotonic()
        if how == "power":
            cluster.server.power_off()
        elif how == "to the server":
            simulation.network.block("client", "server")
        else:
            simulation.network.block("server", "client")
        await simulation.sleep(60)
        ((at, error),) = told
        return at - begin, f"{type(error).__name__}: {error}", streamed[0]

    seconds, error, streamed = run(scenario).result
    assert 3 < seconds < 9  # 6 s after its last message, which may be 2 s older than the fault
    assert error.startswith("Unreachable: test at server:7: nothing was received for 6 s: whether")
    assert streamed == error.removeprefix("Unreachable: ")


@pytest.mark.parametrize("how", ["kill", "power_off"])
def test_the_calls_of_a_dead_client_are_cancelled(how: str) -> None:
    async def scenario(simulation: Simulation) -> float:
        cluster = Cluster(simulation)
        cluster.server.start(cluster.serve)

        async def ask(world: SimulatedWorld) -> None:
            async with trio.open_nursery() as nursery:
                client = RpcClient(world, "server", PORT, "test", ERRORS, call_seconds=1000.0)
                nursery.start_soon(client.run)
                await client.call("keep", "x")

        simulation.machine("client").start(ask)
        await simulation.sleep(50)
        assert cluster.cancelled == []
        begin = simulation.clock.monotonic()
        getattr(simulation.machine("client"), how)()
        await simulation.sleep(60)
        ((_, at),) = cluster.cancelled
        return at - begin

    assert run(scenario).result < (0.1 if how == "kill" else 40)


def test_a_caller_that_gives_up_sooner_than_the_client_reconnects_reaches_a_server_that_starts() -> None:
    async def scenario(simulation: Simulation) -> float:
        cluster = Cluster(simulation)
        answered = trio.Event()

        async def ask(world: SimulatedWorld) -> None:
            async with trio.open_nursery() as nursery:
                client = RpcClient(world, "server", PORT, "test", ERRORS)
                nursery.start_soon(client.run)
                while not answered.is_set():
                    with trio.move_on_after(0.1), suppress(Unreachable):
                        await client.call("add", "x")
                        answered.set()
                    await world.clock.sleep(0.1)

        simulation.machine("client").start(ask)
        await simulation.sleep(30)
        cluster.server.start(cluster.serve)
        begin = simulation.clock.monotonic()
        await answered.wait()
        return simulation.clock.monotonic() - begin

    assert run(scenario).result < 3


def test_a_link_that_is_clogged_for_a_few_seconds_loses_no_call() -> None:
    async def scenario(simulation: Simulation) -> list[Any]:
        cluster = Cluster(simulation)
        cluster.server.start(cluster.serve)
        results: list[Any] = []

        async def ask(world: SimulatedWorld) -> None:
            async with trio.open_nursery() as nursery:
                client = RpcClient(world, "server", PORT, "test", ERRORS)
                nursery.start_soon(client.run)
                await client.call("add", "first")
                for link in (("client", "server"), ("server", "client")):
                    simulation.network.clog(*link, 4)
                    results.append(await client.exchange("add", link[0], attachment=bytes(300_000)))
                nursery.cancel_scope.cancel()

        machine = simulation.machine("client")
        machine.start(ask)
        await simulation.sleep(20)
        assert len(simulation.network.streams()) == 0
        return results

    assert run(scenario).result == [(name, bytes(300_000)) for name in ("client", "server")]
