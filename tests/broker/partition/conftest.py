"""A partition on real stores of a simulated machine, which can be killed between two acts."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio

from gnomon.bookie.ledgers.catalog import EntryCache, LocalViews
from gnomon.bookie.storage.entry_store import ENTRIES
from gnomon.bookie.storage.removal import ENTRY_KEY
from gnomon.broker.partition.appends import Produced
from gnomon.broker.partition.chain import Chain
from gnomon.broker.partition.conditions.terms import Terms
from gnomon.broker.partition.leader_policy import LeaderPolicy
from gnomon.broker.partition.log import PartitionSettings
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.producers import AwaitedBatches
from gnomon.broker.partition.unpacking.batch_client import BatchClient, BrokerItself
from gnomon.broker.partition.unpacking.batch_thread import BatchThread
from gnomon.broker.stores import Stores, open_stores
from gnomon.log.chains import ledgers_prefix
from gnomon.log.entry import Offset
from gnomon.log.topic import topic_key
from gnomon.metadata.client import Put
from gnomon.runtime.logs import SilentLogger
from gnomon.runtime.settings.settings import Settings
from gnomon.testing.simulation.machine import Machine
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.metadata.counting_metadata import CountingMetadata
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.records import Record, build_batch, iterate_records

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside these tests: test folders are no packages

TOPIC_ID = UUID(int=7)

SOLE_LEADER = LeaderPolicy(tells_epochs=True, confirms_leadership=False)


class Appended(BrokerItself):
    """The outcome of one append, and its client."""

    def __init__(self) -> None:
        self.turn_key = self
        self.outcome: Produced | None = None
        self.settled = trio.Event()

    def client_of(self, slot: int) -> BatchClient:
        return self

    def appended(self, slot: int, outcome: Produced) -> None:
        assert self.outcome is None, "two outcomes for one append"
        self.outcome = outcome
        self.settled.set()

    async def wait(self) -> Produced:
        with trio.fail_after(60):
            await self.settled.wait()
        assert self.outcome is not None
        return self.outcome


class Recorder(SilentLogger):
    """Keeps the events that are logged as errors, and those that are logged as warnings."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []
        self.warnings: list[tuple[str, dict[str, object]]] = []

    def error(self, event: str, **fields: object) -> None:
        self.events.append((event, fields))

    def warning(self, event: str, **fields: object) -> None:
        self.warnings.append((event, fields))


class Act:
    """One life of the node that leads the partition."""

    def __init__(self, machine: Machine, world: SimulatedWorld, stores: Stores, nursery: trio.Nursery) -> None:
        self.machine = machine
        self.clock = world.clock
        self.stores = stores
        self.metadata = CountingMetadata(stores.metadata)
        self.nursery = nursery
        self.advances = 0
        self.logger = Recorder()
        self.batch_thread = BatchThread(world)

    async def create_topic(self) -> Any:
        key = topic_key("orders")
        found = await self.stores.metadata.get(key)
        if found is None:
            await self.stores.metadata.txn([], [Put(key, b"topic")])
            found = await self.stores.metadata.get(key)
        assert found is not None
        return found.create_revision

    async def partition(self, *, policy: LeaderPolicy | None = None, **settings: Any) -> Partition:
        """Another driver of the same partition, not yet open."""
        revision = await self.create_topic()
        entries = EntryCache(self.stores.bookies, 1 << 20)
        names = ledgers_prefix(TOPIC_ID, 0)
        chain = Chain(self.metadata, self.stores.bookies, entries, names, topic_key("orders"), revision)
        settings = {"retention_ms": -1, "timestamp_after_ms_max": 1 << 60, **settings}
        told = (self._advanced, lambda: None, self.logger)
        return Partition(
            chain,
            PartitionSettings(**settings),
            self.clock,
            self.nursery,
            *told,
            AwaitedBatches(),
            policy or SOLE_LEADER,
            self.batch_thread,
        )

    def _advanced(self, partition: Partition) -> None:
        self.advances += 1
        partition.wake_waiters()

    @staticmethod
    def send(partition: Partition, *values: str, at: int | None = None, **producer: int) -> Appended:
        return Act.send_batch(partition, Act.batch(*values, at=at, **producer))

    @staticmethod
    def send_batch(partition: Partition, batch: bytes, terms: Terms | None = None) -> Appended:
        answer = Appended()
        partition.append(memoryview(batch), answer, 0, terms)
        return answer

    @staticmethod
    async def append_batch(partition: Partition, batch: bytes) -> None:
        """Appends a given batch, which must be accepted."""
        assert (await Act.send_batch(partition, batch).wait()).error == 0

    @staticmethod
    def batch(*values: str, at: int | None = None, **producer: int) -> bytes:
        records = [Record(offset_delta=number, key=None, value=value.encode()) for number, value in enumerate(values)]
        given = {"producer_epoch": 0, **producer} if producer else {}
        return build_batch(records, base_timestamp=at if at is not None else 1000, **given)

    async def append(self, partition: Partition, *values: str, at: int | None = None, **producer: int) -> Produced:
        return await self.send(partition, *values, at=at, **producer).wait()

    def damage(self, partition: Partition, entry: int, segment: int = -1) -> None:
        """Flips a bit of one entry on disk, once nothing is being written."""
        key = ENTRY_KEY.pack(partition.segments[segment].ledger.id, entry)
        self.machine.disk.flip_bit(Path("/data/bookie"), ENTRIES, key)

    @staticmethod
    async def read(partition: Partition) -> list[tuple[int, str]]:
        """All readable records as (offset, value)."""
        log = await partition.opened()
        assert log is not None
        found: list[tuple[int, str]] = []
        position = log.start_offset
        while position < log.high_watermark:
            with LocalViews() as views:
                chunks, _, _ = partition.read(position, 1 << 20, True, views)
                assert chunks, f"nothing could be read at {position}"
                for chunk in chunks:
                    header = parse_batch(chunk)
                    found += [
                        (header.base_offset + record.offset_delta, (record.value or b"").decode())
                        for record in iterate_records(chunk, 1 << 20)
                    ]
                    position = Offset(header.next_offset)
        return [item for item in found if item[0] >= log.start_offset]


ActBody = Callable[[Act], Awaitable[None]]


def _play(*acts: ActBody, power_lost: bool = False, seed: int = 1) -> None:
    async def scenario(simulation: Simulation) -> None:
        machine = simulation.machine("node")
        for number, body in enumerate(acts):
            over = trio.Event()

            async def node(world: SimulatedWorld, body: ActBody = body, over: trio.Event = over) -> None:
                settings = Settings(data_dir=Path("/data"))
                async with open_stores(world, settings) as stores, trio.open_nursery() as nursery:
                    await body(Act(machine, world, stores, nursery))
                    over.set()
                    await trio.sleep_forever()

            machine.start(node)
            await over.wait()
            if number == len(acts) - 1:
                break
            if power_lost:
                machine.power_off()
            else:
                machine.kill()

    simulate(seed, scenario)


@pytest.fixture
def play() -> Callable[..., None]:
    """Plays acts in order on one disk; the node is killed, or loses power, between two acts."""
    return _play
