"""A client that plans reads and holds what it plans, beside the producers and consumers of a `LogScenario`.

1. As long as a hold lives, the log begins at its offset or before, whatever retention deletes.
2. Each planned run can be read from bookies. It has the entries that its offsets say, and only records that the
   producer has sent; an acknowledged record has its offset.
3. A later plan has each offset that an earlier one had, unless it was deleted, with the same record.
4. After the lease of the hold, retention deletes what it has held.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio

from gnomon.bookie.entry import StoredEntry
from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledgers.copies import read_run
from gnomon.bookie.ledgers.ledgers import Ledgers, connect_ledgers
from gnomon.client.client import NativeClient, connect
from gnomon.client.errors import NativeError, Retriable
from gnomon.client.read_plans import END
from gnomon.log.entry import HEADER_BYTES, EntryKind, unpack_header
from gnomon.log.plans.read_plan import PlannedPartition, PlannedSegment
from gnomon.metadata.client import MetadataError
from gnomon.runtime.world import Unreachable
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT
from gnomon.testing.storms.kafka.log_checker import LogHistory
from gnomon.testing.storms.kafka.log_clients import EARLIEST, ProduceRefused, SimulatedConsumer, SimulatedProducer
from gnomon.testing.storms.kafka.storm_clients import RETENTION_SECONDS_MAX, ask_until, create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.testing.storms.shadows.shadow_clients import cast_shadow
from gnomon.wire.kafka.records import iterate_records

HELD = {"retention.bytes": "0", "segment.bytes": "700"}
"""Configs with which retention deletes at once all that nobody holds, in segments of a few batches."""
RECORDS_A_SECOND = 20.0
RECORDS_AT_END = 60
"""Records that are written after the storm, so that the held ones are in sealed segments."""
PLANS_A_SECOND = 3.0
HOLD_SECONDS = 40
LAST_SECONDS = 5
"""The time of the last hold."""
BACK_RATE = 0.3
"""The share of steps that let the hold go to the end of the log, and move it back to the start."""
LOOKS = 3
"""The looks at a log after its hold has moved back: retention runs every second."""
RETRY_SECONDS = 0.5
TRIES = 200
RUN_BYTES_MAX = 1 << 16


async def plan_and_hold(cluster: WireCluster, seconds: float, *, metadata: str = "", shadow: bool = False) -> None:
    """Writes to a topic of its own, plans the reading of it, reads planned entries, and holds them.

    Args:
        metadata: the address of the metadata service, for reading from bookies; empty for no such reading.
        shadow: whether a shadow of the topic is planned.
    """
    source = planned = "planned-source" if shadow else "planned"
    await create_topic(cluster, source, HELD)
    if shadow:
        planned = "planned-shadow"
        await cast_shadow(cluster, source, planned)
    history = LogHistory()
    producer = SimulatedProducer(cluster, source, {0: history}, name=source, batch_records_max=3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(producer.run)
        async with _clients(cluster, metadata) as (native, ledgers):
            planner = _Planner(cluster, source, planned, native, ledgers, history)
            async with trio.open_nursery() as running:
                running.start_soon(_write, cluster, producer, seconds)
                await planner.run(seconds)
            await planner.read_on()
            await planner.hold_for_the_last_time()
            for number in range(RECORDS_AT_END):
                producer.send(b"end/%d" % number, 0)
                await cluster.world.clock.sleep(0.02)
            await producer.flush()
            await planner.wait_until_let_go()
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def _clients(cluster: WireCluster, metadata: str) -> AsyncIterator[tuple[NativeClient, Ledgers | None]]:
    addresses = ",".join(f"{host}:{NATIVE_PORT}" for host in cluster.hosts)
    async with connect(addresses, world=cluster.world) as native:
        if metadata:
            async with connect_ledgers(metadata, world=cluster.world, retry_seconds=1_000) as ledgers:
                yield native, ledgers
        else:
            yield native, None


async def _write(cluster: WireCluster, producer: SimulatedProducer, seconds: float) -> None:
    stream = cluster.world.random(f"writes/{producer.name}")
    for number in range(round(seconds * RECORDS_A_SECOND)):
        producer.send(b"planned/%d" % number, 0)
        await cluster.world.clock.sleep(stream.expovariate(RECORDS_A_SECOND))
    await producer.flush()


class _Planner:
    """Plans, reads and holds one partition."""

    def __init__(
        self,
        cluster: WireCluster,
        source: str,
        topic: str,
        native: NativeClient,
        ledgers: Ledgers | None,
        history: LogHistory,
    ) -> None:
        self._cluster = cluster
        self._clock = cluster.world.clock
        self._log = cluster.world.logger
        self._source = source
        self._topic = topic
        self._native = native
        self._ledgers = ledgers
        self._history = history
        self._stream = cluster.world.random(f"plans/{topic}")
        self._held: int | None = None
        """The lowest offset that is certainly held; None if nothing is."""
        self._held_until = float("-inf")
        self._values: dict[int, bytes] = {}
        """The records that were read, by offset."""

    async def run(self, seconds: float) -> None:
        """Takes steps for some time."""
        end = self._clock.monotonic() + seconds
        await self._hold(0)
        while self._clock.monotonic() < end:
            if self._stream.random() < BACK_RATE:
                await self._move_back()
            else:
                await self.read_on()
            await self._clock.sleep(self._stream.expovariate(PLANS_A_SECOND))

    async def read_on(self) -> None:
        """Plans from the held offset on, reads some of the runs, and moves the hold forward behind one of them."""
        for _ in range(TRIES):
            found = await self._hold(0 if self._held is None else self._held)
            if await self._are_read(found):
                break
            await self._clock.sleep(RETRY_SECONDS)
        else:
            raise ProduceRefused(f"planned entries of {self._topic} cannot be read, from offset {self._held} on")
        if found.segments:
            offset = self._stream.choice(found.segments).next_offset
            await self._hold(offset)

    async def _move_back(self) -> None:
        """Lets the hold go to the end of the log for a while, then holds the log from its start on."""
        self._held = None
        await self._plan(END, HOLD_SECONDS)
        await self._clock.sleep(self._stream.expovariate(2.0))
        await self._hold(0)
        self._log.debug("hold_moved_back", topic=self._topic, offset=self._held)
        for _ in range(self._stream.randint(1, LOOKS)):
            await self._clock.sleep(self._stream.uniform(0.0, 0.7))
            await self._look()

    async def _hold(self, first: int) -> PlannedPartition:
        """Plans from an offset on and holds it, or the start of the log if that is higher."""
        forward = self._held is not None and first > self._held
        if forward:
            self._held = first  # also if the answer is lost
        asked = self._clock.monotonic()
        found = await self._plan(first, HOLD_SECONDS)
        self._judge(found.start_offset, "a plan")
        self._held, self._held_until = max(first, found.start_offset), asked + HOLD_SECONDS
        return found

    async def _plan(self, first: int, seconds: int) -> PlannedPartition:
        while True:
            try:
                plan = await self._native.read_plans.plan(
                    self._topic, {0: (first, END)}, hold="storm", hold_seconds=seconds
                )
            except (Retriable, Unreachable):
                await self._clock.sleep(RETRY_SECONDS)
            except NativeError as error:
                raise ProduceRefused(f"plan of {self._topic} from {first} on: {error!r}") from error
            else:
                self._log.debug("reads_planned", topic=self._topic, first=first, segments=len(plan.partitions[0][2]))
                return plan.partitions[0]

    def _judge(self, start: int, source: str) -> None:
        if self._held is not None and start > self._held and self._clock.monotonic() < self._held_until:
            raise ProduceRefused(f"{source} says that {self._topic} begins at {start}, and {self._held} is held")

    async def _look(self) -> None:
        """Asks a broker for the start of the log."""
        held = self._held
        start = await self._earliest()
        if held is not None:
            self._judge(start, "the leader of the source")

    async def _earliest(self) -> int:
        reader = SimulatedConsumer(self._cluster, self._source, 0, self._history, name="planned")
        leader = partial(self._cluster.leader, self._source, 0)
        return (await ask_until(self._cluster, lambda connection: reader.offset(connection, EARLIEST), leader))[0]

    # --- reading ------------------------------------------------------------------------------------------------

    async def _are_read(self, found: PlannedPartition) -> bool:
        """Reads the planned runs from bookies; returns False if one cannot be read at the moment."""
        if self._ledgers is None or not found.segments:
            return True
        for segment in found.segments:
            try:
                entries = await _entries(self._ledgers, segment)
            except (LedgerError, MetadataError, Unreachable):
                return False
            self._check(segment, entries, found.high_watermark)
        self._log.debug("planned_entries_read", topic=self._topic)
        return True

    def _check(self, segment: PlannedSegment, entries: list[StoredEntry], high_watermark: int) -> None:
        offset, size_bytes = None, 0
        sent = {send.value: send.offset for send in self._history.sends}
        for stored in entries:
            header = unpack_header(stored.payload)
            size_bytes += len(stored.payload)
            if offset not in (None, header.base_offset):
                raise ProduceRefused(f"an entry of a planned run begins at {header.base_offset}, not at {offset}")
            offset = header.next_offset
            if header.kind == EntryKind.BATCH:
                for record in iterate_records(stored.payload[HEADER_BYTES:], RUN_BYTES_MAX):
                    self._check_record(header.base_offset + record.offset_delta, record.value or b"", sent)
        if offset != segment.next_offset or segment.next_offset > high_watermark:
            raise ProduceRefused(
                f"a planned run ends at {offset}, the plan says {segment.next_offset}, the high watermark is"
                f" {high_watermark}"
            )
        if size_bytes < segment.size_bytes:
            raise ProduceRefused(f"a planned run has {size_bytes} bytes, the plan says {segment.size_bytes}")

    def _check_record(self, offset: int, value: bytes, sent: dict[bytes, int]) -> None:
        if self._values.setdefault(offset, value) != value:
            raise ProduceRefused(f"offset {offset} is {value!r}, and was {self._values[offset]!r}")
        if value not in sent or sent[value] not in (-1, offset):
            raise ProduceRefused(f"a planned entry has {value!r} at offset {offset}, the producer {sent.get(value)}")

    # --- the end ------------------------------------------------------------------------------------------------

    async def hold_for_the_last_time(self) -> None:
        """Holds the log from its start on, for a short time."""
        found = await self._plan(0, LAST_SECONDS)
        self._held = found.start_offset

    async def wait_until_let_go(self) -> None:
        """Waits until retention has deleted what was held."""
        end = self._clock.monotonic() + LAST_SECONDS + RETENTION_SECONDS_MAX
        while self._held is not None and await self._earliest() <= self._held:
            if self._clock.monotonic() > end:
                raise ProduceRefused(f"offset {self._held} of {self._source} is still there after its hold has ended")
            await self._clock.sleep(RETRY_SECONDS)
        self._log.debug("hold_ended", topic=self._topic, offset=self._held)


async def _entries(ledgers: Ledgers, segment: PlannedSegment) -> list[StoredEntry]:
    """The entries of a planned run, as the bookies of its record have them."""
    found: list[StoredEntry] = []
    while (first := segment.first + len(found)) <= segment.last:
        found += await read_run(
            ledgers.bookies, segment.ledger, segment.record, EntryId(first), segment.last, RUN_BYTES_MAX
        )
    return found
