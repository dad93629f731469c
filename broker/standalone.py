"""A whole gnomon in one process: metadata service, bookie, and one broker, connected by function calls.

1. The callback `ready` is called once all parts serve: a client that connects after that is answered.
2. When `stop` is set, no new connection is accepted, requests in flight are answered, then everything is closed.
3. A failed write to the device stops the node: nothing is acknowledged after the failure.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final

import trio

from gnomon.bookie.ledgers.catalog import Quorum
from gnomon.bookie.registration import COOKIES
from gnomon.bookie.storage.entry_store import EntryStore
from gnomon.bookie.storage.garbage import GarbageCollector
from gnomon.bookie.storage.page_walk import DAMAGED_FILE, DAMAGED_PAGES_HELP, walk_pages
from gnomon.broker.admin.administered import Administered
from gnomon.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from gnomon.broker.broker import Broker, BrokerPolicy
from gnomon.broker.configs.broker_configs import BrokerConfigs
from gnomon.broker.kafka.connections.server import KafkaServer
from gnomon.broker.limits import BrokerLimits
from gnomon.broker.native.server import NativeServer
from gnomon.broker.node import ServingBroker, endpoints, serve
from gnomon.broker.partition.leader_policy import LeaderPolicy
from gnomon.broker.partition.turns import Turns
from gnomon.broker.placement.membership import SoleMember
from gnomon.broker.stores import BOOKIE_FOLDER, Stores, bookies_on, open_stores
from gnomon.broker.tables.stored.tables_directory import TablesDirectory
from gnomon.metadata.client import MetadataError
from gnomon.metadata.cluster_id import cluster_id
from gnomon.runtime.logs import Logger
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.settings.listeners import KafkaListener
from gnomon.runtime.settings.settings import Settings
from gnomon.runtime.tasks import Tasks, open_tasks
from gnomon.runtime.world import DiskFull, Durability, World

RESTORE: Final = "check the disk, and put a copy of the data directory back; until then all other records are served"
CLUSTER_OF_ONE: Final = BrokerPolicy(
    LeaderPolicy(tells_epochs=True, confirms_leadership=False), groups_led_before_made=True, opens_sources=False
)


@dataclass(frozen=True, slots=True)
class Serving:
    """A standalone node that serves."""

    listeners: tuple[KafkaListener, ...]
    """The listeners for Kafka clients, with the ports that they are bound to."""
    native_host: str
    native_port: int
    broker: Broker
    server: KafkaServer
    native: NativeServer
    store: EntryStore
    metrics: Metrics
    administered: Administered
    """The parts of the broker that its admin API shows."""

    def damaged_pages(self) -> str | None:
        """The first damaged page of the bookie's file that was found; None if none was."""
        damages = self.store.pages.damages
        return f"{len(damages)} pages of the bookie's file are damaged: {damages[0].problem}" if damages else None

    def bookie_problem(self) -> str | None:
        """The reason why the bookie accepts no entries; None while it accepts them."""
        return self.store.read_only


async def run_standalone(
    world: World,
    settings: Settings,
    log: Logger,
    *,
    ready: Callable[[Serving], None],
    stop: trio.Event,
    authorizer: Authorizer = ALLOW_ALL,
) -> None:
    """Runs a node until `stop` is set.

    Args:
        settings: a port of 0 picks a free one.
        ready: called with the node once it serves.
        authorizer: decides what clients may do.

    Raises:
        DirectoryTaken, OtherFormat, OtherKind, ForeignDisk, EntriesLost, AddressTaken, DiskFull: the start failed.
        DiskFailed: the device failed while the node ran.
    """
    turns = Turns(world.network, by_network=False)
    async with open_stores(world, settings, turns.ended) as stores, open_tasks() as tasks:
        garbage = await _tend(stores, world, settings, tasks, log)
        metrics = _metrics(settings, stores, garbage)
        configs, limits = BrokerConfigs(settings.kafka), BrokerLimits.of(settings.broker)
        tables = TablesDirectory(world.disk, settings.data_dir, settings.table.map_bytes, settings.bookie.durability)
        member = SoleMember(configs.number("broker.id"))
        broker = Broker(
            world,
            stores.metadata,
            bookies_on(stores.store, world, tasks),
            member,
            await cluster_id(stores.metadata, world.random("cluster-id")),
            configs,
            limits,
            Quorum(),
            settings.shadow_replication,
            settings.table,
            tables,
            CLUSTER_OF_ONE,
            authorizer,
            turns,
            metrics,
            log,
            lambda: tasks.start_soon(_collect, garbage),
        )

        def serves(node: ServingBroker) -> None:
            at = (node.native_host, node.native_port)
            ready(
                Serving(node.listeners, *at, broker, node.server, node.native, stores.store, metrics, node.administered)
            )
            if settings.bookie.durability is Durability.NONE:
                log.warning("durability_none", meaning="a power cut may lose acknowledged records: for tests only")

        at = endpoints(settings)
        directory, space = str(settings.data_dir), world.disk.space
        with closing(tables):  # once nothing uses it any more
            await serve(world, broker, member, at, limits, settings.subscriptions, directory, space, serves, stop)


async def _tend(stores: Stores, world: World, settings: Settings, tasks: Tasks, log: Logger) -> GarbageCollector:
    """Starts the tasks of the bookie's store: its age grows, its pages are checked, and its garbage is collected."""
    folder = settings.data_dir / BOOKIE_FOLDER
    if world.disk.read_file(folder / DAMAGED_FILE):
        world.disk.write_file(folder / DAMAGED_FILE, b"")  # of an earlier run; the file may be another one since
    tasks.start_soon(walk_pages, world, stores.store, folder, log, RESTORE)
    await stores.age.begin((await stores.metadata.range(COOKIES)).revision)
    tasks.start_soon(stores.age.grow_older, world.clock, lambda: stores.store.adds.entries_added)
    interval_seconds = settings.bookie.garbage_interval_seconds
    garbage = GarbageCollector(
        stores.store, stores.metadata, stores.age, world.clock, interval_seconds=interval_seconds
    )
    tasks.start_soon(garbage.run)
    return garbage


def _metrics(settings: Settings, stores: Stores, garbage: GarbageCollector) -> Metrics:
    metrics = Metrics(label_sets_max=settings.metrics.label_sets_max)
    metrics.durability_synced = int(settings.bookie.durability is Durability.SYNCED)
    for name, environment in stores.environments.items():
        metrics.watch_store(name, environment)
    metrics.watch("bookie_damaged_pages", DAMAGED_PAGES_HELP, lambda: len(stores.store.pages.damages))
    metrics.watch_count("entries_collected", "Entries removed from disk", lambda: garbage.total.entries)
    return metrics


async def _collect(garbage: GarbageCollector) -> None:
    """Collects out of turn; after an error the next regular collection tries again."""
    with suppress(MetadataError, DiskFull):
        await garbage.collect()
