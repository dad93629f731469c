"""The embedded metadata store in the simulated world: killed, powered off, on a slow disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from gnomon.metadata.client import Compare, KeyValue, Put, Revision, WatchBatch
from gnomon.metadata.embedded import DATABASES, EmbeddedMetadata
from gnomon.runtime.world import Durability
from gnomon.testing.simulation.simulation import Simulation, simulate

SEEDS = range(30)
WRITERS = 6


class History:
    """The requests and observations of the writers, over all restarts of the store."""

    def __init__(self) -> None:
        self.attempts: set[bytes] = set()
        self.acknowledged: list[KeyValue] = []
        self.seen: set[KeyValue] = set()
        self.watched: list[WatchBatch] = []
        self.final: list[WatchBatch] = []

    async def write(self, metadata: EmbeddedMetadata, key: str) -> None:
        """Writes a key by compare-and-set in an endless loop; other writers write the same key."""
        while True:
            before = await metadata.get(key)
            if before is not None:
                self.seen.add(before)
            value = b"%d" % len(self.attempts)
            self.attempts.add(value)
            version = 0 if before is None else before.version
            result = await metadata.txn([Compare.version(key, version)], [Put(key, value)])
            if result.succeeded:
                after = result.results[0]
                assert isinstance(after, KeyValue)
                self.acknowledged.append(after)

    async def watch(self, metadata: EmbeddedMetadata) -> None:
        """Watches all keys; after a restart, continues at the last position."""
        start = self.watched[-1].revision + 1 if self.watched else 1
        async with metadata.watch("", Revision(start)) as watch:
            while True:
                self.watched.append(await anext(watch))

    def check(self) -> None:
        """Asserts that no answered or seen value is lost, no value is stored twice, and watches missed nothing."""
        assert [batch.revision for batch in self.final] == list(range(1, len(self.final) + 1))
        written = [event.current for batch in self.final for event in batch.events]
        assert None not in written
        present = {item for item in written if item is not None}
        assert present >= {*self.acknowledged, *self.seen}
        assert {item.value for item in present} <= self.attempts
        for key in "abc":
            versions = [item.version for item in written if item is not None and item.key == key]
            assert versions == list(range(1, len(versions) + 1))
        assert self.watched == self.final[: len(self.watched)]


async def opened(world: Any) -> EmbeddedMetadata:
    environment = world.disk.open_environment(
        Path("/data/metadata"), databases=DATABASES, map_bytes=1 << 26, durability=Durability.SYNCED
    )
    return await EmbeddedMetadata.open(world, environment)


@pytest.mark.parametrize("seed", SEEDS)
def test_kills_and_power_failures_lose_no_answered_or_seen_value(seed: int) -> None:
    history = History()

    async def writing(world: Any) -> None:
        metadata = await opened(world)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(metadata.run)
            nursery.start_soon(history.watch, metadata)
            for number in range(WRITERS):
                nursery.start_soon(history.write, metadata, "abc"[number % 3])

    async def reading(world: Any) -> None:
        metadata = await opened(world)
        last = (await metadata.range("")).revision
        async with metadata.watch("", Revision(1)) as watch:
            history.final = [await anext(watch) for _ in range(last)]

    async def scenario(simulation: Simulation) -> None:
        machine, faults = simulation.machine("store"), simulation.random("faults")
        for _ in range(5):
            machine.start(writing)
            machine.disk.conditions.slowness = faults.choice([1.0, 1.0, 10.0])
            await simulation.sleep(faults.uniform(0.001, 0.1))
            faults.choice([machine.kill, machine.power_off])()
        simulation.heal()
        machine.start(reading)
        await simulation.sleep(1)

    simulate(seed, scenario)
    assert history.acknowledged
    history.check()


def test_a_store_whose_device_fails_stops_its_node() -> None:
    async def node(world: Any) -> None:
        metadata = await opened(world)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(metadata.run)
            nursery.start_soon(History().write, metadata, "a")

    async def scenario(simulation: Simulation) -> bool:
        machine = simulation.machine("store")
        machine.start(node)
        await simulation.sleep(0.1)
        assert machine.process is not None
        machine.process.may_stop = True
        machine.disk.conditions.fail_next = True
        await simulation.sleep(1)
        return machine.running

    assert simulate(1, scenario).result is False
