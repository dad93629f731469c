"""The hosted partitions of a broker: each serves one partition's subscriptions, for one term (time of leadership)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import TypeAlias

import trio

from gnomon.broker.in_use.routes import Routes
from gnomon.broker.native.connection import Host
from gnomon.broker.placement.placement import Placement
from gnomon.broker.storage import Storage
from gnomon.broker.subscriptions.hosted_partition import HostedPartition
from gnomon.broker.subscriptions.positions.store import SubscriptionsStore
from gnomon.broker.subscriptions.rounds import Rounds
from gnomon.broker.subscriptions.unpacked import UnpackedBatches
from gnomon.broker.topics.topic_records import TopicRecords
from gnomon.broker.topics.topics import Topics
from gnomon.client.errors import NativeError, NoSuchTopic, NotLeader, Unavailable
from gnomon.log.chains import ledgers_prefix
from gnomon.log.cut import Cut, cut_key
from gnomon.log.topic import Topic
from gnomon.runtime.logs import Logger
from gnomon.runtime.settings.settings import SubscriptionsSettings
from gnomon.runtime.tasks import OwnTasks
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import World
from gnomon.wire.kafka.errors import ErrorCode

OpenStore: TypeAlias = Callable[[Topic, int], SubscriptionsStore]
HostKey: TypeAlias = tuple[uuid.UUID, int]
"""A topic's id, and the number of a partition."""

RELIEF_PAUSES = 4
"""The pause after a flush lasts this many times as long as the flush: otherwise many brokers together could overload
the metadata and the bookies, and delay all other work."""
RELIEF_SECONDS_MAX = 10.0
"""The longest pause of this kind."""


class Hosts:
    """The hosted partitions of one broker."""

    def __init__(
        self,
        topics: Topics,
        records: TopicRecords,
        routes: Routes,
        placement: Placement,
        settings: SubscriptionsSettings,
        open_store: OpenStore,
        storage: Storage,
        world: World,
        timers: Timers,
        log: Logger,
    ) -> None:
        """No partition is open yet.

        Args:
            open_store: returns the store of positions of a topic's partition.
        """
        self._topics = topics
        self._records = records
        self._routes = routes
        self._placement = placement
        self._settings = settings
        self._open_store = open_store
        self._storage = storage
        self._clock = world.clock
        self._timers = timers
        self._log = log
        self._tasks = OwnTasks()
        self._hosts: dict[HostKey, Host] = {}
        self._opening: dict[HostKey, trio.Lock] = {}
        """A lock for each partition that is being asked for, and for no other: clients may ask for any number."""
        self.rounds = Rounds(world.clock, timers)
        self._unpacked = UnpackedBatches(world, self._tasks, self.rounds)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Stores positions regularly, and holds the tasks of the partitions, until it is cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._tasks.run)
            nursery.start_soon(self._flush_regularly)
            task_status.started()

    def all(self) -> Iterable[tuple[HostKey, Host]]:
        """The partitions in use, by topic id and number."""
        return list(self._hosts.items())

    def hosted(self, topic: Topic, index: int) -> Host | None:
        """The hosted partition of a topic, if it is in use."""
        host = self._hosts.get((topic.id, index))
        return None if host is None or host.ended else host

    @property
    def subscriptions(self) -> int:
        """The number of subscriptions of all hosted partitions."""
        return sum(len(host.dispatcher.subscriptions) for host in self._hosts.values())

    async def end(self) -> None:
        """Ends all hosted partitions, and waits until acknowledgements are stored."""
        hosts = list(self._hosts.values())
        for host in hosts:
            host.end()
        for host in hosts:
            await host.finished.wait()

    async def led(self, name: str, index: int) -> Topic:
        """The topic of a partition that this broker leads; the partition is not opened.

        Raises:
            KafkaError: the topic or the partition does not exist, or another broker leads the partition.
        """
        await self._records.find(name)
        topic = self._topics.find_partition(name, index)
        self._placement.check_led(topic, index)
        return topic

    async def host(self, name: str, index: int) -> Host:
        """The hosted partition of a partition that this broker leads, which is opened on first use.

        Raises:
            KafkaError: the topic does not exist, or another broker leads the partition.
            NativeError: the partition could not be opened.
            MetadataError, LedgerError, SubscriptionsError, WorldError: its subscriptions could not be read.
        """
        await self._records.find(name)
        topic = self._topics.find(name)
        key = (topic.id, index)
        lock = self._opening.setdefault(key, trio.Lock())
        try:
            async with lock:
                return await self._host(topic, index, key)
        finally:
            if not lock.locked():  # and no task waits for it
                self._opening.pop(key, None)

    async def _host(self, topic: Topic, index: int, key: HostKey) -> Host:
        partition = self._routes.to_read(topic.id.bytes, index)
        host = self._hosts.get(key)
        if host is not None and not host.ended and host.partition is partition:
            return host
        if host is not None:
            host.end()
            await host.finished.wait()
        log = await partition.opened()
        if log is None:
            raise not_open(topic.name, index, partition.failure)
        host = HostedPartition(
            partition,
            log,
            self._open_store(topic, index),
            self._clock,
            self._timers,
            self.rounds,
            self._unpacked,
            self._placement.lease_lives,
            lambda ended: self._ended(key, ended),
            self._log.bind(topic=topic.name, partition=index),
            self._settings.ranges_max,
            lambda: self._last_cut(topic, index),
            self._tasks,
        )
        self._hosts[key] = host
        try:
            await host.load()
        except BaseException:
            host.end()
            raise
        return host

    async def _last_cut(self, topic: Topic, index: int) -> Cut | None:
        item = await self._storage.metadata.get(cut_key(ledgers_prefix(topic.ranked_as, index)))
        try:
            return None if item is None else Cut.decode(item.value)
        except (ValueError, TypeError) as error:
            self._log.error("cut_unreadable", topic=topic.name, partition=index, reason=str(error))
            return None

    def _ended(self, key: HostKey, host: Host) -> None:
        async def finish() -> None:
            await host.finish()
            if self._hosts.get(key) is host:
                del self._hosts[key]

        self._tasks.start_soon(finish)

    async def _flush_regularly(self) -> None:
        """Stores positions until cancelled; the pause after a slow flush is longer (RELIEF_PAUSES)."""
        clock = self._clock
        pause_seconds = self._settings.flush_seconds
        while True:
            await clock.sleep(pause_seconds)
            began = clock.monotonic()
            for host in list(self._hosts.values()):
                await host.flush(self._settings.flush_positions_max)
            relief_seconds = RELIEF_PAUSES * (clock.monotonic() - began)
            pause_seconds = max(self._settings.flush_seconds, min(relief_seconds, RELIEF_SECONDS_MAX))


def not_open(name: str, index: int, failure: ErrorCode | None) -> NativeError:
    """The error for a partition that is not open; `failure` is the reason, None if it has just moved."""
    text = f"partition {index} of topic '{name}' could not be opened"
    if failure == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return NotLeader(text)
    if failure == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return NoSuchTopic(text)
    return Unavailable(f"{text}: it is tried again soon")
