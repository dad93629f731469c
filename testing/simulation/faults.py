"""Faults, drawn per seed, and the nemesis that injects them.

storm = Storm(simulation, [broker_1, broker_2])   # machines whose nodes are running
await storm.rage(seconds=60)                      # safety phase: faults at random virtual times
storm.calm()                                      # all healed and started: the liveness phase begins

1. Every seed draws its own mix (swarm testing): some kinds of fault are absent, and each other kind has a rate of its
   own. The latencies of the network and the disks are drawn, too. Narrow mixes reach states that an even mix of
   everything hides.
2. Every injected fault is counted as `fault/<kind>`; see `coverage`.
3. A node that ends, for any reason, is started again after a random time; `calm` starts the rest.
4. A node that is asked to stop has to end within STOPPING_SECONDS of the calm.
5. A node may stop itself with an error only if a fault excuses it: a failed disk, or a start on a full one.

Bit flips are not part of a storm, because a single copy cannot survive them. `MachineDisk.flip_bit` injects one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import trio

from gnomon.testing.simulation.disk.simulated_disk import DiskConditions
from gnomon.testing.simulation.machine import Machine
from gnomon.testing.simulation.network.simulated_network import NetworkConditions
from gnomon.testing.simulation.simulation import Simulation

STARTING_SECONDS = 1.0
"""Time after its start in which a node may still need disk space to begin."""

STOPPING_SECONDS = 60.0
CALM_LATENCY_SECONDS = 0.01
"""Largest mean latency in the calm: clients that send one record after the other have to finish."""
CALM_SYNC_SECONDS = 0.002
"""Largest mean sync time in a gentle mix."""


class Fault(Enum):
    """The kinds of fault of a storm; `docs/simulation.md` has a table of their effects."""

    KILL = "kill"
    """SIGKILL: written data survives, peers see their streams end."""
    STOP = "stop"
    """SIGTERM: the node ends by itself; one that does not wait for `stop_requested` is killed."""
    POWER_LOSS = "power loss"
    """The disk falls back to its last sync, peers get no notice."""
    POWER_LOSS_OF_ALL = "power loss of all"
    """All victims lose their power at one instant."""
    RESET = "reset"
    """One stream of the machine is cut, with the bytes in flight."""
    CLOG = "clog"
    """A link holds all bytes, for up to 0.5 s, one way or both ways."""
    PARTITION = "partition"
    """A link holds all bytes, for up to 10 s, both ways."""
    ONE_WAY_PARTITION = "one-way partition"
    """A link holds all bytes of one direction, for up to 10 s."""
    SLOW_DISK = "slow disk"
    """Syncs take 0.05 s, 0.5 s or 3 s on average, for up to 5 s."""
    FULL_DISK = "full disk"
    """Commits fail with `DiskFull`, for up to 5 s, often for one commit only."""
    FAILED_DISK = "failed disk"
    """The next commit fails with `DiskFailed`, and all later ones of that process."""
    CLOCK_JUMP = "clock jump"
    """The wall clock is wrong by 0.1 s up to 30 min from now on."""

    @property
    def counter(self) -> str:
        """Its name among the counters."""
        return f"fault/{self.value}"


NARROW = (
    (Fault.KILL, Fault.POWER_LOSS, Fault.STOP, None),
    (Fault.SLOW_DISK, Fault.FULL_DISK, Fault.FAILED_DISK, None),
    (Fault.RESET, Fault.CLOG, None),
)
"""Combinations that most often reveal faults: a node that ends, with a bad disk, or with a bad link."""


@dataclass(frozen=True, slots=True)
class FaultMix:
    """The faults of one seed: how often each kind occurs, and the ordinary conditions."""

    seconds_between: dict[Fault, float]
    """Mean virtual seconds between two faults, by their kind; a kind that is missing does not occur."""
    network: NetworkConditions
    """The behaviour of all links."""
    disk: DiskConditions
    """The behaviour of the victims' disks: its sync time and early visibility are used."""

    @staticmethod
    def draw(stream: random.Random, kinds: Iterable[Fault] = Fault) -> FaultMix:
        """Draws a mix with at least one kind of fault.

        A narrow mix has at most one kind from each group of NARROW. Any other mix has each kind with an even chance.

        Args:
            stream: the random stream to draw from, such as `simulation.random("mix")`.
            kinds: the kinds that the mix may contain.
        """
        offered = list(kinds)
        if stream.random() < 0.4:
            chosen = [kind for kind in map(stream.choice, NARROW) if kind in offered]
        else:
            chosen = [kind for kind in offered if stream.random() < 0.5]
        chosen = chosen or [stream.choice(offered)]
        return FaultMix(
            {kind: 0.5 * 60 ** stream.random() for kind in chosen},
            NetworkConditions(
                latency_seconds_mean=stream.choice([0.0002, 0.001, 0.01, 0.1]),
                split_rate=stream.choice([0.0, 0.1, 0.6]),
                window_bytes=stream.choice([4096, 65_536, 1_048_576]),
            ),
            DiskConditions(
                sync_seconds_mean=stream.choice([0.0002, 0.002, 0.02]),
                visible_early_rate=stream.choice([0.0, 0.5, 1.0]),
            ),
        )

    def gentler(self, times: float) -> FaultMix:
        """The same with faults rarer by a factor, and with quick links and disks."""
        return FaultMix(
            {kind: times * seconds for kind, seconds in self.seconds_between.items()},
            replace(self.network, latency_seconds_mean=min(self.network.latency_seconds_mean, CALM_LATENCY_SECONDS)),
            replace(self.disk, sync_seconds_mean=min(self.disk.sync_seconds_mean, CALM_SYNC_SECONDS)),
        )


