"""A whole gnomon in one process: metadata service, bookie and broker, joined by calls instead of sockets.

1. `ready` is told once everything serves; a client that connects then is answered.
2. When `stop` is set no new connection is taken, what was asked is answered, then everything is closed.
3. A device that failed a write stops the process: nothing is acknowledged after it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

import trio

from gnomon.bookie.entry_store import EntryStore
from gnomon.bookie.garbage import GarbageCollector
from gnomon.broker.broker import Broker, BrokerLimits
from gnomon.broker.broker_configs import BrokerConfigs
from gnomon.broker.kafka.server import KafkaServer
from gnomon.broker.leadership import Leadership, LiveBroker
from gnomon.broker.native.server import open_native_server
from gnomon.broker.stores import Stores, bookies_on, open_stores
from gnomon.metadata.client import MetadataError
from gnomon.runtime.logs import Logger
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.settings import Settings
from gnomon.runtime.world import DiskFull, Durability, World


@dataclass(frozen=True, slots=True)
class Serving:
    """What a standalone node serves, once it is ready."""

    kafka_host: str
    kafka_port: int
    native_host: str
    native_port: int
    broker: Broker
    server: KafkaServer
    store: EntryStore
    metrics: Metrics

    def bookie_problem(self) -> str | None:
        """Why the bookie takes no entries, None while it does."""
        return self.store.read_only


async def run_standalone(
    world: World,
    settings: Settings,
    log: Logger,
    *,
    ready: Callable[[Serving], None],
    stop: trio.Event,
) -> None:
    """Runs a node until `stop` is set.

    Args:
        settings: a port of 0 picks a free one.
        ready: told what is served and where.

    Raises:
        DirectoryTaken, NewerFormat, OtherKind, ForeignDisk, EntriesLost, AddressTaken, DiskFull: it could not start.
        DiskFailed: the device failed while it ran.
    """
    async with open_stores(world, settings) as stores, _node(world, settings, log, stores) as serving:
        ready(serving)
        if settings.bookie.durability is Durability.NONE:
            log.warning("durability_none", meaning="a power cut may lose acknowledged records: for tests only")
        await stop.wait()


@asynccontextmanager
async def _node(world: World, settings: Settings, log: Logger, stores: Stores) -> AsyncIterator[Serving]:
    metadata, store = stores.metadata, stores.store
    metrics = Metrics()
    metrics.durability_synced = int(settings.bookie.durability is Durability.SYNCED)
    metrics.commits.update({name: environment.counts for name, environment in stores.environments.items()})
    async with _tasks(stores) as nursery:
        garbage = GarbageCollector(
            store, metadata, world.clock, interval_seconds=settings.bookie.garbage_interval_seconds
        )
        nursery.start_soon(garbage.run)
        broker = Broker(
            world,
            metadata,
            bookies_on(store, world, nursery),
            BrokerConfigs(settings.kafka),
            BrokerLimits.of(settings.broker),
            metrics,
            log,
            lambda: nursery.start_soon(_collect, garbage),
        )
        broker.replication_settings = settings.shadow_replication
        await broker.start(nursery)
        server = KafkaServer(broker, nursery)
        store.adds.on_group = broker.turns.ended
        at = settings.broker
        listener = await server.listen(at.kafka_host, at.kafka_port, at.advertised_host, str(settings.data_dir))
        me = LiveBroker(broker.node_id, at.advertised_host, listener.port)
        broker.leadership = Leadership([me])  # a Kafka client may ask before the other port is bound
        native = open_native_server(broker, nursery, settings.subscriptions)
        native_at = await native.listen(at.native_host, at.native_port)
        broker.leadership = Leadership([replace(me, native_port=native_at.port)])
        metrics.watch("entries_collected", "Entries removed from disk since the start", lambda: garbage.total.entries)
        metrics.watch("bookie_file_bytes", "Size of the entry store's file", store.file_bytes)
        yield Serving(listener.host, listener.port, native_at.host, native_at.port, broker, server, store, metrics)
        await native.stop()
        await server.stop()


@asynccontextmanager
async def _tasks(stores: Stores) -> AsyncIterator[trio.Nursery]:
    """A nursery that is there to hear of the last commits, however the node ends."""
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()  # a task that was about to run ends before its stores do
            stores.metadata.close()  # what waits there for the commit under way is not submitted any more
            for environment in stores.environments.values():
                environment.close()  # what this reports may still start tasks: they are cancelled at once


async def _collect(garbage: GarbageCollector) -> None:
    """A collection out of turn; what hinders it is tried again at the next regular one."""
    with suppress(MetadataError, DiskFull):
        await garbage.collect()
