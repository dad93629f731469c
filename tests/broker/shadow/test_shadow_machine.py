"""A source and its shadow under faults that Hypothesis draws: brokers, bookies and clients in simulation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress

import pytest
import trio
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from gnomon.broker.shadow.image import SourceImage
from gnomon.log.entry import EntryHeader, Offset
from gnomon.runtime.world import Unreachable
from gnomon.testing.simulation.guided.machine_examples import check, found_by
from gnomon.testing.simulation.guided.state_machine import PAUSES, SimulatedStateMachine, Weather, weathers
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.log_checker import LogHistory, SendOutcome, check_log
from gnomon.testing.storms.kafka.log_clients import EARLIEST, LATEST, SimulatedConsumer, SimulatedProducer
from gnomon.testing.storms.kafka.storm_clients import DELETE_RECORDS_VERSION, create_topic, delete_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.testing.storms.shadows.shadow_checker import shadow_checker
from gnomon.testing.storms.shadows.shadow_clients import cast_shadow
from gnomon.wire.kafka.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

SOURCE, SHADOW = "orders", "copy"
CONFIGS = {"segment.bytes": "600", "retention.ms": "-1"}
REACHED = ["shadow/shown", "shadow/rolled", "shadow/claimed", "shadow/trimmed", "shadow/read", "machine/recast"]
WAIT_SECONDS = 20.0
LIVENESS_SECONDS = 90.0
STEPS = 30
EXAMPLES = 8


class ShadowMachine(SimulatedStateMachine):
    """A shadow shows only records of its source, under any changes of either, and finally shows all of them."""

    @initialize(weather=weathers, brokers=st.integers(1, 3), lease=st.sampled_from([3.0, 1.0]))
    def begin(self, weather: Weather, brokers: int, lease: float) -> None:
        self.start_simulation(weather)
        self.inside = ExitStack()
        self.inside.enter_context(shadow_checker(self.simulation))
        self.history, self.shown = LogHistory(), LogHistory()
        self.sent = self.readers = self.casts = 0
        self.start_offset = 0
        self.cluster = BrokerCluster(self.simulation, brokers, bookies=3, lease_seconds=lease, kafka={})
        self.guided.run(self.cluster.start)
        self.guided.run(self.prepare)
        ledgers = self.cluster.ledgers
        hosts = [*self.cluster.brokers.values(), *self.cluster.brokers.values(), *ledgers.bookies.values()]
        self.expose([*hosts, ledgers.metadata])

    async def prepare(self) -> None:
        async def make(client: WireCluster) -> None:
            await create_topic(client, SOURCE, CONFIGS)
            await cast_shadow(client, SOURCE, SHADOW)

        await self.cluster.run_client("maker", make)
        ready = trio.Event()

        async def write(client: WireCluster) -> None:
            self.producer = SimulatedProducer(client, SOURCE, {0: self.history}, name="producer", batch_records_max=3)
            ready.set()
            await self.producer.run()

        self.cluster.start_client("producer", write)
        await ready.wait()

    def client(self, name: str, work: Callable[[WireCluster], Awaitable[object]]) -> None:
        async def bounded(client: WireCluster) -> None:
            with trio.move_on_after(WAIT_SECONDS):
                await work(client)

        self.cluster.start_client(name, bounded)

    # --- the source ---

    @rule(count=st.integers(1, 8), pause=PAUSES)
    def produce(self, count: int, pause: float) -> None:
        for _ in range(count):
            self.sent += 1
            self.producer.send(b"record %d" % self.sent, 0)
        self.guided.sleep(pause)

    @rule(quarters=st.integers(1, 4), pause=PAUSES)
    def trim(self, quarters: int, pause: float) -> None:
        async def delete(client: WireCluster) -> None:
            with suppress(Unreachable):
                connection = await client.leader(SOURCE, 0)
                try:
                    await ask(SimulatedConsumer(client, SOURCE, 0, LogHistory(), name="trimmer"), connection)
                finally:
                    connection.close()

        async def ask(reader: SimulatedConsumer, connection: WireConnection) -> None:
            first, end = await reader.offset(connection, EARLIEST), await reader.offset(connection, LATEST)
            before = first + (end - first) * quarters // 4
            self.start_offset = max(self.start_offset, before)
            part = DeleteRecordsPartition(partition_index=0, offset=before)
            request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=SOURCE, partitions=[part])], timeout_ms=5000)
            await connection.request(request, DELETE_RECORDS_VERSION, DeleteRecordsResponse)

        self.readers += 1
        self.client(f"trimmer-{self.readers}", delete)
        self.guided.sleep(pause)

    # --- the shadow ---

    @rule(pause=PAUSES)
    def read(self, pause: float) -> None:
        self.readers += 1
        name = f"reader-{self.readers}"

        async def run(client: WireCluster) -> None:
            reader = SimulatedConsumer(client, SHADOW, 0, self.shown, name=name)
            reader.of_shadow = True
            await reader.run()

        self.client(name, run)
        self.guided.sleep(pause)

    @rule(pause=PAUSES, seconds=st.sampled_from([0.0, 0.3, 3.0]))
    def cast_another_and_delete_it(self, pause: float, seconds: float) -> None:
        self.casts += 1
        name = f"copy-{self.casts}"

        async def run(client: WireCluster) -> None:
            await cast_shadow(client, SOURCE, name)
            reader = SimulatedConsumer(client, name, 0, self.shown, name=f"reader of {name}")
            reader.of_shadow = True
            with trio.move_on_after(seconds):
                await reader.run()
            await delete_topic(client, name)
            self.simulation.coverage.count("machine/recast")

        self.client(f"caster-{self.casts}", run)
        self.guided.sleep(pause)

    # --- invariants ---

    @invariant()
    def what_was_shown_is_what_was_stored(self) -> None:
        stored = {send.offset: send.value for send in self.history.sends if send.outcome is SendOutcome.ACKNOWLEDGED}
        for name, polls in self.shown.polls.items():
            for offset, value in polls:
                assert stored.get(offset, value) == value, f"{name} was shown {value!r} at {offset}: {stored[offset]!r}"

    def judge(self) -> None:
        async def finish(client: WireCluster) -> bool:
            with trio.move_on_after(LIVENESS_SECONDS):
                await self.producer.flush()
                while True:
                    kept = await SimulatedConsumer(client, SOURCE, 0, self.history, name="kept").read_all()
                    shown = await SimulatedConsumer(client, SHADOW, 0, self.shown, name="shown").read_all()
                    if shown == kept:
                        self.history.final, self.shown.final = kept, shown
                        return True
                    await client.world.clock.sleep(0.5)
            return False

        finished = self.guided.run(self.cluster.run_client, "finisher", finish)
        assert finished, f"the shadow does not show its source within {LIVENESS_SECONDS} virtual seconds of health"
        self.history.log_start_offset = self.start_offset
        findings = [finding.text for finding in check_log(self.history)]
        assert not findings, "; ".join(findings)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            if hasattr(self, "inside"):
                self.inside.close()


def test_a_shadow_is_a_prefix_of_its_source_under_any_changes_and_faults() -> None:
    check(ShadowMachine, max_examples=EXAMPLES, steps=STEPS).assert_all_counted(REACHED)


def test_a_high_watermark_that_is_ahead_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    confirmed = SourceImage.confirmed

    def ahead(image: SourceImage, segment: Offset, header: EntryHeader) -> bool:
        return confirmed(image, segment, header._replace(next_offset=Offset(header.next_offset + 1)))

    monkeypatch.setattr(SourceImage, "confirmed", ahead)
    assert found_by(ShadowMachine, 40, STEPS)
