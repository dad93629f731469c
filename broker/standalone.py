"""A whole gnomon in one process: metadata service, bookie and broker, joined by calls instead of sockets.

1. `ready` is told once everything serves; a client that connects then is answered.
2. When `stop` is set no new connection is taken, what was asked is answered, then everything is closed.
3. A device that failed a write stops the process: nothing is acknowledged after it.
4. A data directory has one owner at a time, and a format; a newer format is refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import trio

from gnomon.bookie.client import LocalBookie
from gnomon.bookie.cookie import check_cookie
from gnomon.bookie.entry_store import DATABASES as BOOKIE_DATABASES
from gnomon.bookie.entry_store import EntryStore
from gnomon.bookie.garbage import GarbageCollector
from gnomon.bookie.ids import BookieId
from gnomon.broker.broker import Broker, BrokerLimits
from gnomon.broker.broker_configs import BrokerConfigs
from gnomon.broker.kafka.server import KafkaServer
from gnomon.metadata.client import MetadataError
from gnomon.metadata.embedded import DATABASES as METADATA_DATABASES
from gnomon.metadata.embedded import EmbeddedMetadata
from gnomon.runtime.logs import Logger
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.settings import Settings
from gnomon.runtime.world import DiskFailed, DiskFull, Durability, World

FORMAT = 1
FORMAT_FILE = "FORMAT"
BOOKIE_NAME = BookieId("bookie-1")
DRAIN_SECONDS = 5.0


class NewerFormat(Exception):
    """The data directory was written by a gnomon that this one cannot follow."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What a standalone node serves, once it is ready."""

    kafka_host: str
    kafka_port: int
    broker: Broker
    store: EntryStore
    metrics: Metrics

    def bookie_problem(self) -> str | None:
        """Why the bookie takes no entries, None while it does."""
        return self.store.read_only

    def image_problem(self) -> str | None:
        """Why the broker does not follow the metadata, None while it does."""
        return None if self.broker.following else "the topics are not followed at the moment"


def check_format(world: World, directory: Path) -> None:
    """Marks a new data directory, or accepts one that this gnomon can read.

    Raises:
        NewerFormat: it was written by a newer gnomon, or holds something else.
    """
    path = directory / FORMAT_FILE
    found = world.disk.read_file(path)
    if found is None:
        world.disk.write_file(path, f"{FORMAT}\n".encode())
        return
    text = found.decode(errors="replace").strip()
    if text != str(FORMAT):
        raise NewerFormat(
            f"data directory {directory} has format {text!r}, this gnomon reads {FORMAT}: "
            "upgrade gnomon or choose another --data-dir"
        )


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
        DirectoryTaken, NewerFormat, AddressTaken, DiskFull: it could not start.
        DiskFailed: the device failed while it ran.
    """
    with world.disk.lock(settings.data_dir):
        check_format(world, settings.data_dir)
        async with _node(world, settings, log) as serving:
            ready(serving)
            await stop.wait()


@asynccontextmanager
async def _node(world: World, settings: Settings, log: Logger) -> AsyncIterator[Serving]:
    metrics = Metrics()
    metrics.durability_synced = int(settings.bookie.durability is Durability.SYNCED)
    if settings.bookie.durability is Durability.NONE:
        log.warning("durability_none", meaning="a power cut may lose acknowledged records: for tests only")
    entries = world.disk.open_environment(
        settings.data_dir / "bookie",
        databases=BOOKIE_DATABASES,
        map_bytes=settings.bookie.map_bytes,
        durability=settings.bookie.durability,
    )
    records = world.disk.open_environment(
        settings.data_dir / "metadata",
        databases=METADATA_DATABASES,
        map_bytes=settings.metadata.map_bytes,
        durability=settings.bookie.durability,
    )
    metrics.commits["bookie"], metrics.commits["metadata"] = entries.counts, records.counts
    try:
        async with trio.open_nursery() as nursery:
            metadata = await EmbeddedMetadata.open(
                world, records, history_revisions=settings.metadata.history_revisions
            )
            nursery.start_soon(metadata.run)
            may_have_lost = await check_cookie(metadata, entries, BOOKIE_NAME, world.random("bookie-cookie"))
            store = EntryStore(
                entries,
                world.clock,
                may_have_lost=may_have_lost,
                on_failed=lambda error: nursery.start_soon(_stop_with, error),
            )
            bookies = {BOOKIE_NAME: LocalBookie(store)}
            garbage = GarbageCollector(
                store, metadata, world.clock, interval_seconds=settings.bookie.garbage_interval_seconds
            )
            nursery.start_soon(garbage.run)
            broker = Broker(
                world,
                metadata,
                bookies,
                BrokerConfigs(settings.kafka),
                BrokerLimits(
                    settings.broker.request_queue_bytes_max,
                    settings.broker.connection_request_bytes_max,
                    settings.broker.connections_max,
                ),
                metrics,
                log,
                lambda: nursery.start_soon(_collect, garbage),
            )
            await broker.start(nursery)
            server = KafkaServer(broker, nursery)

            def turn_ended() -> None:
                broker.turn_ended()
                server.flush()

            store.on_group = turn_ended
            listener = await world.network.listen(settings.broker.kafka_host, settings.broker.kafka_port, server.accept)
            broker.advertised = (settings.broker.advertised_host, listener.port)
            yield Serving(listener.host, listener.port, broker, store, metrics)
            listener.close()
            with trio.move_on_after(DRAIN_SECONDS):
                await server.drain()
            nursery.cancel_scope.cancel()
    finally:
        entries.close()
        records.close()


async def _collect(garbage: GarbageCollector) -> None:
    """A collection out of turn; what hinders it is tried again at the next regular one."""
    with suppress(MetadataError, DiskFull):
        await garbage.collect()


async def _stop_with(error: DiskFailed) -> None:
    raise error
