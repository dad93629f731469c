"""A storm client of one subscription: few permits, concurrent seeks, deletions, and a topic that grows.

    scenario = LogScenario(..., beside={"churn": partial(churn_subscription, kind="shared")})

`churn_truth` has the rules. Each consumer has a queue of 1 to 5 records.
"""

from __future__ import annotations

from random import Random

import trio

from gnomon.client.client import connect
from gnomon.client.consumer import Consumer
from gnomon.client.consumer_options import Type
from gnomon.client.errors import ConsumerClosed, NativeError, SubscriptionTaken
from gnomon.runtime.world import Unreachable
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT
from gnomon.testing.storms.kafka.log_checker import LogHistory
from gnomon.testing.storms.kafka.log_clients import SimulatedProducer
from gnomon.testing.storms.kafka.storm_clients import ask_until, create_topic, expect
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.testing.storms.subscriptions.churn_truth import ChurnTruth
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)

CREATE_PARTITIONS_VERSION = 3
PARTITIONS_MAX = 4
PERMITS_MAX = 5
RECORDS_A_SECOND = 8.0
GROW_SECONDS_MEAN = 5.0
LIFE_SECONDS_MEANS = (3.0, 8.0, 60.0)
SEEK_RATE, UNSUBSCRIBE_RATE, NACK_RATE, LEFT_RATE, WAIT_RATE = 0.04, 0.03, 0.05, 0.03, 0.1
SEEKS_AT_ONCE_MAX = 3
ACK_SECONDS = 2.0
WHOLE_SECONDS = 90.0
"""Time for the rest of the records after a storm."""


async def churn_subscription(
    cluster: WireCluster, seconds: float, *, kind: Type = "exclusive", name: str = "churn"
) -> None:
    """Reads a topic that grows by one subscription for `seconds`, and then to its end.

    Raises:
        AssertionError: `ChurnTruth` found an error, or records have not come.
    """
    await _ChurnedTopic(cluster, f"{name}-{kind}", kind).run(seconds)


class _ChurnedTopic:
    """The topic, its writers and its readers."""

    def __init__(self, cluster: WireCluster, topic: str, kind: Type) -> None:
        self.topic, self.kind = topic, kind
        self.cluster = cluster
        self.clock, self.logger = cluster.world.clock, cluster.world.logger
        self.stream: Random = cluster.world.random(f"churn/{topic}")
        self.truth = ChurnTruth(alone=kind == "exclusive")
        self.raging = True
        self.life_seconds_mean = self.stream.choice(LIFE_SECONDS_MEANS)
        self.unsubscribe_rate = self.stream.choice([0.0, UNSUBSCRIBE_RATE])
        self.logs: dict[int, LogHistory] = {}
        self._producers: dict[int, SimulatedProducer] = {}
        self._written = trio.Event()

    async def run(self, seconds: float) -> None:
        """See `churn_subscription`."""
        await create_topic(self.cluster, self.topic, {})
        async with trio.open_nursery() as nursery:
            self._write_to(0, nursery)
            for number in range(1 if self.kind == "exclusive" else 2):
                nursery.start_soon(_ChurnReader(self, number).run)
            with trio.move_on_after(seconds):
                async with trio.open_nursery() as changing:
                    changing.start_soon(self._write)
                    changing.start_soon(self._grow, nursery)
            self.raging = False
            for producer in self._producers.values():
                await producer.flush()
            with trio.move_on_after(WHOLE_SECONDS):
                while self._missing():
                    await self.clock.sleep(0.5)
            assert not self._missing(), f"{self.topic}: {self._missing()}"
            nursery.cancel_scope.cancel()

    def _missing(self) -> str:
        written = {
            number: {send.offset: send.value for send in log.sends if send.offset >= 0}
            for number, log in self.logs.items()
        }
        return self.truth.missing(written)

    def _write_to(self, number: int, nursery: trio.Nursery) -> None:
        log = self.logs[number] = LogHistory()
        name = f"writer-{self.topic}-{number}"
        self._producers[number] = SimulatedProducer(
            self.cluster,
            self.topic,
            {number: log},
            name=name,
            batch_records_max=self.stream.choice([1, 4, 20]),
            key_of=lambda value: b"key %d" % (value[-1] % 3),
        )
        nursery.start_soon(self._producers[number].run)

    async def _write(self) -> None:
        sent = 0
        while True:
            number = self.stream.choice(list(self._producers))
            for _ in range(self.stream.choice([1, 1, 10])):
                self._producers[number].send(b"%d/%d" % (number, sent), number)
                sent += 1
            await self.clock.sleep(self.stream.expovariate(RECORDS_A_SECOND / 4))

    async def _grow(self, nursery: trio.Nursery) -> None:
        while len(self.logs) < PARTITIONS_MAX:
            await self.clock.sleep(self.stream.expovariate(1 / GROW_SECONDS_MEAN))
            count = self.stream.randint(len(self.logs) + 1, PARTITIONS_MAX)

            async def grow(connection: WireConnection, count: int = count) -> None:
                asked = CreatePartitionsTopic(name=self.topic, count=count, assignments=None)
                request = CreatePartitionsRequest(topics=[asked], timeout_ms=5000)
                answer = await connection.request(request, CREATE_PARTITIONS_VERSION, CreatePartitionsResponse)
                # An earlier try may have succeeded.
                expect(answer.results[0].error_code, "growth", ErrorCode.INVALID_PARTITIONS)

            await ask_until(self.cluster, grow)
            self.logger.debug("topic_grown", partitions=count)
            for number in range(len(self.logs), count):
                self._write_to(number, nursery)
                for sent in range(self.stream.choice([0, 3])):  # before any consumer knows of the partition
                    self._producers[number].send(b"first of %d/%d" % (number, sent), number)


