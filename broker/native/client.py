"""The native client: durable subscriptions over any number of partitions, brokers and connections.

    async with gnomon.connect("127.0.0.1:6650") as client:
        consumer = await client.subscribe("flights", "billing", type="shared", initial_position="earliest")
        async for message in consumer:
            print(message.value)
            consumer.ack(message)

1. There is one connection to a broker, however many consumers use it.
2. What lost its broker is subscribed again by itself, at whoever leads the partition then.
3. What the broker is told (acknowledgements, permits) is gathered for a moment, over all consumers (`teller`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from struct import pack
from typing import Any, Literal, TypeAlias

import trio

from gnomon.broker.native.addresses import parse_addresses
from gnomon.broker.native.consumer import Consumer, ConsumerOptions, Listener, OnMissed, Part
from gnomon.broker.native.errors import (
    ERRORS,
    SUBSCRIBE_MAX,
    NativeError,
    NoSuchSubscription,
    Retriable,
    Unavailable,
)
from gnomon.broker.native.link import Link
from gnomon.broker.native.teller import Teller
from gnomon.runtime.rpc_errors import RpcFailed
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import Unreachable, World

RETRY_SECONDS_MIN = 0.05
RETRY_SECONDS_MAX = 1.0
REFRESH_SECONDS = 30.0
"""How often is looked whether topics have grown."""
QUEUE_RECORDS = 1000
TRY_SECONDS = 30.0
"""How long a call is tried again where that may help."""

Type: TypeAlias = Literal["exclusive", "failover", "shared", "key_shared"]
Position: TypeAlias = Literal["earliest", "latest"]
_AGAIN = (Unreachable, Retriable)


class NativeClient:
    """Made by `connect`; everything ends with its block."""

    def __init__(self, world: World, addresses: Sequence[tuple[str, int]], nursery: trio.Nursery, name: str) -> None:
        self.world = world
        self._addresses = list(addresses)
        self._nursery = nursery
        random = world.random(f"native-client/{name}")
        self._id = f"{random.getrandbits(64):016x}"
        self._links: dict[tuple[str, int], Link] = {}
        self._numbers = 0
        self._consumers: dict[Consumer, None] = {}
        self._detached: dict[Part, int] = {}
        """Parts to be attached, and how often that was tried in vain."""
        self._attaching: dict[Part, None] = {}
        self._stirred = trio.Event()
        self._attached = trio.Event()
        self.teller = Teller(world.clock)

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
            queue_records: most records of a partition that wait in this process.
            ack_seconds: what was received and not acknowledged for so long is given again; None for never.
            listener: is called for each message as it arrives, and must neither wait nor raise; instead of `receive`.
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
        leaders = await self._persist(lambda: self._lookup(topic))
        consumers = [Consumer(self, topic, name, options) for name in names]
        for consumer in consumers:
            self._consumers[consumer] = None
            self._add_parts(consumer, len(leaders), initial_position)
        try:
            await self._all_attached(consumers)
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
            self._detached[part] = 0
        self._stirred.set()

    async def _all_attached(self, consumers: Sequence[Consumer]) -> None:
        """Waits until all parts are attached; raises what stands in the way of the first that cannot be."""
        with trio.move_on_after(TRY_SECONDS) as scope:
            for consumer in consumers:
                for part in consumer.parts:
                    while part.link is None:
                        if consumer.error is not None:
                            raise consumer.error
                        await self._attached.wait()
        if scope.cancelled_caught:
            raise Unavailable(f"no broker took the subscription within {TRY_SECONDS:.0f} s; it may have been made")

    # --- attaching ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Attaches what is detached, tells brokers what there is to tell, and looks after time-outs."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.teller.run)
            nursery.start_soon(self._refresh_forever)
            nursery.start_soon(self._expire_forever)
            while True:
                await self._stirred.wait()
                self._stirred = trio.Event()
                topics: dict[str, list[Part]] = {}
                for part in self._detached:
                    topics.setdefault(part.consumer.topic, []).append(part)
                    self._attaching[part] = None
                tries, self._detached = self._detached, {}
                for topic, parts in topics.items():
                    nursery.start_soon(self._attach, topic, parts, tries)

    async def _attach(self, topic: str, parts: list[Part], tries: dict[Part, int]) -> None:
        failures = max(tries[part] for part in parts)
        if failures:
            await self.world.clock.sleep(min(RETRY_SECONDS_MIN * 2**failures, RETRY_SECONDS_MAX))
        try:
            leaders = await self._lookup(topic)
        except _AGAIN:
            self._again(parts, tries)
            return
        except (NativeError, RpcFailed) as error:
            self._failed(parts, error)
            return
        groups: dict[tuple[tuple[str, int], int, str, str], list[Part]] = {}
        for part in parts:
            leader = leaders[part.partition] if part.partition < len(leaders) else None
            if leader is None:
                self._again([part], tries)
            else:
                kind = part.consumer.options.kind
                groups.setdefault((leader, part.partition, kind, part.initial_position), []).append(part)
        async with trio.open_nursery() as nursery:
            for (leader, *how), group in groups.items():
                for at in range(0, len(group), SUBSCRIBE_MAX):
                    nursery.start_soon(self._subscribe, leader, [topic, *how], group[at : at + SUBSCRIBE_MAX], tries)

    async def _subscribe(
        self, leader: tuple[str, int], how: list[Any], parts: list[Part], tries: dict[Part, int]
    ) -> None:
        """Attaches parts of one partition; `how` is topic, partition, type and initial position."""
        parts = [part for part in parts if not part.consumer.closed]
        link = self._link(leader)
        items = [
            [part.consumer.name, part.number, f"{self._id}/{part.number}", part.consumer.options.queue_records]
            for part in parts
        ]
        for part in parts:
            link.parts[part.number] = part  # what is given may come before the answer
        try:
            results = await link.call("subscribe", *how, items)
        except _AGAIN:
            self._unlink(link, parts)
            self._again(parts, tries)
        except (NativeError, RpcFailed) as error:
            self._unlink(link, parts)
            self._failed(parts, error)
        else:
            self._attached_to(link, parts, results, tries)

    def _attached_to(self, link: Link, parts: list[Part], results: list[Any], tries: dict[Part, int]) -> None:
        for part, result in zip(parts, results, strict=True):
            error = None if result is None else ERRORS.decode(*result)
            if part.consumer.closed:
                self._unlink(link, [part])
                self._attaching.pop(part, None)
                if error is None:
                    link.tell("close_consumers", [pack("<I", part.number)])
                continue
            if error is None and not link.gone and part.number in link.parts:
                self._attaching.pop(part, None)
                part.link = link
                if part.acked:
                    self.teller.has_acked(part)
                continue
            self._unlink(link, [part])
            if error is None or isinstance(error, Retriable):
                self._again([part], tries)
            else:
                self._failed([part], error)
        self._tell_attached()

    def _tell_attached(self) -> None:
        self._attached.set()
        self._attached = trio.Event()

    def _unlink(self, link: Link, parts: Iterable[Part]) -> None:
        for part in parts:
            link.parts.pop(part.number, None)
            part.consumer.forget(part)

    def _again(self, parts: Iterable[Part], tries: dict[Part, int]) -> None:
        for part in parts:
            self._attaching.pop(part, None)
            if not part.consumer.closed:
                self._detached[part] = tries[part] + 1
        self._stirred.set()

    def _failed(self, parts: Iterable[Part], error: Exception) -> None:
        for part in parts:
            self._attaching.pop(part, None)
            part.consumer.fail(error)
        self._tell_attached()

    def detach(self, part: Part) -> None:
        """A part has lost its broker, or was sent away: it is attached again."""
        if part.link is None:  # being attached: whoever does that finds out
            for link in self._links.values():
                link.parts.pop(part.number, None)
            return
        self._unlink(part.link, [part])
        part.link = None
        if not part.consumer.closed and part.consumer.error is None:
            self._detached[part] = 0
            self._stirred.set()

    def link_gone(self, link: Link) -> None:
        """A connection has ended: everything on it is attached again."""
        for address, known in list(self._links.items()):
            if known is link:
                del self._links[address]
        for part in list(link.parts.values()):
            if part.link is link:
                self.detach(part)

    # --- brokers ------------------------------------------------------------------------------------------------

    def _link(self, address: tuple[str, int]) -> Link:
        link = self._links.get(address)
        if link is None or link.gone:
            link = self._links[address] = Link(self, *address)
            self._nursery.start_soon(link.run)
        return link

    async def _lookup(self, topic: str) -> list[tuple[str, int] | None]:
        """The leaders of a topic's partitions; None where there is none at the moment."""
        last: Exception | None = None
        for address in [*self._links, *(each for each in self._addresses if each not in self._links)]:
            try:
                _, leaders = await self._link(address).call("lookup", topic)
            except _AGAIN as error:
                last = error
                continue
            return [None if leader is None else (leader[0], leader[1]) for leader in leaders]
        assert last is not None, "there is an address at least"
        raise last

    async def _persist(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Does something until it works, or trying again does not help, or TRY_SECONDS have passed."""
        pause, until = RETRY_SECONDS_MIN, self.now() + TRY_SECONDS
        while True:
            try:
                return await work()
            except _AGAIN:
                if self.now() + pause > until:
                    raise
            await self.world.clock.sleep(pause)
            pause = min(2 * pause, RETRY_SECONDS_MAX)

    async def _ask_leader(self, part: Part, method: str, *args: Any) -> Any:
        """Calls whoever leads a partition."""

        async def ask() -> Any:
            leaders = await self._lookup(part.consumer.topic)
            leader = leaders[part.partition] if part.partition < len(leaders) else None
            if leader is None:
                raise Unavailable(f"partition {part.partition} of '{part.consumer.topic}' has no leader at the moment")
            return await self._link(leader).call(method, part.consumer.topic, part.partition, *args)

        return await self._persist(ask)

    # --- for consumers ------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Monotonic seconds."""
        return self.world.clock.monotonic()

    async def seek(self, parts: Sequence[Part], where: str, to: list[Any]) -> None:
        """Moves the subscriptions of some parts; returns once they are attached again."""
        self.teller.tell()
        for part in parts:
            link = part.link
            if link is not None:
                self._unlink(link, [part])
                part.link = None
            self._attaching[part] = None  # by this task
            part.acked.clear()
        tries = dict.fromkeys(parts, 0)
        try:
            for part in parts:
                await self._ask_leader(part, "seek", part.consumer.name, where, to)
        finally:
            self._again([part for part in parts if part in self._attaching], dict.fromkeys(tries, -1))
        await self._all_attached([part.consumer for part in parts])

    async def stats(self, consumer: Consumer) -> list[dict[str, Any]]:
        """What the leaders say of a subscription, by partition."""
        self.teller.tell()
        found = []
        for part in consumer.parts:
            stats = await self._ask_leader(part, "stats", [consumer.name])
            if consumer.name not in stats:
                raise NoSuchSubscription(f"topic '{consumer.topic}' has no subscription {consumer.name!r}")
            found.append(stats[consumer.name])
        return found

    async def unsubscribe(self, consumer: Consumer) -> None:
        """Deletes a subscription in every partition."""
        for part in consumer.parts:
            client = f"{self._id}/{part.number}"
            try:
                await self._ask_leader(part, "unsubscribe", consumer.name, client)
            except NoSuchSubscription:
                pass  # an attempt before has done it
        await self.close_consumers([consumer])

    async def close_consumers(self, consumers: Iterable[Consumer]) -> None:
        """Ends consumers."""
        self.teller.tell()
        by_link: dict[Link, list[int]] = {}
        for consumer in consumers:
            consumer.end()
            self._consumers.pop(consumer, None)
            for part in consumer.parts:
                self._detached.pop(part, None)
                self.teller.forget(part)
                if part.link is not None:
                    by_link.setdefault(part.link, []).append(part.number)
                    part.link.parts.pop(part.number, None)
                    part.link = None
        for link, numbers in by_link.items():
            try:
                await link.call("close_consumers", pack(f"<{len(numbers)}I", *numbers))
            except (Unreachable, RpcFailed, NativeError):
                pass  # then the broker finds out when the connection ends

    # --- now and then -------------------------------------------------------------------------------------------

    async def _refresh_forever(self) -> None:
        while True:
            await self.world.clock.sleep(REFRESH_SECONDS)
            topics: dict[str, list[Consumer]] = {}
            for consumer in self._consumers:
                topics.setdefault(consumer.topic, []).append(consumer)
            for topic, consumers in topics.items():
                try:
                    partitions = len(await self._lookup(topic))
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
        for link in list(self._links.values()):
            link.close()


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
async def _connected(world: World, addresses: Sequence[tuple[str, int]], name: str) -> AsyncIterator[NativeClient]:
    async with trio.open_nursery() as nursery:
        client = NativeClient(world, addresses, nursery, name)
        nursery.start_soon(client.run)
        try:
            yield client
        finally:
            with trio.CancelScope(shield=True):
                await client.close()
            nursery.cancel_scope.cancel()
