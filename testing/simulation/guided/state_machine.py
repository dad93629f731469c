"""Hypothesis state machines over a simulation: the rules of faults and of time, and the judgement at the end.

class Queues(SimulatedStateMachine):
    @initialize(weather=weathers)
    def begin(self, weather):
        self.start_simulation(weather)
        self.server = self.simulation.machine("server")
        self.server.start(node)
        self.expose([self.server])

    @rule(pause=PAUSES)
    def ask(self, pause):
        self.guided.start_soon(...)
        self.guided.sleep(pause)

    def judge(self):
        assert ...      # every machine is up again, every fault undone

1. Work that a rule starts continues in later rules. After a pause of zero the next rule begins before that work has
   ended.
2. Time passes by the pauses that Hypothesis draws, so that Hypothesis shrinks the pauses, too.
3. A stopped machine is started again after a random time, at the latest before the judgement.
4. An example that failed in a rule is not judged.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from gnomon.testing.simulation.disk.simulated_disk import DiskConditions
from gnomon.testing.simulation.faults import STARTING_SECONDS, FaultMix, Storm, stand_still
from gnomon.testing.simulation.guided.guided_simulation import GuidedSimulation
from gnomon.testing.simulation.machine import Machine
from gnomon.testing.simulation.network.simulated_network import NetworkConditions
from gnomon.testing.simulation.simulation import Simulation

PAUSES = st.sampled_from([0.0, 0.0005, 0.003, 0.03, 0.3, 2.0])
"""Virtual seconds that pass after a rule: shorter and longer than a message, a sync, a time-out."""
DOWN_SECONDS = st.sampled_from([0.0, 0.05, 1.0, 8.0])
"""Virtual seconds until a stopped machine is started again."""
_SECONDS = st.sampled_from([0.01, 0.3, 4.0, 15.0])
SLOW_SYNC_SECONDS = 0.5
_WHICH = st.integers(0, 11)


class Trouble(Enum):
    """The temporary faults of a machine, besides being off."""

    PAUSE = "pause"
    CUT = "partition"
    ONE_WAY_CUT = "one-way partition"
    RESET = "reset"
    SLOW_DISK = "slow disk"
    FULL_DISK = "full disk"


@dataclass(frozen=True)
class Weather:
    """The ordinary conditions of an example: its seed, and mean seconds of messages and syncs."""

    seed: int
    latency: float
    sync: float
    visible_early: float
    """See `DiskConditions.visible_early_rate`."""


weathers = st.builds(
    Weather,
    st.integers(0, 2**16),
    st.sampled_from([0.0005, 0.0002, 0.01, 0.1]),
    st.sampled_from([0.0002, 0.002, 0.02]),
    st.sampled_from([0.0, 0.5, 1.0]),
)


class SimulatedStateMachine(RuleBasedStateMachine):
    """The simulation of one example. Derived classes begin it, have rules of their own, and `judge`."""

    guided: GuidedSimulation
    weather: Weather
    victims: list[Machine]
    """Machines that faults may affect."""
    ended: Callable[[SimulatedStateMachine, bool], None]
    """Called at the end of the example, with whether it failed."""

    def start_simulation(self, weather: Weather) -> None:
        """Called first in the derived class's rule that initializes."""
        self.weather = weather
        self.guided = GuidedSimulation(weather.seed)

    def expose(self, victims: Sequence[Machine]) -> None:
        """Lets faults affect these machines, which are running."""
        self.victims = list(victims)
        disk = DiskConditions(sync_seconds_mean=self.weather.sync, visible_early_rate=self.weather.visible_early)
        mix = FaultMix({}, NetworkConditions(latency_seconds_mean=self.weather.latency), disk)
        self._storm = Storm(self.simulation, self.victims, mix=mix)

    def judge(self) -> None:
        """Fails if the final state is wrong; it may take steps."""
        raise NotImplementedError  # `abstractmethod` needs a metaclass that conflicts with Hypothesis' own

    @property
    def simulation(self) -> Simulation:
        """The simulation of this example."""
        return self.guided.simulation

    def victim(self, which: int) -> Machine:
        """One of the machines that faults may affect."""
        return self.victims[which % len(self.victims)]

    # --- time and faults ---

    @rule(seconds=_SECONDS)
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.guided.sleep(seconds)

    @rule(which=st.lists(_WHICH, min_size=1, max_size=3), power=st.booleans(), down=DOWN_SECONDS, pause=PAUSES)
    def stop_machines(self, which: list[int], power: bool, down: float, pause: float) -> None:
        """Kills processes, or cuts the power of machines, at the same time; they come back."""
        for machine in dict.fromkeys(map(self.victim, which)):
            self._note("power loss" if power else "kill", machine)
            if power:
                machine.power_off()
            else:
                machine.kill()
            self.guided.start_soon(self._start_again, machine, down)
        self.guided.sleep(pause)

    @rule(what=st.sampled_from(Trouble), which=_WHICH, other=_WHICH, seconds=_SECONDS)
    def trouble(self, what: Trouble, which: int, other: int, seconds: float) -> None:
        """Gives a machine a fault for a while."""
        machine = self.victim(which)
        self._note(what.value, machine)
        match what:
            case Trouble.PAUSE:
                stand_still(self.simulation, machine, seconds)
            case Trouble.CUT | Trouble.ONE_WAY_CUT:
                self._cut(machine, other, seconds, both_ways=what is Trouble.CUT)
            case Trouble.RESET:
                self._reset(machine)
            case Trouble.SLOW_DISK:
                self._slow(machine, seconds)
            case Trouble.FULL_DISK:
                self._fill(machine, seconds)

    def _cut(self, machine: Machine, other: int, seconds: float, *, both_ways: bool) -> None:
        names = [name for name in self.simulation.machines if name != machine.name]
        if not names:
            return
        peer = names[other % len(names)]
        self.simulation.network.clog(machine.name, peer, seconds)
        if both_ways:
            self.simulation.network.clog(peer, machine.name, seconds)

    def _reset(self, machine: Machine) -> None:
        for stream in self.simulation.network.streams():
            if machine.name in (stream[0].machine_name, stream[1].machine_name):
                self.simulation.network.reset(stream)

    def _slow(self, machine: Machine, seconds: float) -> None:
        conditions = machine.disk.conditions
        conditions.slowness = SLOW_SYNC_SECONDS / conditions.sync_seconds_mean

        def undo() -> None:
            conditions.slowness = 1.0

        self._later(seconds, undo)

    def _fill(self, machine: Machine, seconds: float) -> None:
        conditions, process = machine.disk.conditions, machine.process
        conditions.full = True
        if process is not None and self.simulation.clock.monotonic() - process.started < STARTING_SECONDS:
            process.may_stop = True

        def undo() -> None:
            conditions.full = False

        self._later(seconds, undo)

    def start(self, machine: Machine) -> None:
        """Starts a machine that is off; a full disk excuses a node that stops itself."""
        if not machine.running:
            machine.start()
            if machine.process is not None:
                machine.process.may_stop = machine.disk.conditions.full

    async def _start_again(self, machine: Machine, seconds: float) -> None:
        await self.simulation.sleep(seconds)
        self.start(machine)

    def _later(self, seconds: float, undo: Callable[[], None]) -> None:
        self.simulation.timers.call_at(self.simulation.clock.monotonic() + seconds, undo)

    def _note(self, fault: str, machine: Machine) -> None:
        self.simulation.trace.add(f"fault: {fault} at {machine.name}")
        self.simulation.coverage.count(f"fault/{fault}")

    # --- the end ---

    def teardown(self) -> None:
        """Ends the example, and judges it unless it has failed."""
        if not hasattr(self, "guided"):
            return
        ended_by = sys.exc_info()[1]  # not always an error: Hypothesis may have seen enough
        failed = isinstance(ended_by, Exception)
        try:
            with self.guided:
                if ended_by is None:
                    failed = True
                    self._storm.calm()
                    self.judge()
                    failed = False
        finally:
            self.ended(self, failed)
