"""Native subscriptions in a storm: clients of `LogScenario` beside its own, as `storm_clients` are.

1. Every record whose producer was told that it is stored comes to the subscription, at least once: at the end the
   client waits for all of them, and a liveness phase that takes too long says which is missing.
2. An offset has one value, however often it comes.
3. Of one that is not shared, records come in the order of their offsets, but for where reading began anew: there it
   goes on at most at the first record that was not acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import trio

from gnomon.broker.native.client import NativeClient, connect
from gnomon.broker.native.consumer import Consumer
from gnomon.broker.native.errors import SubscriptionTaken, Unavailable
from gnomon.broker.native.message import Message
from gnomon.runtime.world import Unreachable
from gnomon.testing.broker_cluster import NATIVE_PORT
from gnomon.testing.log_checker import LogHistory
from gnomon.testing.log_clients import Refused, SimulatedProducer
from gnomon.testing.storm_clients import create_topic
from gnomon.testing.wire_client import KafkaCluster

Kind = Literal["exclusive", "failover", "shared", "key_shared"]
KINDS: tuple[Kind, ...] = ("exclusive", "failover", "shared", "key_shared")
RECORDS_A_SECOND = 8.0
CLIENT_SECONDS_MEAN = 6.0
NACK_RATE = 0.05
LEFT_RATE = 0.03
"""How many records are neither acknowledged nor refused: they come again after the ack time-out."""
ACK_SECONDS = 2.0


class SubscriptionHistory:
    """What has come to one subscription of one partition."""

    def __init__(self, shared: bool) -> None:
        self.values: dict[int, bytes] = {}
        self.acked: set[int] = set()
        self._shared = shared

    def got(self, offset: int, value: bytes, first_of_life: bool) -> None:
        """A record came; `first_of_life` if to a consumer that had got nothing before."""
        if self.values.setdefault(offset, value) != value:
            raise Refused(f"offset {offset} is {value!r} and {self.values[offset]!r}")
        if first_of_life and not self._shared:
            skipped = [each for each in range(offset) if each not in self.acked]
            if skipped:
                raise Refused(f"reading began at {offset}, and {skipped[:5]} were not acknowledged")


async def read_subscription(
    cluster: KafkaCluster, seconds: float, *, kind: Kind = "exclusive", configs: Mapping[str, str] | None = None
) -> None:
    """Writes to a topic of its own and reads it by a durable subscription, with clients that come and go."""
    topic = f"read-{kind}"
    await create_topic(cluster, topic, dict(configs or {}))
    log, history = LogHistory(), SubscriptionHistory(kind in ("shared", "key_shared"))
    producer = SimulatedProducer(cluster, topic, {0: log}, name=f"writer-{kind}")
    written = trio.Event()

    async def write() -> None:
        stream = cluster.world.random(f"writes/{kind}")
        for number in range(round(seconds * RECORDS_A_SECOND)):
            producer.send(f"{kind}/{number}".encode(), 0)
            await cluster.world.clock.sleep(stream.expovariate(RECORDS_A_SECOND))
        await producer.flush()
        written.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(producer.run)
        nursery.start_soon(write)
        reader = _Reader(cluster, topic, kind, history)
        while not written.is_set() or not {send.value for send in log.sends} <= set(history.values.values()):
            await reader.live()
        nursery.cancel_scope.cancel()


class _Reader:
    """Clients, one after the other."""

    def __init__(self, cluster: KafkaCluster, topic: str, kind: Kind, history: SubscriptionHistory) -> None:
        self._world = cluster.world
        self._addresses = ",".join(f"{host}:{NATIVE_PORT}" for host in cluster.hosts)
        self._topic = topic
        self._kind = kind
        self._history = history
        self._stream = cluster.world.random(f"reads/{kind}")
        self._lives = 0

    async def live(self) -> None:
        """One client, for a while."""
        with trio.move_on_after(self._stream.expovariate(1 / CLIENT_SECONDS_MEAN)):
            self._lives += 1
            name = f"{self._topic}/{self._lives}"
            async with connect(self._addresses, world=self._world, name=name) as client:
                await self._read(client)

    async def _read(self, client: NativeClient) -> None:
        try:
            consumer = await client.subscribe(
                self._topic, "reader", type=self._kind, initial_position="earliest", ack_seconds=ACK_SECONDS
            )
        except (SubscriptionTaken, Unavailable, Unreachable):
            await self._world.clock.sleep(1.0)  # the broker has not missed the client of before yet, or is away
            return
        first = True
        async for message in consumer:
            self._history.got(message.offset, message.value or b"", first)
            first = False
            self._answer(consumer, message)

    def _answer(self, consumer: Consumer, message: Message) -> None:
        drawn = self._stream.random()
        if drawn < NACK_RATE:
            consumer.nack(message, self._stream.expovariate(1.0))
        elif drawn > NACK_RATE + LEFT_RATE:
            consumer.ack(message)
            self._history.acked.add(message.offset)
