"""A toy node for the harness's own tests: stores what it receives, then echoes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import trio

from gnomon.runtime.world import Connection, Durability, Environment, Unreachable, WorldError
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation

PATH = Path("/data/store")


def open_store(world: SimulatedWorld, durability: Durability = Durability.SYNCED) -> Environment:
    return world.disk.open_environment(PATH, databases=["main"], map_bytes=2**26, durability=durability)


class Collector:
    """A handler that passes on the received bytes."""

    def __init__(
        self, connection: Connection, take: Callable[[Connection, bytes], None], buffer_bytes: int = 64
    ) -> None:
        self.connection = connection
        self.take = take
        self.buffer = memoryview(bytearray(buffer_bytes))
        self.events: list[str] = []

    def receive_buffer(self) -> memoryview:
        return self.buffer

    def received(self, count: int) -> None:
        self.take(self.connection, bytes(self.buffer[:count]))

    def drained(self) -> None:
        self.events.append("drained")

    def closed(self) -> None:
        self.events.append("closed")


async def echo_store(world: SimulatedWorld) -> None:
    environment = open_store(world)

    def take(connection: Connection, data: bytes) -> None:
        def done(result: object, error: WorldError | None) -> None:
            if error is None:
                connection.write([data])

        environment.submit(lambda t: t.put(data, data, db=environment.databases["main"]), done)

    await world.network.listen("", 9, lambda connection: Collector(connection, take))
    await trio.sleep_forever()


async def chatter(world: SimulatedWorld) -> None:
    stream = world.random("what to say")
    while True:
        try:
            connection = await world.network.connect("store", 9, lambda stream: Collector(stream, lambda *_: None))
        except Unreachable:
            await world.clock.sleep(0.5)
            continue
        for _ in range(stream.randint(1, 30)):
            connection.write([stream.randbytes(stream.randint(1, 200))])
            await world.clock.sleep(stream.expovariate(100))
        connection.close()


async def faulty_hours(simulation: Simulation) -> None:
    store = simulation.machine("store")
    store.start(echo_store)
    for number in range(3):
        simulation.machine(f"client-{number}").start(chatter)
    stream = simulation.random("faults")
    for _ in range(6):
        await simulation.sleep(stream.random())
        stream.choice([store.kill, store.power_off])()
        await simulation.sleep(stream.random())
        store.start()


async def hashed_hours(simulation: Simulation) -> None:
    """A forbidden scenario: the hash of a string reaches the trace."""
    simulation.machine(f"store-{hash('store')}").start(echo_store)
    await simulation.sleep(1)


_RUNS: list[int | str] = []


async def remembering_hours(simulation: Simulation) -> None:
    """A forbidden scenario: what a simulation leaves behind reaches the trace of the next one."""
    _RUNS.append(simulation.seed)
    simulation.machine(f"store-{len(_RUNS)}").start(echo_store)
    await simulation.sleep(1)
