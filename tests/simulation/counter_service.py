"""Counters in the brokers of a simulated cluster: a tenant of the coordination runtime, served over RPC."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import trio

from gnomon.broker.coordination.hosted_machines import HostedMachines
from gnomon.broker.coordination.state_machine import Refusal
from gnomon.broker.node import ServingBroker
from gnomon.broker.state_logs import PartitionStateLogs
from gnomon.log.topic import Topic
from gnomon.runtime.rpc.call import Call
from gnomon.runtime.rpc.errors import ErrorTable
from gnomon.runtime.rpc.server import RpcServer
from gnomon.testing.simulation.simulated_world import SimulatedWorld

sys.path.insert(0, str(Path(__file__).parents[1] / "broker" / "coordination"))  # other processes import this too

from counter import Add, Announce, Answered, Counters, Read

TOPIC = "counters"
PARTITIONS = 2
PORT = 7777
SERVICE = "counters"
LOOK_SECONDS = 0.02


class Refused(Exception):
    """A counter gives no answer; an addition may have taken effect."""


ERRORS = ErrorTable({Refused: ()})
Announced = Callable[[Announce], None]


def partition_of(name: str) -> int:
    """The partition of a counter."""
    return crc32(name.encode()) % PARTITIONS


class CounterService:
    """The counters of one broker; `announced` gets the effects; `unasked` is called for effects before any request."""

    def __init__(
        self,
        world: SimulatedWorld,
        serving: ServingBroker,
        nursery: trio.Nursery,
        announced: Announced,
        unasked: Callable[[], None],
    ) -> None:
        self._broker = serving.broker
        self._world = world
        self._announced = announced
        self._unasked = unasked
        self._asked = False
        logs = PartitionStateLogs(
            self._topic,
            lambda: self._broker.topics.image.get(TOPIC),
            self._broker.partitions.use,
            self._broker.placement.check_lease,
            self._broker.storage.metadata,
            world.clock,
            self._broker.timers,
            nursery,
            world.logger,
        )
        self.machines = HostedMachines(
            logs,
            Counters,
            self._execute,
            self._leads,
            self._broker.placement.lease_lives,
            world.clock,
            self._broker.timers,
            world.logger.bind(machine="counters"),
            loads_unasked=True,
        )

    async def follow_leaders(self) -> None:
        """Notifies the machines of each change of leaders, within LOOK_SECONDS; nobody leads a deleted topic."""
        known = None
        while True:
            now = (self._broker.placement.leadership, self._broker.topics.image.get(TOPIC))
            if now != known:
                known = now
                self.machines.leaders_changed()
            await self._world.clock.sleep(LOOK_SECONDS)

    def add(self, call: Call) -> None:
        """Adds a number, given as text, to the counter of a name."""
        name, number = call.args
        self._asked = True
        request = Add(name, int(number), self._answer(call))
        self.machines.submit(partition_of(name), request, lambda refusal: call.fail(Refused(refusal.value)))

    def read(self, call: Call) -> None:
        """Answers with a counter's total, as text; `seen` and `seconds` as in `Read`."""
        name, seen, seconds = call.args
        self._asked = True
        request = Read(name, self._answer(call), int(seen), seconds)
        self.machines.submit_confirmed(partition_of(name), request, lambda refusal: call.fail(Refused(refusal.value)))

    def _answer(self, call: Call) -> Answered:
        def answered(total: int, refusal: Refusal | None) -> None:
            if refusal is None:
                call.reply(str(total))
            else:
                call.fail(Refused(refusal.value))

        return answered

    def _execute(self, effect: Announce) -> None:
        if not self._asked:
            self._unasked()
        self._announced(effect)

    async def _topic(self) -> Topic:
        return self._broker.topics.find(TOPIC)

    def _leads(self, partition: int) -> bool:
        topic = self._broker.topics.image.get(TOPIC)
        return topic is not None and self._broker.placement.leads(topic, partition)


async def serve_counters(
    world: SimulatedWorld, serving: ServingBroker, *, announced: Announced, unasked: Callable[[], None]
) -> None:
    """Serves until it is cancelled; drains when the broker is asked to stop."""
    async with trio.open_nursery() as nursery:
        service = CounterService(world, serving, nursery, announced, unasked)
        await nursery.start(service.machines.run)
        nursery.start_soon(service.follow_leaders)
        server = RpcServer(world, SERVICE, {"add": service.add, "read": service.read}, ERRORS, world.logger)
        await server.listen("", PORT)
        nursery.start_soon(server.run)
        await world.stop_requested.wait()
        service.machines.drain()
