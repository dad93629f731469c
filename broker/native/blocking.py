"""`NativeClient` for programs without Trio: the same methods, which block.

    with gnomon.connect_blocking("127.0.0.1:6650") as client:
        consumer = client.subscribe("flights", "billing", initial_position="earliest")
        for message in consumer:
            print(message.value)
            consumer.ack(message)

One thread runs Trio for as long as the block lasts; any other thread may call, several at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import trio

from gnomon.broker.native.client import NativeClient, connect
from gnomon.broker.native.consumer import Consumer
from gnomon.broker.native.consumer_options import QUEUE_RECORDS, Position, Type
from gnomon.broker.native.errors import ConsumerClosed
from gnomon.broker.native.message import Message
from gnomon.broker.subscriptions.dlsn import Dlsn
from gnomon.runtime.trio_thread import TrioThread, in_trio_thread

FETCHED_MAX = 100
"""Messages that one call into the other thread brings: such a call costs as much as a hundred of them."""


class BlockingConsumer:
    """A consumer; see `Consumer` for what each method promises and raises."""

    def __init__(self, thread: TrioThread, consumer: Consumer) -> None:
        self._thread = thread
        self._consumer = consumer
        self._fetched: deque[Message] = deque()
        self._failure: Exception | None = None

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._consumer.topic

    @property
    def name(self) -> str:
        """The subscription's name."""
        return self._consumer.name

    def receive(self, *, seconds: float = float("inf")) -> Message | None:
        """The next message; None where none came in time."""
        while True:
            try:
                message = self._fetched.popleft()
                if message.cursor_epoch == message.part.cursor_epoch:
                    return message  # else it was received before a seek
            except IndexError:
                failure, self._failure = self._failure, None
                if failure is not None:
                    raise failure from None
                more = self._thread.call(self._fetch, seconds)
                if not more:
                    return None
                self._fetched.extend(more)

    async def _fetch(self, seconds: float) -> list[Message]:
        message = self._consumer.take()
        with trio.move_on_after(seconds):
            if message is None:
                message = await self._consumer.receive()
        messages: list[Message] = []
        try:
            while message is not None:
                messages.append(message)
                message = self._consumer.take() if len(messages) < FETCHED_MAX else None
        except Exception as error:  # told once those before it have been taken
            self._failure = error
        return messages

    def __iter__(self) -> Iterator[Message]:
        while True:
            try:
                message = self.receive()
            except ConsumerClosed:
                return
            if message is not None:
                yield message

    def ack(self, message: Message) -> None:
        """See `Consumer.ack`."""
        self._consumer.part_of(message)
        self._thread.soon(self._consumer.ack, message)

    def ack_up_to(self, message: Message) -> None:
        """See `Consumer.ack_up_to`."""
        self._consumer.part_for_all_up_to(message)
        self._thread.soon(self._consumer.ack_up_to, message)

    def nack(self, message: Message, delay_seconds: float = 1.0) -> None:
        """See `Consumer.nack`."""
        self._consumer.part_to_delay(message, delay_seconds)
        self._thread.soon(self._consumer.nack, message, delay_seconds)

    def seek(self, to: Message | Literal["earliest", "latest"]) -> None:
        """See `Consumer.seek`."""
        self._thread.call(self._consumer.seek, to)

    def seek_to_id(self, partition: int, message_id: Dlsn) -> None:
        """See `Consumer.seek_to_id`."""
        self._thread.call(self._consumer.seek_to_id, partition, message_id)

    def seek_to_offset(self, partition: int, offset: int) -> None:
        """See `Consumer.seek_to_offset`."""
        self._thread.call(self._consumer.seek_to_offset, partition, offset)

    def seek_to_time(self, timestamp_ms: int) -> None:
        """See `Consumer.seek_to_time`."""
        self._thread.call(self._consumer.seek_to_time, timestamp_ms)

    def stats(self) -> list[dict[str, Any]]:
        """See `Consumer.stats`."""
        return self._thread.call(self._consumer.stats)

    def backlog(self) -> int:
        """See `Consumer.backlog`."""
        return self._thread.call(self._consumer.backlog)

    def unsubscribe(self) -> None:
        """See `Consumer.unsubscribe`."""
        self._thread.call(self._consumer.unsubscribe)
        self._fetched.clear()

    def close(self) -> None:
        """See `Consumer.close`."""
        self._thread.call(self._consumer.close)
        self._fetched.clear()


class BlockingClient:
    """A client; see `NativeClient` for what each method promises and raises."""

    def __init__(self, thread: TrioThread, client: NativeClient) -> None:
        self._thread = thread
        self._client = client

    def subscribe(
        self,
        topic: str,
        name: str,
        *,
        type: Type = "exclusive",
        initial_position: Position = "latest",
        queue_records: int = QUEUE_RECORDS,
        ack_seconds: float | None = None,
    ) -> BlockingConsumer:
        """See `NativeClient.subscribe`."""

        async def subscribe() -> Consumer:
            return await self._client.subscribe(
                topic,
                name,
                type=type,
                initial_position=initial_position,
                queue_records=queue_records,
                ack_seconds=ack_seconds,
            )

        return BlockingConsumer(self._thread, self._thread.call(subscribe))


@contextmanager
def connect_blocking(address: str) -> Iterator[BlockingClient]:
    """A native client, for as long as the block lasts; see `connect` for the address and errors."""
    with in_trio_thread(connect(address), "native client", _closed) as (client, thread):
        yield BlockingClient(thread, client)


def _closed() -> ConsumerClosed:
    return ConsumerClosed("the client was closed: connect again")
