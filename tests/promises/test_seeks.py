"""Consumers that seek while a producer writes steadily: the next message is the requested one, and none is lost."""

from __future__ import annotations

import os
import random
from collections import deque
from typing import Any

import pytest
import trio
from house import House
from steady_producer import SteadyProducer

from gnomon.client.blocking import connect_blocking
from gnomon.client.client import connect
from gnomon.client.consumer_options import Type
from gnomon.client.message import Message
from gnomon.testing.storms.subscriptions.seek_truth import SeekTruth

SEEKS = int(os.environ.get("SEEKS", "5"))
BETWEEN_SEEKS_MEAN = 200
"""The mean number of messages between two seeks."""
RECENT = 3000
"""A seek goes back to one of this many last messages."""
KINDS: tuple[Type, ...] = ("exclusive", "shared", "key_shared")


class Seeking:
    """The next steps of one consumer, and the records that it has received."""

    def __init__(self, producer: SteadyProducer, kind: Type, seed: str) -> None:
        self.truth = SeekTruth()
        self.random = random.Random(seed)
        self._producer = producer
        self._kind = kind
        self._recent: deque[Message] = deque(maxlen=RECENT)
        self._next_offset = 0
        self._finished = False

    @property
    def over(self) -> bool:
        """Whether the consumer has made its seeks and received every record, those after its last seek again."""
        if self.truth.seeks < SEEKS:
            return False
        if not self._finished:
            self._producer.finish()
            self._finished = True
        return self._next_offset >= len(self._producer.written)

    def answer(self, consumer: Any, message: Message) -> None:
        """Notes and acknowledges a message, at times together with all before it."""
        self.truth.got(message.offset, message.value or b"")
        self._next_offset = message.offset + 1
        self._recent.append(message)
        if self._kind == "exclusive" and self.random.random() < 0.5:
            consumer.ack_up_to(message)
        else:
            consumer.ack(message)

    def next_seek(self) -> Message | None:
        """The message to seek to now; None to read on."""
        if self.truth.seeks >= SEEKS or self.random.random() * BETWEEN_SEEKS_MEAN >= 1:
            return None
        return self.random.choice(self._recent)

    def sought(self, to: Message) -> None:
        """A seek to a message has returned."""
        self.truth.sought(to.offset)
        self._next_offset = to.offset


async def seek_with_trio(house: House, topic: str, kind: Type, seeking: Seeking) -> int:
    async with connect(house.native) as client:
        consumer = await client.subscribe(topic, "seeker", type=kind, initial_position="earliest")
        while not seeking.over:
            seeking.answer(consumer, await consumer.receive())
            to = seeking.next_seek()
            if to is not None:
                await consumer.seek(to)
                seeking.sought(to)
        return await consumer.backlog()


def seek_blocking(house: House, topic: str, kind: Type, seeking: Seeking) -> int:
    with connect_blocking(house.native) as client:
        consumer = client.subscribe(topic, "seeker", type=kind, initial_position="earliest")
        while not seeking.over:
            message = consumer.receive(seconds=30.0)
            assert message is not None, "no message for 30 s"
            seeking.answer(consumer, message)
            to = seeking.next_seek()
            if to is not None:
                consumer.seek(to)
                seeking.sought(to)
        return consumer.backlog()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shadow", [False, True], ids=["source", "shadow"])
@pytest.mark.parametrize("blocking", [False, True], ids=["trio", "blocking"])
def test_the_message_after_a_seek_is_the_requested_one_and_no_record_is_lost(
    house: House, kind: Type, shadow: bool, blocking: bool
) -> None:
    name = f"{kind}-{'shadow' if shadow else 'source'}-{'blocking' if blocking else 'trio'}"
    source, topic = house.topic(name, shadow=shadow)
    with SteadyProducer(house.kafka, source) as producer:
        seeking = Seeking(producer, kind, name)
        if blocking:
            backlog = seek_blocking(house, topic, kind, seeking)
        else:
            backlog = trio.run(seek_with_trio, house, topic, kind, seeking)
    seeking.truth.check_whole(producer.written)
    assert backlog == 0
    print(f"{name}: {seeking.truth.seeks} seeks, {len(producer.written)} records, each received")
