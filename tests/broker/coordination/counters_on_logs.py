"""The counters of one broker, over logs in memory and on virtual time."""

from __future__ import annotations

import trio
import trio.testing
from counter import Add, Counters, Read
from memory_logs import MemoryLogs, VirtualWorld

from gnomon.broker.coordination.hosted_machines import HostedMachines
from gnomon.runtime.logs import SilentLogger
from gnomon.runtime.timers import Timers


class Answers(list):
    """The answers of one request: (total, refusal)."""

    def answered(self, *answer):
        self.append(answer)

    def refused(self, refusal):
        self.append((0, refusal))


class CounterBroker:
    """A broker of counters; a request returns its `Answers`, which are empty at first."""

    def __init__(self, nursery, loads_unasked):
        self.nursery = nursery
        self.logs = MemoryLogs(nursery)
        self.loads_unasked = loads_unasked
        self.leads = self.lease_lives = True
        self.announced = []

    async def start(self):
        """Starts, or starts again on the same logs."""
        clock = VirtualWorld().clock
        timers = Timers(clock)
        self.machines = HostedMachines(
            self.logs,
            Counters,
            self.announced.append,
            lambda partition: self.leads,
            lambda: self.lease_lives,
            clock,
            timers,
            SilentLogger(),
            loads_unasked=self.loads_unasked,
        )
        self.nursery.start_soon(timers.run)
        await self.nursery.start(self.machines.run)

    def add(self, number, name="c"):
        answers = Answers()
        self.machines.submit(0, Add(name, number, answers.answered), answers.refused)
        return answers

    def read(self, name="c", **more):
        answers = Answers()
        self.machines.submit_confirmed(0, Read(name, answers.answered, **more), answers.refused)
        return answers

    async def total(self, name="c"):
        answers = self.read(name)
        await trio.sleep(0.1)
        ((total, refusal),) = answers
        assert refusal is None
        return total

    @property
    def log(self):
        return self.logs.log(0)


def serve(scenario, loads_unasked=False):
    """Runs `scenario(broker)` on virtual time."""

    async def main():
        async with trio.open_nursery() as nursery:
            broker = CounterBroker(nursery, loads_unasked)
            await broker.start()
            await scenario(broker)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
