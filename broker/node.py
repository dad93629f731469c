"""A broker that serves: its parts with their front ends, from the start until it leaves its cluster.

1. `ready` is called once the broker may lead partitions. The broker opens no partition before it may lead; after that
   it opens partitions as `broker` invariant 1 says.
2. When `stop` is set, the broker hands over its partitions if the cluster has other brokers, and answers clients with
   the new leaders. Then it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import trio

from gnomon.broker.admin.administered import Administered
from gnomon.broker.admin.tables.table_clients import TableClients
from gnomon.broker.authorization.authorizer import Access
from gnomon.broker.authorization.kafka_table import KAFKA_RULES
from gnomon.broker.authorization.native_access import NativeAccess
from gnomon.broker.broker import Broker
from gnomon.broker.configs.broker_configs import NATIVE_ADVERTISED
from gnomon.broker.kafka.acls import acl_handlers
from gnomon.broker.kafka.cluster import ClusterHandlers
from gnomon.broker.kafka.configs import ConfigHandlers
from gnomon.broker.kafka.connections.connection_limits import ConnectionLimits
from gnomon.broker.kafka.connections.refusal_log import RefusalLog
from gnomon.broker.kafka.connections.replies import Replies
from gnomon.broker.kafka.connections.request import Handler
from gnomon.broker.kafka.connections.request_handling import RequestHandling
from gnomon.broker.kafka.connections.server import KafkaServer
from gnomon.broker.kafka.fetch import FetchHandler
from gnomon.broker.kafka.groups import GroupHandlers
from gnomon.broker.kafka.guards.cluster_guards import CLUSTER_GUARDS
from gnomon.broker.kafka.guards.group_guards import group_guards
from gnomon.broker.kafka.guards.guard import Guards
from gnomon.broker.kafka.guards.topic_guards import topic_guards
from gnomon.broker.kafka.guards.topic_ids import TopicIds
from gnomon.broker.kafka.log_dirs import LogDirHandlers
from gnomon.broker.kafka.metadata import MetadataHandler
from gnomon.broker.kafka.modern_groups import modern_group_handlers
from gnomon.broker.kafka.placement import PlacementHandlers
from gnomon.broker.kafka.positions import PositionHandlers
from gnomon.broker.kafka.produce import ProduceHandler
from gnomon.broker.kafka.produce_route import ProduceRoutes
from gnomon.broker.kafka.topics import TopicHandlers
from gnomon.broker.limits import BrokerLimits
from gnomon.broker.native.connections import NativeConnections
from gnomon.broker.native.consumer_methods import ConsumerMethods
from gnomon.broker.native.hosts import Hosts
from gnomon.broker.native.peers import Peers
from gnomon.broker.native.plan_methods import PlanMethods
from gnomon.broker.native.read_planner import ReadPlanner
from gnomon.broker.native.server import NativeServer
from gnomon.broker.native.subscription_admin import SubscriptionAdmin
from gnomon.broker.native.subscription_methods import SubscriptionMethods
from gnomon.broker.native.subscription_watch import SubscriptionWatch
from gnomon.broker.native.tables.shadow_reads import ShadowReads
from gnomon.broker.native.tables.table_admin_methods import TableAdminMethods
from gnomon.broker.native.tables.table_methods import TableMethods
from gnomon.broker.native.topic_methods import TopicMethods
from gnomon.broker.native.writes.write_methods import WriteMethods
from gnomon.broker.native.writes.write_targets import WriteTargets
from gnomon.broker.placement.leadership import LiveBroker
from gnomon.broker.placement.membership import Membership
from gnomon.broker.subscriptions.positions.stores import store_opener
from gnomon.runtime.limited_log import LimitedLog
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.settings.endpoint import PLAINTEXT, Endpoint
from gnomon.runtime.settings.listeners import KafkaListener, kafka_listeners
from gnomon.runtime.settings.settings import Settings, SubscriptionsSettings
from gnomon.runtime.tasks import OwnTasks
from gnomon.runtime.world import Clock, DiskSpace, World
from gnomon.wire.kafka.api import ApiKey


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses that a broker listens on; a port of 0 picks a free one."""

    kafka: Sequence[KafkaListener]
    """At least one."""
    native_host: str
    native_port: int
    native_advertised_host: str = ""
    """The host that native clients and other brokers connect to; empty means that of the first Kafka listener."""
    native_advertised_port: int = 0
    """The port that native clients and other brokers connect to; 0 means the one that the broker listens on."""
    rack: str = ""


