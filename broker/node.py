"""A broker as a process of its own: one of several over one metadata service and one set of bookies.

1. It serves when it is registered and its own image shows it; nothing is opened before that, and after it what clients
   ask for, and what shadows show.
2. Two live brokers with one id cannot be: the second does not start, and one that finds its id taken stops.
3. When `stop` is set it first gives its partitions away and goes on telling clients where they are; then it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import trio

from gnomon.bookie.ledger import Bookies, Quorum
from gnomon.bookie.ledgers import REPLICATED
from gnomon.broker.broker import Broker, BrokerLimits
from gnomon.broker.broker_configs import BrokerConfigs
from gnomon.broker.brokers import Brokers, broker_key, id_taken, wait_for_id
from gnomon.broker.kafka.server import KafkaServer
from gnomon.broker.leadership import Leadership, LiveBroker
from gnomon.broker.native.server import open_native_server
from gnomon.metadata.client import Compare, Field, Metadata
from gnomon.metadata.presence import KeyTaken, Presence
from gnomon.runtime.logs import Logger
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.settings import BrokerSettings, ShadowReplicationSettings, SubscriptionsSettings
from gnomon.runtime.world import World

REDIRECT_SECONDS: Final = 1.5
"""How long a broker that ends goes on saying where its partitions are: clients look again after 0.1 to 1 s."""
LOG_DIRECTORY: Final = "/ledgers"
"""What clients are told of a broker that keeps nothing itself."""


@dataclass(frozen=True, slots=True)
class BrokerNodeSettings:
    """What one broker is told."""

    host: str = "127.0.0.1"
    port: int = 0
    native_host: str = "127.0.0.1"
    native_port: int = 0
    advertised_host: str = "127.0.0.1"
    rack: str = ""
    lease_seconds: float = 6.0
    """How long after its death other brokers may take its partitions."""
    quorum: Quorum = REPLICATED
    """Of new ledgers; while fewer bookies take entries than it needs, no topic can be written that has none yet."""
    subscriptions: SubscriptionsSettings = field(default_factory=SubscriptionsSettings)
    shadow_replication: ShadowReplicationSettings = field(default_factory=ShadowReplicationSettings)
    limits: BrokerLimits = field(default_factory=lambda: BrokerLimits.of(BrokerSettings()))
    kafka: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Kafka's broker settings that were given, by Kafka's names; `broker.id` is the broker's number."""


@dataclass(frozen=True, slots=True)
class ServingBroker:
    """A broker that serves."""

    kafka_host: str
    kafka_port: int
    native_host: str
    native_port: int
    broker: Broker
    server: KafkaServer
    brokers: Brokers
    presence: Presence
    metrics: Metrics


async def run_broker(
    world: World,
    metadata: Metadata,
    bookies: Bookies,
    settings: BrokerNodeSettings,
    log: Logger,
    *,
    ready: Callable[[ServingBroker], None],
    stop: trio.Event,
) -> None:
    """Serves until `stop` is set.

    Args:
        metadata, bookies: must outlive this; `bookies` know who there is.
        settings: a port of 0 picks a free one.

    Raises:
        BrokerIdTaken: another live broker has the id.
        AddressTaken: it could not listen.
        MetadataUnavailable: the metadata could not be read at the start.
        ValueError: the quorum makes no sense.
    """
    settings.quorum.check()
    metrics = Metrics()
    broker = Broker(world, metadata, bookies, BrokerConfigs(settings.kafka), settings.limits, metrics, log, _nothing)
    broker.quorum = settings.quorum
    broker.replication_settings = settings.shadow_replication
    await wait_for_id(metadata, world.clock, log, broker.node_id)
    async with trio.open_nursery() as nursery:
        try:
            broker.turns.by_network = True
            broker.leadership, broker.lease_until = Leadership([]), lambda: float("-inf")
            await broker.start(nursery)
            nursery.start_soon(broker.stored_configs.follower.run)
            await _serve(world, metadata, settings, broker, nursery, ready, stop)
        finally:
            nursery.cancel_scope.cancel()


async def _serve(
    world: World,
    metadata: Metadata,
    settings: BrokerNodeSettings,
    broker: Broker,
    nursery: trio.Nursery,
    ready: Callable[[ServingBroker], None],
    stop: trio.Event,
) -> None:
    brokers = Brokers(metadata, world.clock, broker.log, broker.leadership_changed)
    await brokers.follower.load()  # before clients come: who is not named to them is gone to them
    server = KafkaServer(broker, nursery)
    listener = await server.listen(settings.host, settings.port, settings.advertised_host, LOG_DIRECTORY)
    me = LiveBroker(
        broker.node_id, settings.advertised_host, listener.port, settings.rack, lease_seconds=settings.lease_seconds
    )
    broker.me = me  # a Kafka client may ask before the other port is bound
    native = open_native_server(broker, nursery, settings.subscriptions)
    native_at = await native.listen(settings.native_host, settings.native_port)
    broker.me = me = replace(me, native_port=native_at.port)
    key = broker_key(me.id)
    presence = Presence(metadata, world.clock, key, me.encode(), settings.lease_seconds, exclusive=True)

    def lease_until() -> float:
        # Under a new lease it is another leader: it serves once it has heard who led in between.
        return presence.alive_until if brokers.shows_lease(me.id, presence.lease) else float("-inf")

    broker.lease_until = lease_until
    broker.claimant = (Compare(key, Field.VALUE, me.encode()),)
    registered = trio.CancelScope()
    nursery.start_soon(_register, presence, me, registered)
    await presence.announced()
    nursery.start_soon(brokers.follower.run)
    await brokers.shown(me)
    at = (listener.host, listener.port, native_at.host, native_at.port)
    ready(ServingBroker(*at, broker, server, brokers, presence, broker.metrics))
    await stop.wait()
    await _give_away(world, replace(me, draining=True), presence, brokers, settings.lease_seconds)
    await native.stop()
    await server.stop()
    registered.cancel()
    await presence.withdraw()


async def _register(presence: Presence, me: LiveBroker, scope: trio.CancelScope) -> None:
    with scope:
        try:
            await presence.run()
        except KeyTaken as taken:
            raise id_taken(LiveBroker.decode(me.id, taken.value)) from None


async def _give_away(world: World, me: LiveBroker, presence: Presence, brokers: Brokers, lease_seconds: float) -> None:
    """The others take over what this broker led, and its clients are told by it where to go; within bounds."""
    presence.update(me.encode())
    with trio.move_on_after(lease_seconds):
        await brokers.shown(me)
    if len(brokers.alive) > 1:
        await world.clock.sleep(REDIRECT_SECONDS)


def _nothing() -> None:
    """Bookies collect what was deleted by themselves."""
