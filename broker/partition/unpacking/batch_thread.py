"""Unpacks long batches outside of the event loop.

1. One batch of the broker is unpacked at a time, so all clients together take the memory of one.
2. Clients take turns: a client whose batch was unpacked last waits for one batch of each other client that waits. So
   batches that one client has queued delay the batch of another client by one.
3. The bytes that a batch is unpacked to are charged to its client before they are made: FIRST_BYTES (or the size of
   the batch) at first, four times as many whenever they do not suffice. They are given back when the work ends.
4. The work of a client that is gone is not begun.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from traceback import clear_frames
from typing import TypeVar

import trio

from gnomon.broker.errors import KafkaError
from gnomon.broker.partition.unpacking.batch_client import BROKER_ITSELF, BatchClient
from gnomon.runtime.world import World
from gnomon.wire.kafka.compression import UnpackedTooLarge
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import TooManyRecords

FIRST_BYTES = 1 << 20

T = TypeVar("T")


class ClientGone(KafkaError):
    """The client of a batch has closed its connection, and nobody wants an answer."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, "the client closed the connection before its batch was unpacked")


class BatchThread:
    """The thread of one broker in which batches are unpacked."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._busy = False
        self._waiting: dict[object, deque[trio.Event]] = {}
        """By client: its works that wait, in order. The first client is the next one."""

    async def work(
        self, client: BatchClient, batch: memoryview, bytes_max: int, call: Callable[[memoryview, int], T]
    ) -> T:
        """The result of `call(batch, bytes_max)` in the thread.

        Args:
            batch: stays unchanged until the end of the work.
            bytes_max: the most bytes that the batch may be unpacked to.
            call: gets the batch and the bytes that it may be unpacked to, and raises UnpackedTooLarge if they do not
                suffice. It is called with fewer bytes first.

        Raises:
            ClientGone: the client went away before the work began.
            UnpackedTooLarge: the batch would be unpacked to more than `bytes_max`, or has too many records.
        """
        await self._await_turn(client.turn_key)
        charged = 0
        try:
            if client.gone:
                raise ClientGone
            room = min(max(FIRST_BYTES, len(batch)), bytes_max)
            while True:
                client.charge(room - charged)
                charged = room
                try:
                    return await self._world.blocking(_frugally, call, batch, room)
                except TooManyRecords:
                    raise
                except UnpackedTooLarge:
                    if room == bytes_max:
                        raise
                room = min(4 * room, bytes_max)
        finally:
            client.refund(charged)
            self._end_turn(client.turn_key)

    async def work_for_broker(self, batch: memoryview, bytes_max: int, call: Callable[[memoryview, int], T], /) -> T:
        """`work` that no connection of Kafka's protocol asks for."""
        return await self.work(BROKER_ITSELF, batch, bytes_max, call)

    async def _await_turn(self, key: object) -> None:
        if not self._busy:
            self._busy = True
            return
        turn = trio.Event()
        self._waiting.setdefault(key, deque()).append(turn)
        try:
            await turn.wait()
        except trio.Cancelled:
            if turn.is_set():
                self._end_turn(key)
            else:
                self._forget(key, turn)
            raise

    def _end_turn(self, key: object) -> None:
        if key in self._waiting:
            self._waiting[key] = self._waiting.pop(key)  # after all others (2)
        if not self._waiting:
            self._busy = False
            return
        following = next(iter(self._waiting))
        turn = self._waiting[following][0]
        self._forget(following, turn)
        turn.set()

    def _forget(self, key: object, turn: trio.Event) -> None:
        turns = self._waiting[key]
        turns.remove(turn)
        if not turns:
            del self._waiting[key]


def _frugally(call: Callable[[memoryview, int], T], batch: memoryview, bytes_max: int) -> T:
    """`call`, whose error keeps no bytes that were unpacked. Trio keeps the error in a circle of references, and so its
    traceback, until the collector finds it."""
    try:
        return call(batch, bytes_max)
    except Exception as error:
        kept: BaseException | None = error
        while kept is not None:
            clear_frames(kept.__traceback__)
            kept = kept.__context__
        raise