@dataclass(frozen=True, slots=True)
class ServingBroker:
    """A broker that serves."""

    listeners: tuple[KafkaListener, ...]
    """The listeners for Kafka clients, with the ports that they are bound to."""
    native_host: str
    native_port: int
    broker: Broker
    server: KafkaServer
    native: NativeServer
    membership: Membership
    metrics: Metrics
    administered: Administered
    """The parts of the broker that its admin API shows."""


async def serve(
    world: World,
    broker: Broker,
    membership: Membership,
    at: Endpoints,
    limits: BrokerLimits,
    subscriptions: SubscriptionsSettings,
    log_directory: str,
    space: Callable[[Path], DiskSpace] | None,
    ready: Callable[[ServingBroker], None],
    stop: trio.Event,
) -> None:
    """Runs a broker with its front ends until `stop` is set; `membership` was admitted.

    Args:
        log_directory: the log directory in answers to clients.
        space: returns the size of the file system of that directory; None if the directory is only a name.

    Raises:
        AddressTaken: an address is in use or not one of this machine.
        MetadataUnavailable: the metadata could not be read at the start.
        WorldError: the membership ended.
    """
    server = kafka_server(world, broker, limits, space)
    native = native_server(world, broker, subscriptions, limits)
    tables = TableClients(world, broker.topics, broker.records, broker.placement, broker.cluster_id)
    async with trio.open_nursery() as nursery:
        try:
            await nursery.start(broker.run)
            await membership.load()  # before clients connect: they drop a broker that no answer names
            await nursery.start(server.run)
            await nursery.start(native.run)
            listeners = await server.listen(at.kafka, log_directory)
            me = _advertised(membership.me.id, listeners, at)
            membership.serves_at(me)  # a Kafka client may ask before the native port is bound
            native_at = await native.listen(at.native_host, at.native_port)
            me = replace(me, native_port=at.native_advertised_port or native_at.port)
            broker.configs.set_derived({NATIVE_ADVERTISED: host_and_port(*me.native)})
            membership.serves_at(me)
            await nursery.start(membership.run)
            await nursery.start(tables.run, (native_at.host, native_at.port))
            shown = administered(world, broker, native, tables)
            parts = (broker, server, native, membership, broker.metrics, shown)
            ready(ServingBroker(listeners, native_at.host, native_at.port, *parts))
            await stop.wait()
            await membership.give_away()
            await native.stop()
            await server.stop()
            await membership.leave()
        finally:
            nursery.cancel_scope.cancel()


def endpoints(settings: Settings, rack: str = "") -> Endpoints:
    """The addresses that the settings give.

    Raises:
        ValueError: the settings of the listeners contradict each other.
    """
    given = settings.broker
    return Endpoints(
        kafka_listeners(given, settings.kafka),
        given.native_host,
        given.native_port,
        given.native_advertised_host,
        given.native_advertised_port,
        rack,
    )


def _advertised(broker_id: int, listeners: Sequence[KafkaListener], at: Endpoints) -> LiveBroker:
    """The registration of a broker that listens, except its native port."""
    first = listeners[0]
    named = tuple(Endpoint(one.name, one.advertised_host, one.advertised_port) for one in listeners)
    return LiveBroker(
        broker_id,
        first.advertised_host,
        first.advertised_port,
        at.rack,
        listeners=() if [one.name for one in listeners] == [PLAINTEXT] else named,
        native_host="" if at.native_advertised_host == first.advertised_host else at.native_advertised_host,
    )


def host_and_port(host: str, port: int) -> str:
    """An address in the form that native clients parse."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def kafka_server(
    world: World, broker: Broker, limits: BrokerLimits, space: Callable[[Path], DiskSpace] | None
) -> KafkaServer:
    """Kafka's front end of a broker."""
    topics, routes, clock, metrics = broker.topics, broker.routes, world.clock, broker.metrics
    refusals, replies = RefusalLog(LimitedLog(broker.log, clock, broker.timers)), Replies(broker.turns)
    access = Access(broker.authorizer, KAFKA_RULES)
    produced = ProduceRoutes(topics, routes, access, metrics, replies.flush_later)
    return KafkaServer(
        ProduceHandler(produced, broker.refused, access, clock, refusals),
        FetchHandler(
            topics,
            routes,
            broker.placement,
            access,
            broker.configs,
            broker.timers,
            metrics,
            world,
        ),
        RequestHandling(world, _handlers(world.clock, broker, access, refusals, space), access, _guards(broker)),
        replies,
        broker.coordinator.drain,
        broker.configs,
        limits,
        world.network,
        clock,
        broker.timers,
        metrics,
        broker.log,
    )


def _guards(broker: Broker) -> Guards:
    topic_ids = TopicIds(broker.topics.image)
    return {
        **CLUSTER_GUARDS,
        **group_guards(topic_ids),
        **topic_guards(topic_ids, lambda: broker.configs.flag("auto.create.topics.enable")),
    }


