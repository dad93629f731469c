"""One broker: creates its parts, connects them, and starts them in order.

1. The number of metadata operations of a start does not depend on the number of topics. A partition is opened on its
   first use. One exception: in a cluster of several brokers, a partition whose topic has shadows (read-only topics that
   show the same records) is opened once this broker leads it (`source_opener`).
2. A request that changes topics or settings is answered once this broker's own copy of them shows the change.
3. All tasks of these parts end when `run` ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import trio

from gnomon.bookie.ledgers.catalog import Bookies, EntryCache, Quorum
from gnomon.broker.authorization.authorizer import Authorizer
from gnomon.broker.configs.broker_configs import FACTOR, BrokerConfigs
from gnomon.broker.configs.stored_configs import StoredConfigs
from gnomon.broker.groups.coordinator import GroupCoordinator
from gnomon.broker.groups.settings import CurrentGroupSettings
from gnomon.broker.in_use.partitions_in_use import PartitionsInUse
from gnomon.broker.in_use.routes import Routes
from gnomon.broker.limits import BrokerLimits
from gnomon.broker.native.log_ends import LogEnds
from gnomon.broker.native.peers import Peers
from gnomon.broker.partition.leader_policy import LeaderPolicy
from gnomon.broker.partition.refused_batches import RefusedBatches
from gnomon.broker.partition.turns import Turns
from gnomon.broker.partition.unpacking.batch_thread import BatchThread
from gnomon.broker.placement.membership import Membership
from gnomon.broker.placement.placement import Placement
from gnomon.broker.producer_ids import ProducerIds
from gnomon.broker.replication.cursors import ReplicatorCursors
from gnomon.broker.replication.receiver import ReplicationReceiver
from gnomon.broker.replication.shadow_replication import ShadowReplication
from gnomon.broker.replication.source_opener import SourceOpener
from gnomon.broker.replication.table_replicas import TableReplicas
from gnomon.broker.retention.backlog import BacklogQuotas
from gnomon.broker.retention.holds import Holds
from gnomon.broker.retention.holdups import Holdups
from gnomon.broker.retention.read_hold_watch import ReadHoldWatch
from gnomon.broker.retention.read_holds import ReadHolds
from gnomon.broker.retention.retention import Retention
from gnomon.broker.state_logs import PartitionStateLogs
from gnomon.broker.storage import Storage
from gnomon.broker.tables.hosted_tables import HostedTables
from gnomon.broker.tables.stored.tables_directory import TablesDirectory
from gnomon.broker.topic_metrics import TopicMetrics
from gnomon.broker.topics.copies import Copies
from gnomon.broker.topics.deleted_topics import DeletedTopics
from gnomon.broker.topics.offsets_topic import OffsetsTopic
from gnomon.broker.topics.topic_admin import TopicAdmin
from gnomon.broker.topics.topic_creation import TopicCreation
from gnomon.broker.topics.topic_records import TopicRecords
from gnomon.broker.topics.topics import Topics
from gnomon.metadata.client import Metadata
from gnomon.runtime.logs import Logger
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.settings.settings import ShadowReplicationSettings, TableSettings
from gnomon.runtime.tasks import OwnTasks
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import Clock, World


@dataclass(frozen=True, slots=True)
class BrokerPolicy:
    """The behaviour of a broker that depends on whether its cluster may have others."""

    leader: LeaderPolicy
    groups_led_before_made: bool
    """Whether a group request makes the offsets topic; otherwise a client asks for its coordinator first."""
    opens_sources: bool
    """Whether partitions that shadows show are opened before a client uses them."""


class Broker:
    """The parts of one broker, created and connected at each start."""

    def __init__(
        self,
        world: World,
        metadata: Metadata,
        bookies: Bookies,
        membership: Membership,
        cluster_id: str,
        configs: BrokerConfigs,
        limits: BrokerLimits,
        quorum: Quorum,
        replication: ShadowReplicationSettings,
        tables: TableSettings,
        tables_directory: TablesDirectory,
        policy: BrokerPolicy,
        authorizer: Authorizer,
        turns: Turns,
        metrics: Metrics,
        log: Logger,
        collect_garbage: Callable[[], None],
    ) -> None:
        clock = world.clock
        self.cluster_id = cluster_id
        self.configs = configs
        self.authorizer = authorizer
        self.turns = turns
        self.metrics = metrics
        self.log = log
        self.timers = Timers(clock)
        configs.set_derived({FACTOR: str(quorum.write_quorum)})
        self.storage = Storage(metadata, bookies, EntryCache(bookies, limits.entry_cache_bytes_max), quorum)
        self._trims = OwnTasks()
        """The trims of the logs of groups."""
        self.refused = RefusedBatches()
        """Batches that were sent to partitions which this broker does not lead."""
        self.placement = Placement(membership, lambda topic: self.topics.image.get_by_id(topic.id) is not None)
        self._make_topics(clock, fewer_copies=limits.acknowledge_with_fewer_copies)
        self._make_partitions(world, membership, tables, tables_directory, policy)
        self.topics.watch(ended=lambda topic, shadows: self.placement.forget(topic))
        self.topics.watch(ended=lambda topic, shadows: self.copies.forget(topic))
        self.records = TopicRecords(self.storage, self.topics, log)
        self.producer_ids = ProducerIds(metadata)
        self._make_groups(world, policy)
        self._make_topic_metrics(world)
        self._make_administration(world, collect_garbage)
        self._make_replication(world, replication, policy)

    def _make_topics(self, clock: Clock, *, fewer_copies: bool) -> None:
        storage, configs, log = self.storage, self.configs, self.log
        self.topics = Topics(
            storage.metadata,
            clock,
            log,
            configs,
            lambda topic: None if fewer_copies else storage.quorum_of(topic.copies).ack_quorum,
        )
        self.copies = Copies(storage, clock, log)
        self.stored_configs = StoredConfigs(
            storage.metadata, clock, log, configs, self.placement.node_id, self.topics.configure
        )

    def _make_partitions(
        self,
        world: World,
        membership: Membership,
        tables: TableSettings,
        tables_directory: TablesDirectory,
        policy: BrokerPolicy,
    ) -> None:
        self.batch_thread = BatchThread(world)
        self.tables = HostedTables(
            world,
            tables_directory,
            tables,
            self.batch_thread,
            self.storage,
            lambda topic_id: self.topics.image.get_by_id(topic_id) is not None,
            self.timers,
            self.log,
        )
        self.topics.watch(ended=lambda topic, shadows: self.tables.topic_ended(topic))
        self._watch_tables()
        self.partitions = PartitionsInUse(
            self.topics,
            self.placement,
            self.storage,
            lambda: membership.claimant,
            policy.leader,
            self.refused,
            self.turns,
            self.batch_thread,
            self.tables,
            world.clock,
            self.log,
        )
        self.routes = Routes(self.topics, self.placement, self.partitions)

    def _watch_tables(self) -> None:
        tables, counts, metrics = self.tables, self.tables.counts, self.metrics
        memory, unflushed = tables.memory, tables.store.memory
        metrics.watch("tables_live", "Partitions of tables that are served here", lambda: tables.live)
        metrics.watch("tables_behind", "Partitions of tables that are in use and not live", lambda: tables.behind)
        metrics.watch("table_watches", "Watches of tables", lambda: tables.watches)
        metrics.watch_count("table_flushes", "Flushes of tables to their store", lambda: counts.flushes)
        metrics.watch_count("table_snapshots", "Snapshots of tables", lambda: counts.snapshots)
        metrics.watch_count("table_snapshots_failed", "Snapshots that failed", lambda: counts.snapshots_failed)
        metrics.watch_count(
            "table_batches_refused", "Batches of producers that no table takes", lambda: counts.batches_refused
        )
        metrics.watch_count(
            "table_comparisons_lost",
            "Transactions of which a comparison did not hold",
            lambda: counts.comparisons_lost,
        )
        metrics.watch("table_memory_bytes", "Memory of the entries of tables", lambda: memory.bytes_used)
        metrics.watch(
            "table_unflushed_bytes", "Memory of changes that are not on disk yet", lambda: unflushed.bytes_used
        )

    def _make_groups(self, world: World, policy: BrokerPolicy) -> None:
        storage, clock = self.storage, world.clock
        self.creation = TopicCreation(self.topics, self.records, storage, self.configs, world.random("topic-ids"))
        self.offsets_topic = OffsetsTopic(
            self.topics,
            self.placement,
            self.creation,
            self.configs,
            led_before_made=policy.groups_led_before_made,
        )
        self.coordinator = GroupCoordinator(
            world,
            self.timers,
            PartitionStateLogs(
                self.offsets_topic.made,
                self.offsets_topic.get,
                self.partitions.use,
                self.placement.check_lease,
                storage.metadata,
                clock,
                self.timers,
                self._trims,
                self.log,
            ),
            self.offsets_topic.partitions,
            CurrentGroupSettings(self.configs),
            self.log,
            self.offsets_topic.leads,
            self.placement.lease_lives,
        )
        members = self.coordinator.memory
        self.metrics.watch("group_member_bytes", "Memory of the members of groups", lambda: members.bytes_used)
        self.placement.watch(self.coordinator.release)

    def _make_topic_metrics(self, world: World) -> None:
        metrics, clock = self.metrics, world.clock
        self._topic_metrics: TopicMetrics | None = None
        if metrics.traffic is not None:
            ends = LogEnds(self.placement, Peers(world, self.cluster_id), clock)
            self._topic_metrics = TopicMetrics(
                metrics, metrics.traffic, self.topics, self.partitions, self.coordinator, ends, clock
            )

    def _make_administration(self, world: World, collect_garbage: Callable[[], None]) -> None:
        storage, clock = self.storage, world.clock
        self.deleted_topics = DeletedTopics(
            self.topics,
            self.placement,
            self.records,
            storage,
            self.coordinator.delete_topic_offsets,
            clock,
            self.log,
        )
        self.topic_admin = TopicAdmin(
            self.topics,
            self.records,
            self.creation,
            self.deleted_topics,
            self.offsets_topic,
            storage,
            self.configs,
            collect_garbage,
        )
        self.holdups = Holdups()
        self.read_holds = ReadHolds(storage, clock)
        self._read_hold_watch = ReadHoldWatch(self.read_holds, self.topics, self.metrics, clock)
        self.retention = Retention(
            self.topics,
            self.placement,
            self.partitions,
            self.deleted_topics,
            Holds(self.topics, storage, self.log),
            self.holdups,
            storage,
            self.configs,
            clock,
            self.log,
        )
        self.backlog_quotas = BacklogQuotas(
            self.topics,
            self.partitions,
            Holds(self.topics, storage, self.log),
            storage,
            self.batch_thread,
            clock,
            self.metrics,
            self.log,
        )

    def _make_replication(self, world: World, settings: ShadowReplicationSettings, policy: BrokerPolicy) -> None:
        storage, clock = self.storage, world.clock
        self.receiver = ReplicationReceiver(self.topics, self.placement, self.partitions, clock, self.timers)
        self.replication = ShadowReplication(
            self.topics,
            self.placement,
            self.partitions,
            self.receiver,
            ReplicatorCursors(storage, clock, self.log, settings.flush_seconds),
            self.cluster_id,
            settings,
            world,
            self.timers,
            self.metrics,
            self.log,
        )
        self._source_opener: SourceOpener | None = None
        self._table_replicas = TableReplicas(self.topics, self.placement, self.partitions, self.tables, clock)
        if policy.opens_sources:
            self._source_opener = SourceOpener(
                self.topics, self.placement, self.partitions, storage, clock, self.timers, self.log
            )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reads the metadata and follows it until it is cancelled; it has started once its image is complete.

        Raises:
            MetadataUnavailable: the metadata could not be read at the start.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.timers.run)
            await nursery.start(self.tables.run)
            await nursery.start(self.partitions.run)
            await self.stored_configs.follower.load()
            await self.topics.load()
            await nursery.start(self.copies.run)
            await nursery.start(self._trims.run)
            await nursery.start(self.coordinator.run)
            if self._topic_metrics is not None:
                nursery.start_soon(self._topic_metrics.run)
            await nursery.start(self.deleted_topics.run)
            nursery.start_soon(self.stored_configs.follower.run)
            nursery.start_soon(self.topics.run)
            nursery.start_soon(self.retention.run)
            nursery.start_soon(self._read_hold_watch.run)
            nursery.start_soon(self.replication.run)
            nursery.start_soon(self.backlog_quotas.run)
            nursery.start_soon(self._table_replicas.run)
            if self._source_opener is not None:
                nursery.start_soon(self._source_opener.run)
            task_status.started()
