"""Native subscriptions in a storm: clients of `LogScenario` beside its own, as `storm_clients` are.

1. Every record whose producer was told that it is stored comes to the subscription, at least once: at the end the
   client waits for all of them, and a liveness phase that takes too long says which is missing.
2. An offset has one value, however often it comes.
3. Of one that is not shared, records come in the order of their offsets, but for where reading began anew: there it
   goes on at most at the first record that was not acknowledged.
4. Of a key_shared one, records of one key come in the order of their offsets, but for those that come again.
5. A record has one id, whether it comes from the source or from a shadow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import trio

from gnomon.broker.native.client import NativeClient, connect
from gnomon.broker.native.consumer import Consumer
from gnomon.broker.native.errors import NoSuchTopic, SubscriptionTaken, Unavailable
from gnomon.broker.native.message import Message
from gnomon.broker.subscriptions.dlsn import Dlsn
from gnomon.runtime.world import Unreachable
from gnomon.testing.broker_cluster import NATIVE_PORT
from gnomon.testing.log_checker import LogHistory
from gnomon.testing.log_clients import Refused, SimulatedProducer
from gnomon.testing.shadow_clients import cast_shadow
from gnomon.testing.storm_clients import create_topic
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


class SubscriptionHistory:
    """What has come to one subscription of one partition."""

    def __init__(self, kind: Kind, ids: dict[int, Dlsn]) -> None:
        """Nothing yet.

        Args:
            ids: of the records by offset, as any subscription has seen them.
        """
        self.values: dict[int, bytes] = {}
        self.acked: set[int] = set()
        self._kind = kind
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
        if first_of_life and self._kind in ("exclusive", "failover"):
            skipped = [each for each in range(offset) if each not in self.acked]
            if skipped:
                raise Refused(f"reading began at {offset}, and {skipped[:5]} were not acknowledged")
        if comes_first and self._kind == "key_shared" and message.key is not None:
            newest = self._newest.get(message.key, -1)
            if offset < newest:
                raise Refused(f"of key {message.key!r} offset {offset} came after {newest}")
            self._newest[message.key] = offset


async def read_subscription(
    cluster: KafkaCluster,
    seconds: float,
    *,
    kind: Kind = "exclusive",
    configs: Mapping[str, str] | None = None,
    readers: int = 1,
    shadow: bool = False,
    name: str = "read",
) -> None:
    """Writes to a topic of its own and reads it by a durable subscription, with clients that come and go.

    Args:
        readers: clients at a time, where the kind allows several; with several, records have keys.
        shadow: whether a shadow of the topic has such a subscription, too.
        name: what the topic's name begins with.
    """
    topic = f"{name}-{kind}"
    await create_topic(cluster, topic, dict(configs or {}))
    topics = [topic]
    if shadow:
        topics.append(f"{topic}-shadow")
        await cast_shadow(cluster, topic, topics[-1])
    log, ids = LogHistory(), dict[int, Dlsn]()
    producer = SimulatedProducer(cluster, topic, {0: log}, name=f"writer-{kind}", key_of=partial(_key_of, readers > 1))
    written = trio.Event()

    async def write() -> None:
        stream = cluster.world.random(f"writes/{kind}")
        for number in range(round(seconds * RECORDS_A_SECOND)):
            producer.send(f"{kind}/{number}".encode(), 0)
            await cluster.world.clock.sleep(stream.expovariate(RECORDS_A_SECOND))
        await producer.flush()
        written.set()

    async def read(name: str) -> None:
        history = SubscriptionHistory(kind, ids)

        def whole() -> bool:
            return written.is_set() and {send.value for send in log.sends} <= set(history.values.values())

        async with trio.open_nursery() as together:
            for number in range(1 if kind == "exclusive" else readers):
                slow_rate = SLOW_RATE if readers > 1 else 0.0
                reader = _Reader(cluster, name, kind, history, number, written, slow_rate)
                together.start_soon(reader.read_until, whole, together.cancel_scope)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(producer.run)
        nursery.start_soon(write)
        async with trio.open_nursery() as reading:
            for name in topics:
                reading.start_soon(read, name)
        nursery.cancel_scope.cancel()


def _key_of(keyed: bool, value: bytes) -> bytes | None:
    return None if not keyed else b"key %d" % (int(value.rpartition(b"/")[2]) % KEYS)


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
        first = True
        async for message in consumer:
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
