"""A storm client that seeks while hundreds of batches are in flight to it.

    scenario = LogScenario(..., beside={"seeks": seek_and_read})

`seek_truth` has the rules. The client reads a topic of its own, or a shadow of it, with one consumer at a time.
"""

from __future__ import annotations

from random import Random
from typing import Literal

import trio

from gnomon.client.client import connect
from gnomon.client.consumer import Consumer
from gnomon.client.consumer_options import Type
from gnomon.client.errors import ConsumerClosed, NoSuchTopic, Retriable, SubscriptionTaken
from gnomon.client.message import Message
from gnomon.runtime.world import Unreachable
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT
from gnomon.testing.storms.kafka.log_checker import LogHistory
from gnomon.testing.storms.kafka.log_clients import SimulatedProducer
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.testing.storms.shadows.shadow_clients import cast_shadow
from gnomon.testing.storms.subscriptions.seek_truth import SeekTruth
from gnomon.testing.storms.subscriptions.subscription_clients import SHARED

FIRST_RECORDS = 150
"""The number of records written before the consumer subscribes."""
RECORDS_A_SECOND = 10.0
QUEUE_RECORDS = 200
MESSAGES_BETWEEN_SEEKS_MEAN = 15.0
LIFE_SECONDS_MEAN = 8.0
AWAY = (NoSuchTopic, SubscriptionTaken, Retriable, Unreachable)
"""Errors to retry: the previous connection still counts, the broker does not know the new topic, or it is away."""
How = Literal["message", "offset", "id", "time"]
HOWS: tuple[How, ...] = ("message", "offset", "id")


async def seek_and_read(
    cluster: WireCluster, seconds: float, *, kind: Type = "exclusive", shadow: bool = False, name: str = "seek"
) -> None:
    """Writes to a topic and reads it with seeks back for `seconds`; then reads it to its end.

    Raises:
        AssertionError: `SeekTruth` found an error.
    """
    source = topic = f"{name}-{kind}"
    await create_topic(cluster, source, {})
    if shadow:
        topic = f"{source}-shadow"
        await cast_shadow(cluster, source, topic)
    log = LogHistory()
    truth = SeekTruth()
    written = trio.Event()
    async with trio.open_nursery() as nursery:
        producer = SimulatedProducer(cluster, source, {0: log}, name=f"writer-{source}", batch_records_max=2)
        nursery.start_soon(producer.run)
        async with trio.open_nursery() as working:
            working.start_soon(_write, cluster, producer, seconds, written)
            working.start_soon(_Seeker(cluster, topic, kind, truth).read_until, written, log)
        nursery.cancel_scope.cancel()
    truth.check_whole({send.offset: send.value for send in log.sends})


async def _write(cluster: WireCluster, producer: SimulatedProducer, seconds: float, written: trio.Event) -> None:
    for number in range(FIRST_RECORDS):
        producer.send(b"first/%d" % number, 0)
    await producer.flush()
    for number in range(round(seconds * RECORDS_A_SECOND)):
        producer.send(b"later/%d" % number, 0)
        await cluster.world.clock.sleep(1 / RECORDS_A_SECOND)
    await producer.flush()
    written.set()


class _Seeker:
    """A series of clients, one at a time, that read and seek."""

    def __init__(self, cluster: WireCluster, topic: str, kind: Type, truth: SeekTruth) -> None:
        self._world = cluster.world
        self._addresses = ",".join(f"{host}:{NATIVE_PORT}" for host in cluster.hosts)
        self._topic = topic
        self._kind = kind
        self._truth = truth
        self._stream: Random = cluster.world.random(f"seeks/{topic}")
        self._lives = 0

    async def read_until(self, written: trio.Event, log: LogHistory) -> None:
        """Reads with seeks until all records are written, then to the end."""
        while not written.is_set():
            with trio.move_on_after(self._stream.expovariate(1 / LIFE_SECONDS_MEAN)):
                await self._live(written, log)
        while len(self._truth.values) < len(log.sends):
            await self._live(written, log)

    async def _live(self, written: trio.Event, log: LogHistory) -> None:
        self._lives += 1
        name = f"{self._topic}/{self._lives}"
        async with connect(self._addresses, world=self._world, name=name) as client:
            try:
                consumer = await client.subscribe(
                    self._topic,
                    "seeker",
                    type=self._kind,
                    initial_position="earliest",
                    queue_records=QUEUE_RECORDS,
                )
                if self._kind in SHARED and self._lives > 1:
                    self._truth.shares()
                await self._read(consumer, written, log)
            except AWAY:
                await self._world.clock.sleep(0.5)

    async def _read(self, consumer: Consumer, written: trio.Event, log: LogHistory) -> None:
        received: list[Message] = []
        while not (written.is_set() and len(self._truth.values) == len(log.sends)):
            try:
                message = await consumer.receive()
            except ConsumerClosed:
                return
            self._truth.got(message.offset, message.value or b"")
            received.append(message)
            if self._kind == "exclusive" and self._stream.random() < 0.3:
                consumer.ack_up_to(message)
            else:
                consumer.ack(message)
            if not written.is_set() and self._stream.random() * MESSAGES_BETWEEN_SEEKS_MEAN < 1:
                whole = [each for each in received if each.offset < self._truth.first_missing]
                if whole:
                    await self._seek(consumer, self._stream.choice(whole))

    async def _seek(self, consumer: Consumer, to: Message) -> None:
        """Seeks to a record; all records before it have come, as a seek acknowledges them."""
        how = self._stream.choice(HOWS)
        if how == "message":
            await consumer.seek(to)
        elif how == "offset":
            await consumer.seek_to_offset(0, to.offset)
        else:
            await consumer.seek_to_id(0, to.id)
        self._truth.sought(to.offset)
