"""The bounds of the logs that other brokers lead, as those brokers know them.

1. A question opens no partition: the end of a log that is not open at its leader stays unknown.
2. At most TOPICS_MAX topics are asked for at a time, each of at most PARTITIONS_MAX partitions, and the answers are
   waited for at most SECONDS_MAX. A broker that did not answer a question is asked no more in that collection. Each
   collection asks for the same topics, the first ones, so that no lag comes and goes; the others stay unknown.
3. A bound counts only if it is from the broker that leads the partition, as far as this broker knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import trio

from gnomon.broker.native.peers import SILENT, Peers
from gnomon.broker.placement.leadership import LiveBroker
from gnomon.broker.placement.placement import Placement
from gnomon.client.errors import NativeError
from gnomon.log.topic import Topic
from gnomon.runtime.loop.paced import paced
from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.world import Clock

TOPICS_MAX = 500
PARTITIONS_MAX = 1_000
"""A question costs the other broker up to 1 ms for so many partitions."""
SECONDS_MAX = 5.0
PER_TURN = 5_000
"""Partitions whose leaders are looked up in a turn: some 5 ms on three brokers if none is remembered."""


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
                    bounds = await bounds_at(peer, client, topic, self._placement)
                except NativeError:
                    continue
                except SILENT:
                    return
                found.update(((topic.name, index), end) for index, (_, end) in bounds.items())


async def bounds_at(
    peer: LiveBroker, client: RpcClient, topic: Topic, placement: Placement
) -> Mapping[int, tuple[int, int]]:
    """Start and end of the partitions of a topic that a peer leads and has open, by number (invariant 3).

    Args:
        client: is connected to the peer.

    Raises:
        NativeError: the peer refuses the question, as it does not know the topic.
        RpcFailed, Unreachable: the peer does not answer.
    """
    _, bounds = await client.call("topic", topic.name)
    return {index: (start, end) for index, start, end in bounds if placement.leader(topic, index) == peer.id}
