"""A consumer of the native client: one subscription of one topic, over all its partitions.

1. A message that was received is given again, to this consumer or another one, unless it is acknowledged.
2. After a lost connection, a move of the leader or a seek nothing is handed out that came before.
3. What is acknowledged counts, over lost connections and moves of the leader, but not once its subscription was sought
   or made anew: that is another cursor epoch, and nothing said of messages of one before reaches a broker.
4. At most `queue_records` records of a partition wait here, and one batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from struct import unpack
from typing import TYPE_CHECKING, Any, Final, Literal

import trio

from gnomon.broker.native.consumer_options import ConsumerOptions
from gnomon.broker.native.errors import ConsumerClosed, InvalidCall, RecordsMissed
from gnomon.broker.native.message import DeliveredBatch, Message
from gnomon.broker.subscriptions.dlsn import Dlsn
from gnomon.wire.kafka.batch import MalformedBatch
from gnomon.wire.kafka.compression import CorruptData, TooLarge

if TYPE_CHECKING:
    from gnomon.broker.native.client import NativeClient
    from gnomon.broker.native.link import Link

UNREADABLE = (MalformedBatch, TooLarge, CorruptData)
DELAY_SECONDS_MAX: Final = 365 * 86_400.0


class Part:
    """One partition of a consumer."""

    __slots__ = (
        "acked",
        "consumer",
        "cursor_epoch",
        "early",
        "given_up",
        "initial_position",
        "link",
        "number",
        "owed",
        "partition",
        "unacked",
    )

    def __init__(self, consumer: Consumer, partition: int, number: int, initial_position: str) -> None:
        self.consumer = consumer
        self.partition = partition
        self.initial_position = initial_position
        """Where the subscription begins if it is new there."""
        self.number = number
        """What it is called on every connection."""
        self.link: Link | None = None
        """Where it is attached; None while it is not."""
        self.cursor_epoch = 0
        """Of the subscription there, as the broker that took it last has said: see `SubscriptionsStore`."""
        self.early: tuple[tuple[DeliveredBatch, bytes | None], ...] = ()
        """What was given before the broker has said so."""
        self.given_up = 0
        """Records below this offset were missed: what of them waits here is not handed out."""
        self.owed = 0
        """Permits for the broker: records that were handed out, or cannot be, since it was last told."""
        self.acked: list[int] = []
        """Runs that the broker was not told yet: first, end, first, end …"""
        self.unacked: dict[int, float] | None = None
        """Where there is an ack time-out: offsets and until when they may be acknowledged, the oldest first."""


class Consumer:
    """Made by `NativeClient.subscribe`."""

    __slots__ = ("_arrived", "_error", "_missed", "_queue", "_rest", "client", "name", "options", "parts", "topic")

    def __init__(self, client: NativeClient, topic: str, name: str, options: ConsumerOptions) -> None:
        self.client = client
        self.topic = topic
        self.name = name
        """Of the subscription."""
        self.options = options
        self.parts: list[Part] = []
        self._queue: deque[tuple[Part, DeliveredBatch, bytes | None]] = deque()
        self._rest: Iterator[Message] | None = None
        """What is left of the batch being handed out."""
        self._arrived: trio.Event | None = None
        self._error: Exception | None = None
        self._missed: tuple[RecordsMissed, ...] = ()
        """What is still to be raised."""

    # --- receiving ----------------------------------------------------------------------------------------------

    async def receive(self) -> Message:
        """The next message; waits for it.

        Raises:
            ConsumerClosed: this consumer or its client was closed.
            RecordsMissed: records were given up that the subscription had not acknowledged; the next call goes on.
            NativeError: the subscription cannot go on: its topic is gone, or another consumer has it.
            MalformedBatch, TooLarge, CorruptData: a batch cannot be read; the next call goes on behind it.
        """
        await trio.lowlevel.checkpoint()
        while True:
            message = self.take()
            if message is not None:
                return message
            if self._arrived is None:  # else another task waits for the same
                self._arrived = trio.Event()
            await self._arrived.wait()

    def take(self) -> Message | None:
        """The next message if there is one here; raises as `receive`."""
        if self._missed:
            missed, *later = self._missed
            self._missed = tuple(later)
            raise missed
        while True:
            if self._rest is not None:
                for message in self._rest:
                    return self._handed_out(message)
                self._rest = None
            if not self._queue:
                break
            self._rest = self._messages(*self._queue.popleft())
        if self._error is not None:
            raise self._error
        return None

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.receive()
        except ConsumerClosed:
            raise StopAsyncIteration from None

    def _handed_out(self, message: Message) -> Message:
        part = message.part
        self._owe(part, 1)
        if part.unacked is not None:
            assert self.options.ack_seconds is not None
            part.unacked[message.offset] = self.client.now() + self.options.ack_seconds
        return message

    def _owe(self, part: Part, records: int) -> None:
        part.owed += records
        if part.owed * 2 >= self.options.queue_records:
            self.client.teller.owes(part)

    def _messages(self, part: Part, batch: DeliveredBatch, slots: bytes | None) -> Iterator[Message]:
        """What came of a batch; where it cannot be read its permits are owed at once, and the error is raised."""
        places = range(batch.count) if slots is None else unpack(f"<{len(slots) // 4}I", slots)
        try:
            records = batch.records
        except UNREADABLE:
            self._owe(part, len(places))
            raise
        for slot in places:
            offset = batch.base_offset + slot
            if offset < part.given_up:
                self._owe(part, 1)
                self._done(part, offset)  # the broker keeps its key for this consumer until then
            else:
                yield Message(part, batch, slot, records[slot])

    # --- answering ----------------------------------------------------------------------------------------------

    def ack(self, message: Message) -> None:
        """Acknowledges one message; the broker learns of it within some ten milliseconds.

        Raises:
            InvalidCall: it is no message of this consumer.
        """
        part = self.part_of(message)
        offset = message.offset
        if message.cursor_epoch != part.cursor_epoch:
            return
        self._done(part, offset)
        if part.unacked is not None:
            part.unacked.pop(offset, None)

    def _done(self, part: Part, offset: int) -> None:
        acked = part.acked
        if acked and acked[-1] == offset:
            acked[-1] = offset + 1
        else:
            if not acked:
                self.client.teller.has_acked(part)
            acked.append(offset)
            acked.append(offset + 1)

    def ack_up_to(self, message: Message) -> None:
        """Acknowledges a message and all before it in its partition.

        Raises:
            InvalidCall: it is no message of this consumer, or several may share the subscription.
        """
        part, end = self.part_for_all_up_to(message), message.offset + 1
        if message.cursor_epoch != part.cursor_epoch:
            return
        self.client.teller.ack_up_to(part, end)
        if part.unacked is not None:
            part.unacked = {offset: due for offset, due in part.unacked.items() if offset >= end}

    def nack(self, message: Message, delay_seconds: float = 1.0) -> None:
        """Says that a message could not be dealt with: after a while it is given again, perhaps to another one.

        Args:
            delay_seconds: the while; at most a year.

        Raises:
            InvalidCall: it is no message of this consumer, or no such while.
        """
        part, offset = self.part_to_delay(message, delay_seconds), message.offset
        if message.cursor_epoch != part.cursor_epoch:
            return
        if part.unacked is not None:
            part.unacked.pop(offset, None)
        self.client.teller.nack(part, offset, offset + 1, delay_seconds)

    # --- the subscription ---------------------------------------------------------------------------------------

    async def seek(self, to: Message | Literal["earliest", "latest"]) -> None:
        """Goes to a message of one partition, or to the beginning or end of all; that message is received next.

        Raises:
            NativeError, Unreachable: it did not work, or whether so is unknown; InvalidCall: there is no such place.
        """
        if isinstance(to, Message):
            await self.client.seek([self.part_of(to)], "id", to.id.encode())
        else:
            await self.client.seek(self.parts, to, [])

    async def seek_to_id(self, partition: int, message_id: Dlsn) -> None:
        """Goes to a message by its id."""
        await self.client.seek([self._part(partition)], "id", message_id.encode())

    async def seek_to_offset(self, partition: int, offset: int) -> None:
        """Goes to an offset of one partition, within what it has."""
        await self.client.seek([self._part(partition)], "offset", [offset])

    async def seek_to_time(self, timestamp_ms: int) -> None:
        """Goes in each partition to the first message that is as late, milliseconds since 1970; else to the end."""
        await self.client.seek(self.parts, "time", [timestamp_ms])

    async def stats(self) -> list[dict[str, Any]]:
        """Of each partition: type, consumers, offset, acknowledged_ahead, backlog (records not acknowledged)."""
        return await self.client.stats(self)

    async def backlog(self) -> int:
        """How many records are not acknowledged, in all partitions."""
        return sum(each["backlog"] for each in await self.stats())

    async def unsubscribe(self) -> None:
        """Deletes the subscription and closes this consumer.

        Raises:
            SubscriptionTaken: it has other consumers.
        """
        await self.client.unsubscribe(self)

    async def close(self) -> None:
        """Ends this consumer; the subscription stays. What it acknowledged is told to the broker first. Idempotent."""
        await self.client.close_consumers([self])

    def _part(self, partition: int) -> Part:
        if partition not in range(len(self.parts)):
            raise InvalidCall(f"topic '{self.topic}' has partitions 0 to {len(self.parts) - 1}, not {partition!r}")
        return self.parts[partition]

    # --- what may be answered: also asked by other threads ------------------------------------------------------

    def part_of(self, message: Message) -> Part:
        """The part through which a message came.

        Raises:
            InvalidCall: it did not come to this consumer.
        """
        if not isinstance(message, Message) or message.part.consumer is not self:
            raise InvalidCall(f"subscription {self.name!r} takes messages that this consumer received, not {message!r}")
        return message.part

    def part_for_all_up_to(self, message: Message) -> Part:
        """`part_of` what is acknowledged with all before it; raises as `ack_up_to`."""
        if self.options.shared:
            raise InvalidCall(
                f"other consumers may hold what comes before: acknowledge the messages of subscription {self.name!r},"
                f" which is {self.options.kind}, one by one"
            )
        return self.part_of(message)

    def part_to_delay(self, message: Message, delay_seconds: float) -> Part:
        """`part_of` what is given again after a while; raises as `nack`."""
        if not 0 <= delay_seconds <= DELAY_SECONDS_MAX:
            raise InvalidCall(f"delay_seconds is a number from 0 to {DELAY_SECONDS_MAX:.0f}, not {delay_seconds!r}")
        return self.part_of(message)

    # --- for the client -----------------------------------------------------------------------------------------

    def attached(self, part: Part, cursor_epoch: int) -> None:
        """A broker has taken a partition's subscription, which is of this epoch there."""
        if part.cursor_epoch != cursor_epoch:
            part.cursor_epoch = cursor_epoch
            part.acked.clear()
        early, part.early = part.early, ()
        for batch, slots in early:
            self.deliver(part, batch, slots)

    def deliver(self, part: Part, batch: DeliveredBatch, slots: bytes | None) -> None:
        """A batch has arrived."""
        if part.link is None:
            part.early += ((batch, slots),)
            return
        listener = self.options.listener
        if listener is not None:
            try:
                for message in self._messages(part, batch, slots) if self._error is None else ():
                    listener(self, self._handed_out(message))
            except UNREADABLE as error:
                self.fail(error)
            return
        self._queue.append((part, batch, slots))
        self._stir()

    def missed(self, part: Part, first: int, end: int) -> None:
        """Records went that were not acknowledged."""
        part.given_up = end
        if self._missed and (self._missed[-1].partition, self._missed[-1].end) == (part.partition, first):
            first = self._missed[-1].first
            self._missed = self._missed[:-1]
        error = RecordsMissed(self.topic, part.partition, self.name, first, end)
        if self.options.on_missed is not None:
            self.options.on_missed(self, error)
        else:
            self._missed += (error,)
            self._stir()

    def forget(self, part: Part) -> None:
        """What came for a partition comes again."""
        part.owed = part.given_up = 0
        part.early = ()
        if part.unacked:
            part.unacked.clear()
        self._queue = deque(item for item in self._queue if item[0] is not part)
        if self._rest is not None:
            self._rest = iter([message for message in self._rest if message.part is not part])

    def fail(self, error: Exception) -> None:
        """Nothing comes any more."""
        self._error = self._error or error
        self._stir()

    def end(self) -> None:
        """It was closed: what is here is not handed out either."""
        self._error = ConsumerClosed(f"the consumer of subscription {self.name!r} of topic '{self.topic}' is closed")
        self._queue.clear()
        self._rest = None
        self._stir()

    @property
    def error(self) -> Exception | None:
        """Why nothing comes any more."""
        return self._error

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return isinstance(self._error, ConsumerClosed)

    def _stir(self) -> None:
        if self._arrived is not None:
            self._arrived.set()
            self._arrived = None
