"""Clients with native subscriptions that run beside the producers and consumers of a `LogScenario` (`storm_clients`).

1. Every acknowledged record comes to the subscription at least once, unless it was deleted. At the end the client
   waits for all of them: a lost record makes the liveness phase fail.
2. An offset has the same value at each delivery.
3. An exclusive or failover subscription delivers records in the order of offsets. A new consumer begins at or before
   the first unacknowledged record. Only deleted records are skipped.
4. A key_shared subscription delivers the records of one key in the order of their offsets, except redelivered ones.
5. A record has one id, from the source and from a shadow.
6. Only deleted records are reported as missed. Retention deletes no record that it has to hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal

import trio

from gnomon.client.client import NativeClient, connect
from gnomon.client.consumer import Consumer
from gnomon.client.errors import ConsumerClosed, NoSuchTopic, RecordsMissed, SubscriptionTaken, Unavailable
from gnomon.client.message import Message
from gnomon.log.dlsn import Dlsn
from gnomon.runtime.world import Unreachable
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT
from gnomon.testing.storms.kafka.log_checker import LogHistory
from gnomon.testing.storms.kafka.log_clients import ProduceRefused, SimulatedConsumer, SimulatedProducer
from gnomon.testing.storms.kafka.storm_clients import create_topic, delete_records
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.testing.storms.shadows.shadow_clients import cast_shadow
from gnomon.wire.kafka.compression import Codec

Kind = Literal["exclusive", "failover", "shared", "key_shared"]
KINDS: tuple[Kind, ...] = ("exclusive", "failover", "shared", "key_shared")
SHARED: tuple[Kind, ...] = ("shared", "key_shared")
RECORDS_A_SECOND = 8.0
BURSTS = (1, 1, 25)
"""Numbers of records that are written at once, and so form one batch."""
CLIENT_SECONDS_MEAN = 6.0
NACK_RATE = 0.05
LEFT_RATE = 0.03
"""The share of records that are neither acknowledged nor refused; they are redelivered after the ack timeout."""
ACK_SECONDS = 2.0
SLOW_RATE = 0.2
SLOW_SECONDS_MEAN = 0.3
"""The mean time that one of several readers takes for a slow record; others get the records that wait after it."""
KEYS = 3
HELD = {"retention.bytes": "0", "segment.bytes": "700"}
"""Configs with which retention deletes read records at once, in segments of a few batches."""
TRUNCATE_SECONDS_MEAN = 3.0
TRUNCATE_RATE = 0.5


class SubscriptionHistory:
    """The records that came to one subscription of one partition."""

    def __init__(self, kind: Kind, log: LogHistory, ids: dict[int, Dlsn]) -> None:
        """Begins with no records.

        Args:
            log: the history of the partition; records below its start may have been deleted.
            ids: the ids of records by offset, shared by all subscriptions.
        """
        self.values: dict[int, bytes] = {}
        self.acked: set[int] = set()
        self.begun = trio.Event()
        """Set once the subscription exists."""
        self._kind = kind
        self._log = log
        self._ids = ids
        self._newest: dict[bytes | None, int] = {}
        """The highest offset of each key."""

    def got(self, message: Message, first_of_life: bool) -> None:
        """A record came; `first_of_life` if it is the first one of its consumer."""
        offset, value = message.offset, message.value or b""
        comes_first = offset not in self.values
        if self.values.setdefault(offset, value) != value:
            raise ProduceRefused(f"offset {offset} is {value!r} and {self.values[offset]!r}")
        if self._ids.setdefault(offset, message.id) != message.id:
            raise ProduceRefused(f"offset {offset} has the ids {message.id} and {self._ids[offset]}")
        if self._kind in ("exclusive", "failover"):
            self._in_order(offset, first_of_life)
        if comes_first and self._kind == "key_shared" and message.key is not None:
            newest = self._newest.get(message.key, -1)
            if offset < newest:
                raise ProduceRefused(f"offset {offset} of key {message.key!r} came after {newest}")
            self._newest[message.key] = offset

    def _in_order(self, offset: int, first_of_life: bool) -> None:
        before = range(self._log.log_start_offset, offset)
        if first_of_life:
            skipped = [each for each in before if each not in self.acked]
            if skipped:
                raise ProduceRefused(f"reading began at {offset}, and {skipped[:5]} were not acknowledged")
        skipped = [each for each in before if each not in self.values]
        if skipped:
            raise ProduceRefused(f"offset {offset} came before {skipped[:5]}")

    def missed(self, missed: RecordsMissed) -> None:
        """A consumer got a report that records are missed."""
        if missed.end > self._log.log_start_offset:
            raise ProduceRefused(f"{missed}; no record from {self._log.log_start_offset} on was deleted")


async def read_subscription(
    cluster: WireCluster,
    seconds: float,
    *,
    kind: Kind = "exclusive",
    readers: int = 1,
    shadow: bool = False,
    held: bool = False,
    truncated: bool = False,
    name: str = "read",
) -> None:
    """Writes to a topic of its own and reads it by a durable subscription, with changing clients.

    Args:
        readers: clients at a time, if the kind allows several; with several, records have keys.
        shadow: whether a shadow of the topic has such a subscription too.
        held: whether retention deletes at once the records that all subscriptions have read; the subscriptions begin
            before the first record.
        truncated: whether records are deleted meanwhile, read or not.
        name: the prefix of the topic's name.
    """
    source = _ReadSource(cluster, f"{name}-{kind}", kind, keyed=readers > 1, truncated=truncated)
    await create_topic(cluster, source.topic, HELD if held else {})
    topics = [source.topic]
    if shadow:
        topics.append(f"{source.topic}-shadow")
        await cast_shadow(cluster, *topics)
    ids = dict[int, Dlsn]()
    histories = {topic: SubscriptionHistory(kind, source.log, ids) for topic in topics}

    async def read(topic: str, history: SubscriptionHistory) -> None:
        def whole() -> bool:
            return source.written.is_set() and source.wanted() <= set(history.values.values())

        async with trio.open_nursery() as together:
            for number in range(1 if kind == "exclusive" else readers):
                slow_rate = SLOW_RATE if readers > 1 else 0.0
                reader = _SubscriptionReader(cluster, topic, kind, history, number, source.written, slow_rate)
                together.start_soon(reader.read_until, whole, together.cancel_scope)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(source.write, seconds, [each.begun for each in histories.values()] if held else [])
        async with trio.open_nursery() as reading:
            for topic, history in histories.items():
                reading.start_soon(read, topic, history)
        nursery.cancel_scope.cancel()


class _ReadSource:
    """The topic that is written, and the records that have to come."""

    def __init__(self, cluster: WireCluster, topic: str, kind: Kind, *, keyed: bool, truncated: bool) -> None:
        self.topic = topic
        self.log = LogHistory()
        self.written = trio.Event()
        """Set once every record is acknowledged and the deletions are over."""
        self._cluster = cluster
        self._kind = kind
        self._keyed = keyed
        self._truncated = truncated

    def wanted(self) -> set[bytes]:
        """The values that have to come, once all records are written."""
        if self._truncated:
            return {value for offset, value in self.log.final if offset >= self.log.log_start_offset}
        return {send.value for send in self.log.sends}

    async def write(self, seconds: float, begun: Iterable[trio.Event]) -> None:
        """Writes for `seconds`, once all of `begun` are set."""
        async with trio.open_nursery() as nursery:
            producer = SimulatedProducer(
                self._cluster,
                self.topic,
                {0: self.log},
                name=f"writer-{self._kind}",
                batch_records_max=max(BURSTS),
                key_of=self._key_of,
                compression=self._cluster.world.random(f"compression/{self.topic}").choice((Codec.NONE, Codec.ZSTD)),
            )
            nursery.start_soon(producer.run)
            async with trio.open_nursery() as changing:
                changing.start_soon(self._send, producer, seconds, begun)
                if self._truncated:
                    changing.start_soon(self._truncate, seconds)
            if self._truncated:
                reader = SimulatedConsumer(self._cluster, self.topic, 0, self.log, name="final")
                self.log.final = await reader.read_all()
            nursery.cancel_scope.cancel()
        self.written.set()

    async def _send(self, producer: SimulatedProducer, seconds: float, begun: Iterable[trio.Event]) -> None:
        for each in begun:
            await each.wait()
        stream = self._cluster.world.random(f"writes/{self.topic}")
        burst = stream.choice(BURSTS)
        for number in range(round(seconds * RECORDS_A_SECOND)):
            producer.send(f"{self._kind}/{number}".encode(), 0)
            if number % burst == burst - 1:
                await self._cluster.world.clock.sleep(stream.expovariate(RECORDS_A_SECOND / burst))
        await producer.flush()

    async def _truncate(self, seconds: float) -> None:
        delete = partial(delete_records, every_seconds=TRUNCATE_SECONDS_MEAN, truncate_rate=TRUNCATE_RATE)
        await delete(self._cluster, seconds, self.topic, 0, self.log)

    def _key_of(self, value: bytes) -> bytes | None:
        return b"key %d" % (int(value.rpartition(b"/")[2]) % KEYS) if self._keyed else None


class _SubscriptionReader:
    """A series of clients, one at a time, that read and acknowledge."""

    def __init__(
        self,
        cluster: WireCluster,
        topic: str,
        kind: Kind,
        history: SubscriptionHistory,
        number: int,
        written: trio.Event,
        slow_rate: float,
    ) -> None:
        self._world = cluster.world
        self._addresses = ",".join(f"{host}:{NATIVE_PORT}" for host in cluster.hosts)
        self._topic = topic
        self._kind = kind
        self._history = history
        self._name = f"{topic}/{number}" if number else topic
        self._stays = number == 0
        """Whether the last client stays, to get the records that were delivered to clients that ended."""
        self._written = written
        self._slow_rate = slow_rate
        self._stream = cluster.world.random(f"reads/{self._name.removeprefix('read-')}")
        self._lives = 0

    async def read_until(self, whole: Callable[[], bool], all_readers: trio.CancelScope) -> None:
        """Reads until all records have come, then ends the other readers."""
        while not whole():
            last = self._stays and self._written.is_set()
            with trio.move_on_after(float("inf") if last else self._stream.expovariate(1 / CLIENT_SECONDS_MEAN)):
                await self._live(whole)
        all_readers.cancel()

    async def _live(self, whole: Callable[[], bool]) -> None:
        """Runs one client."""
        self._lives += 1
        name = f"{self._name}/{self._lives}"
        async with connect(self._addresses, world=self._world, name=name) as client:
            await self._read(client, whole)

    async def _read(self, client: NativeClient, whole: Callable[[], bool]) -> None:
        try:
            consumer = await client.subscribe(
                self._topic, "reader", type=self._kind, initial_position="earliest", ack_seconds=ACK_SECONDS
            )
        except (NoSuchTopic, SubscriptionTaken, Unavailable, Unreachable):
            # The broker still counts the previous client, does not know the new topic yet, or is away.
            await self._world.clock.sleep(1.0)
            return
        self._history.begun.set()
        first = True
        while True:
            try:
                message = await consumer.receive()
            except ConsumerClosed:
                return
            except RecordsMissed as missed:
                self._history.missed(missed)
                continue
            self._history.got(message, first)
            first = False
            self._answer(consumer, message)
            if whole():
                return
            if self._slow_rate and self._stream.random() < self._slow_rate:
                await self._world.clock.sleep(self._stream.expovariate(1 / SLOW_SECONDS_MEAN))

    def _answer(self, consumer: Consumer, message: Message) -> None:
        drawn = self._stream.random()
        if drawn < NACK_RATE:
            consumer.nack(message, self._stream.expovariate(1.0))
        elif drawn > NACK_RATE + LEFT_RATE:
            consumer.ack(message)
            self._history.acked.add(message.offset)
