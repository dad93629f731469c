"""One broker: its image of the metadata, its partitions, and what its front ends ask of it.

1. Starting costs a fixed number of metadata operations, however many topics there are; a partition is opened on use.
2. A request that changes the metadata is answered once this broker's own image shows the change.
3. Everything that runs here ends with `run`.
4. A partition is in use here only while this broker leads it (`leadership`): it is released when that ends, and opened
   anew should it come back. While the broker's lease may be over it answers as if it led nothing, but for appends:
   those are decided by the bookies.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

import msgpack
import trio

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ledger import Bookies, EntryCache, Quorum
from gnomon.broker.broker_configs import BrokerConfigs
from gnomon.broker.config_key import ConfigSource
from gnomon.broker.errors import KafkaError, refused_when_full
from gnomon.broker.groups.coordinator import GroupCoordinator, partition_for
from gnomon.broker.groups.settings import GroupSettings
from gnomon.broker.leadership import NOBODY, Leadership, LiveBroker
from gnomon.broker.offsets_partition import BrokerOffsetsLogs
from gnomon.broker.partition.chain import Chain, ledgers_prefix, sealed_segments, stored_bytes
from gnomon.broker.partition.log import LogSettings, segments_to_drop
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.refused_batches import RefusedBatches
from gnomon.broker.producer_ids import ProducerIds
from gnomon.broker.topic_admin import TopicAdmin
from gnomon.broker.topic_configs import log_settings
from gnomon.broker.topics import DELETED_PREFIX, OFFSETS_TOPIC, TOPICS_PREFIX, Topic, TopicImage, topic_key
from gnomon.metadata.client import (
    Compacted,
    Compare,
    Metadata,
    MetadataError,
    MetadataFull,
    MetadataUnavailable,
    Put,
    Revision,
)
from gnomon.runtime.logs import Logger
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import World, WorldError
from gnomon.wire.kafka.errors import ErrorCode

CLUSTER_KEY = "cluster"
CONFIGS_PREFIX = "configs/brokers/"
ALL_BROKERS = "default"
OFFSETS_BATCH_BYTES_MAX = 100 << 20
RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """What one broker takes on at most."""

    request_queue_bytes_max: int
    connection_request_bytes_max: int
    connections_max: int
    entry_cache_bytes_max: int = 64 << 20


class Broker:
    """The state of one broker, built anew at each start."""

    def __init__(
        self,
        world: World,
        metadata: Metadata,
        bookies: Bookies,
        configs: BrokerConfigs,
        settings: BrokerLimits,
        metrics: Metrics,
        log: Logger,
        collect_garbage: Callable[[], None],
    ) -> None:
        self.world = world
        self.metadata = metadata
        self.bookies = bookies
        self.entries = EntryCache(bookies, settings.entry_cache_bytes_max)
        self.configs = configs
        self.settings = settings
        self.metrics = metrics
        self.log = log
        self.collect_garbage = collect_garbage
        self.node_id = configs.number("broker.id")
        self.me = LiveBroker(self.node_id, "", 0)
        """As clients are told of it."""
        self.leadership = Leadership([self.me])
        """Who leads what; this broker alone, until somebody tells otherwise."""
        self.lease_until: Callable[[], float] | None = None
        """Of a broker in a cluster: the monotonic second up to which its registration lives for certain."""
        self.claimant: tuple[Compare, ...] = ()
        """What must hold in the metadata for this broker to take a partition."""
        self.quorum = Quorum()
        """Of the ledgers of partitions that are new."""
        self.cluster_id = ""
        self.image = TopicImage()
        self.following = False
        """Whether the image is kept up to date at the moment."""
        self.timers = Timers(world.clock)
        self.topic_admin = TopicAdmin(self)
        self.producer_ids = ProducerIds(metadata)
        self.coordinator: GroupCoordinator
        self._partitions: dict[tuple[uuid.UUID, int], Partition] = {}
        self.flush_replies: Callable[[], None] = lambda: None
        """Of the front end: sends the replies that were made with `flush=False`."""
        self.network_ends_turns = False
        """Whether the outcomes of appends come from bookies elsewhere, not from a store that says when it told all."""
        self._turn_end_due = False
        self.routes_revision = 0
        """Grows when a partition found before may have become another."""
        self.refused = RefusedBatches()
        """What was sent to partitions that are not open here."""
        self._produced_to: dict[tuple[str | bytes, int], Partition] = {}
        self._advanced: dict[Partition, None] = {}
        self._settings_cache: dict[uuid.UUID, tuple[int, Topic, LogSettings]] = {}
        self._image_moved = trio.Event()
        self._nursery: trio.Nursery | None = None

    # --- life ---------------------------------------------------------------------------------------------------

    async def start(self, nursery: trio.Nursery) -> None:
        """Reads the metadata and begins to follow it; `nursery` holds everything that runs."""
        self._nursery = nursery
        self.cluster_id = await self._cluster_id()
        await self._load_configs()
        await self._load_image()
        self.coordinator = GroupCoordinator(
            self.world,
            self.timers,
            BrokerOffsetsLogs(self, nursery),
            self._offsets_partitions,
            self._group_settings,
            self.log,
            self._coordinates,
        )
        await nursery.start(self.coordinator.run)
        nursery.start_soon(self._follow)
        nursery.start_soon(self._finish_deletions)
        nursery.start_soon(self.timers.run)
        nursery.start_soon(self._keep_retention)

    def _offsets_partitions(self) -> int:
        """Groups lie where they were put when the topic was made, whatever the setting says now."""
        topic = self.image.get(OFFSETS_TOPIC)
        return topic.partitions if topic is not None else self.configs.number("offsets.topic.num.partitions")

    def _group_settings(self) -> GroupSettings:
        return GroupSettings.read(lambda name: str(self.configs.number(name)))

    async def _cluster_id(self) -> str:
        while (found := await self.metadata.get(CLUSTER_KEY)) is None:
            fresh = uuid.UUID(int=self.world.random("cluster-id").getrandbits(128), version=4)
            text = base64.urlsafe_b64encode(fresh.bytes).rstrip(b"=")
            try:
                await self.metadata.txn([Compare.absent(CLUSTER_KEY)], [Put(CLUSTER_KEY, text)])
            except MetadataFull:
                raise
            except MetadataUnavailable:
                continue  # the next look shows what came of it
        return found.value.decode()

    async def _load_image(self) -> None:
        found = await self.metadata.range(TOPICS_PREFIX)
        ended = {topic.id: topic for topic in self.image}
        image = TopicImage()
        for item in found.items:
            topic = Topic.decode(item)
            image.put(topic)
            ended.pop(topic.id, None)
        image.revision = found.revision
        self.image = image
        for topic in ended.values():
            self._end_topic(topic)
        for topic in image:
            self._configure(topic)
        self._moved()

    # --- leadership ---------------------------------------------------------------------------------------------

    def leadership_changed(self, leadership: Leadership) -> None:
        """A broker came, went, or begins to drain: what is another's from now on is released."""
        self.leadership = leadership
        for (topic_id, index), partition in list(self._partitions.items()):
            if leadership.leader(topic_id, index) != self.node_id:
                del self._partitions[topic_id, index]
                partition.release()
        topic = self.image.get(OFFSETS_TOPIC)
        self.coordinator.release(lambda index: topic is not None and self._leads(topic.id, index))
        self._new_routes()
        assert self._nursery is not None, "the broker was not started"
        if self.lease_until is None or self.lease_until() != float("-inf"):  # else once it is registered
            self._nursery.start_soon(self._finish_deletions)

    def brokers_told(self) -> list[LiveBroker]:
        """Whom clients are told of: this broker where it knows of nobody alive, but never nobody.

        librdkafka (2.10 on) drops every broker that an answer does not name, also those that it was configured with:
        after an answer that names none it has nobody to ask (consumers were left so in `make chaos`, for ever).
        """
        return self.leadership.told() or [self.me]

    def lease_lives(self) -> bool:
        """Whether nobody can have taken this broker for dead yet."""
        return self.lease_until is None or self.world.clock.monotonic() < self.lease_until()

    def _leads(self, topic_id: uuid.UUID, index: int) -> bool:
        return self.leadership.leader(topic_id, index) == self.node_id

    def _coordinates(self, partition: int) -> bool:
        """Whether the groups of a partition of the offsets topic are this broker's now."""
        if self.lease_until is None:
            return True
        topic = self.image.get(OFFSETS_TOPIC)
        return topic is not None and self._leads(topic.id, partition) and self.lease_lives()

    def coordinator_of(self, group_id: str) -> LiveBroker | None:
        """The broker that coordinates a group, None while there is none."""
        topic = self.image.get(OFFSETS_TOPIC)
        if topic is None:
            return None
        leader = self.leadership.leader(topic.id, partition_for(group_id, topic.partitions))
        return self.leadership.brokers.get(leader)

    def _new_routes(self) -> None:
        self._produced_to.clear()
        self.routes_revision += 1

    # --- the image ----------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Moves the image on, event by event; begins again from a fresh list when the history was compacted."""
        while True:
            try:
                async with self.metadata.watch(TOPICS_PREFIX, Revision(self.image.revision + 1)) as batches:
                    self.following = True
                    async for batch in batches:
                        for event in batch.events:
                            ended = self.image.apply(event)
                            if ended is not None:
                                self._end_topic(ended)
                            elif event.current is not None:
                                self._configure(Topic.decode(event.current))
                        self.image.revision = batch.revision
                        self._moved()
            except Compacted:
                self.following = False
                await self._load_image_again()

    async def _load_image_again(self) -> None:
        try:
            await self._load_image()
        except MetadataError as error:
            self.log.warning("topics_not_read", reason=str(error), next=f"again in {RETRY_SECONDS} s")
            await self.world.clock.sleep(RETRY_SECONDS)

    def _moved(self) -> None:
        moved, self._image_moved = self._image_moved, trio.Event()
        moved.set()

    async def image_at(self, revision: Revision) -> None:
        """Waits until the image shows the topics as of a revision that changed one."""
        while self.image.revision < revision:
            await self.image_moved()

    async def image_moved(self) -> None:
        """Waits until the image is another one."""
        await self._image_moved.wait()

    # --- topics and partitions ----------------------------------------------------------------------------------

    def find_topic(self, ref: str | bytes) -> Topic:
        """A topic by name or by the bytes of its id.

        Raises:
            KafkaError: there is none.
        """
        if isinstance(ref, str):
            topic = self.image.get(ref)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{ref}' does not exist")
            return topic
        topic = self.image.get_by_id(uuid.UUID(bytes=ref))
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {ref.hex()}")
        return topic

    def partition_of(self, ref: str | bytes, index: int) -> Partition:
        """A partition that this broker leads, to read it; it is opened when it is first used.

        Raises:
            KafkaError: topic or partition do not exist, or another broker leads it.
        """
        if not self.lease_lives():
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not know whether it still leads the partition"
            )
        return self._led(ref, index)

    def _led(self, ref: str | bytes, index: int) -> Partition:
        topic = self.find_topic(ref)
        if not 0 <= index < topic.partitions:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{topic.name}' has {topic.partitions} partitions"
            )
        return self._partition(topic, index)

    def partition_to_produce(self, ref: str | bytes, index: int) -> Partition:
        """A partition for a client to produce to; found without a search when it was found before.

        Raises:
            KafkaError: topic or partition do not exist, another broker leads it, or clients must not produce to it.
        """
        partition = self._produced_to.get((ref, index))
        if partition is None:
            topic = self.find_topic(ref)
            if topic.internal:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"topic '{topic.name}' holds the broker's own state: only read it",
                )
            partition = self._produced_to[ref, index] = self._led(ref, index)
        return partition

    def _partition(self, topic: Topic, index: int) -> Partition:
        partition = self._partitions.get((topic.id, index))
        if partition is None:
            leader = self.leadership.leader(topic.id, index)
            if leader != self.node_id:
                who = "no broker at the moment" if leader == NOBODY else f"broker {leader}"
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, f"partition {index} of topic '{topic.name}' is led by {who}"
                )
            assert self._nursery is not None, "the broker was not started"
            chain = Chain(
                self.metadata,
                self.bookies,
                self.entries,
                ledgers_prefix(topic.id, index),
                topic_key(topic.name),
                topic.create_revision,
                self.quorum,
                self.claimant,
            )
            partition = Partition(
                chain,
                self.settings_of(topic),
                self.world.clock,
                self._nursery,
                self._partition_advanced_elsewhere if self.network_ends_turns else self._partition_advanced,
                self.turn_ended,
                self.log.bind(topic=topic.name, partition=index, ledgers=ledgers_prefix(topic.id, index)),
                self.refused.join(topic.name, topic.id.bytes, index),
            )
            partition.epochs_told = self.lease_until is None
            self._partitions[topic.id, index] = partition
        return partition

    def partitions_open(self) -> list[Partition]:
        """The partitions in use."""
        return list(self._partitions.values())

    def leader_epoch(self, topic: Topic, index: int) -> int:
        """The leader epoch of a partition as clients are told it, -1 where they are not told.

        A broker alone tells it once the partition was used. In a cluster none does: a broker knows the epochs of its
        own partitions only, and clients that were told an epoch by one (librdkafka before 2.5) take no other answer for
        newer that does not say any.
        """
        if self.lease_until is not None:
            return -1
        partition = self._partitions.get((topic.id, index))
        return partition.log.epoch if partition is not None and partition.log is not None else -1

    async def partition_bytes(self) -> dict[tuple[uuid.UUID, int], int]:
        """The bytes of batches by topic and number, of all partitions that were ever used; one read of the metadata."""
        sizes = await stored_bytes(self.metadata, self.bookies, self.entries)
        for key, partition in self._partitions.items():
            size = partition.size_bytes()
            if size is not None:
                sizes[key] = size
        return sizes

    def settings_of(self, topic: Topic) -> LogSettings:
        """What a topic's logs obey now."""
        cached = self._settings_cache.get(topic.id)
        if cached is not None and cached[0] == self.configs.revision and cached[1] is topic:
            return cached[2]
        values = self.configs.topic_values(topic.configs)
        settings = log_settings(values, self.configs.number("producer.id.expiration.ms"))
        if topic.internal:
            # The coordinator trims what it has written anew; a record that clients made large must not stop it.
            batch_bytes_max = max(settings.batch_bytes_max, OFFSETS_BATCH_BYTES_MAX)
            settings = replace(settings, retention_ms=-1, retention_bytes=-1, batch_bytes_max=batch_bytes_max)
        self._settings_cache[topic.id] = (self.configs.revision, topic, settings)
        return settings

    async def auto_create(self, name: str, allowed: bool) -> Topic:
        """Creates a topic that a client asked for, where the request and `auto.create.topics.enable` allow it.

        Raises:
            KafkaError: it is not allowed, or the name is refused.
        """
        if name == OFFSETS_TOPIC:
            return await self.offsets_topic()
        if not allowed or not self.configs.flag("auto.create.topics.enable"):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{name}' does not exist")
        return await self._create(name, self.configs.number("num.partitions"), {})

    async def offsets_topic(self) -> Topic:
        """`__consumer_offsets`, created on first use."""
        topic = self.image.get(OFFSETS_TOPIC)
        if topic is not None:
            return topic
        configs = {
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "segment.bytes": str(OFFSETS_BATCH_BYTES_MAX),
            "max.message.bytes": str(OFFSETS_BATCH_BYTES_MAX),
        }
        return await self._create(OFFSETS_TOPIC, self.configs.number("offsets.topic.num.partitions"), configs)

    async def _create(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        try:
            asked = self.topic_admin.check_new(name, partitions, configs, internal=name == OFFSETS_TOPIC)
            return await self.topic_admin.create(asked)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return self.find_topic(name)

    def _end_topic(self, topic: Topic) -> None:
        self._settings_cache.pop(topic.id, None)
        for key in [key for key in self._partitions if key[0] == topic.id]:
            self._partitions.pop(key).end()
        self.leadership.forget(topic.id)
        self._new_routes()
        assert self._nursery is not None, "the broker was not started"
        self._nursery.start_soon(self._forget_offsets, topic.name)

    async def _forget_offsets(self, name: str) -> None:
        try:
            await self.topic_admin.forget_offsets(name)
        except (KafkaError, MetadataError, WorldError) as error:
            self.log.warning("offsets_not_deleted", topic=name, reason=str(error), next="before it is created again")

    async def _finish_deletions(self) -> None:
        """What the last run did not come to."""
        try:
            found = await self.metadata.range(DELETED_PREFIX)
        except MetadataError as error:
            self.log.warning("deletions_not_finished", reason=str(error), next="before each is created again")
            return
        for item in found.items:
            await self._forget_offsets(item.key.removeprefix(DELETED_PREFIX))

    def _configure(self, topic: Topic) -> None:
        for index in range(topic.partitions):
            partition = self._partitions.get((topic.id, index))
            if partition is not None:
                partition.configure(self.settings_of(topic))

    # --- configs ------------------------------------------------------------------------------------------------

    def _configs_key(self, source: ConfigSource) -> str:
        return CONFIGS_PREFIX + (ALL_BROKERS if source is ConfigSource.DYNAMIC_DEFAULT_BROKER else str(self.node_id))

    async def _load_configs(self) -> Revision:
        listed = await self.metadata.range(CONFIGS_PREFIX)
        found = {item.key: msgpack.unpackb(item.value) for item in listed.items}
        for source in (ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER):
            self.configs.set_layer(source, found.get(self._configs_key(source), {}))
        return listed.revision

    async def follow_configs(self) -> NoReturn:
        """Takes over what is set at another broker, for all or for this one; until cancelled."""
        while True:
            try:
                revision = await self._load_configs()
                self._configure_all()
                async with self.metadata.watch(CONFIGS_PREFIX, Revision(revision + 1)) as batches:
                    async for _ in batches:
                        await self._load_configs()
                        self._configure_all()
            except MetadataError:
                await self.world.clock.sleep(RETRY_SECONDS)

    def _configure_all(self) -> None:
        for topic in self.image:
            self._configure(topic)

    async def change_configs(self, source: ConfigSource, change: Callable[[Mapping[str, str]], dict[str, str]]) -> None:
        """Replaces what was set at run time for this broker or for all by what `change` makes of it."""
        key = self._configs_key(source)
        while True:
            item = await self.metadata.get(key)
            layer = change(msgpack.unpackb(item.value) if item is not None else {})
            version = item.version if item is not None else 0
            with refused_when_full():
                result = await self.metadata.txn([Compare.version(key, version)], [Put(key, msgpack.packb(layer))])
            if result.succeeded:
                break
        self.configs.set_layer(source, layer)
        self._configure_all()

    # --- turns --------------------------------------------------------------------------------------------------

    def _partition_advanced(self, partition: Partition) -> None:
        self._advanced[partition] = None

    def _partition_advanced_elsewhere(self, partition: Partition) -> None:
        self._advanced[partition] = None
        self.turn_began()

    def turn_began(self) -> None:
        """Something is ready to leave, and no store of this process ends the turn: the network does."""
        if not self._turn_end_due:
            self._turn_end_due = True
            self.world.network.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._turn_end_due = False
        self.turn_ended()

    def turn_ended(self) -> None:
        """A group of commits was reported whole, or a partition opened or failed: what that made ready leaves now.

        Whoever waits at the end of a log that moved is told, once; then the replies leave, many to a system call.
        """
        while self._advanced:
            partition, _ = self._advanced.popitem()
            partition.wake_waiters()
        self.flush_replies()

    async def _keep_retention(self) -> None:
        while True:
            await self.world.clock.sleep(self.configs.number("log.retention.check.interval.ms") / 1000)
            await self.enforce_retention()
            await self._finish_deletions()

    async def enforce_retention(self) -> None:
        """Rolls and drops what the topics' settings say, partition by partition.

        A partition that nobody has used since the start is opened only where sealed segments of it are due; the one
        that it was writing then stays until it is used.
        """
        partitions = self.partitions_open()
        try:
            partitions += await self._unused_with_old_segments()
        except MetadataError as error:
            self.log.error("retention_failed", reason=str(error))
        for partition in partitions:
            try:
                await partition.opened()
                await partition.enforce_retention()
            except (LedgerError, MetadataError, WorldError) as error:
                self.log.error("retention_failed", reason=str(error))

    async def _unused_with_old_segments(self) -> list[Partition]:
        now_ms = self.world.clock.wall_ms()
        due = []
        for topic_id, index, sealed in await sealed_segments(self.metadata):
            topic = self.image.get_by_id(topic_id)
            if topic is None or (topic_id, index) in self._partitions or not self._leads(topic_id, index):
                continue
            if segments_to_drop(self.settings_of(topic), sealed, 0, now_ms):
                due.append(self._partition(topic, index))
        return due