class _ChurnReader:
    """A series of consumers, one at a time."""

    def __init__(self, topic: _ChurnedTopic, number: int) -> None:
        self._topic = topic
        self._name = f"{topic.topic}/{number}"
        self._world = topic.cluster.world
        self._addresses = ",".join(f"{host}:{NATIVE_PORT}" for host in topic.cluster.hosts)
        self._stream: Random = self._world.random(f"churns/{self._name}")
        self._lives = 0

    async def run(self) -> None:
        """Reads until it is cancelled."""
        while True:
            raging = self._topic.raging
            with trio.move_on_after(
                self._stream.expovariate(1 / self._topic.life_seconds_mean) if raging else float("inf")
            ):
                await self._live()
            self._topic.truth.interrupted()

    async def _live(self) -> None:
        self._lives += 1
        async with connect(self._addresses, world=self._world, name=f"{self._name}/{self._lives}") as client:
            try:
                consumer = await client.subscribe(
                    self._topic.topic,
                    "churned",
                    type=self._topic.kind,
                    initial_position="earliest",
                    queue_records=self._stream.randint(1, PERMITS_MAX),
                    ack_seconds=ACK_SECONDS,
                )
                self._topic.truth.interrupted()
                while await self._step(consumer):
                    pass
            except ConsumerClosed:
                pass
            except (NativeError, Unreachable) as error:
                self._topic.logger.debug("churn_interrupted", reason=type(error).__name__)
                await self._world.clock.sleep(0.5)

    async def _step(self, consumer: Consumer) -> bool:
        """Receives and answers one record; False if the consumer has ended."""
        message = await consumer.receive()
        truth, drawn = self._topic.truth, self._stream.random()
        truth.got(message.partition, message.offset, message.value or b"")
        if drawn < NACK_RATE:
            consumer.nack(message, self._stream.expovariate(1.0))
        elif drawn > NACK_RATE + LEFT_RATE:
            consumer.ack(message)
        if not self._topic.raging:
            return True
        if self._stream.random() < WAIT_RATE:
            await self._world.clock.sleep(self._stream.random())
        if self._stream.random() < SEEK_RATE:
            await self._seek(consumer)
        if self._stream.random() < self._topic.unsubscribe_rate:
            return not await self._unsubscribe(consumer)
        return True

    async def _seek(self, consumer: Consumer) -> None:
        """Seeks several times at once, to records before which all have come."""
        at_once = self._stream.randint(1, SEEKS_AT_ONCE_MAX)
        async with trio.open_nursery() as nursery:
            for _ in range(at_once):
                nursery.start_soon(self._seek_once, consumer)
        self._topic.logger.debug("seeks_at_once" if at_once > 1 else "sought")

    async def _seek_once(self, consumer: Consumer) -> None:
        truth = self._topic.truth
        number = self._stream.choice(list(truth.partitions))
        reached = truth.partition(number).first_missing
        if not reached:
            return
        offset = self._stream.randrange(reached)
        seek = truth.seeks(number, offset)
        try:
            found = await consumer.seek_to_offset(number, offset)
        except BaseException as error:
            truth.not_sought(seek)
            if isinstance(error, NativeError | Unreachable):
                return
            raise
        assert found == offset, f"a seek to {offset} of partition {number} went to {found}"
        truth.sought(seek)

    async def _unsubscribe(self, consumer: Consumer) -> bool:
        """Deletes the subscription; returns whether it is gone."""
        truth = self._topic.truth
        deletion = truth.deletes()
        try:
            await consumer.unsubscribe()
        except BaseException as error:
            truth.not_deleted(deletion, unknown=not isinstance(error, SubscriptionTaken))
            if isinstance(error, SubscriptionTaken):
                return False
            raise
        truth.deleted(deletion)
        self._topic.logger.debug("unsubscribed")
        return True
