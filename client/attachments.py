"""Keeps the parts of a native client's consumers attached to the leaders of their partitions.

A part is one consumer's share of one partition; it is attached while a broker delivers records to it.

1. A part that has lost its broker is attached again, to the present leader of its partition.
2. Parts of one partition are attached together, up to SUBSCRIBE_MAX in one call.
3. Each attachment has a number of its own. An answer or a delivery for an earlier attachment changes nothing.
4. When a part is closed, its broker is notified at once, in the same turn of the event loop. This also holds while the
   part is still being attached, and when the caller is cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from struct import pack
from typing import Any

import trio

from gnomon.client.ack_sender import AckSender
from gnomon.client.addresses import Address
from gnomon.client.broker_connection import BrokerConnection
from gnomon.client.errors import NativeError, Unavailable, decode_error
from gnomon.client.leaders import RETRIABLE, RETRY, TRY_SECONDS, Leaders
from gnomon.client.part import Part, PartOwner
from gnomon.client.protocol import SUBSCRIBE_MAX
from gnomon.runtime.signal import Signal
from gnomon.runtime.world import Unreachable, World


class Attachments:
    """The attachments of one client; the client runs it."""

    def __init__(
        self, world: World, addresses: Sequence[Address], nursery: trio.Nursery, acks: AckSender, client_id: str
    ) -> None:
        self.leaders = Leaders(world, addresses, nursery, self.detach)
        self._world = world
        self._acks = acks
        self._client_id = client_id
        self._parts = 0
        """The number of parts made so far."""
        self._detached: dict[Part, int] = {}
        """Parts that have to be attached, with the number of failed attempts."""
        self._attaching: dict[Part, None] = {}
        """Parts for which an attempt is under way, some of them held."""
        self._held: dict[Part, int] = {}
        """Parts that must not be attached now, with the number of calls that hold each."""
        self._wanted = Signal()
        self._attached = Signal()
        self._problem: Exception | None = None
        """The last error after which a part is attached again."""

    def client_of(self, part: Part) -> str:
        """The id of the part for brokers, the same on all connections."""
        return f"{self._client_id}/{part.id}"

    def add(self, consumer: PartOwner, partition: int, initial_position: str) -> Part:
        """A new part, which is attached soon."""
        part = Part(consumer, partition, self._parts, initial_position)
        self._parts += 1
        self._detached[part] = 0
        self._wanted.set()
        return part

    async def attached(self, parts: Iterable[Part]) -> None:
        """Waits until parts are attached.

        Raises:
            NativeError: the error of the first part that cannot be attached.
            BrokerUnreachable: no broker has answered for REACH_SECONDS, or the leader has not for LEADER_SECONDS.
            Unavailable: a part was not attached within TRY_SECONDS.
        """
        began = self._world.clock.monotonic()
        with trio.move_on_after(TRY_SECONDS) as scope:
            for part in parts:
                while part.connection is None:
                    if part.consumer.error is not None:
                        raise part.consumer.error
                    self.leaders.check_reachable(began)
                    if part.asked is not None:
                        self.leaders.check_leader(part.asked.address, began)
                    await self._attached.wait()
        if scope.cancelled_caught:
            raise Unavailable(
                f"no broker took the subscription within {TRY_SECONDS:.0f} s; it may have been made;"
                f" the last reason: {self._problem or 'the partition has no leader'}"
            )

    @contextmanager
    def held(self, parts: Iterable[Part]) -> Iterator[None]:
        """Detaches parts, and keeps them detached inside the block."""
        held = list(parts)  # a consumer may get more parts meanwhile
        for part in held:
            part.release()
            self._detached.pop(part, None)
            self._held[part] = self._held.get(part, 0) + 1
        try:
            yield
        finally:
            for part in held:
                self._held[part] -= 1
                if not self._held[part]:
                    del self._held[part]
                    self._attach_again(part, 0)

    def end(self, parts: Iterable[Part]) -> list[BrokerConnection[Part]]:
        """Detaches the parts of closed consumers, and reports that to their brokers.

        Returns:
            The connections to these brokers.
        """
        numbers: dict[BrokerConnection[Part], list[int]] = {}
        for part in parts:
            self._detached.pop(part, None)
            self._attaching.pop(part, None)
            self._acks.forget(part)
            if part.asked is not None:
                numbers.setdefault(part.asked, []).append(part.number)
            part.release()
            part.asked = None
        for connection, ended in numbers.items():
            for at in range(0, len(ended), SUBSCRIBE_MAX):
                group = ended[at : at + SUBSCRIBE_MAX]
                connection.tell("close_consumers", [pack(f"<{len(group)}I", *group)])
        self._wake_waiters()
        return list(numbers)

    async def confirm(self, connections: Iterable[BrokerConnection[Part]]) -> None:
        """Waits until brokers have detached what `end` reported to them."""
        for connection in connections:
            try:
                await connection.call("close_consumers", b"")
            except (Unreachable, NativeError):
                pass  # the broker detaches consumers when their connection ends

    # --- attaching ----------------------------------------------------------------------------------------------

    async def run(self, nursery: trio.Nursery) -> None:
        """Attaches detached parts, by tasks in `nursery`, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
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
            await self._world.clock.sleep(RETRY.seconds(failures + 1))
        leaders: list[Address | None] = []
        failure: Exception | None = None
        try:
            leaders = await self.leaders.look_up(topic)
        except RETRIABLE as error:
            self._problem = error
            self._wake_waiters()
        except NativeError as error:
            failure = error
        groups: dict[tuple[Address, int, str, str], list[Part]] = {}
        for part in self._still_wanted(parts):
            leader = leaders[part.partition] if part.partition < len(leaders) else None
            if failure is not None:
                self._failed(part, failure)
            elif leader is None:
                self._attach_again(part, tries[part] + 1)
            else:
                kind = part.consumer.options.kind
                groups.setdefault((leader, part.partition, kind, part.initial_position), []).append(part)
        async with trio.open_nursery() as nursery:
            for (leader, *how), group in groups.items():
                for at in range(0, len(group), SUBSCRIBE_MAX):
                    nursery.start_soon(self._subscribe, leader, [topic, *how], group[at : at + SUBSCRIBE_MAX], tries)

    async def _subscribe(self, leader: Address, how: list[Any], parts: list[Part], tries: dict[Part, int]) -> None:
        """Attaches parts of one partition; `how` is topic, partition, type and initial position."""
        connection = self.leaders.connection(leader)
        await connection.opened()  # the call then leaves in the turn that assigns the numbers, before any close
        asked: dict[int, Part] = {}
        items = []
        for part in self._still_wanted(parts):
            part.begin(connection)  # a delivery may arrive before the answer
            asked[part.number] = part
            items.append([part.consumer.name, part.number, self.client_of(part), part.consumer.options.queue_records])
        if not items:
            return
        results: list[Any] = []
        failure: Exception | None = None
        try:
            with self.leaders.noted(leader):
                results = await connection.call("subscribe", *how, items)
        except (Unreachable, NativeError) as error:
            failure = error
        for at, (number, part) in enumerate(asked.items()):
            if connection.receivers.get(number) is part:  # otherwise this attachment was released meanwhile
                self._answered(part, connection, failure or results[at], tries[part])

    def _still_wanted(self, parts: Iterable[Part]) -> list[Part]:
        """The parts that were neither closed nor held since they were detached."""
        return [part for part in parts if part in self._attaching and part not in self._held]

    def _answered(self, part: Part, connection: BrokerConnection[Part], answer: Any, tries: int) -> None:
        """Acts on a broker's answer for one part: the cursor's epoch, or an error, which may be encoded."""
        error = decode_error(*answer) if isinstance(answer, list) else answer
        if isinstance(error, int) and not connection.gone:
            self._attaching.pop(part, None)
            part.attached(connection, error)
            if part.acked:
                self._acks.acks_due(part)
            self._wake_waiters()
        elif isinstance(error, (int, *RETRIABLE)):
            self._problem = error if isinstance(error, Exception) else self._problem
            self._attach_again(part, tries + 1)
            self._wake_waiters()
        else:
            self._failed(part, error)

    def _wake_waiters(self) -> None:
        self._attached.notify()

    def _attach_again(self, part: Part, tries: int) -> None:
        """Releases a part; it is attached as soon as no call holds it, unless its consumer was closed or has failed."""
        part.release()
        self._attaching.pop(part, None)
        if part.consumer.error is None and part not in self._held:
            self._detached[part] = tries
            self._wanted.set()

    def _failed(self, part: Part, error: Exception) -> None:
        part.release()
        self._attaching.pop(part, None)
        part.consumer.fail(error)
        self._wake_waiters()

    def detach(self, part: Part) -> None:
        """A part has lost its broker, or was sent away: it is attached again."""
        self._attach_again(part, 0)
