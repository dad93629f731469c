from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import pytest
import trio

from gnomon.runtime.world import AddressTaken, Connection, Unreachable
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation, simulate

T = TypeVar("T")


class Ear:
    """A handler that keeps the received bytes; `echo` sends them back, `paused` starts without reading."""

    def __init__(self, connection: Connection, echo: bool = False, paused: bool = False) -> None:
        self.connection = connection
        self.echo = echo
        self.heard = b""
        self.counts: list[int] = []
        self.events: list[str] = []
        self.ended = trio.Event()
        self.buffer = memoryview(bytearray(1000))
        if paused:
            connection.pause_reading()

    def receive_buffer(self) -> memoryview:
        return self.buffer

    def received(self, count: int) -> None:
        self.heard += bytes(self.buffer[:count])
        self.counts.append(count)
        if self.echo:
            self.connection.write([self.buffer[:count]])

    def drained(self) -> None:
        self.events.append("drained")

    def closed(self) -> None:
        self.events.append("closed")
        self.ended.set()


class Pair:
    """Two machines and the bytes that they receive: `server` listens, `client` connects."""

    def __init__(self, simulation: Simulation, *, echo: bool = True, paused: bool = False) -> None:
        self.simulation = simulation
        self.echo = echo
        self.paused = paused
        self.ears: list[Ear] = []
        self.server = simulation.machine("server")
        self.client = simulation.machine("client")
        self.server.start(self.serve)

    async def serve(self, world: SimulatedWorld) -> None:
        await world.network.listen("", 9, self.accept)
        await trio.sleep_forever()

    def accept(self, connection: Connection) -> Ear:
        self.ears.append(Ear(connection, self.echo, self.paused))
        return self.ears[-1]

    async def talk(self, talk: Callable[[SimulatedWorld, Connection, Ear], Awaitable[None]]) -> None:
        """Runs `talk` on the client, connected, to its end."""

        async def node(world: SimulatedWorld) -> None:
            ears: list[Ear] = []

            def made(connection: Connection) -> Ear:
                ears.append(Ear(connection))
                return ears[0]

            await world.clock.sleep(0.01)
            connection = await world.network.connect("server", 9, made)
            await talk(world, connection, ears[0])

        self.client.start(node)
        assert self.client.process is not None
        await self.client.process.ended.wait()


def run(scenario: Callable[[Simulation], Awaitable[T]], seed: int = 1) -> T:
    return simulate(seed, scenario).result


def test_bytes_arrive_in_order_split_and_joined_after_a_latency() -> None:
    async def scenario(simulation: Simulation) -> tuple[bytes, bytes, list[int]]:
        simulation.network.conditions.split_rate = 0.5
        pair = Pair(simulation)
        sent = b"".join(b"%d " % number for number in range(2000))

        async def talk(world: SimulatedWorld, connection: Connection, ear: Ear) -> None:
            for start in range(0, len(sent), 500):
                connection.write([sent[start : start + 100], memoryview(sent)[start + 100 : start + 500]])
                assert ear.heard == b"" or start
                await world.clock.sleep(0.0002)
            await world.clock.sleep(1)
            assert ear.heard == sent

        await pair.talk(talk)
        return sent, pair.ears[0].heard, pair.ears[0].counts

    sent, heard, counts = run(scenario)
    assert heard == sent
    assert len(set(counts)) > 10
    assert 1000 in counts  # joined up to the buffer
    assert min(counts) < 100


def test_written_bytes_are_copied() -> None:
    async def scenario(simulation: Simulation) -> bytes:
        pair = Pair(simulation)

        async def talk(world: SimulatedWorld, connection: Connection, ear: Ear) -> None:
            buffer = bytearray(b"first")
            connection.write([buffer])
            buffer[:] = b"other"
            await world.clock.sleep(1)

        await pair.talk(talk)
        return pair.ears[0].heard

    assert run(scenario) == b"first"


def test_two_streams_are_not_ordered_against_each_other() -> None:
    order: list[bytes] = []

    class NotingEar(Ear):
        def received(self, count: int) -> None:
            super().received(count)
            order.append(bytes(self.buffer[:1]))

    class NotingPair(Pair):
        def accept(self, connection: Connection) -> Ear:
            return NotingEar(connection)

    async def scenario(simulation: Simulation) -> None:
        pair = NotingPair(simulation)

        async def talk(world: SimulatedWorld, connection: Connection, ear: Ear) -> None:
            other = await world.network.connect("server", 9, Ear)
            for number in range(20):
                connection.write([b"a%d" % number])
                other.write([b"b%d" % number])
                await world.clock.sleep(0.01)

        await pair.talk(talk)

    run(scenario)
    assert order[0::2] != [b"a"] * 20


