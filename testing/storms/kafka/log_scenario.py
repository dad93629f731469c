"""The scenario of most sweeps: producers and consumers of a topic while a storm disturbs its brokers.

    scenario = LogScenario({"broker": run_broker}, [("broker", 9092)], kinds=set(Fault) - {Fault.CLOCK_JUMP})
    result = sweep(scenario, range(200))

Other clients may run beside them, each in half of the seeds (swarm testing): see `storm_clients`.

1. Safety: the log checker finds no anomaly, during the storm and after it.
2. Liveness: within `liveness_seconds` after the storm every send is acknowledged and the whole log is readable.
3. Clients run on machines of their own, which never fail; `Storm` decides the faults of the brokers.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import trio

from gnomon.testing.simulation.faults import Fault, FaultMix, Storm
from gnomon.testing.simulation.machine import Machine, Node
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.kafka.log_checker import LogHistory, check_log
from gnomon.testing.storms.kafka.log_clients import SimulatedConsumer, SimulatedProducer
from gnomon.testing.storms.kafka.storm_clients import StormClient, delete_records
from gnomon.testing.storms.kafka.wire_client import WireCluster


@dataclass(frozen=True, slots=True)
class LogScenario:
    """A scenario for `simulate` and `sweep`; returns the number of records in the log.

    Attributes:
        nodes: the brokers, by machine name.
        bootstrap: host (a machine name) and port of brokers.
        topic: created by the first client that asks for it.
        partitions: the most partitions of the topic that a seed uses; each has a consumer.
        producers: the number of producers; each writes to one of the partitions.
        together: whether the first producer writes to all partitions at once; that takes a single broker.
        sends: records of each producer, spread over `storm_seconds`.
        deletions: whether DeleteRecords moves the log's start in some of the seeds.
        beside: other clients by name; they end by themselves within the liveness phase.
        kinds: faults that the storm may draw.
        mix: replaces the mix of faults that each seed draws.
    """

    nodes: Mapping[str, Node]
    bootstrap: Sequence[tuple[str, int]]
    topic: str = "orders"
    partitions: int = 1
    producers: int = 2
    together: bool = True
    sends: int = 150
    deletions: bool = False
    beside: Mapping[str, StormClient] = field(default_factory=dict)
    storm_seconds: float = 20.0
    liveness_seconds: float = 60.0
    kinds: Iterable[Fault] = tuple(Fault)
    mix: FaultMix | None = None

    async def __call__(self, simulation: Simulation) -> int:
        """Runs the scenario once.

        Raises:
            AssertionError: the log checker found an anomaly, or the liveness phase took too long.
        """
        brokers = [simulation.machine(name) for name in self.nodes]
        for broker in brokers:
            broker.start(self.nodes[broker.name])
        stream = simulation.random("scenario")
        histories = [LogHistory() for _ in range(stream.randint(1, self.partitions))]
        writers = self._start_writers(simulation, histories, stream)
        for partition, history in enumerate(histories):
            reader = simulation.machine(f"consumer-{partition}")
            reader.start(self._consumer(partition, history, reader.name))
        storm = Storm(simulation, brokers, kinds=self.kinds, mix=self.mix)
        await storm.rage(self.storm_seconds)
        storm.calm()
        with trio.move_on_after(self.liveness_seconds) as liveness:
            for machine in writers:
                await _end_of(machine)
            for partition, history in enumerate(histories):
                machine = simulation.machine(f"final-{partition}")
                machine.start(self._final_reader(partition, history))
                await _end_of(machine)
        missing = sum(send.offset < 0 for history in histories for send in history.sends)
        assert not liveness.cancelled_caught, (
            f"{self.liveness_seconds} virtual seconds after the storm {missing} sends are open or the log is unreadable"
        )
        for partition, history in enumerate(histories):
            findings = check_log(history)
            assert not findings, f"{self.topic}-{partition}: " + "; ".join(
                f"{finding.anomaly.value}: {finding.text}" for finding in findings
            )
        return sum(len(history.final) for history in histories)

    def _start_writers(
        self, simulation: Simulation, histories: list[LogHistory], stream: random.Random
    ) -> list[Machine]:
        """Starts the clients that write or delete; all of them end by themselves."""
        nodes: dict[str, Node] = {}
        for number in range(self.producers):
            several = self.together and number == 0 and len(histories) > 1
            chosen = range(len(histories)) if several else [number % len(histories)]
            name = f"producer-{number}"
            nodes[name] = self._producer({partition: histories[partition] for partition in chosen}, name)
        beside = dict(self.beside)
        if self.deletions:
            beside["deletions"] = partial(delete_records, topic=self.topic, partition=0, history=histories[0])
        for name, client in beside.items():
            if stream.random() < 0.5:
                nodes[name] = self._beside(client, name)
        machines = []
        for name, node in nodes.items():
            machines.append(simulation.machine(name))
            machines[-1].start(node)
        return machines

    def _beside(self, client: StormClient, name: str) -> Node:
        async def node(world: SimulatedWorld) -> None:
            await client(WireCluster(world, self.bootstrap, name, auto_create=False), self.storm_seconds)

        return node

    def _producer(self, histories: Mapping[int, LogHistory], name: str) -> Node:
        async def node(world: SimulatedWorld) -> None:
            cluster = WireCluster(world, self.bootstrap, name)
            stream = world.random("pace")
            producer = SimulatedProducer(
                cluster,
                self.topic,
                histories,
                name=name,
                in_flight_max=stream.choice([1, 2, 5]),
                batch_records_max=stream.choice([1, 5, 50]),
                drains=stream.choice([False, True]),
            )
            partitions = list(histories)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(producer.run)
                for number in range(self.sends):
                    producer.send(f"{name}/{number}".encode(), stream.choice(partitions))
                    await world.clock.sleep(stream.expovariate(self.sends / self.storm_seconds))
                await producer.flush()
                nursery.cancel_scope.cancel()

        return node

    def _consumer(self, partition: int, history: LogHistory, name: str) -> Node:
        async def node(world: SimulatedWorld) -> None:
            cluster = WireCluster(world, self.bootstrap, name)
            await SimulatedConsumer(cluster, self.topic, partition, history, name=name).run()

        return node

    def _final_reader(self, partition: int, history: LogHistory) -> Node:
        async def node(world: SimulatedWorld) -> None:
            cluster = WireCluster(world, self.bootstrap, "final")
            reader = SimulatedConsumer(cluster, self.topic, partition, history, name="final")
            history.final = await reader.read_all()

        return node


async def _end_of(machine: Machine) -> None:
    if machine.process is not None:
        await machine.process.ended.wait()
