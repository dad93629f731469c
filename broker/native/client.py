"""The native client: durable subscriptions over any number of partitions, brokers and connections.

    async with gnomon.connect("127.0.0.1:6650") as client:
        consumer = await client.subscribe("flights", "billing", type="shared", initial_position="earliest")
        async for message in consumer:
            print(message.value)
            consumer.ack(message)

1. There is one connection to a broker, however many consumers use it (`leaders`).
2. What lost its broker is subscribed again by itself, at whoever leads the partition then (`attachments`).
3. What the broker is told (acknowledgements, permits) is gathered for a moment, over all consumers (`teller`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from gnomon.broker.native.addresses import Address, parse_addresses
from gnomon.broker.native.attachments import Attachments
from gnomon.broker.native.consumer import Consumer, Part
from gnomon.broker.native.consumer_options import (
    QUEUE_RECORDS,
    ConsumerOptions,
    Listener,
    OnMissed,
    Position,
    Type,
    check_name,
)
from gnomon.broker.native.errors import InvalidCall, NativeError, NoSuchSubscription
from gnomon.broker.native.leaders import TRY_SECONDS
from gnomon.broker.native.teller import Teller
from gnomon.runtime.rpc_errors import RpcFailed
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import Unreachable, World

REFRESH_SECONDS = 30.0
"""How often is looked whether topics have grown."""


class NativeClient:
    """Made by `connect`; everything ends with its block."""

    def __init__(self, world: World, addresses: Sequence[Address], nursery: trio.Nursery, name: str) -> None:
        self.world = world
        self.teller = Teller(world.clock)
        random = world.random(f"native-client/{name}")
        self._attachments = Attachments(world, addresses, nursery, self.teller, f"{random.getrandbits(64):016x}")
        self._leaders = self._attachments.leaders
        self._numbers = 0
        self._consumers: dict[Consumer, None] = {}

    # --- subscribing --------------------------------------------------------------------------------------------

    async def subscribe(
        self,
        topic: str,
        name: str,
        *,
        type: Type = "exclusive",
        initial_position: Position = "latest",
        queue_records: int = QUEUE_RECORDS,
        ack_seconds: float | None = None,
        listener: Listener | None = None,
        on_missed: OnMissed | None = None,
    ) -> Consumer:
        """Consumes a durable subscription, which is made where there is none of that name.

        Args:
            type: exclusive (one consumer), failover (one at a time), shared (batches go round) or key_shared (records
                of one key go to one consumer, in order); all consumers of a subscription use the same.
            initial_position: where a new subscription begins.
            queue_records: most records of a partition that wait in this process; at least 1.
            ack_seconds: what was received and not acknowledged for so long is given again: at least 0.1; None for
                never.
            listener: is called for each message as it arrives, and must neither wait nor raise; instead of `receive`.
                A batch that cannot be read ends its calls: `Consumer.error`.
            on_missed: is called in the same way with `RecordsMissed`, which `receive` raises otherwise.

        Raises:
            NoSuchTopic, SubscriptionTaken, InvalidCall: it is refused.
            Unreachable, Unavailable: no broker could do it in time.
        """
        consumers = await self.subscribe_many(
            topic,
            [name],
            type=type,
            initial_position=initial_position,
            queue_records=queue_records,
            ack_seconds=ack_seconds,
            listener=listener,
            on_missed=on_missed,
        )
        return consumers[0]

    async def subscribe_many(
        self,
        topic: str,
        names: Collection[str],
        *,
        type: Type = "exclusive",
        initial_position: Position = "latest",
        queue_records: int = QUEUE_RECORDS,
        ack_seconds: float | None = None,
        listener: Listener | None = None,
        on_missed: OnMissed | None = None,
    ) -> list[Consumer]:
        """`subscribe` for many subscriptions of one topic: a thousand to a call. All are made, or it raises."""
        options = ConsumerOptions(type, initial_position, queue_records, ack_seconds, listener, on_missed)
        if isinstance(names, str):
            raise InvalidCall(f"names are several names, not the text {names!r}")
        for name in names:
            check_name(name)
        leaders = await self._leaders.find(topic)
        consumers = [Consumer(self, topic, name, options) for name in names]
        for consumer in consumers:
            self._consumers[consumer] = None
            self._add_parts(consumer, len(leaders), initial_position)
        try:
            await self._attachments.attached(consumers)
        except BaseException:
            with trio.CancelScope(shield=True):
                await self.close_consumers(consumers)
            raise
        return consumers

    def _add_parts(self, consumer: Consumer, partitions: int, initial_position: Position) -> None:
        for partition in range(len(consumer.parts), partitions):
            part = Part(consumer, partition, self._numbers, initial_position)
            self._numbers += 1
            if consumer.options.ack_seconds is not None:
                part.unacked = {}
            consumer.parts.append(part)
            self._attachments.add(part)

    async def run(self) -> None:
        """Keeps consumers attached, tells brokers what there is to tell, and looks after time-outs."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.teller.run)
            nursery.start_soon(self._refresh_forever)
            nursery.start_soon(self._expire_forever)
            await self._attachments.run(nursery)

    # --- for consumers ------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Monotonic seconds."""
        return self.world.clock.monotonic()

    async def seek(self, parts: Sequence[Part], where: str, to: list[Any]) -> None:
        """Moves the subscriptions of some parts; returns once they are attached again."""
        self.teller.tell()
        with self._attachments.held(parts):
            for part in parts:
                await self._leaders.ask(part, "seek", part.consumer.name, where, to)
        await self._attachments.attached([part.consumer for part in parts])

    async def stats(self, consumer: Consumer) -> list[dict[str, Any]]:
        """What the leaders say of a subscription, by partition."""
        self.teller.tell()
        found = []
        for part in consumer.parts:
            stats = await self._leaders.ask(part, "stats", [consumer.name])
            if consumer.name not in stats:
                raise NoSuchSubscription(f"topic '{consumer.topic}' has no subscription {consumer.name!r}")
            found.append(stats[consumer.name])
        return found

    async def unsubscribe(self, consumer: Consumer) -> None:
        """Deletes a subscription in every partition, also in those that the topic has grown just now."""
        self._add_parts(consumer, len(await self._leaders.find(consumer.topic)), "earliest")
        self.teller.tell()
        with self._attachments.held(consumer.parts):  # whoever came back to one would make it anew there
            await self._unsubscribe(consumer, really=False)
            for part in consumer.parts:
                part.initial_position = "earliest"  # so that nothing is skipped where it comes back after all
            await self._unsubscribe(consumer, really=True)
            await self.close_consumers([consumer])

    async def _unsubscribe(self, consumer: Consumer, *, really: bool) -> None:
        """Deletes a subscription in every partition, or finds out whether one of them refuses that."""
        for part in consumer.parts:
            try:
                await self._leaders.ask(part, "unsubscribe", consumer.name, self._attachments.client_of(part), really)
            except NoSuchSubscription:
                pass  # an attempt before has done it

    async def close_consumers(self, consumers: Iterable[Consumer]) -> None:
        """Ends consumers."""
        self.teller.tell()
        ended = list(consumers)
        for consumer in ended:
            consumer.end()
            self._consumers.pop(consumer, None)
        await self._attachments.end(part for consumer in ended for part in consumer.parts)

    # --- now and then -------------------------------------------------------------------------------------------

    async def _refresh_forever(self) -> None:
        while True:
            await self.world.clock.sleep(REFRESH_SECONDS)
            topics: dict[str, list[Consumer]] = {}
            for consumer in self._consumers:
                topics.setdefault(consumer.topic, []).append(consumer)
            for topic, consumers in topics.items():
                try:
                    partitions = len(await self._leaders.look_up(topic))
                except (Unreachable, NativeError, RpcFailed):
                    continue
                for consumer in consumers:
                    if not consumer.closed:
                        self._add_parts(consumer, partitions, "earliest")  # also what came before this look

    async def _expire_forever(self) -> None:
        """What was not acknowledged in time is asked for again."""
        while True:
            timed = [each.options.ack_seconds for each in self._consumers if each.options.ack_seconds is not None]
            await self.world.clock.sleep(min([1.0, *(seconds / 4 for seconds in timed)]))
            now = self.now()
            for consumer in list(self._consumers):
                if consumer.options.ack_seconds is not None:
                    for part in consumer.parts:
                        self._expire(part, now)

    def _expire(self, part: Part, now: float) -> None:
        assert part.unacked is not None
        for offset in [offset for offset, due in part.unacked.items() if due <= now]:
            del part.unacked[offset]
            self.teller.nack(part, offset, offset + 1, 0.0)

    async def close(self) -> None:
        """Tells the brokers what is left to tell, and ends every consumer and connection."""
        with trio.move_on_after(TRY_SECONDS / 10):
            await self.close_consumers(list(self._consumers))
        self._leaders.close()


@asynccontextmanager
async def connect(address: str, *, world: World | None = None, name: str = "") -> AsyncIterator[NativeClient]:
    """A native client, for as long as the block lasts.

    Args:
        address: `HOST:PORT[,HOST:PORT…]`, the native addresses of some brokers; one that answers is enough.
        world: None for the real one; a simulated one in simulations.
        name: tells clients of one simulated world apart.

    Raises:
        ValueError: the address has another form.
    """
    addresses = parse_addresses(address)
    if world is None:
        async with open_trio_world() as real, _connected(real, addresses, name) as client:
            yield client
    else:
        async with _connected(world, addresses, name) as client:
            yield client


@asynccontextmanager
async def _connected(world: World, addresses: Sequence[Address], name: str) -> AsyncIterator[NativeClient]:
    async with trio.open_nursery() as nursery:
        client = NativeClient(world, addresses, nursery, name)
        nursery.start_soon(client.run)
        try:
            yield client
        finally:
            with trio.CancelScope(shield=True):
                await client.close()
            nursery.cancel_scope.cancel()
