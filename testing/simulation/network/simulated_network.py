"""The simulated network: streams in memory between machines, with latency, splits, partitions, resets and silence.

1. Bytes of one direction arrive once and in order; directions and streams are not ordered against each other.
2. Writes are copied; bytes beyond the window wait in the writer's backlog until the reader has read.
3. A blocked link (partition, clog) holds sent bytes until it heals, as TCP's retransmission does.
4. Bytes that a killed process has passed to its transport still arrive; then its peers see the end of the stream.
5. Lost power is silent: a random part of the bytes in flight from the machine arrives, and its peers get no notice.
   Bytes that they send to the dead process cause a reset once the machine is up again.

A machine is reached by its name; `localhost` and `127.0.0.1` are the machine itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import trio

from gnomon.runtime.timers import Timers
from gnomon.runtime.world import AcceptStream, AddressTaken, Unreachable
from gnomon.testing.simulation.network.simulated_stream import Pipe, SimulatedConnection
from gnomon.testing.simulation.process import SimulatedProcess
from gnomon.testing.simulation.trace import Trace

SYN_RETRY_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0)
_EVERYWHERE = ("", "0.0.0.0", "::")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_FIRST_EPHEMERAL_PORT = 49152


@dataclass(slots=True)
class NetworkConditions:
    """The behaviour of the network between healthy machines; each seed may draw its own."""

    latency_seconds_min: float = 0.0001
    """Seconds that each message takes at least."""
    latency_seconds_mean: float = 0.0005
    """Mean of the exponential distribution that is added to the minimum."""
    split_rate: float = 0.1
    """Share of writes that are cut into pieces that travel apart, and of deliveries that are split into several calls.
    """
    window_bytes: int = 64 * 1024
    """The bytes that one direction holds between its two ends."""


@dataclass(slots=True)
class _SimulatedHost:
    """A machine in the network."""

    powered: bool = False
    listeners: dict[int, SimulatedListener] = field(default_factory=dict)
    next_port: int = _FIRST_EPHEMERAL_PORT

    def free_port(self) -> int:
        while self.next_port in self.listeners:
            self.next_port += 1
        self.next_port += 1
        return self.next_port - 1


class SimulatedListener:
    """A `Listener`."""

    def __init__(self, network: SimulatedNetwork, host: str, port: int, accept: AcceptStream) -> None:
        self.host = host
        self.port = port
        self.network = network
        self.accept = accept

    def close(self) -> None:
        """See `Listener.close`."""
        self.network.process.check()
        self.network.fabric.forget(self)


class Fabric:
    """Every link between the machines of a simulation; faults act on it. Made with the simulation.

    Attributes:
        conditions: the behaviour of all links; may be changed at any time.
    """

    def __init__(self, timers: Timers, stream: random.Random, trace: Trace) -> None:
        self.timers = timers
        self.random = stream
        self.trace = trace
        self.conditions = NetworkConditions()
        self._hosts: dict[str, _SimulatedHost] = {}
        self._streams: list[tuple[SimulatedConnection, SimulatedConnection]] = []
        self._blocked: dict[tuple[str, str], int] = {}

    def latency_seconds(self) -> float:
        """Draws the time that one message takes."""
        conditions = self.conditions
        return conditions.latency_seconds_min + self.random.expovariate(1 / conditions.latency_seconds_mean)

    def host(self, machine: str) -> _SimulatedHost:
        """The machine's place in the network."""
        return self._hosts.setdefault(machine, _SimulatedHost())

    def blocked(self, source: str, target: str) -> bool:
        """Whether nothing passes from `source` to `target`."""
        return (source, target) in self._blocked

    def powered(self, machine: str) -> bool:
        """Whether the machine is up and could answer."""
        return self.host(machine).powered

    def block(self, source: str, target: str) -> None:
        """Blocks one direction between two machines, by name, until `unblock` was called as often as this."""
        key = (source, target)
        self._blocked[key] = self._blocked.get(key, 0) + 1
        self.trace.add(f"network  {source} -> {target} is cut")

    def unblock(self, source: str, target: str) -> None:
        """Undoes one `block`; held bytes are sent again."""
        key = (source, target)
        left = self._blocked.get(key, 0) - 1
        if left > 0:
            self._blocked[key] = left
        elif left == 0:
            del self._blocked[key]
            self.trace.add(f"network  {source} -> {target} is whole")
            self._resend(lambda pipe: pipe.source.machine_name == source and pipe.target.machine_name == target)

    def heal(self) -> None:
        """Undoes every block."""
        for source, target in list(self._blocked):
            self._blocked[source, target] = 1
            self.unblock(source, target)

    def clog(self, source: str, target: str, seconds: float) -> None:
        """Blocks one direction between two machines for this many virtual seconds."""
        self.block(source, target)
        self.timers.call_at(trio.current_time() + seconds, lambda: self.unblock(source, target))

    def streams(self) -> list[tuple[SimulatedConnection, SimulatedConnection]]:
        """Both ends of each open stream, oldest first."""
        self._streams = [pair for pair in self._streams if not (pair[0].gone and pair[1].gone)]
        return list(self._streams)

    def reset(self, stream: tuple[SimulatedConnection, SimulatedConnection]) -> None:
        """Cuts one of `streams()`: both ends see it closed, each after a latency, and bytes in flight are lost."""
        self.trace.add(f"network  reset {stream[0].name} <-> {stream[1].name}")
        for end in stream:
            end.outgoing.cut()
            end.reset_after(self.latency_seconds())

    def power_on(self, machine: str) -> None:
        """The machine answers again; bytes in flight to its dead processes meet a reset."""
        self.host(machine).powered = True
        self._resend(lambda pipe: pipe.target.machine_name == machine)

    def kill(self, process: SimulatedProcess, silent: bool) -> None:
        """The process is dead.

        Args:
            silent: by loss of the machine's power, so that its peers get no notice.
        """
        host = self.host(process.machine_name)
        host.listeners.clear()
        if silent:
            host.powered = False
        for stream in self.streams():
            for end in stream:
                if end.process is process and not end.gone:
                    end.die(silent)

    def connect(self, client: SimulatedNetwork, listener: SimulatedListener) -> SimulatedConnection:
        """Makes both ends of a stream; the listener's end gets its handler."""
        port = self.host(client.process.machine_name).free_port()
        here = SimulatedConnection(self, client.process, f"{listener.network.process.machine_name}:{listener.port}")
        there = SimulatedConnection(self, listener.network.process, f"{client.process.machine_name}:{port}")
        here.outgoing, here.incoming = Pipe(self, here, there), Pipe(self, there, here)
        there.outgoing, there.incoming = here.incoming, here.outgoing
        self._streams.append((here, there))
        there.start(listener.accept)
        return here

    def forget(self, listener: SimulatedListener) -> None:
        """The listener accepts no more streams."""
        listeners = self.host(listener.network.process.machine_name).listeners
        if listeners.get(listener.port) is listener:
            del listeners[listener.port]

    def _pipes(self) -> Iterator[Pipe]:
        for here, there in self.streams():
            yield here.outgoing
            yield there.outgoing

    def _resend(self, concerned: Callable[[Pipe], bool]) -> None:
        for pipe in self._pipes():
            if concerned(pipe):
                pipe.resend()
            if concerned(pipe.back):
                pipe.flush_later()


