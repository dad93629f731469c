"""The ends of the logs that other brokers lead, as those brokers know them.

1. A question opens no partition: the end of a log that is not open at its leader stays unknown.
2. At most TOPICS_MAX topics are asked for at a time, each of at most PARTITIONS_MAX partitions, and the answers are
   waited for at most SECONDS_MAX. A broker that did not answer a question is asked no more.
3. An end counts only if it is from the broker that leads the partition, as far as this broker knows.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

from gnomon.broker.native.peers import Peers
from gnomon.broker.placement.leadership import LiveBroker
from gnomon.broker.placement.placement import Placement
from gnomon.client.errors import NativeError
from gnomon.log.topic import Topic
from gnomon.runtime.loop.paced import paced
from gnomon.runtime.rpc.errors import RpcFailed
from gnomon.runtime.world import Clock, Unreachable

TOPICS_MAX = 500
PARTITIONS_MAX = 1_000
"""A question costs the other broker up to 1 ms for so many partitions."""
SECONDS_MAX = 5.0
PER_TURN = 20_000
"""Partitions whose leaders are looked up in a turn of the event loop."""


class LogEnds:
    """Asks the other leaders of topics."""

    def __init__(self, placement: Placement, peers: Peers, clock: Clock) -> None:
        self._placement = placement
        self._peers = peers
        self._clock = clock

    async def elsewhere(self, topics: Iterable[Topic]) -> dict[tuple[str, int], int]:
        """The known ends of partitions that other brokers lead, by the topic's name and the partition."""
        found: dict[tuple[str, int], int] = {}
        if not self._placement.others():
            return found
        asked = [topic for topic in topics if topic.partitions <= PARTITIONS_MAX][:TOPICS_MAX]
        questions: dict[int, list[Topic]] = {}
        async for topic in paced(asked, PER_TURN, self._clock, lambda each: each.partitions):
            for leader in dict.fromkeys(self._placement.leaders(topic, topic.partitions)):
                if leader != self._placement.node_id:
                    questions.setdefault(leader, []).append(topic)
        with trio.move_on_after(SECONDS_MAX):
            async with trio.open_nursery() as nursery:
                for leader, some in questions.items():
                    peer = self._placement.broker(leader)
                    if peer is not None:
                        nursery.start_soon(self._ask, peer, some, found)
        return found

    async def _ask(self, peer: LiveBroker, topics: Iterable[Topic], found: dict[tuple[str, int], int]) -> None:
        async with self._peers.connected(peer) as client:
            for topic in topics:
                try:
                    _, bounds = await client.call("topic", topic.name)
                except NativeError:
                    continue
                except (RpcFailed, Unreachable):
                    return
                for index, _, end in bounds:
                    if self._placement.leader(topic, index) == peer.id:
                        found[topic.name, index] = end