def test_a_reader_that_pauses_fills_the_writers_backlog_and_drains_it_when_it_resumes() -> None:
    async def scenario(simulation: Simulation) -> tuple[int, list[str], int]:
        pair = Pair(simulation, echo=False, paused=True)
        backlog = 0
        events: list[str] = []

        async def talk(world: SimulatedWorld, connection: Connection, ear: Ear) -> None:
            nonlocal backlog
            connection.write([bytes(100_000)])
            await world.clock.sleep(1)
            backlog = connection.backlog_bytes
            pair.ears[0].connection.resume_reading()
            await world.clock.sleep(1)
            assert connection.backlog_bytes == 0
            events.extend(ear.events)

        await pair.talk(talk)
        return backlog, events, len(pair.ears[0].heard)

    assert run(scenario) == (100_000 - 65_536, ["drained"], 100_000)


def test_closing_sends_the_backlog_first_and_notifies_both_ends_once() -> None:
    async def scenario(simulation: Simulation) -> tuple[list[str], list[str], int]:
        pair = Pair(simulation, echo=False)
        events: list[str] = []

        async def talk(world: SimulatedWorld, connection: Connection, ear: Ear) -> None:
            connection.write([bytes(200_000)])
            connection.close()
            connection.write([b"too late"])
            connection.close()
            await ear.ended.wait()
            await world.clock.sleep(10)
            events.extend(ear.events)

        await pair.talk(talk)
        return events, pair.ears[0].events, len(pair.ears[0].heard)

    assert run(scenario) == (["closed"], ["closed"], 200_000)


def test_a_peer_that_never_reads_is_cut_off_five_seconds_after_the_close() -> None:
    async def scenario(simulation: Simulation) -> float:
        pair = Pair(simulation, echo=False, paused=True)
        seconds = 0.0

        async def talk(world: SimulatedWorld, connection: Connection, ear: Ear) -> None:
            nonlocal seconds
            connection.write([bytes(200_000)])
            started = world.clock.monotonic()
            connection.close()
            await ear.ended.wait()
            seconds = world.clock.monotonic() - started

        await pair.talk(talk)
        return seconds

    assert run(scenario) == pytest.approx(5.0)


def test_aborting_drops_the_backlog_and_ends_both() -> None:
    async def scenario(simulation: Simulation) -> tuple[list[str], int]:
        pair = Pair(simulation, echo=False)

        async def talk(world: SimulatedWorld, connection: Connection, ear: Ear) -> None:
            connection.write([bytes(200_000)])
            connection.abort()
            await ear.ended.wait()
            await world.clock.sleep(1)

        await pair.talk(talk)
        return pair.ears[0].events, len(pair.ears[0].heard)

    events, heard = run(scenario)
    assert events == ["closed"]
    assert heard <= 65_536


def test_a_connect_without_a_listener_is_refused_at_once_and_one_to_a_machine_without_power_times_out() -> None:
    async def scenario(simulation: Simulation) -> list[float]:
        pair = Pair(simulation)
        seconds: list[float] = []

        async def node(world: SimulatedWorld) -> None:
            for _ in range(2):
                started = world.clock.monotonic()
                with pytest.raises(Unreachable):
                    await world.network.connect("server", 10, Ear)
                seconds.append(world.clock.monotonic() - started)
                pair.server.power_off()

        simulation.machine("client").start(node)
        await simulation.sleep(60)
        return seconds

    refused, timed_out = run(scenario)
    assert refused < 0.1
    assert timed_out > 30


def test_addresses_are_taken_once_and_belong_to_a_machine() -> None:
    async def scenario(simulation: Simulation) -> int:
        async def node(world: SimulatedWorld) -> None:
            listener = await world.network.listen("node", 9, Ear)
            for host, port in (("node", 9), ("other", 8)):
                with pytest.raises(AddressTaken):
                    await world.network.listen(host, port, Ear)
            assert (await world.network.listen("", 0, Ear)).port not in (0, 9)
            listener.close()
            await world.network.listen("node", 9, Ear)
            loopback = await world.network.listen("127.0.0.1", 0, Ear)
            await world.network.connect("localhost", loopback.port, Ear)

        simulation.machine("node").start(node)
        await simulation.sleep(1)
        return simulation.trace.count

    assert run(scenario) > 0


