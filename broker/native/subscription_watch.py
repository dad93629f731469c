"""Looks at all subscriptions of a broker regularly: their backlogs, and those without consumers that keep records.

1. A look takes many short turns, and the pause after it is PAUSES times as long: looking takes at most some two percent
   of the processor, however many subscriptions there are.
2. Only partitions that are in use here are looked at; none is opened.
3. Beyond the sums, at most `named_max` backlogs are kept, the largest ones, and at most IDLE_MAX idle subscriptions.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import NamedTuple, NoReturn

from gnomon.broker.native.hosts import Hosts
from gnomon.broker.native.peers import Peers
from gnomon.broker.placement.leadership import LiveBroker
from gnomon.broker.placement.placement import Placement
from gnomon.broker.retention.holdups import Holdup, Holdups
from gnomon.broker.topics.topics import Topics
from gnomon.client.described_subscription import IdleSubscription
from gnomon.client.errors import NativeError
from gnomon.log.topic import Topic
from gnomon.runtime.health import HealthCheck
from gnomon.runtime.loop.paced import paced
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.rpc.errors import RpcFailed
from gnomon.runtime.world import Clock, Unreachable

LOOK_SECONDS = 15.0
"""The shortest pause between two looks."""
PAUSES = 50
LOOKED_PER_TURN = 20_000
"""Runs of acknowledged records that are looked at in one turn, some 3 ms."""
SUBSCRIPTION_WEIGHT = 10
"""Looking at a subscription without runs costs as much as so many of them."""
IDLE_MAX = 100
NAMES_SHOWN_MAX = 3


class Backlog(NamedTuple):
    """The backlog of one subscription in one partition; backlogs sort by their records."""

    records: int
    topic: str
    partition: int
    subscription: str


class SubscriptionWatch:
    """The numbers of all subscriptions of one broker."""

    def __init__(
        self,
        hosts: Hosts,
        topics: Topics,
        placement: Placement,
        peers: Peers,
        holdups: Holdups,
        clock: Clock,
        metrics: Metrics,
        named_max: int,
    ) -> None:
        self.idle: Sequence[IdleSubscription] = ()
        """As of the last look, those that keep the most records first."""
        self._hosts = hosts
        self._topics = topics
        self._placement = placement
        self._peers = peers
        self._holdups = holdups
        self._clock = clock
        self._named_max = named_max
        self._records = 0
        self._consumers_missing = 0
        self._largest: list[Backlog] = []
        watch = metrics.watch
        watch("subscription_backlog_records", "Unacknowledged records of all subscriptions", lambda: self._records)
        watch("subscriptions_without_consumers", "Subscriptions without consumers", lambda: self._consumers_missing)
        idle = "Partitions of which a subscription without consumers keeps records from retention"
        watch("subscriptions_idle_holding", idle, lambda: len(self.idle))
        if named_max:
            metrics.watch_labelled(
                "subscription_backlog",
                "Unacknowledged records of the subscriptions with the largest backlogs",
                ("topic", "partition", "subscription"),
                lambda: (
                    ((each.topic, str(each.partition), each.subscription), each.records) for each in self._largest
                ),
            )

    def warnings(self) -> list[HealthCheck]:
        """The check of `/readyz` that names idle subscriptions which keep records; none if there are none."""
        if not self.idle:
            return []
        more = f" and {len(self.idle) - NAMES_SHOWN_MAX} more" if len(self.idle) > NAMES_SHOWN_MAX else ""
        names = ", ".join(map(_named, self.idle[:NAMES_SHOWN_MAX]))
        text = f"no consumer reads {names}{more}: retention keeps the records; consume, or `gnomon subscription delete`"
        return [HealthCheck("subscriptions", None, text)]

    async def run(self) -> NoReturn:
        """Looks until cancelled."""
        pause_seconds = LOOK_SECONDS
        while True:
            await self._clock.sleep(pause_seconds)
            began = self._clock.monotonic()
            await self.look()
            pause_seconds = max(LOOK_SECONDS, PAUSES * (self._clock.monotonic() - began))

    async def look(self) -> None:
        """Looks at all subscriptions once."""
        await self._measure()
        found = sorted(self._holdups, key=lambda each: each.records, reverse=True)[:IDLE_MAX]
        self.idle = [
            IdleSubscription(each.topic, each.partition, each.subscription, each.records)
            for each in await self._idle_among(found)
        ]

    async def _measure(self) -> None:
        records = alone = 0
        largest: list[Backlog] = []
        for (topic_id, index), host in self._hosts.all():
            topic = self._topics.image.get_by_id(topic_id)
            subscriptions = list(host.dispatcher.subscriptions.values())
            async for each in paced(
                subscriptions,
                LOOKED_PER_TURN,
                self._clock,
                lambda each: SUBSCRIPTION_WEIGHT + each.cursor.ranges_count,
            ):
                backlog = each.backlog(host.dispatcher.end)
                records += backlog
                alone += not each.consumers
                if self._named_max and topic is not None:
                    named = Backlog(backlog, topic.name, index, each.name)
                    if len(largest) < self._named_max:
                        heapq.heappush(largest, named)
                    elif named > largest[0]:
                        heapq.heapreplace(largest, named)
        self._records, self._consumers_missing, self._largest = records, alone, largest

    # --- idle subscriptions -------------------------------------------------------------------------------------

    def is_idle(self, topic: Topic, index: int, subscription: str, end: int) -> bool:
        """Whether a subscription of a partition led here has no consumers, and has not read up to `end`.

        A partition that is not in use has no consumers.
        """
        host = self._hosts.hosted(topic, index)
        if host is None:
            return True
        found = host.dispatcher.subscriptions.get(subscription)
        return found is not None and not found.consumers and found.cursor.mark_delete < end

    async def _idle_among(self, found: Iterable[Holdup]) -> list[Holdup]:
        idle: list[Holdup] = []
        elsewhere: dict[int, list[Holdup]] = {}
        for each in found:
            topic = self._topics.image.get(each.topic)
            if topic is None:
                continue
            leader = self._placement.leader(topic, each.partition)
            if leader != self._placement.node_id:
                elsewhere.setdefault(leader, []).append(each)
            elif self.is_idle(topic, each.partition, each.subscription, each.end):
                idle.append(each)
        for leader, some in elsewhere.items():
            peer = self._placement.broker(leader)
            if peer is not None:
                idle += await self._idle_at(peer, some)
        return sorted(idle, key=lambda each: each.records, reverse=True)

    async def _idle_at(self, peer: LiveBroker, some: Iterable[Holdup]) -> list[Holdup]:
        """The holdups that another broker, which leads their shadows, calls idle; a silent one is not asked again."""
        idle = []
        async with self._peers.connected(peer) as client:
            for each in some:
                try:
                    if await client.call("is_idle", each.topic, each.partition, each.subscription, each.end):
                        idle.append(each)
                except NativeError:
                    continue
                except (RpcFailed, Unreachable):
                    break
        return idle

    def rows(self) -> list[dict[str, object]]:
        """The idle subscriptions of this broker."""
        return [asdict(each) for each in self.idle]

    async def everywhere(self) -> list[dict[str, object]]:
        """The idle subscriptions of all brokers that answer."""
        found = self.rows()
        for peer in self._placement.others():
            async with self._peers.connected(peer) as client:
                try:
                    found += await client.call("idle_subscriptions", False)
                except (NativeError, RpcFailed, Unreachable):
                    continue
        return found


def _named(idle: IdleSubscription) -> str:
    return f"'{idle.subscription}' of topic '{idle.topic}' ({idle.records} records of partition {idle.partition})"
