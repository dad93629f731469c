"""The brokers of a native client: one connection to each, and calls to the leader of a partition.

1. There is at most one connection to each address of a broker, for all consumers.
2. The client learns the leaders of a topic from the first broker that answers. It asks the brokers to which it has a
   connection, and after them the configured addresses. A broker whose lease may be over may name itself although
   another one leads: its answer counts only if no other broker gives one.
3. A call ends with BrokerUnreachable once no broker at all has answered for REACH_SECONDS. As long as one of them
   answers, the call is retried for TRY_SECONDS: another broker may have to become the leader first.
4. A call to a leader also ends with BrokerUnreachable if another broker still names that leader after LEADER_SECONDS,
   and it has answered no try: it is alive, at an address that this client cannot reach.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import trio

from gnomon.client.addresses import Address
from gnomon.client.broker_connection import BrokerConnection
from gnomon.client.errors import BrokerUnreachable, NativeError, Retriable, Unavailable
from gnomon.client.part import Part
from gnomon.runtime.backoff import Backoff
from gnomon.runtime.world import Unreachable, World

T = TypeVar("T")

RETRY = Backoff(0.05, 1.0)
TRY_SECONDS = 30.0
"""The time for which a call is retried."""
REACH_SECONDS = 5.0
"""The time for which a call is retried while no broker answers: a restarted broker is back before that."""
LEADER_SECONDS = 10.0
"""The time for which a leader is tried that does not answer: a dead one loses its partitions before that, with its
lease (`broker.lease_seconds`, 6 by default). Larger than REACH_SECONDS."""
LOOKED_UP_FIELDS = 2
"""The fields of a sure answer to `lookup`: the topic's id and the leaders. Another answer has the reason as a third."""
RETRIABLE = (Unreachable, Retriable)
"""Errors after which a call may succeed later, or at another broker."""


