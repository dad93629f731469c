"""A poll of many partitions: reads them over several turns of the event loop, and copies the records that it reads.

The rules of `poll` hold, with these differences:

1. A turn reads PARTITIONS_PER_TURN partitions, or begins to open a few. So the answer shows each partition at another
   moment.
2. After each change of a partition all partitions are read again, LOOK_SECONDS later at the earliest.
3. The answer is encoded in a thread, which also frees its parts.
4. One of these polls reads at a time: two that take turns would leave the event loop no pause, and the thread that
   commits would wait for the interpreter's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import trio

from gnomon.bookie.ledgers.catalog import LocalViews, NotInMemory
from gnomon.broker.kafka.connections.exchange import Exchange
from gnomon.broker.kafka.fetch_sessions import FetchSession, Followed, TopicRef
from gnomon.broker.kafka.poll import Poll, PollAnswer, Polls, Wanted, goes_on, is_opening, left_out
from gnomon.broker.partition.readable import Readable
from gnomon.runtime.loop.paced import PAUSE_SECONDS, paced
from gnomon.runtime.world import World
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fetch import FetchRequest
from gnomon.wire.kafka.fetch_response import FetchedPartition

PARTITIONS_PER_TURN = 250
"""Reading as many takes some 1 ms, and up to 5 ms if all have records."""
OPENING_WEIGHT = 10
"""A partition that is not open counts as so many: the first use of one takes some 20 us."""
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
        self._due = request.max_wait_ms <= 0 or request.min_bytes <= 0
        exchange.cut_short = self._cut_short

    async def run(self) -> None:
        """Answers the request, now or when there is enough."""
        exchange, clock = self._exchange, self._world.clock
        self._timer = self._polls.timers.call_at(exchange.started + self._request.max_wait_ms / 1000, self._finish)
        try:
            async with self._one_at_a_time:
                await self._find_all()
            while not await self._answered():
                await self._changed.wait()
                await clock.sleep(LOOK_SECONDS)
            async for _, partition, _ in paced(self._wanted, PARTITIONS_PER_TURN, clock):
                if partition is not None:
                    partition.stop_waiting(self)
            self._wanted = ()
        except MemoryError as error:
            self._refuse(error)
        finally:
            self._stop_waiting()

    async def _find_all(self) -> None:
        self._wanted = wanted = list[Wanted]()
        found = ((item, *self._find(self._exchange, item)) for item in self._followed)
        async for each in paced(found, PARTITIONS_PER_TURN, self._world.clock, _weight):
            wanted.append(each)
            _, partition, _ = each
            if partition is not None:
                partition.wait(self)

    def wake(self) -> None:
        """See `Waiter.wake`."""
        self._changed.set()

    def _finish(self) -> None:
        self._due = True
        self._changed.set()

    def _cut_short(self) -> None:
        self._hurried = True
        self._due |= self._exchange.connection.closed_by_peer
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
        results: deque[tuple[Followed, FetchedPartition]] = deque()
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
        topics: dict[TopicRef, list[FetchedPartition]] = {}
        while results:
            self._name((results.popleft() for _ in range(min(len(results), PARTITIONS_PER_TURN))), topics)
            await self._world.clock.sleep(PAUSE_SECONDS)
        self._send(await self._world.blocking(self._encoded_and_freed, topics, total))
        return True

    def _encoded_and_freed(self, topics: dict[TopicRef, list[FetchedPartition]], size: int) -> PollAnswer:
        answer = self._encoded(topics, size)
        topics.clear()
        return answer


def _weight(wanted: Wanted) -> int:
    _, partition, _ = wanted
    return OPENING_WEIGHT if partition is not None and is_opening(partition) else 1
