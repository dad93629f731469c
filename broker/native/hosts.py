"""Which partitions' subscriptions are in use at a broker: each opened when it is first needed, for one term."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

import trio

from gnomon.broker.native.errors import NativeError, NoSuchTopic, NotLeader, Unavailable
from gnomon.broker.partition.chain import ledgers_prefix
from gnomon.broker.partition.cut import Cut, cut_key
from gnomon.broker.subscriptions.hosted_partition import HostedPartition
from gnomon.broker.subscriptions.store import SubscriptionsStore
from gnomon.broker.topics import Topic
from gnomon.runtime.settings import SubscriptionsSettings
from gnomon.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker

OpenStore: TypeAlias = Callable[[Topic, int], SubscriptionsStore]
HostKey: TypeAlias = tuple[uuid.UUID, int]
"""A topic's id, and the number of a partition."""

RELIEF_PAUSES = 4
"""After a flush nothing is stored for so many times as long as it took: many brokers together could ask for more than
the metadata and the bookies can do, and make everybody wait for that."""
RELIEF_SECONDS_MAX = 10.0
"""But for no longer than this."""


class Hosts:
    """The hosted partitions of one broker."""

    def __init__(
        self, broker: Broker, nursery: trio.Nursery, settings: SubscriptionsSettings, open_store: OpenStore
    ) -> None:
        """No partition yet; `open_store` gives the positions of a topic's partition."""
        self._broker = broker
        self._nursery = nursery
        self._settings = settings
        self._open_store = open_store
        self._hosts: dict[HostKey, HostedPartition] = {}
        self._opening: dict[HostKey, trio.Lock] = {}
        """As long as somebody asks for the partition: any number may be asked for."""

    def all(self) -> Iterable[tuple[HostKey, HostedPartition]]:
        """Those that are in use."""
        return list(self._hosts.items())

    @property
    def subscriptions(self) -> int:
        """How many there are of these partitions."""
        return sum(len(host.dispatcher.subscriptions) for host in self._hosts.values())

    async def end(self) -> None:
        """Ends all of them, and waits until what was acknowledged is stored."""
        hosts = list(self._hosts.values())
        for host in hosts:
            host.end()
        for host in hosts:
            await host.finished.wait()

    async def host(self, name: str, index: int) -> HostedPartition:
        """The subscriptions of a partition that this broker leads.

        Raises:
            KafkaError: there is no such topic, or another broker leads it.
            NativeError: it could not be opened.
            MetadataError, LedgerError, SubscriptionsError, WorldError: its subscriptions could not be read.
        """
        await self._broker.topic_admin.find(name)
        topic = self._broker.find_topic(name)
        key = (topic.id, index)
        lock = self._opening.setdefault(key, trio.Lock())
        try:
            async with lock:
                return await self._host(topic, index, key)
        finally:
            if not lock.locked():  # nor waits anybody for it
                self._opening.pop(key, None)

    async def _host(self, topic: Topic, index: int, key: HostKey) -> HostedPartition:
        broker = self._broker
        partition = broker.partition_of(topic.id.bytes, index)
        host = self._hosts.get(key)
        if host is not None and not host.ended and host.partition is partition:
            return host
        if host is not None:
            host.end()
            await host.finished.wait()
        log = await partition.opened()
        if log is None:
            raise _not_open(topic.name, index, partition.failure)
        host = HostedPartition(
            partition,
            log,
            self._open_store(topic, index),
            broker.world.clock,
            broker.timers,
            broker.lease_lives,
            lambda ended: self._ended(key, ended),
            broker.log.bind(topic=topic.name, partition=index),
            self._settings.ranges_max,
            lambda: self._last_cut(topic, index),
        )
        self._hosts[key] = host
        try:
            await host.load()
        except BaseException:
            host.end()
            raise
        return host

    async def _last_cut(self, topic: Topic, index: int) -> Cut | None:
        item = await self._broker.metadata.get(cut_key(ledgers_prefix(topic.ranked_as, index)))
        try:
            return None if item is None else Cut.decode(item.value)
        except (ValueError, TypeError) as error:
            self._broker.log.error("cut_unreadable", topic=topic.name, partition=index, reason=str(error))
            return None

    def _ended(self, key: HostKey, host: HostedPartition) -> None:
        async def finish() -> None:
            await host.finish()
            if self._hosts.get(key) is host:
                del self._hosts[key]

        self._nursery.start_soon(finish)

    async def flush_regularly(self) -> None:
        """Stores positions, until it is cancelled; where that is slow, for a fifth of the time."""
        clock = self._broker.world.clock
        pause_seconds = self._settings.flush_seconds
        while True:
            await clock.sleep(pause_seconds)
            began = clock.monotonic()
            for host in list(self._hosts.values()):
                await host.flush(self._settings.flush_positions_max)
            relief_seconds = RELIEF_PAUSES * (clock.monotonic() - began)
            pause_seconds = max(self._settings.flush_seconds, min(relief_seconds, RELIEF_SECONDS_MAX))


def _not_open(name: str, index: int, failure: ErrorCode | None) -> NativeError:
    text = f"partition {index} of topic '{name}' could not be opened"
    if failure == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return NotLeader(text)
    if failure == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return NoSuchTopic(text)
    return Unavailable(f"{text}: it is tried again soon")
