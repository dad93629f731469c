"""Measures latencies in the calm after a storm, on the brokers that the storm has left: grown pauses, stale routes.

    await Drill(simulation, roll).judge()

1. Links and disks are quick during the drill, and the only faults are those of the drill.
2. Each seed measures produce, fetches and a shadow, then one fault that it draws: the streams of the leader are reset,
   the leader is killed, or the metadata is away and the streams to it are reset later.
3. A measurement above its bound (`bounds`) is a finding; the largest of each kind are reported with the coverage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from gnomon.broker.placement.registration import BrokerRegistration
from gnomon.client.kafka.connection import PendingResponse
from gnomon.runtime.world import Unreachable
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.kafka.log_clients import FETCH_VERSION, PRODUCE_VERSION
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.testing.storms.latency.bounds import Latency
from gnomon.testing.storms.ledgers.ledger_cluster import METADATA
from gnomon.testing.storms.rest.roll import Roll
from gnomon.testing.storms.shadows.shadow_clients import cast_shadow
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from gnomon.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from gnomon.wire.kafka.records import Record, build_batch

KAFKA_PORT = 9092
DRILL = "drill"
SHADOW = "drill-shadow"
DRILL_SECONDS = 90.0
"""A drill that takes longer hangs."""
QUICK_SECONDS = 0.0005
"""The mean latency of messages and of syncs, beside their minimum."""
ROUNDS = 5
WARM_UP_SECONDS = 6.0
"""Replicators connect again after pauses of up to 5 s."""
POLL_SECONDS = 0.5
AWAY_SECONDS = 4.0
CALM_SECONDS = 5.0
RETRY_SECONDS = 0.01


class Drill:
    """One drill; `judge` runs it."""

    def __init__(self, simulation: Simulation, roll: Roll) -> None:
        self._simulation = simulation
        self._roll = roll
        self._stream = simulation.random("drill")

    async def judge(self) -> None:
        """Measures.

        Raises:
            AssertionError: a latency is above its bound, or the drill hangs.
        """
        simulation, machine = self._simulation, self._simulation.machine(DRILL)
        simulation.network.conditions.latency_seconds_mean = QUICK_SECONDS
        for each in simulation.machines.values():
            each.disk.conditions.sync_seconds_mean = QUICK_SECONDS
        findings: list[str] = []

        async def node(world: SimulatedWorld) -> None:
            bootstrap = [(name, KAFKA_PORT) for name in self._roll.brokers_known]
            findings.extend(await _DrillClient(world, self._roll, simulation, bootstrap).run(self._stream.random()))

        with trio.move_on_after(DRILL_SECONDS) as hanging:
            while not self._all_lead():
                await simulation.sleep(RETRY_SECONDS)
            machine.start(node)
            process = machine.process
            assert process is not None
            await process.ended.wait()
        assert not hanging.cancelled_caught, f"a drill of latencies is not over after {DRILL_SECONDS} s"
        assert not findings, "latency: " + "; ".join(findings)

    def _all_lead(self) -> bool:
        """Whether every broker serves and sees all others: until then leaders change."""
        known, serving = len(self._roll.brokers_known), self._roll.brokers()
        return len(serving) == known and all(
            len(each.serving.broker.placement.leadership.leading) == known for each in serving
        )


@dataclass(slots=True)
class _Waiting:
    """A fetch that waits, and the time of its answer."""

    connection: WireConnection
    answer: PendingResponse
    asked_at: float
    answered_at: float = 0.0


class _DrillClient:
    def __init__(
        self, world: SimulatedWorld, roll: Roll, simulation: Simulation, bootstrap: list[tuple[str, int]]
    ) -> None:
        self._clock = world.clock
        self._cluster = WireCluster(world, bootstrap, DRILL)
        self._roll = roll
        self._simulation = simulation
        self._produced = 0
        self._findings: list[str] = []

    async def run(self, drawn: float) -> list[str]:
        """Measures; `drawn` in [0, 1) chooses the fault. Returns the findings."""
        await create_topic(self._cluster, DRILL, {})
        await self._acknowledged()
        await cast_shadow(self._cluster, DRILL, SHADOW)
        await self._steady()
        faults: list[Callable[[], Awaitable[None]]] = [self._reconnect, self._fail_over]
        if METADATA in self._simulation.machines:
            faults.append(self._back_off)
        await faults[int(drawn * len(faults))]()
        return self._findings

    def _measured(self, latency: Latency, seconds: float) -> None:
        self._simulation.coverage.measure(latency.title, seconds)
        if abs(seconds) > latency.seconds_max:
            self._findings.append(f"{latency.title} took {seconds:.3f} s, at most {latency.seconds_max} s are allowed")

    # --- the calm ---

    async def _steady(self) -> None:
        source, reader = await self._leader(DRILL), await self._leader(DRILL)
        shadow = await self._leader(SHADOW)
        for number in range(2 * ROUNDS):
            if number == ROUNDS:
                await self._clock.sleep(WARM_UP_SECONDS)
            await self._round(source, reader, shadow, judged=number >= ROUNDS)
        for connection in (reader, shadow):
            waiting = await self._fetch(connection, DRILL if connection is reader else SHADOW, POLL_SECONDS)
            await self._answered(waiting)
            self._measured(Latency.POLL_END, waiting.answered_at - waiting.asked_at - POLL_SECONDS)
        for connection in (source, reader, shadow):
            connection.close()

    async def _round(
        self, source: WireConnection, reader: WireConnection, shadow: WireConnection, *, judged: bool
    ) -> None:
        """Produces one record while a fetch waits at the end of the log, and one at the end of its shadow."""
        waiting = [await self._fetch(reader, DRILL, 5.0), await self._fetch(shadow, SHADOW, 5.0)]
        await self._clock.sleep(0.05)
        began = self._clock.monotonic()
        async with trio.open_nursery() as nursery:
            for each in waiting:
                nursery.start_soon(self._answered, each)
            await self._produce(source)
            produced = self._clock.monotonic() - began
        if judged:
            self._measured(Latency.PRODUCE, produced)
            for latency, each in zip((Latency.WAKE, Latency.SHADOW), waiting, strict=True):
                self._measured(latency, each.answered_at - began)

    async def _fetch(self, connection: WireConnection, topic: str, wait_seconds: float) -> _Waiting:
        partition = FetchPartition(partition=0, fetch_offset=self._produced, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=round(wait_seconds * 1000),
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[FetchTopic(topic=topic, partitions=[partition])],
        )
        return _Waiting(connection, connection.send(request, FETCH_VERSION), self._clock.monotonic())

    async def _answered(self, waiting: _Waiting) -> None:
        answer = await waiting.connection.wait(waiting.answer)
        waiting.answered_at = self._clock.monotonic()
        assert isinstance(answer, FetchResponse)
        found = ErrorCode(answer.responses[0].partitions[0].error_code)
        assert found is ErrorCode.NONE, f"in the calm, a fetch is answered with {found.name}"

    async def _produce(self, connection: WireConnection) -> None:
        batch = build_batch([Record(0, value=b"drill")], base_timestamp=self._clock.wall_ms())
        topic = TopicProduceData(name=DRILL, partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
        answer = await connection.request(request, PRODUCE_VERSION, ProduceResponse)
        found = answer.responses[0].partition_responses[0]
        if found.error_code != ErrorCode.NONE:
            raise Unreachable(f"produce: {ErrorCode(found.error_code).name}")
        self._produced = found.base_offset + 1

    async def _leader(self, topic: str) -> WireConnection:
        while True:
            try:
                return await self._cluster.leader(topic, 0)
            except Unreachable:
                await self._clock.sleep(RETRY_SECONDS)

    async def _acknowledged(self) -> str:
        """Produces until a broker acknowledges; returns the name of its machine."""
        while True:
            connection = await self._leader(DRILL)
            try:
                await self._produce(connection)
                return connection.connection.peer.rpartition(":")[0]
            except Unreachable:
                await self._clock.sleep(RETRY_SECONDS)
            finally:
                connection.close()

    # --- faults ---

    async def _reconnect(self) -> None:
        leader = await self._acknowledged()
        began = self._clock.monotonic()
        self._reset(lambda ends: leader in ends)
        await self._acknowledged()
        self._measured(Latency.RECONNECT, self._clock.monotonic() - began)

    async def _fail_over(self) -> None:
        leader = await self._acknowledged()
        lease_seconds = self._lease_seconds(leader)
        machine = self._simulation.machine(leader)
        began = self._clock.monotonic()
        machine.kill()
        alone = len(self._roll.brokers_known) == 1
        if alone:
            machine.start()
        await self._acknowledged()
        self._measured(Latency.FAIL_OVER, max(0.0, self._clock.monotonic() - began - lease_seconds))
        if not alone:
            machine.start()

    def _lease_seconds(self, leader: str) -> float:
        """The lease of a broker, which outlives it; 0 for a standalone node."""
        serving = next(each.serving for each in self._roll.brokers() if each.machine.name == leader)
        membership = serving.membership
        return membership.me.lease_seconds if isinstance(membership, BrokerRegistration) else 0.0

    async def _back_off(self) -> None:
        machine = self._simulation.machine(METADATA)
        machine.kill()
        await self._clock.sleep(AWAY_SECONDS)
        machine.start()
        while not all(map(self._stream_of, self._roll.brokers_known)):
            await self._clock.sleep(RETRY_SECONDS)
        await self._clock.sleep(CALM_SECONDS)
        began, old = self._clock.monotonic(), list(map(self._stream_of, self._roll.brokers_known))
        self._reset(lambda ends: METADATA in ends)
        while any(self._stream_of(name) in (None, *old) for name in self._roll.brokers_known):
            await self._clock.sleep(RETRY_SECONDS)
        self._measured(Latency.BACK_OFF, self._clock.monotonic() - began)

    def _stream_of(self, broker: str) -> object:
        """The newest stream between a broker and the metadata, None without one."""
        ends = {broker, METADATA}
        streams = self._simulation.network.streams()
        return next((each[0] for each in reversed(streams) if {end.machine_name for end in each} == ends), None)

    def _reset(self, concerned: Callable[[set[str]], bool]) -> None:
        for stream in self._simulation.network.streams():
            if concerned({end.machine_name for end in stream}):
                self._simulation.network.reset(stream)
