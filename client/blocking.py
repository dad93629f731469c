"""`NativeClient` for programs without Trio: the same methods, as blocking calls.

    with gnomon.connect_blocking("127.0.0.1:6650") as client:
        consumer = client.subscribe("flights", "billing", initial_position="earliest")
        for message in consumer:
            print(message.value)
            consumer.ack(message)

One thread runs Trio for as long as the block lasts; any number of other threads may call at the same time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import trio

from gnomon.client.client import NativeClient, connect
from gnomon.client.consumer import Consumer
from gnomon.client.consumer_options import QUEUE_RECORDS, Position, Type
from gnomon.client.described_subscription import DescribedSubscription, IdleSubscription, ListedSubscription
from gnomon.client.errors import ConsumerClosed
from gnomon.client.message import Message
from gnomon.client.subscriptions import Subscriptions
from gnomon.client.tables.blocking_table import BlockingTable
from gnomon.client.tables.listed_table import ListedTable
from gnomon.client.writes.blocking_writer import BlockingWriter
from gnomon.client.writes.client_write import WriteRecord
from gnomon.client.writes.end import End
from gnomon.client.writes.writer import Writer
from gnomon.log.dlsn import Dlsn
from gnomon.log.sn import SN
from gnomon.runtime.trio_thread import TrioThread, in_trio_thread
from gnomon.wire.kafka.records import Header

FETCHED_MAX = 100
"""Messages that one call into the Trio thread fetches: such a call costs as much as a hundred messages."""


class BlockingConsumer:
    """A blocking `Consumer`; see there for the guarantees and errors of each method."""

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
        """The next message, or None if none arrives in time."""
        while True:
            try:
                message = self._fetched.popleft()
                if message.cursor_epoch == message.part.cursor_epoch:
                    return message  # otherwise the message was fetched before a seek
            except IndexError:
                failure, self._failure = self._failure, None
                if failure is not None:
                    raise failure from None
                if not self._thread.call(self._fetch, seconds):
                    return None

    async def _fetch(self, seconds: float) -> bool:
        """Fetches messages; they are kept even if the calling thread is interrupted. Returns whether any arrived."""
        message = self._consumer.take()
        with trio.move_on_after(seconds):
            if message is None:
                message = await self._consumer.receive()
        if message is None:
            return False
        self._fetched.append(message)
        try:
            for _ in range(FETCHED_MAX - 1):
                message = self._consumer.take()
                if message is None:
                    break
                self._fetched.append(message)
        except Exception as error:  # raised once all earlier messages are received
            self._failure = error
        return True

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

    def seek(self, to: Message | Literal["earliest", "latest"]) -> dict[int, int]:
        """See `Consumer.seek`."""
        return self._thread.call(self._consumer.seek, to)

    def seek_to_id(self, partition: int, message_id: Dlsn) -> int:
        """See `Consumer.seek_to_id`."""
        return self._thread.call(self._consumer.seek_to_id, partition, message_id)

    def seek_to_offset(self, partition: int, offset: int) -> int:
        """See `Consumer.seek_to_offset`."""
        return self._thread.call(self._consumer.seek_to_offset, partition, offset)

    def seek_to_time(self, timestamp_ms: int) -> dict[int, int]:
        """See `Consumer.seek_to_time`."""
        return self._thread.call(self._consumer.seek_to_time, timestamp_ms)

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


class BlockingSubscriptions:
    """Blocking `Subscriptions`; see there for the guarantees and errors of each method."""

    def __init__(self, thread: TrioThread, subscriptions: Subscriptions) -> None:
        self._thread = thread
        self._subscriptions = subscriptions

    def topics(self) -> list[str]:
        """See `Subscriptions.topics`."""
        return self._thread.call(self._subscriptions.topics)

    def idle(self) -> list[IdleSubscription]:
        """See `Subscriptions.idle`."""
        return self._thread.call(self._subscriptions.idle)

    def describe(self, topic: str, name: str) -> DescribedSubscription:
        """See `Subscriptions.describe`."""
        return self._thread.call(self._subscriptions.describe, topic, name)

    def seek(
        self, topic: str, name: str, to: Literal["earliest", "latest"], *, partitions: Collection[int] | None = None
    ) -> dict[int, int]:
        """See `Subscriptions.seek`."""
        return self._thread.call(self._subscriptions.seek, topic, name, to, partitions=partitions)

    def seek_to_offset(
        self, topic: str, name: str, offset: int, *, partitions: Collection[int] | None = None
    ) -> dict[int, int]:
        """See `Subscriptions.seek_to_offset`."""
        return self._thread.call(self._subscriptions.seek_to_offset, topic, name, offset, partitions=partitions)

    def seek_to_time(
        self, topic: str, name: str, timestamp_ms: int, *, partitions: Collection[int] | None = None
    ) -> dict[int, int]:
        """See `Subscriptions.seek_to_time`."""
        return self._thread.call(self._subscriptions.seek_to_time, topic, name, timestamp_ms, partitions=partitions)

    def delete(self, topic: str, name: str) -> None:
        """See `Subscriptions.delete`."""
        self._thread.call(self._subscriptions.delete, topic, name)

    def list(self, topic: str, *, after: str = "", count: int | None = None) -> list[ListedSubscription]:
        """See `Subscriptions.list`."""
        return self._thread.call(self._subscriptions.list, topic, after=after, count=count)


class BlockingClient:
    """A blocking `NativeClient`; see there for the guarantees and errors of each method."""

    def __init__(self, thread: TrioThread, client: NativeClient) -> None:
        self._thread = thread
        self._client = client
        self.subscriptions = BlockingSubscriptions(thread, client.subscriptions)
        """The subscriptions of all topics, for operators."""

    def write(
        self,
        topic: str,
        value: bytes | None,
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        transaction_id: int | None = None,
        expected: SN | Dlsn | None = None,
        token: bytes | None = None,
    ) -> SN:
        """See `NativeClient.write`."""

        async def write() -> SN:
            return await self._client.write(
                topic,
                value,
                partition=partition,
                key=key,
                headers=headers,
                transaction_id=transaction_id,
                expected=expected,
                token=token,
            )

        return self._thread.call(write)

    def write_batch(
        self,
        topic: str,
        records: Iterable[bytes | WriteRecord | None],
        *,
        partition: int = 0,
        transaction_id: int | None = None,
        expected: SN | Dlsn | None = None,
        token: bytes | None = None,
    ) -> SN:
        """See `NativeClient.write_batch`."""

        async def write() -> SN:
            return await self._client.write_batch(
                topic, records, partition=partition, transaction_id=transaction_id, expected=expected, token=token
            )

        return self._thread.call(write)

    @contextmanager
    def writer(self, topic: str, *, partition: int = 0, token: bytes | None = None) -> Iterator[BlockingWriter]:
        """See `NativeClient.writer`."""
        writes = self._client.writes

        async def open_writer() -> Writer:
            return writes.open_writer(topic, partition, token)

        async def close_writer() -> None:
            writes.close_writer(writer)

        writer = self._thread.call(open_writer)
        try:
            yield BlockingWriter(self._thread, writer)
            self._thread.call(writer.flush)
        finally:
            self._thread.call(close_writer)

    def fence(
        self,
        topic: str,
        partition: int,
        new_token: bytes,
        *,
        expected: SN | Dlsn | None = None,
        token: bytes | None = None,
    ) -> None:
        """See `NativeClient.fence`."""

        async def fence() -> None:
            await self._client.fence(topic, partition, new_token, expected=expected, token=token)

        self._thread.call(fence)

    def end(self, topic: str, partition: int = 0) -> End:
        """See `NativeClient.end`."""
        return self._thread.call(self._client.end, topic, partition)

    def table(self, topic: str) -> BlockingTable:
        """See `NativeClient.table`."""
        return BlockingTable(self._thread, self._client.table(topic))

    def tables(self) -> list[ListedTable]:
        """See `NativeClient.tables`."""
        return self._thread.call(self._client.tables)

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
    """A blocking native client, for as long as the block lasts; see `connect` for the address and errors."""
    with in_trio_thread(connect(address), "native client", _closed) as (client, thread):
        yield BlockingClient(thread, client)


def _closed() -> ConsumerClosed:
    return ConsumerClosed("the client was closed: connect again")