def test_a_killed_process_ends_its_streams_after_the_bytes_that_it_had_sent() -> None:
    async def scenario(simulation: Simulation) -> tuple[bytes, list[str]]:
        pair = Pair(simulation)
        found: list[Ear] = []

        async def talk(world: SimulatedWorld, connection: Connection, ear: Ear) -> None:
            pair.ears[0].connection.write([b"last words"])
            pair.server.kill()
            await ear.ended.wait()
            found.append(ear)

        await pair.talk(talk)
        return found[0].heard, found[0].events

    assert run(scenario) == (b"last words", ["closed"])


def test_lost_power_is_silent_until_the_machine_is_up_and_written_to() -> None:
    async def scenario(simulation: Simulation) -> tuple[list[str], list[str], list[str]]:
        pair = Pair(simulation)
        seen: list[list[str]] = []

        async def talk(world: SimulatedWorld, connection: Connection, ear: Ear) -> None:
            pair.server.power_off()
            connection.write([b"anybody?"])
            await world.clock.sleep(100)
            seen.append(list(ear.events))
            pair.server.start()
            await world.clock.sleep(1)
            seen.append(list(ear.events))
            again = Ear(connection)
            await world.network.connect("server", 9, lambda c: again)
            seen.append(again.events)

        await pair.talk(talk)
        return seen[0], seen[1], seen[2]

    assert run(scenario) == ([], ["closed"], [])


def test_a_cut_link_holds_one_direction_until_it_heals() -> None:
    async def scenario(simulation: Simulation) -> list[bytes]:
        pair = Pair(simulation)
        seen: list[bytes] = []

        async def talk(world: SimulatedWorld, connection: Connection, ear: Ear) -> None:
            simulation.network.block("server", "client")
            connection.write([b"hello"])
            await world.clock.sleep(60)
            seen.extend((pair.ears[0].heard, ear.heard))
            simulation.network.unblock("server", "client")
            await world.clock.sleep(1)
            seen.append(ear.heard)

        await pair.talk(talk)
        return seen

    assert run(scenario) == [b"hello", b"", b"hello"]


def test_a_clogged_link_heals_by_itself_and_a_connect_waits_for_it() -> None:
    async def scenario(simulation: Simulation) -> float:
        pair = Pair(simulation)
        simulation.network.clog("client", "server", 10)
        await pair.talk(_say_nothing)
        return simulation.clock.monotonic()

    assert 10 < run(scenario) < 32


async def _say_nothing(world: SimulatedWorld, connection: Connection, ear: Ear) -> None:
    connection.close()


def test_a_reset_closes_both_ends_and_loses_the_bytes_in_flight() -> None:
    async def scenario(simulation: Simulation) -> tuple[list[str], list[str], bytes]:
        pair = Pair(simulation)
        events: list[str] = []

        async def talk(world: SimulatedWorld, connection: Connection, ear: Ear) -> None:
            connection.write([b"lost"])
            simulation.network.reset(simulation.network.streams()[0])
            while not ear.events:
                connection.write([b"not behind a gap either"])
                await world.clock.sleep(0.0001)
            await world.clock.sleep(1)
            events.extend(ear.events)

        await pair.talk(talk)
        return events, pair.ears[0].events, pair.ears[0].heard

    assert run(scenario) == (["closed"], ["closed"], b"")


def test_calls_soon_run_at_the_same_virtual_time_in_order_and_not_after_a_kill() -> None:
    async def scenario(simulation: Simulation) -> list[tuple[str, float]]:
        ran: list[tuple[str, float]] = []
        machine = simulation.machine("node")

        async def node(world: SimulatedWorld) -> None:
            def run_as(name: str) -> None:
                ran.append((name, world.clock.monotonic()))

            await world.clock.sleep(1)
            for name in ("first", "second"):
                world.network.call_soon(partial(run_as, name))
            assert ran == []
            await world.clock.sleep(1)
            world.network.call_soon(partial(run_as, "never"))
            machine.kill()

        machine.start(node)
        await simulation.sleep(10)
        return ran

    assert run(scenario) == [("first", 1.0), ("second", 1.0)]