class Storm:
    """The nemesis of a simulation: injects random faults, and ends them.

    Args:
        simulation: the one that it affects.
        victims: machines that are running; links are cut between all machines of the simulation.
        kinds: the kinds that the mix may contain.
        mix: used instead of one drawn from the seed.
    """

    def __init__(
        self,
        simulation: Simulation,
        victims: Sequence[Machine],
        *,
        kinds: Iterable[Fault] = Fault,
        mix: FaultMix | None = None,
    ) -> None:
        self.random = simulation.random("faults")
        self.mix = mix or FaultMix.draw(self.random, kinds)
        self._simulation = simulation
        self._victims = list(victims)
        self._raging = False
        self._inject: dict[Fault, Callable[[Machine], None]] = {
            Fault.KILL: Machine.kill,
            Fault.STOP: Machine.terminate,
            Fault.POWER_LOSS: Machine.power_off,
            Fault.POWER_LOSS_OF_ALL: self._power_off_all,
            Fault.RESET: self._reset,
            Fault.CLOG: lambda machine: self._cut(machine, 0.5, both_ways=self.random.random() < 0.5),
            Fault.PARTITION: lambda machine: self._cut(machine, 10.0, both_ways=True),
            Fault.ONE_WAY_PARTITION: lambda machine: self._cut(machine, 10.0, both_ways=False),
            Fault.SLOW_DISK: self._slow_disk,
            Fault.FULL_DISK: self._fill_disk,
            Fault.FAILED_DISK: self._fail_disk,
            Fault.CLOCK_JUMP: self._jump_clock,
        }
        simulation.network.conditions = replace(self.mix.network)  # which changes; the mix may have other storms
        for victim in self._victims:
            everyday = self.mix.disk
            victim.disk.conditions.sync_seconds_mean = everyday.sync_seconds_mean
            victim.disk.conditions.visible_early_rate = everyday.visible_early_rate
        simulation.trace.add("faults: " + ", ".join(f"{k.value} per {s:.1f} s" for k, s in self._rates()))

    async def rage(self, seconds: float) -> None:
        """Injects faults for this many virtual seconds; victims that end are started again until `calm` is called."""
        self._raging = True
        for victim in self._victims:
            self._simulation.start_soon(self._keep_running, victim)
        kinds, between = zip(*self._rates(), strict=True)
        rates = [1 / seconds for seconds in between]
        end = self._simulation.clock.monotonic() + seconds
        while True:
            pause = self.random.expovariate(sum(rates))
            left = end - self._simulation.clock.monotonic()
            await self._simulation.sleep(min(pause, left))
            if pause >= left:
                return
            self.inject(self.random.choices(kinds, rates)[0], self.random.choice(self._victims))

    def inject(self, fault: Fault, machine: Machine) -> None:
        """Injects one fault now."""
        self._simulation.trace.add(f"fault: {fault.value} at {machine.name}")
        self._simulation.coverage.count(fault.counter)
        self._inject[fault](machine)

    def calm(self) -> None:
        """Ends all faults: links and disks heal, links are quick, clocks are right, every victim runs."""
        self._raging = False
        for victim in self._victims:
            if victim.process is not None and victim.process.may_stop:
                victim.kill()  # its disk failed, or was full at its start: it may be about to stop
        self._simulation.heal()
        network = self._simulation.network.conditions
        network.latency_seconds_mean = min(network.latency_seconds_mean, CALM_LATENCY_SECONDS)
        for victim in self._victims:
            if not victim.running:
                victim.start()
            elif _is_stopping(victim):
                self._simulation.start_soon(self._start_after_stop, victim)

    async def _start_after_stop(self, machine: Machine) -> None:
        process = machine.process
        assert process is not None
        with trio.move_on_after(STOPPING_SECONDS):
            await process.ended.wait()
            if not machine.running:  # the code that asked the node to stop may have started it again
                machine.start()
            return
        self._simulation.fail(
            f"{process.name} was asked to stop and still ran {STOPPING_SECONDS} s later", TimeoutError(process.name)
        )

    def _rates(self) -> list[tuple[Fault, float]]:
        return list(self.mix.seconds_between.items())

    async def _keep_running(self, machine: Machine) -> None:
        while self._raging:
            if machine.process is not None:
                await machine.process.ended.wait()
            await self._simulation.sleep(self.random.choice([0.01, 0.5, 8.0]) * self.random.random())
            if self._raging and not machine.running:
                machine.start()
                if machine.process is not None:
                    machine.process.may_stop = machine.disk.conditions.full or machine.disk.conditions.fail_next

    def _later(self, seconds: float, undo: Callable[[], None]) -> None:
        self._simulation.timers.call_at(self._simulation.clock.monotonic() + seconds, undo)

    def _power_off_all(self, machine: Machine) -> None:
        for victim in self._victims:
            victim.power_off()

    def _reset(self, machine: Machine) -> None:
        name = machine.name
        streams = [s for s in self._simulation.network.streams() if name in (s[0].machine_name, s[1].machine_name)]
        if streams:
            self._simulation.network.reset(self.random.choice(streams))

    def _cut(self, machine: Machine, seconds_max: float, *, both_ways: bool) -> None:
        others = [name for name in self._simulation.machines if name != machine.name]
        if not others:
            return
        ends = [machine.name, self.random.choice(others)]
        self.random.shuffle(ends)
        seconds = seconds_max * self.random.random()
        self._simulation.network.clog(ends[0], ends[1], seconds)
        if both_ways:
            self._simulation.network.clog(ends[1], ends[0], seconds)

    def _slow_disk(self, machine: Machine) -> None:
        conditions = machine.disk.conditions
        conditions.slowness = self.random.choice([0.05, 0.5, 3.0]) / conditions.sync_seconds_mean

        def undo() -> None:
            conditions.slowness = 1.0

        self._later(5 * self.random.random(), undo)

    def _fill_disk(self, machine: Machine) -> None:
        conditions = machine.disk.conditions
        conditions.full = True
        process = machine.process
        if process is not None and self._simulation.clock.monotonic() - process.started < STARTING_SECONDS:
            process.may_stop = True

        def undo() -> None:
            conditions.full = False

        # Often so short that one commit finds no space and the next one does.
        self._later(5 * self.random.random() ** 4, undo)

    def _fail_disk(self, machine: Machine) -> None:
        if machine.process is not None:
            machine.disk.conditions.fail_next = True
            machine.process.may_stop = True

    def _jump_clock(self, machine: Machine) -> None:
        # Less than the hour that Kafka allows for timestamps in the future.
        machine.clock.skew_ms = round(self.random.choice([-1, 1]) * 100 * 18_000 ** self.random.random())


def stand_still(simulation: Simulation, machine: Machine, seconds: float) -> None:
    """Pauses a machine's process for this many virtual seconds (SIGSTOP), as seen from outside.

    Nothing reaches the machine or leaves it, and its disk pauses. Its own timers run, so that it detects at once that
    it missed something, and not after it has continued for a while.

    Args:
        simulation: the simulation of the machine.
        machine: the machine; its streams to all other machines are held.
        seconds: virtual seconds until it continues.
    """
    for other in simulation.machines:
        if other != machine.name:
            simulation.network.clog(machine.name, other, seconds)
            simulation.network.clog(other, machine.name, seconds)
    until = simulation.clock.monotonic() + seconds
    machine.disk.conditions.still_until = max(until, machine.disk.conditions.still_until)


def _is_stopping(machine: Machine) -> bool:
    process = machine.process
    return process is not None and process.stop_requested is not None and process.stop_requested.is_set()
