"""Native subscriptions in a storm: clients of `LogScenario` beside its own, as `storm_clients` are.

1. Every record whose producer was told that it is stored comes to the subscription, at least once, but for those that
   somebody deleted: at the end the client waits for all of them, and a liveness phase that takes too long tells.
2. An offset has one value, however often it comes.
3. Of one that is not shared, records come in the order of their offsets, but for where reading began anew: there it
   goes on at most at the first record that was not acknowledged. It skips none but those that somebody deleted.
4. Of a key_shared one, records of one key come in the order of their offsets, but for those that come again.
5. A record has one id, whether it comes from the source or from a shadow.
6. Records are told to be missed only where somebody deleted them; retention deletes none that it should hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal

import trio

from gnomon.broker.native.client import NativeClient, connect
from gnomon.broker.native.consumer import Consumer
from gnomon.broker.native.errors import ConsumerClosed, NoSuchTopic, RecordsMissed, SubscriptionTaken, Unavailable
from gnomon.broker.native.message import Message
from gnomon.broker.subscriptions.dlsn import Dlsn
from gnomon.runtime.world import Unreachable
from gnomon.testing.broker_cluster import NATIVE_PORT
from gnomon.testing.log_checker import LogHistory
from gnomon.testing.log_clients import Refused, SimulatedConsumer, SimulatedProducer
from gnomon.testing.shadow_clients import cast_shadow
from gnomon.testing.storm_clients import create_topic, delete_records
from gnomon.testing.wire_client import KafkaCluster

Kind = Literal["exclusive", "failover", "shared", "key_shared"]
KINDS: tuple[Kind, ...] = ("exclusive", "failover", "shared", "key_shared")
SHARED: tuple[Kind, ...] = ("shared", "key_shared")
RECORDS_A_SECOND = 8.0
CLIENT_SECONDS_MEAN = 6.0
NACK_RATE = 0.05
LEFT_RATE = 0.03
"""How many records are neither acknowledged nor refused: they come again after the ack time-out."""
ACK_SECONDS = 2.0
SLOW_RATE = 0.2
SLOW_SECONDS_MEAN = 0.3
"""How long one of several readers takes for some records; so others come to be given what waits behind them."""
KEYS = 3
HELD = {"retention.bytes": "0", "segment.bytes": "700"}
"""Whatever all subscriptions have read goes at once, in segments of a few batches."""
TRUNCATE_SECONDS_MEAN = 3.0
TRUNCATE_RATE = 0.5


class SubscriptionHistory:
    """What has come to one subscription of one partition."""

    def __init__(self, kind: Kind, log: LogHistory, ids: dict[int, Dlsn]) -> None:
        """Nothing yet.

        Args:
            log: what lies below its start may have been deleted.
            ids: of the records by offset, as any subscription has seen them.
        """
        self.values: dict[int, bytes] = {}
        self.acked: set[int] = set()
        self.begun = trio.Event()
        """Set once the subscription is there."""
        self._kind = kind
        self._log = log
        self._ids = ids
        self._newest: dict[bytes | None, int] = {}
        """Of each key the highest offset."""

    def got(self, message: Message, first_of_life: bool) -> None:
        """A record came; `first_of_life` if to a consumer that had got nothing before."""
        offset, value = message.offset, message.value or b""
        comes_first = offset not in self.values
        if self.values.setdefault(offset, value) != value:
            raise Refused(f"offset {offset} is {value!r} and {self.values[offset]!r}")
        if self._ids.setdefault(offset, message.id) != message.id:
            raise Refused(f"offset {offset} has the ids {message.id} and {self._ids[offset]}")
        if self._kind in ("exclusive", "failover"):
            self._in_order(offset, first_of_life)
        if comes_first and self._kind == "key_shared" and message.key is not None:
            newest = self._newest.get(message.key, -1)
            if offset < newest:
                raise Refused(f"of key {message.key!r} offset {offset} came after {newest}")
            self._newest[message.key] = offset

    def _in_order(self, offset: int, first_of_life: bool) -> None:
        before = range(self._log.log_start_offset, offset)
        if first_of_life:
            skipped = [each for each in before if each not in self.acked]
            if skipped:
                raise Refused(f"reading began at {offset}, and {skipped[:5]} were not acknowledged")
        skipped = [each for each in before if each not in self.values]
        if skipped:
            raise Refused(f"offset {offset} came before {skipped[:5]}")

    def missed(self, told: RecordsMissed) -> None:
        """Its consumer was told that records have gone."""
        if told.end > self._log.log_start_offset:
            raise Refused(f"{told}; nobody deleted any from {self._log.log_start_offset} on")


async def read_subscription(
    cluster: KafkaCluster,
    seconds: float,
    *,
    kind: Kind = "exclusive",
    readers: int = 1,
    shadow: bool = False,
    held: bool = False,
    truncated: bool = False,
    name: str = "read",
) -> None:
    """Writes to a topic of its own and reads it by a durable subscription, with clients that come and go.

    Args:
        readers: clients at a time, where the kind allows several; with several, records have keys.
        shadow: whether a shadow of the topic has such a subscription, too.
        held: whether retention gives up at once what all subscriptions have read; they begin before the first record.
        truncated: whether records are deleted meanwhile, read or not.
        name: what the topic's name begins with.
    """
    source = _Source(cluster, f"{name}-{kind}", kind, keyed=readers > 1, truncated=truncated)
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
                reader = _Reader(cluster, topic, kind, history, number, source.written, slow_rate)
                together.start_soon(reader.read_until, whole, together.cancel_scope)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(source.write, seconds, [each.begun for each in histories.values()] if held else [])
        async with trio.open_nursery() as reading:
            for topic, history in histories.items():
                reading.start_soon(read, topic, history)
        nursery.cancel_scope.cancel()


class _Source:
    """The topic that is written, and what has to come of it."""

    def __init__(self, cluster: KafkaCluster, topic: str, kind: Kind, *, keyed: bool, truncated: bool) -> None:
        self.topic = topic
        self.log = LogHistory()
        self.written = trio.Event()
        """Set once every record is acknowledged and none is deleted any more."""
        self._cluster = cluster
        self._kind = kind
        self._keyed = keyed
        self._truncated = truncated

    def wanted(self) -> set[bytes]:
        """The values that have to come, once all is written."""
        if self._truncated:
            return {value for offset, value in self.log.final if offset >= self.log.log_start_offset}
        return {send.value for send in self.log.sends}

    async def write(self, seconds: float, begun: Iterable[trio.Event]) -> None:
        """Writes for so long, once all of `begun` are set."""
        async with trio.open_nursery() as nursery:
            producer = SimulatedProducer(
                self._cluster, self.topic, {0: self.log}, name=f"writer-{self._kind}", key_of=self._key_of
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
        stream = self._cluster.world.random(f"writes/{self._kind}")
        for number in range(round(seconds * RECORDS_A_SECOND)):
            producer.send(f"{self._kind}/{number}".encode(), 0)
            await self._cluster.world.clock.sleep(stream.expovariate(RECORDS_A_SECOND))
        await producer.flush()

    async def _truncate(self, seconds: float) -> None:
        delete = partial(delete_records, every_seconds=TRUNCATE_SECONDS_MEAN, truncate_rate=TRUNCATE_RATE)
        await delete(self._cluster, seconds, self.topic, 0, self.log)

    def _key_of(self, value: bytes) -> bytes | None:
        return b"key %d" % (int(value.rpartition(b"/")[2]) % KEYS) if self._keyed else None


class _Reader:
    """Clients, one after the other."""

    def __init__(
        self,
        cluster: KafkaCluster,
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
        """Whether the last one stays: what was given to another that has gone has to come to it."""
        self._written = written
        self._slow_rate = slow_rate
        self._stream = cluster.world.random(f"reads/{self._name.removeprefix('read-')}")
        self._lives = 0

    async def read_until(self, whole: Callable[[], bool], all_readers: trio.CancelScope) -> None:
        """Reads until everything has come, and ends the other readers then."""
        while not whole():
            last = self._stays and self._written.is_set()
            with trio.move_on_after(float("inf") if last else self._stream.expovariate(1 / CLIENT_SECONDS_MEAN)):
                await self._live(whole)
        all_readers.cancel()

    async def _live(self, whole: Callable[[], bool]) -> None:
        """One client."""
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
            # The broker has not missed the client of before yet, has not heard of a new topic, or is away.
            await self._world.clock.sleep(1.0)
            return
        self._history.begun.set()
        first = True
        while True:
            try:
                message = await consumer.receive()
            except ConsumerClosed:
                return
            except RecordsMissed as told:
                self._history.missed(told)
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
