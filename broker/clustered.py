"""A broker as a process of its own: one of several over one metadata service and one set of bookies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

import trio

from gnomon.bookie.ledgers.catalog import Bookies, Quorum
from gnomon.bookie.ledgers.ledgers import REPLICATED
from gnomon.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from gnomon.broker.broker import Broker, BrokerPolicy
from gnomon.broker.configs.broker_configs import BrokerConfigs
from gnomon.broker.limits import BrokerLimits
from gnomon.broker.node import Endpoints, ServingBroker, serve
from gnomon.broker.partition.leader_policy import LeaderPolicy
from gnomon.broker.partition.turns import Turns
from gnomon.broker.placement.registration import BrokerRegistration
from gnomon.broker.tables.stored.tables_directory import TablesDirectory
from gnomon.metadata.client import Metadata
from gnomon.metadata.cluster_id import cluster_id
from gnomon.runtime.disk.data_directory import DirectoryKind
from gnomon.runtime.logs import Logger
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.settings.settings import (
    BrokerSettings,
    ShadowReplicationSettings,
    SubscriptionsSettings,
    TableSettings,
)
from gnomon.runtime.world import Durability, World

LOG_DIRECTORY: Final = "/ledgers"
"""The log directory in answers of a broker that keeps no records itself."""
ONE_OF_SEVERAL: Final = BrokerPolicy(
    LeaderPolicy(tells_epochs=False, confirms_leadership=True), groups_led_before_made=False, opens_sources=True
)


@dataclass(frozen=True, slots=True)
class BrokerNodeSettings:
    """The settings of one broker."""

    at: Endpoints
    lease_seconds: float = 6.0
    """The time from this broker's death until other brokers may take its partitions."""
    quorum: Quorum = REPLICATED
    """The quorum of new ledgers; while too few bookies accept entries, no partition without a ledger is writable."""
    subscriptions: SubscriptionsSettings = field(default_factory=SubscriptionsSettings)
    shadow_replication: ShadowReplicationSettings = field(default_factory=ShadowReplicationSettings)
    table: TableSettings = field(default_factory=TableSettings)
    data_dir: Path | None = None
    """The directory for tables on disk, taken when the first one is used; None if there is none."""
    limits: BrokerLimits = field(default_factory=lambda: BrokerLimits.of(BrokerSettings()))
    label_sets_max: int = 0
    """See `Metrics`."""
    kafka: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Kafka's broker settings that were given, by Kafka's names; `broker.id` is the broker's number."""


async def run_broker(
    world: World,
    metadata: Metadata,
    bookies: Bookies,
    settings: BrokerNodeSettings,
    log: Logger,
    *,
    ready: Callable[[ServingBroker], None],
    stop: trio.Event,
    authorizer: Authorizer = ALLOW_ALL,
) -> None:
    """Serves as one of several brokers until `stop` is set.

    Args:
        metadata, bookies: must outlive this call; `bookies` knows the registered bookies.
        authorizer: decides what clients may do.

    Raises:
        BrokerIdTaken: another live broker has the id.
        AddressTaken: an address is in use or not one of this machine.
        MetadataUnavailable: the metadata could not be read at the start.
        ValueError: the quorum is inconsistent.
    """
    settings.quorum.check()
    configs = BrokerConfigs(settings.kafka)
    membership = BrokerRegistration(metadata, world.clock, log, configs.number("broker.id"), settings.lease_seconds)
    await membership.admit()
    tables = TablesDirectory(
        world.disk, settings.data_dir, settings.table.map_bytes, Durability.SYNCED, DirectoryKind.BROKER
    )
    broker = Broker(
        world,
        metadata,
        bookies,
        membership,
        await cluster_id(metadata, world.random("cluster-id")),
        configs,
        settings.limits,
        settings.quorum,
        settings.shadow_replication,
        settings.table,
        tables,
        ONE_OF_SEVERAL,
        authorizer,
        Turns(world.network, by_network=True),
        Metrics(label_sets_max=settings.label_sets_max),
        log,
        _nothing,
    )
    limits, subscriptions = settings.limits, settings.subscriptions
    with closing(tables):  # once nothing uses it any more
        await serve(world, broker, membership, settings.at, limits, subscriptions, LOG_DIRECTORY, None, ready, stop)


def _nothing() -> None:
    """Does nothing: remote bookies collect deleted entries by themselves."""