class SimulatedNetwork:
    """`Network` for one process."""

    def __init__(self, process: SimulatedProcess, fabric: Fabric) -> None:
        self.process = process
        self.fabric = fabric

    async def listen(self, host: str, port: int, accept: AcceptStream) -> SimulatedListener:
        """See `Network.listen`."""
        self.process.check()
        await trio.lowlevel.checkpoint()
        self.process.check()
        machine = self.process.machine_name
        if host not in (*_EVERYWHERE, *_LOOPBACK, machine):
            raise AddressTaken(f"cannot listen on {host}:{port}: give an address of this machine, such as {machine}")
        place = self.fabric.host(machine)
        port = port or place.free_port()
        if port in place.listeners:
            raise AddressTaken(f"cannot listen on {host}:{port}: address in use: choose another port")
        listener = SimulatedListener(self, host, port, accept)
        place.listeners[port] = listener
        self.fabric.trace.add(f"{self.process.name}  listens on {host or '*'}:{port}")
        return listener

    async def connect(self, host: str, port: int, accept: AcceptStream) -> SimulatedConnection:
        """See `Network.connect`; an address that never answers takes 31 s, as TCP's first attempts do."""
        self.process.check()
        here = self.process.machine_name
        there = here if host in _LOOPBACK else host
        fabric = self.fabric
        for retry_seconds in SYN_RETRY_SECONDS:
            await self._sleep(fabric.latency_seconds())
            if not (fabric.blocked(here, there) or fabric.blocked(there, here)) and fabric.powered(there):
                listener = fabric.host(there).listeners.get(port)
                if listener is None or (listener.host in _LOOPBACK and here != there):
                    await self._sleep(fabric.latency_seconds())
                    raise Unreachable(f"cannot connect to {host}:{port}: connection refused: is it running there?")
                return await self._finish(fabric.connect(self, listener), accept)
            await self._sleep(retry_seconds)
        raise Unreachable(f"cannot connect to {host}:{port}: timed out: is the machine up, and the network whole?")

    def call_soon(self, call: Callable[[], None]) -> None:
        """See `Network.call_soon`: at this very instant."""
        self.process.check()
        self.fabric.timers.call_at(trio.current_time(), lambda: self.process.call(call))

    async def _finish(self, connection: SimulatedConnection, accept: AcceptStream) -> SimulatedConnection:
        try:
            await self._sleep(self.fabric.latency_seconds())
        except BaseException:
            if not self.process.killed:
                connection.abort()
            raise
        connection.start(accept)
        return connection

    async def _sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.process.check()
