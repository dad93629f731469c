"""Clients of counters, and their checker: no acknowledged addition is lost, and none is counted twice.

Each addition to a counter is a power of four of its own. The digits of a total in base four are the numbers of times
that each addition is in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import trio
from counter_service import ERRORS, PARTITIONS, PORT, SERVICE, TOPIC, Refused

from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.rpc.errors import NotSent
from gnomon.runtime.world import Unreachable
from gnomon.testing.simulation.coverage import Coverage
from gnomon.testing.storms.kafka.log_clients import RETRY_SECONDS
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster

WORKERS = 3
CALL_SECONDS = 5.0
ADDITIONS_A_SECOND = 3.0
WAIT_SECONDS = 1.0


class CountedWrongly(AssertionError):
    """A total is not a possible sum of additions."""


class CounterHistory:
    """The totals that one counter may have.

    1. An addition that was acknowledged, seen or announced to other brokers is in every later total.
    2. No total has an addition twice, or one that was never made.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.begun = 0
        self.certain: set[int] = set()

    def begin(self) -> int:
        """Begins an addition; returns its digit."""
        self.begun += 1
        return self.begun - 1

    def check(self, total: int, missing: Iterable[int]) -> None:
        """Judges a total that must have the additions in `missing`.

        Raises:
            CountedWrongly: an addition is lost, doubled or invented.
        """
        seen = set()
        rest, place = total, 0
        while rest:
            rest, times = divmod(rest, 4)
            if times > 1:
                raise CountedWrongly(f"{self.name}: addition {place} was counted {times} times")
            if times:
                seen.add(place)
            place += 1
        if place > self.begun:
            raise CountedWrongly(f"{self.name}: addition {place - 1} was never made")
        lost = sorted(set(missing) - seen)
        if lost:
            raise CountedWrongly(f"{self.name}: additions {lost} were acknowledged or seen, and are lost")
        self.certain |= seen


async def count_up(cluster: WireCluster, seconds: float, *, history: CounterHistory, coverage: Coverage) -> None:
    """Adds to a counter and reads it, several calls at a time, and judges every total, and the last one at the end."""
    await create_topic(cluster, TOPIC, {}, PARTITIONS)
    client = _Client(cluster, history, coverage)
    async with trio.open_nursery() as nursery:
        for rpc in client.brokers:
            nursery.start_soon(rpc.run)
        async with trio.open_nursery() as workers:
            for number in range(WORKERS):
                workers.start_soon(client.work, number, cluster.world.clock.monotonic() + seconds)
        while not await client.add() or not await client.read():
            await cluster.world.clock.sleep(RETRY_SECONDS)
        nursery.cancel_scope.cancel()


class _Client:
    def __init__(self, cluster: WireCluster, history: CounterHistory, coverage: Coverage) -> None:
        self.brokers = [
            RpcClient(cluster.world, host, PORT, SERVICE, ERRORS, call_seconds=CALL_SECONDS) for host in cluster.hosts
        ]
        self._world = cluster.world
        self._history = history
        self._coverage = coverage
        self._next = 0

    async def work(self, number: int, end: float) -> None:
        stream = self._world.random(f"counter/{number}")
        while self._world.clock.monotonic() < end:
            if stream.random() < 0.5:
                answered = await self.add()
            else:
                answered = await self.read(stream.choice((0.0, 0.0, WAIT_SECONDS)))
            await self._world.clock.sleep(stream.expovariate(ADDITIONS_A_SECOND) if answered else RETRY_SECONDS)

    async def add(self) -> bool:
        """Makes an addition; returns whether it was acknowledged."""
        place = self._history.begin()
        if await self._ask("add", self._history.name, str(4**place)) is None:
            return False
        self._coverage.count("counter/added")
        self._history.certain.add(place)
        return True

    async def read(self, seconds: float = 0.0) -> bool:
        """Reads the total, or waits for a change; returns whether there was an answer.

        A total that was waited for may lack the additions of other brokers after the read was confirmed.
        """
        missing = set() if seconds else set(self._history.certain)
        seen = sum(4**place for place in self._history.certain) if seconds else -1
        total = await self._ask("read", self._history.name, str(seen), seconds)
        if total is None:
            return False
        self._coverage.count("counter/waited" if seconds else "counter/read")
        self._history.check(int(total), missing)
        return True

    async def _ask(self, method: str, *args: object) -> str | None:
        """Calls the broker that answered last; after a failure the next call goes to the next broker."""
        try:
            answer: str = await self.brokers[self._next % len(self.brokers)].call(method, *args)
            return answer
        except (Refused, Unreachable) as error:
            self._next += 1
            kind = {Refused: "refused", NotSent: "not sent"}.get(type(error), "unknown")
            self._coverage.count(f"counter/{kind}")
            return None


def clients_of(histories: Iterable[CounterHistory], coverage: Coverage) -> dict[str, partial]:
    """One client for each counter, by name."""
    return {history.name: partial(count_up, history=history, coverage=coverage) for history in histories}
