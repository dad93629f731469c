"""A consumer of the native client: one subscription of one topic, over all its partitions.

A part is the consumer's share of one partition; it is attached while a broker delivers records to it.

1. A message that was received and not acknowledged is delivered again, to this consumer or another one: after a `nack`,
   after `ack_seconds`, or after this consumer was closed or has lost its broker.
2. After a lost connection, a move of the leader or a seek, no earlier delivery is handed out: each attachment of a part
   has a number of its own, and a delivery names the number.
3. An acknowledgement survives a lost connection and a move of the leader. After a seek, or after the subscription was
   created again (another cursor epoch), acknowledgements of earlier messages have no effect.
4. At most `queue_records` records of a partition, and one batch more, wait here to be received.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from struct import unpack
from typing import Any, Final, Literal, TypeAlias

import trio

from gnomon.client.ack_sender import AckSender
from gnomon.client.attachments import Attachments
from gnomon.client.consumer_options import ConsumerOptions
from gnomon.client.delivered_batch import DeliveredBatch
from gnomon.client.errors import ConsumerClosed, InvalidCall, NoSuchSubscription, RecordsMissed
from gnomon.client.message import Message
from gnomon.client.part import Part
from gnomon.log.dlsn import Dlsn
from gnomon.runtime.signal import Signal
from gnomon.runtime.world import Clock
from gnomon.wire.kafka.batch import MalformedBatch
from gnomon.wire.kafka.compression import CorruptData, UnpackedTooLarge

UNREADABLE = (MalformedBatch, UnpackedTooLarge, CorruptData)
DELAY_SECONDS_MAX: Final = 365 * 86_400.0

Listener: TypeAlias = "Callable[[Consumer, Message], None]"
OnMissed: TypeAlias = "Callable[[Consumer, RecordsMissed], None]"


class Consumer:
    """Made by `NativeClient.subscribe`."""

    __slots__ = (
        "_acks",
        "_arrived",
        "_attachments",
        "_clock",
        "_close",
        "_error",
        "_listener",
        "_missed",
        "_on_missed",
        "_queue",
        "_rest",
        "name",
        "options",
        "parts",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        name: str,
        options: ConsumerOptions,
        listener: Listener | None,
        on_missed: OnMissed | None,
        *,
        attachments: Attachments,
        acks: AckSender,
        clock: Clock,
        close: Callable[[Iterable[Consumer]], Awaitable[None]],
    ) -> None:
        """A consumer without parts; see `grow`.

        Args:
            close: closes consumers, and waits until their brokers know.
        """
        self.topic = topic
        self.name = name
        """The subscription's name."""
        self.options = options
        self.parts: list[Part] = []
        self._listener = listener
        self._on_missed = on_missed
        self._attachments = attachments
        self._acks = acks
        self._clock = clock
        self._close = close
        self._queue: deque[tuple[Part, DeliveredBatch, bytes | None]] = deque()
        self._rest: Iterator[Message] | None = None
        """The remaining messages of the batch that is being handed out."""
        self._arrived = Signal()
        self._error: Exception | None = None
        self._missed: tuple[RecordsMissed, ...] = ()
        """Errors that `receive` has yet to raise."""

    # --- receiving ----------------------------------------------------------------------------------------------

    async def receive(self) -> Message:
        """Waits for the next message and returns it.

        Raises:
            ConsumerClosed: this consumer or its client was closed.
            RecordsMissed: records were removed before the subscription acknowledged them; the next call continues.
            NativeError: the subscription cannot continue: its topic is gone, or another consumer has it.
            MalformedBatch, UnpackedTooLarge, CorruptData: a batch cannot be read; the next call continues after it.
        """
        await trio.lowlevel.checkpoint()
        while True:
            message = self.take()
            if message is not None:
                return message
            await self._arrived.wait()

    def take(self) -> Message | None:
        """The next message if one is here, otherwise None; raises as `receive`."""
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
        part.owed += 1  # `_owe`, inlined: a message in 2.6 µs and not 2.7
        if part.owed * 2 >= self.options.queue_records:
            self._acks.permits_due(part)
        if part.unacked is not None:
            assert self.options.ack_seconds is not None
            part.unacked[message.offset] = self._clock.monotonic() + self.options.ack_seconds
        return message

    def _owe(self, part: Part, records: int) -> None:
        part.owed += records
        if part.owed * 2 >= self.options.queue_records:
            self._acks.permits_due(part)

    def _messages(self, part: Part, batch: DeliveredBatch, slots: bytes | None) -> Iterator[Message]:
        """The messages of a delivery. For an unreadable batch its permits are owed at once and the error is raised."""
        places = range(batch.count) if slots is None else unpack(f"<{len(slots) // 4}I", slots)
        try:
            records = batch.records
        except UNREADABLE:
            self._owe(part, len(places))
            raise
        for slot in places:
            offset, record = batch.base_offset + slot, records[slot]
            if record is None or offset < part.given_up:
                self._owe(part, 1)
                self._done(part, offset)  # until then the broker keeps the record's key for this consumer
            else:
                yield Message(part, batch, slot, record)

    # --- acknowledging ------------------------------------------------------------------------------------------

    def ack(self, message: Message) -> None:
        """Acknowledges one message; the acknowledgement is sent within some ten milliseconds.

        Raises:
            InvalidCall: another consumer received the message.
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
                self._acks.acks_due(part)
            acked.append(offset)
            acked.append(offset + 1)

    def ack_up_to(self, message: Message) -> None:
        """Acknowledges a message and all earlier ones of its partition.

        Raises:
            InvalidCall: another consumer received the message, or several consumers may share the subscription.
        """
        part, end = self.part_for_all_up_to(message), message.offset + 1
        if message.cursor_epoch != part.cursor_epoch:
            return
        self._acks.ack_up_to(part, end)
        if part.unacked is not None:
            part.unacked = {offset: due for offset, due in part.unacked.items() if offset >= end}

    def nack(self, message: Message, delay_seconds: float = 1.0) -> None:
        """Returns a message that could not be processed: it is delivered again later, perhaps to another consumer.

        Args:
            delay_seconds: the least time until then; at most a year.

        Raises:
            InvalidCall: another consumer received the message, or the delay is out of range.
        """
        part, offset = self.part_to_delay(message, delay_seconds), message.offset
        if message.cursor_epoch != part.cursor_epoch:
            return
        if part.unacked is not None:
            part.unacked.pop(offset, None)
        self._acks.nack(part, offset, offset + 1, delay_seconds)

    # --- the subscription ---------------------------------------------------------------------------------------

    async def seek(self, to: Message | Literal["earliest", "latest"]) -> dict[int, int]:
        """Moves the subscription to a message of one partition, or to the beginning or end of all partitions.

        That message is received next; if it was removed, the first later one that exists.

        Returns:
            The offset at which consuming continues, by partition.

        Raises:
            NativeError: the seek failed, or its outcome is unknown; InvalidCall: no such place.
        """
        if isinstance(to, Message):
            return await self._seek([self.part_of(to)], "id", to.id.encode())
        return await self._seek(self.parts, to, [])

    async def seek_to_id(self, partition: int, message_id: Dlsn) -> int:
        """Moves one partition to a message's id; see `seek_to_offset` for an id that does not exist."""
        return (await self._seek([self._part(partition)], "id", message_id.encode()))[partition]

    async def seek_to_offset(self, partition: int, offset: int) -> int:
        """Moves one partition to an offset.

        An offset before the first stored record moves the subscription to that record, one after the end to the end.

        Returns:
            The offset at which consuming continues, which may differ for the reason above.
        """
        return (await self._seek([self._part(partition)], "offset", [offset]))[partition]

    async def seek_to_time(self, timestamp_ms: int) -> dict[int, int]:
        """Moves each partition to the first message at or after a time, milliseconds since 1970, or to its end.

        Returns:
            The offset at which consuming continues, by partition.
        """
        return await self._seek(self.parts, "time", [timestamp_ms])

    async def _seek(self, parts: Iterable[Part], where: str, to: list[Any]) -> dict[int, int]:
        self._acks.flush()
        offsets: dict[int, int] = {}
        leaders = self._attachments.leaders
        with self._attachments.held(parts):
            for part in parts:
                offsets[part.partition] = await leaders.ask(self.topic, part.partition, "seek", self.name, where, to)
        await self._attachments.attached(self.parts)
        return offsets

    async def stats(self) -> list[dict[str, Any]]:
        """Statistics by partition: type, consumers, offset, acknowledged_ahead, backlog (unacknowledged records)."""
        self._acks.flush()
        found = []
        for part in self.parts:
            stats = await self._attachments.leaders.ask(self.topic, part.partition, "stats", [self.name])
            if self.name not in stats:
                raise NoSuchSubscription(f"topic '{self.topic}' has no subscription {self.name!r}")
            found.append(stats[self.name])
        return found

    async def backlog(self) -> int:
        """The number of unacknowledged records, in all partitions."""
        return sum(each["backlog"] for each in await self.stats())

    async def unsubscribe(self) -> None:
        """Deletes the subscription and closes this consumer.

        Raises:
            SubscriptionTaken: the subscription has other consumers.
        """
        # The topic may have grown a moment ago: the subscription is deleted in the new partitions as well.
        self.grow(len(await self._attachments.leaders.find(self.topic)), "earliest")
        self._acks.flush()
        with self._attachments.held(self.parts):  # a part that was attached again would create the subscription again
            await self._unsubscribe(really=False)
            for part in self.parts:
                part.initial_position = "earliest"  # skips nothing if the part is attached again after a failure
            await self._unsubscribe(really=True)
            await self.close()

    async def _unsubscribe(self, *, really: bool) -> None:
        """Deletes the subscription in every partition, or only finds out whether a broker would refuse that."""
        for part in self.parts:
            client = self._attachments.client_of(part)
            try:
                await self._attachments.leaders.ask(
                    self.topic, part.partition, "unsubscribe", self.name, client, really
                )
            except NoSuchSubscription:
                pass  # an earlier attempt has deleted it

    async def close(self) -> None:
        """Closes this consumer; its acknowledgements are sent first, and the subscription stays. Idempotent.

        A caller that is cancelled has closed the consumer, too.
        """
        await self._close([self])

    def _part(self, partition: int) -> Part:
        if partition not in range(len(self.parts)):
            raise InvalidCall(f"topic '{self.topic}' has partitions 0 to {len(self.parts) - 1}, not {partition!r}")
        return self.parts[partition]

    # --- checks of acknowledgements: other threads call them, too -----------------------------------------------

    def part_of(self, message: Message) -> Part:
        """The part that received a message.

        Raises:
            InvalidCall: another consumer received the message.
        """
        if not isinstance(message, Message) or message.part.consumer is not self:
            raise InvalidCall(f"subscription {self.name!r} takes messages that this consumer received, not {message!r}")
        return message.part

    def part_for_all_up_to(self, message: Message) -> Part:
        """`part_of` for `ack_up_to`, and raises as that."""
        if self.options.shared:
            raise InvalidCall(
                f"other consumers may hold earlier messages: acknowledge the messages of subscription {self.name!r},"
                f" which is {self.options.kind}, one by one"
            )
        return self.part_of(message)

    def part_to_delay(self, message: Message, delay_seconds: float) -> Part:
        """`part_of` for `nack`, and raises as that."""
        if not 0 <= delay_seconds <= DELAY_SECONDS_MAX:
            raise InvalidCall(f"delay_seconds is a number from 0 to {DELAY_SECONDS_MAX:.0f}, not {delay_seconds!r}")
        return self.part_of(message)

    # --- as the owner of parts (`PartOwner`) --------------------------------------------------------------------

    def deliver(self, part: Part, batch: DeliveredBatch, slots: bytes | None) -> None:
        """Queues a delivery, or hands its messages to the listener."""
        listener = self._listener
        if listener is not None:
            try:
                for message in self._messages(part, batch, slots) if self._error is None else ():
                    listener(self, self._handed_out(message))
            except UNREADABLE as error:
                self.fail(error)
            return
        self._queue.append((part, batch, slots))
        self._arrived.notify()

    def missed(self, part: Part, first: int, end: int) -> None:
        """Reports records that were removed before the subscription acknowledged them."""
        if self._missed and (self._missed[-1].partition, self._missed[-1].end) == (part.partition, first):
            first = self._missed[-1].first
            self._missed = self._missed[:-1]
        error = RecordsMissed(self.topic, part.partition, self.name, first, end)
        if self._on_missed is not None:
            self._on_missed(self, error)
        else:
            self._missed += (error,)
            self._wake()

    def forget(self, part: Part) -> None:
        """Drops the messages of a part that were not received yet."""
        self._queue = deque(item for item in self._queue if item[0] is not part)
        if self._rest is not None:
            self._rest = iter([message for message in self._rest if message.part is not part])

    def fail(self, error: Exception) -> None:
        """Ends the consumer with an error; the first error stays."""
        self._error = self._error or error
        self._wake()

    @property
    def error(self) -> Exception | None:
        """Why the consumer receives nothing any more; None while it does."""
        return self._error

    # --- for the client -----------------------------------------------------------------------------------------

    def grow(self, partitions: int, initial_position: str) -> None:
        """Adds a part for each partition that has none yet."""
        for partition in range(len(self.parts), partitions):
            self.parts.append(self._attachments.add(self, partition, initial_position))

    def expire(self, now: float) -> None:
        """Asks for messages again that were not acknowledged within `ack_seconds`."""
        for part in self.parts:
            assert part.unacked is not None, "the consumer has an ack time-out"
            for offset in [offset for offset, due in part.unacked.items() if due <= now]:
                del part.unacked[offset]
                self._acks.nack(part, offset, offset + 1, 0.0)

    def end(self) -> None:
        """Marks the consumer as closed, and drops what was not received."""
        self._error = ConsumerClosed(f"the consumer of subscription {self.name!r} of topic '{self.topic}' is closed")
        self._queue.clear()
        self._rest = None
        self._wake()

    @property
    def closed(self) -> bool:
        """Whether the consumer was closed."""
        return isinstance(self._error, ConsumerClosed)

    def _wake(self) -> None:
        self._arrived.notify()
