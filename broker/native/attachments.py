"""Which parts of a native client's consumers are attached to which broker.

1. A part that has lost its broker is attached again by itself, at whoever leads its partition then.
2. A part that waits to be attached costs no call of its own: a thousand of one partition go in one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from struct import pack
from typing import Any

import trio

from gnomon.broker.native.addresses import Address
from gnomon.broker.native.consumer import Consumer, Part
from gnomon.broker.native.errors import ERRORS, SUBSCRIBE_MAX, NativeError, Retriable, Unavailable
from gnomon.broker.native.leaders import AGAIN, RETRY_SECONDS_MAX, RETRY_SECONDS_MIN, TRY_SECONDS, Leaders
from gnomon.broker.native.link import Link
from gnomon.broker.native.teller import Teller
from gnomon.runtime.rpc_errors import RpcFailed
from gnomon.runtime.world import Unreachable, World


class Attachments:
    """Made and run by the client."""

    def __init__(
        self, world: World, addresses: Sequence[Address], nursery: trio.Nursery, teller: Teller, client_id: str
    ) -> None:
        self.leaders = Leaders(world, addresses, nursery, self.detach)
        self._world = world
        self._teller = teller
        self._client_id = client_id
        self._detached: dict[Part, int] = {}
        """Parts to be attached, and how often that was tried in vain."""
        self._attaching: dict[Part, None] = {}
        """Parts that are just being attached, or held."""
        self._held: dict[Part, None] = {}
        """Parts that are not to be attached now."""
        self._stirred = trio.Event()
        self._attached = trio.Event()

    def client_of(self, part: Part) -> str:
        """What brokers know the part by, over all connections."""
        return f"{self._client_id}/{part.number}"

    def add(self, part: Part) -> None:
        """A new part: it is attached soon."""
        self._detached[part] = 0
        self._stirred.set()

    async def attached(self, consumers: Sequence[Consumer]) -> None:
        """Waits until all parts are attached.

        Raises:
            NativeError, RpcFailed: what stands in the way of the first that cannot be.
            Unavailable: no broker took one within TRY_SECONDS.
        """
        with trio.move_on_after(TRY_SECONDS) as scope:
            for consumer in consumers:
                for part in consumer.parts:
                    while part.link is None:
                        if consumer.error is not None:
                            raise consumer.error
                        await self._attached.wait()
        if scope.cancelled_caught:
            raise Unavailable(f"no broker took the subscription within {TRY_SECONDS:.0f} s; it may have been made")

    @contextmanager
    def held(self, parts: Sequence[Part]) -> Iterator[None]:
        """Detaches parts, and keeps them so inside the block."""
        for part in parts:
            link = part.link
            if link is not None:
                self._unlink(link, [part])
                part.link = None
            self._detached.pop(part, None)
            self._held[part] = self._attaching[part] = None  # by this task
        try:
            yield
        finally:
            for part in parts:
                self._held.pop(part, None)
            self._again([part for part in parts if part in self._attaching], dict.fromkeys(parts, -1))

    async def end(self, parts: Iterable[Part]) -> None:
        """Detaches the parts of consumers that were closed, and tells their brokers."""
        by_link: dict[Link, list[int]] = {}
        for part in parts:
            self._detached.pop(part, None)
            self._attaching.pop(part, None)
            self._teller.forget(part)
            if part.link is not None:
                by_link.setdefault(part.link, []).append(part.number)
                part.link.parts.pop(part.number, None)
                part.link = None
        for link, numbers in by_link.items():
            try:
                await link.call("close_consumers", pack(f"<{len(numbers)}I", *numbers))
            except (Unreachable, RpcFailed, NativeError):
                pass  # then the broker finds out when the connection ends

    # --- attaching ----------------------------------------------------------------------------------------------

    async def run(self, nursery: trio.Nursery) -> None:
        """Attaches what is detached, by tasks in `nursery`, until cancelled."""
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
            await self._world.clock.sleep(min(RETRY_SECONDS_MIN * 2 ** min(failures, 16), RETRY_SECONDS_MAX))
        try:
            leaders = await self.leaders.look_up(topic)
        except AGAIN:
            self._again(parts, tries)
            return
        except (NativeError, RpcFailed) as error:
            self._failed(parts, error)
            return
        groups: dict[tuple[Address, int, str, str], list[Part]] = {}
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

    async def _subscribe(self, leader: Address, how: list[Any], parts: list[Part], tries: dict[Part, int]) -> None:
        """Attaches parts of one partition; `how` is topic, partition, type and initial position."""
        parts = [part for part in parts if part.link is None and part not in self._held and not part.consumer.closed]
        link = self.leaders.link(leader)
        items = [
            [part.consumer.name, part.number, self.client_of(part), part.consumer.options.queue_records]
            for part in parts
        ]
        for part in parts:
            link.parts[part.number] = part  # what is given may come before the answer
        try:
            results = await link.call("subscribe", *how, items)
        except AGAIN:
            self._unlink(link, parts)
            self._again(parts, tries)
        except (NativeError, RpcFailed) as error:
            self._unlink(link, parts)
            self._failed(parts, error)
        else:
            self._attached_to(link, parts, results, tries)

    def _attached_to(self, link: Link, parts: list[Part], results: list[Any], tries: dict[Part, int]) -> None:
        for part, result in zip(parts, results, strict=True):
            error = None if isinstance(result, int) else ERRORS.decode(*result)
            if part.consumer.closed:
                self._unlink(link, [part])
                if error is None:
                    link.tell("close_consumers", [pack("<I", part.number)])
                continue
            if error is None and not link.gone and part.number in link.parts:
                self._attaching.pop(part, None)
                part.link = link
                part.consumer.attached(part, result)
                if part.acked:
                    self._teller.has_acked(part)
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
            self.leaders.forget(part)
            return
        self._unlink(part.link, [part])
        part.link = None
        if not part.consumer.closed and part.consumer.error is None:
            self._detached[part] = 0
            self._stirred.set()
