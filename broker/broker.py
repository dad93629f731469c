"""One broker: its image of the metadata, its partitions, and what its front ends ask of it.

1. Starting costs a fixed number of metadata operations, however many topics there are; a partition is opened on use,
   and one that shadows show once this broker leads it (`source_opener`).
2. A request that changes the metadata is answered once this broker's own image shows the change.
3. Everything that runs here ends with `run`.
4. While the broker's lease may be over it answers as if it led nothing, but for appends: those are decided by the
   bookies.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import trio

from gnomon.bookie.ledger import Bookies, EntryCache, Quorum
from gnomon.broker.authorizer import AllowAll, Authorizer, Permission, check
from gnomon.broker.backlog import BacklogQuotas
from gnomon.broker.broker_configs import BrokerConfigs
from gnomon.broker.errors import KafkaError
from gnomon.broker.groups.coordinator import GroupCoordinator, partition_for
from gnomon.broker.groups.settings import GroupSettings
from gnomon.broker.leadership import Leadership, LiveBroker
from gnomon.broker.offsets_partition import BrokerOffsetsLogs
from gnomon.broker.partition.log import LogSettings
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.readable import Readable
from gnomon.broker.partition.refused_batches import RefusedBatches
from gnomon.broker.partitions_in_use import PartitionsInUse
from gnomon.broker.producer_ids import ProducerIds
from gnomon.broker.retention import Retention
from gnomon.broker.shadow.cast import refused
from gnomon.broker.shadow.replicator import ShadowReplication
from gnomon.broker.shadow.source_opener import SourceOpener
from gnomon.broker.stored_configs import StoredConfigs
from gnomon.broker.topic_admin import TopicAdmin
from gnomon.broker.topic_configs import log_settings
from gnomon.broker.topics import OFFSETS_BATCH_BYTES_MAX, OFFSETS_TOPIC, TOPICS_PREFIX, Topic, TopicImage
from gnomon.broker.turns import Turns
from gnomon.metadata.client import Compare, Metadata, RangeResult, WatchBatch
from gnomon.metadata.cluster_id import cluster_id
from gnomon.metadata.follower import Follower
from gnomon.runtime.logs import Logger
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.settings import BrokerSettings, ShadowReplicationSettings
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import World
from gnomon.wire.kafka.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """What one broker takes on at most."""

    request_queue_bytes_max: int
    connection_request_bytes_max: int
    connections_max: int
    entry_cache_bytes_max: int

    @classmethod
    def of(cls, settings: BrokerSettings) -> BrokerLimits:
        """As a broker's settings say."""
        return cls(
            settings.request_queue_bytes_max,
            settings.connection_request_bytes_max,
            settings.connections_max,
            settings.entry_cache_bytes_max,
        )


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
        self.authorizer: Authorizer = AllowAll()
        self.quorum = Quorum()
        """Of the ledgers of partitions that are new."""
        self.cluster_id = ""
        self.image = TopicImage()
        self.topics = Follower(metadata, world.clock, log, TOPICS_PREFIX, self._replace_topics, self._change_topics)
        """Moves the image on."""
        self.stored_configs = StoredConfigs(metadata, world.clock, log, configs, self.node_id, self._configure_all)
        self.timers = Timers(world.clock)
        self.turns = Turns(world.network)
        self.topic_admin = TopicAdmin(self)
        self.retention = Retention(self)
        self.backlog_quotas = BacklogQuotas(self)
        self.producer_ids = ProducerIds(metadata)
        self.coordinator: GroupCoordinator
        self.partitions: PartitionsInUse
        self.replication_settings = ShadowReplicationSettings()
        self.replication: ShadowReplication
        """What tells shadows elsewhere of what is written here."""
        self.source_opener: SourceOpener
        self.routes_revision = 0
        """Grows when a partition found before may have become another."""
        self.refused = RefusedBatches()
        """What was sent to partitions that are not open here."""
        self._produced_to: dict[tuple[str | bytes, int], Partition] = {}
        self._settings_cache: dict[uuid.UUID, tuple[int, Topic, LogSettings]] = {}
        self._nursery: trio.Nursery | None = None

    # --- life ---------------------------------------------------------------------------------------------------

    async def start(self, nursery: trio.Nursery) -> None:
        """Reads the metadata and begins to follow it; `nursery` holds everything that runs."""
        self._nursery = nursery
        self.partitions = PartitionsInUse(self, nursery)
        self.cluster_id = await cluster_id(self.metadata, self.world.random("cluster-id"))
        await self.stored_configs.follower.load()
        self.replication = ShadowReplication(self, nursery, self.replication_settings)
        self.source_opener = SourceOpener(self, nursery)
        await self.topics.load()
        self.coordinator = GroupCoordinator(
            self.world,
            self.timers,
            BrokerOffsetsLogs(self, nursery),
            self._offsets_partitions,
            self._group_settings,
            self.log,
            self._leads_groups,
            self.lease_lives,
        )
        await nursery.start(self.coordinator.run)
        nursery.start_soon(self.topics.run)
        nursery.start_soon(self.topic_admin.finish_deletions)
        nursery.start_soon(self.timers.run)
        nursery.start_soon(self.retention.run)
        nursery.start_soon(self.replication.run)
        if self.lease_until is not None:  # where there is no other broker, who reads a shadow has its source opened
            nursery.start_soon(self.source_opener.run)
        nursery.start_soon(self.backlog_quotas.run)

    def _offsets_partitions(self) -> int:
        """Groups lie where they were put when the topic was made, whatever the setting says now."""
        topic = self.image.get(OFFSETS_TOPIC)
        return topic.partitions if topic is not None else self.configs.number("offsets.topic.num.partitions")

    def _group_settings(self) -> GroupSettings:
        return GroupSettings.read(self.configs.number)

    def image_problem(self) -> str | None:
        """Why the broker does not follow the metadata, None while it does."""
        return None if self.topics.following else "the topics are not followed at the moment"

    # --- leadership ---------------------------------------------------------------------------------------------

    def leadership_changed(self, leadership: Leadership) -> None:
        """A broker came, went, or begins to drain: what is another's from now on is released."""
        self.leadership = leadership
        self.partitions.release_others()
        self.coordinator.release()
        self._new_routes()
        self.replication.stir()
        self.source_opener.leaders_changed()
        assert self._nursery is not None, "the broker was not started"
        if self.lease_until is None or self.lease_until() != float("-inf"):  # else once it is registered
            self._nursery.start_soon(self.topic_admin.finish_deletions)

    def brokers_told(self) -> list[LiveBroker]:
        """Whom clients are told of: this broker where it knows of nobody alive, but never nobody.

        librdkafka (2.10 on) drops every broker that an answer does not name, also those that it was configured with:
        after an answer that names none it has nobody to ask (consumers were left so in `make chaos`, for ever).
        """
        return self.leadership.told() or [self.me]

    def lease_lives(self) -> bool:
        """Whether nobody can have taken this broker for dead yet."""
        return self.lease_until is None or self.world.clock.monotonic() < self.lease_until()

    def lease_problem(self) -> str | None:
        """Why the broker leads nothing, None while it may."""
        return None if self.lease_lives() else "its registration could not be renewed in time"

    def leader(self, topic: Topic, index: int) -> int:
        """The broker that leads a partition, as far as this one knows."""
        return self.leadership.leader(topic.ranked_as, index, topic.place)

    def leaders(self, topic: Topic, partitions: int) -> Sequence[int]:
        """The leaders of a topic's first partitions, by number."""
        return self.leadership.leaders(topic.ranked_as, partitions, topic.place)

    def leads(self, topic: Topic, index: int) -> bool:
        """Whether this broker leads a partition, as far as it knows."""
        return self.leader(topic, index) == self.node_id

    def _leads_groups(self, partition: int) -> bool:
        """Whether the groups of a partition of the offsets topic are this broker's, as far as it knows."""
        topic = self.image.get(OFFSETS_TOPIC)
        if topic is None:  # a broker alone makes it when it is first asked
            return self.lease_until is None
        return self.leads(topic, partition)

    def coordinator_of(self, group_id: str) -> LiveBroker | None:
        """The broker that coordinates a group, None while there is none."""
        topic = self.image.get(OFFSETS_TOPIC)
        if topic is None:
            return None
        leader = self.leader(topic, partition_for(group_id, topic.partitions))
        return self.leadership.brokers.get(leader)

    def _new_routes(self) -> None:
        self._produced_to.clear()
        self.routes_revision += 1

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

    def partition_of(self, ref: str | bytes, index: int) -> Readable:
        """A partition that this broker leads, to read it; it is opened when it is first used.

        Raises:
            KafkaError: topic or partition do not exist, another broker leads it, or a shadow may not be read.
        """
        self.check_lease()
        topic = self._find_partition(ref, index)
        if topic.source is None:
            return self.partitions.use(topic, index)
        check(self.authorizer, Permission.READ, topic.name)
        return self.partitions.use_shadow(topic, index)

    def check_lease(self) -> None:
        """Raises KafkaError while somebody else may lead what this broker led."""
        if not self.lease_lives():
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not know whether it still leads the partition"
            )

    def partition_to_change(self, ref: str | bytes, index: int) -> Partition:
        """A partition that this broker led when it heard of the others last, for a client to change its log.

        Raises:
            KafkaError: topic or partition do not exist, or another broker leads it; or it is a shadow's, or the broker
                keeps its own state in it.
        """
        topic = self._find_partition(ref, index)
        if topic.internal:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic '{topic.name}' holds the broker's own state: only read it",
            )
        if topic.source is not None:
            raise refused(topic, "write to")
        return self.partitions.use(topic, index)

    def _find_partition(self, ref: str | bytes, index: int) -> Topic:
        topic = self.find_topic(ref)
        if not 0 <= index < topic.partitions:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{topic.name}' has {topic.partitions} partitions"
            )
        return topic

    def partition_to_produce(self, ref: str | bytes, index: int) -> Partition:
        """A partition for a client to produce to; found without a search when it was found before.

        Raises:
            KafkaError: topic or partition do not exist, another broker leads it, or clients must not produce to it.
        """
        partition = self._produced_to.get((ref, index))
        if partition is None:
            partition = self._produced_to[ref, index] = self.partition_to_change(ref, index)
        return partition

    def leader_epoch(self, topic: Topic, index: int) -> int:
        """The leader epoch of a partition as clients are told it, -1 where they are not told.

        A broker alone tells it once the partition was used. In a cluster none does: a broker knows the epochs of its
        own partitions only, and clients that were told an epoch by one (librdkafka before 2.5) take no other answer for
        newer that does not say any.
        """
        if self.lease_until is not None:
            return -1
        log = self.partitions.log(topic, index)
        return -1 if log is None else log.epoch

    def configs_of(self, topic: Topic) -> Mapping[str, str]:
        """What is set on a topic; on a shadow's source for a shadow."""
        source = None if topic.source is None else self.image.source_of(topic)
        return topic.configs if source is None else source.configs

    def settings_of(self, topic: Topic) -> LogSettings:
        """What a topic's logs obey now."""
        cached = self._settings_cache.get(topic.id)
        if cached is not None and cached[0] == self.configs.revision and cached[1] is topic:
            return cached[2]
        values = self.configs.topic_values(self.configs_of(topic))
        settings = log_settings(values, self.configs.number("producer.id.expiration.ms"))
        if topic.internal:
            # The coordinator trims what it has written anew; a record that clients made large must not stop it.
            batch_bytes_max = max(settings.batch_bytes_max, OFFSETS_BATCH_BYTES_MAX)
            settings = replace(settings, retention_ms=-1, retention_bytes=-1, batch_bytes_max=batch_bytes_max)
        self._settings_cache[topic.id] = (self.configs.revision, topic, settings)
        return settings

    def _replace_topics(self, found: RangeResult) -> None:
        for topic in self.image.replace(found):
            self._end_topic(topic)
        self._configure_all()
        self._stir_shadows()

    def _change_topics(self, batch: WatchBatch) -> None:
        for event in batch.events:
            ended, changed = self.image.apply(event)
            if ended is not None:
                self._end_topic(ended)
            if changed is not None:
                self.partitions.configure(changed)
        self._stir_shadows()

    def _stir_shadows(self) -> None:
        self.replication.stir()
        self.source_opener.stir()

    def _end_topic(self, topic: Topic) -> None:
        self._settings_cache.pop(topic.id, None)
        shadows = self.image.shadows_of(topic)
        for shadow in shadows:
            self.log.warning(
                "shadow_ended", topic=shadow.name, reason=f"its source '{topic.name}' was deleted", next="delete it too"
            )
        self.partitions.end(topic, shadows)
        self.leadership.forget(topic.ranked_as, topic.place)
        self._new_routes()
        assert self._nursery is not None, "the broker was not started"
        self._nursery.start_soon(self.topic_admin.finish_deletion, topic.name)

    def _configure_all(self) -> None:
        for topic in self.image:
            self.partitions.configure(topic)