def _handlers(
    clock: Clock,
    broker: Broker,
    access: Access[ApiKey],
    refusals: RefusalLog,
    space: Callable[[Path], DiskSpace] | None,
) -> Mapping[int, Handler]:
    topics, placement, partitions = broker.topics, broker.placement, broker.partitions
    records, admin, configs = broker.records, broker.topic_admin, broker.configs
    cluster_id = broker.cluster_id
    return {
        **MetadataHandler(topics, placement, broker.copies, partitions, admin, cluster_id, clock).handlers(),
        **ClusterHandlers(placement, broker.offsets_topic, broker.producer_ids, cluster_id, refusals, clock).handlers(),
        **TopicHandlers(topics, placement, broker.storage, records, admin, configs, access, clock).handlers(),
        **PlacementHandlers(topics, placement, broker.copies, partitions).handlers(),
        **ConfigHandlers(topics, records, admin, configs, broker.stored_configs, placement.node_id, clock).handlers(),
        **PositionHandlers(broker.routes, placement, broker.batch_thread, clock).handlers(),
        **LogDirHandlers(topics, placement, partitions, configs, space, clock).handlers(),
        **GroupHandlers(broker.coordinator).handlers(),
        **modern_group_handlers(refusals),
        **acl_handlers(refusals),
    }


def native_server(world: World, broker: Broker, settings: SubscriptionsSettings, limits: BrokerLimits) -> NativeServer:
    """The front end of a broker for native clients and other brokers."""
    topics, placement, partitions = broker.topics, broker.placement, broker.partitions
    tasks = OwnTasks()
    hosts = Hosts(
        topics,
        broker.records,
        broker.routes,
        placement,
        settings,
        store_opener(settings, broker.storage),
        broker.storage,
        world,
        broker.timers,
        broker.log,
    )
    connections, clock = NativeConnections(tasks, hosts.rounds), world.clock
    admin = subscription_admin(broker, hosts, clock)
    watched = SubscriptionWatch(
        hosts,
        topics,
        placement,
        Peers(world, broker.cluster_id),
        broker.holdups,
        clock,
        broker.metrics,
        settings.metrics_max,
    )
    access = NativeAccess(broker.authorizer)
    targets = WriteTargets(topics, broker.routes)
    shadow_reads = ShadowReads(topics, broker.placement, broker.partitions, broker.tables)
    watch = broker.metrics.watch
    watch("native_connections", "Native clients connected", lambda: len(connections))
    watch("subscriptions", "Durable subscriptions of partitions in use", lambda: hosts.subscriptions)
    wings = (
        TopicMethods(
            access, topics, broker.records, placement, partitions, broker.replication, broker.storage, clock, tasks
        ).methods(),
        SubscriptionMethods(access, hosts, connections, admin, watched, tasks).methods(),
        PlanMethods(access, read_planner(broker, clock), tasks).methods(),
        ConsumerMethods(access, connections, hosts.rounds, clock).methods(),
        WriteMethods(
            access,
            targets,
            broker.refused,
            broker.producer_ids,
            broker.metrics,
            clock,
            tasks,
        ).methods(),
        TableMethods(access, targets, shadow_reads, placement.lease_lives, clock, tasks).methods(),
        TableAdminMethods(access, targets, topics, clock, tasks).methods(),
        broker.receiver.methods(access),
    )
    counted = ConnectionLimits(broker.configs, limits.connections_max)
    return NativeServer(world, broker.log, broker.cluster_id, tasks, hosts, connections, watched, wings, counted)


def subscription_admin(broker: Broker, hosts: Hosts, clock: Clock) -> SubscriptionAdmin:
    """The subscriptions of a broker, for those who operate them."""
    thread = broker.batch_thread.work_for_broker
    return SubscriptionAdmin(hosts, broker.topics, broker.storage, broker.placement.node_id, thread, clock)


def read_planner(broker: Broker, clock: Clock) -> ReadPlanner:
    """The maker of a broker's read plans."""
    parts = (broker.topics, broker.records, broker.routes, broker.read_holds)
    return ReadPlanner(*parts, broker.storage, broker.cluster_id, clock)


def administered(world: World, broker: Broker, native: NativeServer, tables: TableClients) -> Administered:
    """The parts of a broker for its admin API."""
    return Administered(
        broker.topics,
        broker.records,
        broker.topic_admin,
        broker.placement,
        broker.partitions,
        broker.replication,
        subscription_admin(broker, native.hosts, world.clock),
        tables,
        broker.configs,
        broker.authorizer,
        broker.cluster_id,
        broker.storage,
        world,
        broker.log,
    )