class Leaders:
    """The connections of one client, by address."""

    def __init__(
        self, world: World, addresses: Sequence[Address], nursery: trio.Nursery, detached: Callable[[Part], None]
    ) -> None:
        """No connection is open yet.

        Args:
            nursery: runs the connections.
            detached: is called with each part that its broker sent away, or whose connection has ended.
        """
        self._world = world
        self._addresses = list(addresses)
        self._nursery = nursery
        self._detached = detached
        self._connections: dict[Address, BrokerConnection[Part]] = {}
        self._silence: tuple[float, BrokerUnreachable] | None = None
        """Since when no broker has answered, and the last failure; None while one answers."""
        self._silent_leaders: dict[Address, tuple[float, float, str]] = {}
        """Leaders that did not answer the last call: when the first and the last of these calls began, and the reason.
        """

    def connection(self, address: Address) -> BrokerConnection[Part]:
        """The connection to a broker, which may not be open yet."""
        connection = self._connections.get(address)
        if connection is None or connection.gone:
            connection = BrokerConnection(self._world, *address, self._detached, self._gone)
            self._connections[address] = connection
            self._nursery.start_soon(connection.run)
        return connection

    def _gone(self, connection: BrokerConnection[Part]) -> None:
        for address, known in list(self._connections.items()):
            if known is connection:
                del self._connections[address]
        for part in list(connection.receivers.values()):
            if part.connection is connection:
                self._detached(part)

    def close(self) -> None:
        """Ends every connection."""
        for connection in list(self._connections.values()):
            connection.close()

    # --- calls to leaders ---------------------------------------------------------------------------------------

    async def look_up(self, topic: str) -> list[Address | None]:
        """The leaders of a topic's partitions; None for a partition that has no leader at the moment.

        Raises:
            BrokerUnreachable: no broker answered.
            Retriable: none of those that answered could tell.
            NativeError: a broker has refused.
        """
        return (await self.look_up_topic(topic))[1]

    async def look_up_topic(self, topic: str) -> tuple[str, list[Address | None]]:
        """The id of a topic, which a topic that is created again has not, and `look_up`; raises as it does."""
        topic_id, leaders, *_ = await self.ask_any("lookup", topic, is_sure=_is_sure)
        return topic_id, [None if leader is None else (leader[0], leader[1]) for leader in leaders]

    async def ask_any(self, method: str, *args: Any, is_sure: Callable[[Any], bool] = lambda answer: True) -> Any:
        """The answer of the first broker that gives one, and is sure of it if any of them is; raises as `look_up`."""
        unsure: Any = None
        refusal: Retriable | None = None
        reasons: list[str] = []
        others = (each for each in self._addresses if each not in self._connections)
        for address in [*self._connections, *others]:
            try:
                answer = await self.connection(address).call(method, *args)
            except Retriable as error:
                refusal = error
            except Unreachable as error:
                reasons.append(str(error))
            else:
                self._silence = None
                if is_sure(answer):
                    return answer
                unsure = unsure or answer
        if unsure is not None:
            return unsure
        if refusal is not None:
            self._silence = None
            raise refusal
        unreachable = BrokerUnreachable("no broker answers: " + "; ".join(reasons))
        since = self._world.clock.monotonic() if self._silence is None else self._silence[0]
        self._silence = since, unreachable
        raise unreachable

    def check_reachable(self, since: float) -> None:
        """Raises BrokerUnreachable if no broker has answered for REACH_SECONDS after `since`."""
        if self._silence is not None:
            began, unreachable = self._silence
            if self._world.clock.monotonic() - max(began, since) >= REACH_SECONDS:
                raise unreachable

    @contextmanager
    def noted(self, leader: Address) -> Iterator[None]:
        """Notes whether a leader answers the call in this block."""
        began = self._world.clock.monotonic()
        try:
            yield
        except Unreachable as error:
            first = self._silent_leaders[leader][0] if leader in self._silent_leaders else began
            self._silent_leaders[leader] = first, began, str(error)
            raise
        except NativeError:
            self._silent_leaders.pop(leader, None)
            raise
        self._silent_leaders.pop(leader, None)

    def check_leader(self, leader: Address, since: float) -> None:
        """Raises BrokerUnreachable if a leader answers no call, one begun LEADER_SECONDS after `since` included."""
        silent = self._silent_leaders.get(leader)
        if silent is None:
            return
        first, last, reason = silent
        if last - max(first, since) >= LEADER_SECONDS:
            raise BrokerUnreachable(
                f"the leader of the partition does not answer at the address that it advertises: {reason}; if that"
                " address is wrong for this machine, set broker.native_advertised_host and"
                " broker.native_advertised_port of that broker"
            )

    async def find(self, topic: str) -> list[Address | None]:
        """`look_up`, retried as invariant 3 says."""
        return await self._retried(lambda: self.look_up(topic))

    async def ask(self, topic: str, partition: int, method: str, *args: Any) -> Any:
        """Calls the leader of a partition, with topic and partition first; retried as invariants 3 and 4 say.

        Raises:
            NativeError: the call failed, or its outcome is unknown.
        """
        return await self.ask_leader(topic, partition, method, lambda led: (topic, partition, *args))

    async def ask_leader(
        self, topic: str, partition: int, method: str, args: Callable[[Sequence[int]], Sequence[Any]]
    ) -> Any:
        """`ask` with the arguments that `args` returns for the partitions which the leader leads, in their order."""
        began = self._world.clock.monotonic()

        async def ask() -> Any:
            leaders = await self.look_up(topic)
            leader = leaders[partition] if partition < len(leaders) else None
            if leader is None:
                raise Unavailable(f"partition {partition} of '{topic}' has no leader at the moment")
            led = [index for index, each in enumerate(leaders) if each == leader]
            try:
                with self.noted(leader):
                    return await self.connection(leader).call(method, *args(led))
            except Unreachable:
                self.check_leader(leader, began)  # raises an error that is not retried for so long
                raise

        return await self._retried(ask)

    async def _retried(self, work: Callable[[], Awaitable[T]]) -> T:
        """Repeats `work` until it succeeds, fails with an error that is not retriable, or the time is up.

        Raises:
            NativeError: the last failure.
        """
        clock = self._world.clock
        failures, began = 0, clock.monotonic()
        while True:
            try:
                return await work()
            except RETRIABLE as error:
                failures += 1
                pause_seconds = RETRY.seconds(failures)
                seconds = REACH_SECONDS if isinstance(error, BrokerUnreachable) else TRY_SECONDS
                if clock.monotonic() + pause_seconds > began + seconds:
                    raise (error if isinstance(error, NativeError) else BrokerUnreachable(str(error))) from None
            await clock.sleep(pause_seconds)


def _is_sure(answer: Sequence[Any]) -> bool:
    """Whether the broker that has answered a look-up knows that its lease lives."""
    return len(answer) == LOOKED_UP_FIELDS
