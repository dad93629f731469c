"""A poll of many partitions: reads them over several turns of the event loop, and copies the records that it reads.

The rules of `poll` hold, with these differences:

1. A turn reads PARTITIONS_PER_TURN partitions. So the answer shows each partition at another moment.
2. After each change of a partition all partitions are read again, LOOK_SECONDS later at the earliest.
3. The answer is encoded in a thread.
4. One of these polls reads at a time: two that take turns would leave the event loop no pause, and the thread that
   commits would wait for the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from gnomon.bookie.ledgers.catalog import LocalViews, NotInMemory
from gnomon.broker.kafka.connections.exchange import Exchange
from gnomon.broker.kafka.fetch_sessions import FetchSession, Followed
from gnomon.broker.kafka.poll import Poll, Polls, goes_on, is_opening, left_out
from gnomon.broker.partition.readable import Readable
from gnomon.runtime.loop.paced import PAUSE_SECONDS, paced
from gnomon.runtime.world import World
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fetch import FetchRequest
from gnomon.wire.kafka.fetch_response import FetchedPartition

PARTITIONS_PER_TURN = 250
"""Reading as many takes some 1 ms, and up to 5 ms if all have records or have to be opened."""
LOOK_SECONDS = 0.02


class LongPoll(Poll):
    """One fetch request about many partitions until its answer; `run` answers it."""

    __slots__ = ("_changed", "_due", "_find", "_followed", "_one_at_a_time", "_world")

    def __init__(
        self,
        polls: Polls,
        exchange: Exchange,
        request: FetchRequest,
        session: FetchSession | None,
        followed: Sequence[Followed],
        find: Callable[[Exchange, Followed], tuple[Readable | None, ErrorCode]],
        bytes_max: int,
        world: World,
        one_at_a_time: trio.Lock,
    ) -> None:
        """A poll of `followed`; `find` gives the partition of each, or an error. All polls share one lock."""
        super().__init__(polls, exchange, request, session, [], bytes_max)
        self._followed = followed
        self._find = find
        self._world = world
        self._one_at_a_time = one_at_a_time
        self._changed = trio.Event()
        self._due = False

    async def run(self) -> None:
        """Answers the request, now or when there is enough."""
        exchange, clock = self._exchange, self._world.clock
        async with self._one_at_a_time:
            self._wanted = [
                (item, *self._find(exchange, item)) async for item in paced(self._followed, PARTITIONS_PER_TURN, clock)
            ]
            async for _, partition, _ in paced(self._wanted, PARTITIONS_PER_TURN, clock):
                if partition is not None:
                    partition.wait(self)
        wait_seconds = self._request.max_wait_ms / 1000
        self._due = wait_seconds <= 0 or self._request.min_bytes <= 0
        exchange.cut_short = self._cut_short
        self._timer = self._polls.timers.call_at(exchange.started + wait_seconds, self._finish)
        try:
            while not await self._answered():
                await self._changed.wait()
                await clock.sleep(LOOK_SECONDS)
        except MemoryError as error:
            self._refuse(error)
        finally:
            self._timer.cancel()
            exchange.cut_short = None
            for _, partition, _ in self._wanted:
                if partition is not None:
                    partition.stop_waiting(self)

    def wake(self) -> None:
        """See `Waiter.wake`."""
        self._changed.set()

    def _finish(self) -> None:
        self._due = True
        self._changed.set()

    def _cut_short(self) -> None:
        super()._cut_short()
        self._changed.set()

    def _loaded(self) -> None:
        self._changed.set()

    async def _answered(self) -> bool:
        """Reads all partitions; answers and returns True if there is enough, or nothing more to wait for."""
        async with self._one_at_a_time:
            return await self._attempt_over_turns()

    async def _attempt_over_turns(self) -> bool:
        self._changed = trio.Event()
        final = self._due or (self._hurried and not self._opening())
        room = min(self._bytes_max, self._exchange.connection.answer_room())
        results: list[tuple[Followed, FetchedPartition]] = []
        total, failed, held, more = 0, False, False, False
        for at in range(0, len(self._wanted), PARTITIONS_PER_TURN):
            with LocalViews() as views:
                for item, partition, error in self._wanted[at : at + PARTITIONS_PER_TURN]:
                    first = total == 0 and room >= 0
                    try:
                        fetched, size = self._read(item, partition, error, views, room - total, first)
                    except NotInMemory as missing:
                        self._load(missing)
                        held |= total == 0
                        fetched, size = left_out(item, partition), 0
                    failed |= fetched.error_code != 0 and not (partition is not None and is_opening(partition))
                    more |= goes_on(item, fetched)
                    total += size
                    records = [memoryview(bytes(chunk)) for chunk in fetched.records]
                    results.append((item, fetched._replace(records=records)))
            await self._world.clock.sleep(PAUSE_SECONDS)
        if held or not (final or failed or more or total >= self._request.min_bytes):
            return False
        named = self._named(results)
        self._send(await self._world.blocking(self._encoded, named, total))
        return True
