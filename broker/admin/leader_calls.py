"""Calls about subscriptions at the leaders of a topic's partitions: here directly, elsewhere over their native ports.

1. All leaders are asked concurrently, each about its partitions one after the other.
2. A leader that does not answer is asked once: all of its partitions have the same error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import trio

from gnomon.broker.errors import KafkaError
from gnomon.broker.native.peers import SILENT, Peers
from gnomon.broker.native.subscription_admin import SubscriptionAdmin, SubscriptionPage
from gnomon.broker.placement.leadership import LiveBroker
from gnomon.broker.placement.placement import Placement
from gnomon.broker.subscriptions.hosted_partition import STORE_ERRORS
from gnomon.client.errors import NativeError, Unavailable
from gnomon.log.topic import Topic

Answers: TypeAlias = dict[int, Any]
"""By partition: the answer of its leader, or the error."""


class LeaderCalls:
    """Asks the leaders of partitions, of which this broker may be one."""

    def __init__(self, placement: Placement, admin: SubscriptionAdmin, peers: Peers) -> None:
        async def page(name: str, index: int, after: str, count: int) -> SubscriptionPage:
            return await admin.page(name, index, after, count, lambda subscription: True)

        self._placement = placement
        self._peers = peers
        self._here: Mapping[str, Callable[..., Awaitable[Any]]] = {
            "subscriptions": page,
            "describe_subscription": admin.describe,
            "seek": admin.seek,
            "unsubscribe": admin.delete,
        }

    async def ask(self, topic: Topic, method: str, *args: Any, partitions: Collection[int] | None = None) -> Answers:
        """Calls a method for partitions of a topic, or for all of them.

        The method gets the topic, the partition and `args`.
        """
        found: Answers = dict.fromkeys(range(topic.partitions) if partitions is None else sorted(partitions))
        led: dict[int, list[int]] = {}
        for index in found:
            led.setdefault(self._placement.leader(topic, index), []).append(index)
        async with trio.open_nursery() as nursery:
            for number, indexes in led.items():
                peer = self._placement.broker(number)
                if number == self._placement.node_id:
                    nursery.start_soon(self._ask_here, found, topic, indexes, method, args)
                elif peer is not None:
                    nursery.start_soon(self._ask_peer, peer, found, topic, indexes, method, args)
                else:
                    error = Unavailable(f"topic '{topic.name}' has partitions without a leader at the moment")
                    found.update(dict.fromkeys(indexes, error))
        return found

    async def _ask_here(
        self, found: Answers, topic: Topic, indexes: Sequence[int], method: str, args: Sequence[Any]
    ) -> None:
        for index in indexes:
            try:
                found[index] = await self._here[method](topic.name, index, *args)
            except (KafkaError, NativeError, *STORE_ERRORS) as error:
                found[index] = error

    async def _ask_peer(
        self, peer: LiveBroker, found: Answers, topic: Topic, indexes: Sequence[int], method: str, args: Sequence[Any]
    ) -> None:
        found.update(dict.fromkeys(indexes, Unavailable(f"broker {peer.id} does not answer")))
        async with self._peers.connected(peer) as client:
            for index in indexes:
                try:
                    found[index] = await client.call(method, topic.name, index, *args)
                except NativeError as error:
                    found[index] = error
                except SILENT as error:
                    silent = Unavailable(f"broker {peer.id} does not answer: {error}")
                    found.update(dict.fromkeys(indexes[indexes.index(index) :], silent))
                    return
